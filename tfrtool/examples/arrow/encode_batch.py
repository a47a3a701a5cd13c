"""Record batches as payloads."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tfrtool.examples.arrow.columns import CONTEXT, EXACT, LISTS, Column, Columns, Form
from tfrtool.examples.example import DTYPES, Feature, PayloadKind, encode_example, feature_name
from tfrtool.examples.proto import example_pb2 as pb


def encode_batch(batch: pa.RecordBatch, columns: Columns) -> list[bytes]:
    """Return the payloads of a record batch.

    They are the bytes of `encode_example`; or those of the column ``_payload``, where it is there.
    """
    if EXACT in batch.schema.names:
        return list(batch.column(EXACT).to_pylist())
    if columns.kind not in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE):
        return list(batch.column(0).to_pylist())
    payloads = []
    for row in batch.to_struct_array().to_pylist():
        context = row[CONTEXT] if columns.kind is PayloadKind.SEQUENCE_EXAMPLE else row
        named = list(zip(columns.names, columns.columns, strict=True))
        payload = _encoded(
            {
                feature_name(column.key): _feature(column, context[name])
                for name, column in named
                if not column.is_list and context[name] is not None
            }
        )
        lists = row[LISTS] if columns.kind is PayloadKind.SEQUENCE_EXAMPLE else None
        if lists is not None:
            message = pb.SequenceExample.FromString(payload)
            message.feature_lists.SetInParent()
            for name, column in sorted(named, key=lambda pair: (*pair[1].key, 256)):
                if column.is_list and lists[name] is not None:
                    entry = message.feature_lists.feature_list.add(key=column.key)
                    entry.value.SetInParent()
                    for step in lists[name]:
                        one = _encoded({"": _feature(column, step)})
                        held = pb.SequenceExample.FromString(one).context.feature[0].value
                        entry.value.feature.append(held)
            payload = message.SerializeToString(deterministic=True)
        payloads.append(payload)
    return payloads


def _encoded(features: Mapping[str, Feature]) -> bytes:
    return encode_example(features)


def _feature(column: Column, cell: Any) -> Feature:
    if cell is None:
        return Feature(dtype=None, values=())
    if column.form is Form.FEATURE:
        for name, dtype in DTYPES.items():
            if cell[name] is not None:
                return Feature(dtype=dtype, values=tuple(cell[name]))
        return Feature(dtype=None, values=())
    return Feature(
        dtype=column.dtype, values=(cell,) if column.form is Form.SCALAR else tuple(cell)
    )
