"""Payloads as record batches."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tfrtool.examples.arrow.columns import EXACT, Column, Columns, Form
from tfrtool.examples.example import (
    DTYPES,
    Feature,
    PayloadKind,
    decode_example,
    feature_name,
)

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class MisfitError(ValueError):
    """A payload that a table's columns can't hold.

    Attributes:
        index: its place among the payloads that were given, from 0.
        why: the reason, a clause.
    """

    def __init__(self, index: int, why: str) -> None:
        super().__init__(index, why)
        self.index = index
        self.why = why


def decode_batch(
    payloads: Sequence[bytes], columns: Columns, *, exact: bool = False
) -> pa.RecordBatch:
    """Decode payloads into a record batch of these columns and no others.

    Args:
        payloads: all of them Examples, or all SequenceExamples or Examples, as ``columns`` says.
        columns: what to decode; nothing else of a payload is looked at.
        exact: whether to add a column ``_payload`` with the payloads' own bytes.

    Raises:
        MisfitError: a payload that the columns can't hold.
    """
    schema = columns.to_arrow(exact=exact)
    if columns.kind not in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE):
        return pa.record_batch([pa.array(payloads, pa.binary())], schema=schema)
    sequence = columns.kind is PayloadKind.SEQUENCE_EXAMPLE
    rows: list[dict[str, Any]] = []
    for index, payload in enumerate(payloads):
        try:
            example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
        except ValueError as error:
            raise MisfitError(index, str(error)) from error
        context: dict[str, Any] = {}
        lists: dict[str, Any] = {}
        for name, column in zip(columns.names, columns.columns, strict=True):
            try:
                if column.is_list:
                    steps = example.feature_lists.get(feature_name(column.key))
                    lists[name] = steps and [_cell(column, step) for step in steps]
                else:
                    context[name] = _cell(column, _get(example.features, column))
            except ValueError as error:
                why = f"feature {feature_name(column.key)!r}: {error}"
                raise MisfitError(index, why) from error
        if sequence:
            held = lists if example.feature_lists or columns.lists else None
            rows.append({"context": context, "feature_lists": held})
        else:
            rows.append(context)
        if exact:
            rows[-1][EXACT] = payload
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    if not arrays:  # a batch keeps its number of rows only so
        held = pa.StructArray.from_buffers(pa.struct([]), len(rows), [None])
        return pa.RecordBatch.from_struct_array(held).replace_schema_metadata(schema.metadata)
    return pa.record_batch(arrays, schema=schema)


def _get(features: Mapping[str, Feature], column: Column) -> Feature | None:
    return features.get(feature_name(column.key))


def _cell(column: Column, feature: Feature | None) -> Any:
    if column.form is Form.FEATURE:
        if feature is None:
            return None
        return {
            name: list(feature.values) if dtype is feature.dtype else None
            for dtype, name in _NAMES.items()
        }
    if feature is None and column.form is Form.LIST:
        return None
    if feature is not None and feature.dtype is None and column.is_list:
        return None
    if feature is None or feature.dtype is not column.dtype:
        raise ValueError("of another type, or missing")
    if column.form is Form.LIST:
        return list(feature.values)
    if len(feature.values) != 1:
        raise ValueError(f"{len(feature.values)} values where all others have one")
    return feature.values[0]
