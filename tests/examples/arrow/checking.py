"""What payloads hold, to protobuf, and that the Arrow bridge holds the same."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tests.examples.strategies import (
    payloads,
)
from tests.examples.wire import mutants, sequence_mutants
from tfrtool.examples.arrow.columns import Column, Columns
from tfrtool.examples.arrow.decode_batch import decode_batch
from tfrtool.examples.arrow.encode_batch import encode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.arrow.scan import canonical
from tfrtool.examples.example import (
    DType,
    Feature,
    PayloadKind,
    decode_example,
    encode_example,
    feature_name,
)
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.examples.schema_fold import SchemaFold

__all__ = [
    "any_payloads",
    "cells",
    "check",
    "columns_of",
    "content",
    "example",
    "expected_column",
    "table_columns_of",
    "taken",
]

any_payloads = payloads | mutants() | sequence_mutants()


def bits(feature: Feature) -> tuple[object, ...]:
    """Return a feature in a form in which NaN equals itself, and no other NaN."""
    values = tuple(feature.values)
    if feature.dtype is DType.FLOAT32:
        values = tuple(struct.pack(f"<{len(values)}f", *values))
    return feature.dtype, values


def content(payload: bytes) -> tuple[object, ...]:
    """Return what an Example or SequenceExample holds, by protobuf."""
    example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
    lists = pb.SequenceExample.FromString(payload).HasField("feature_lists")
    context = {name: bits(feature) for name, feature in example.features.items()}
    steps = {name: list(map(bits, some)) for name, some in example.feature_lists.items()}
    return context, steps, lists


def taken(some: Sequence[bytes]) -> list[bytes]:
    """Return those that are Examples or SequenceExamples."""
    return [one for one in some if SchemaFold().add_payload(one)]


def columns_of(some: Sequence[bytes]) -> Columns:
    """Return the columns of payloads."""
    fold = ColumnsFold()
    fold.add(some)
    return fold.columns()


def table_columns_of(some: Sequence[bytes]) -> Columns:
    """Return the columns of payloads as people expect them."""
    fold = ColumnsFold()
    fold.add(some)
    return fold.table_columns()


def expected_column(payload: bytes, columns: Columns) -> list[Any]:
    """Return a record's cells as protobuf and Python make them."""
    example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)

    def cell(column: Column, feature: Feature | None) -> Any:
        if feature is None or (feature.dtype is None and column.dtype is not None):
            return None
        values = [
            struct.pack("<f", value)
            if feature.dtype is DType.FLOAT32
            else value.decode()
            if column.is_text and isinstance(value, bytes)
            else value
            for value in feature.values
        ]
        if column.dtype is None:
            names = {"bytes_list": "string", "float_list": "float32", "int64_list": "int64"}
            kind = feature.dtype and feature.dtype.value
            return {name: values if kind == one else None for name, one in names.items()}
        if column.is_single:
            return values[0] if values else None
        return values

    row = []
    for column in columns.columns:
        name = feature_name(column.key)
        if column.is_list:
            steps = example.feature_lists.get(name)
            row.append(None if steps is None else [cell(column, step) for step in steps])
        else:
            row.append(cell(column, example.features.get(name)))
    return row


def cells(batch: pa.RecordBatch, columns: Columns) -> list[list[Any]]:
    """Return a batch's cells in the order of its columns, floats as their bytes."""

    def exact(value: Any) -> Any:
        if isinstance(value, float):
            return struct.pack("<f", value)
        if isinstance(value, list):
            return list(map(exact, value))
        return (
            {name: exact(one) for name, one in value.items()} if isinstance(value, dict) else value
        )

    rows = []
    for row in batch.to_struct_array().to_pylist():
        held = dict(row)
        if columns.kind is PayloadKind.SEQUENCE_EXAMPLE:
            held = (row.get("context") or {}) | (
                row["feature_lists"] or {} if columns.lists else {}
            )
        rows.append([exact(held.get(name)) for name in columns.names])
    return rows


def check(some: list[bytes]) -> None:
    """Payloads become what protobuf makes of them, and payloads with the same content."""
    for infer in (columns_of, table_columns_of):
        check_columns(some, infer)


def check_columns(some: list[bytes], infer: Callable[[Sequence[bytes]], Columns]) -> None:
    """Do what `check` does, with these columns."""
    columns = infer(some)
    batch = decode_batch(some, columns)
    batch.validate(full=True)
    assert batch.num_rows == len(some)
    assert Columns.from_arrow(batch.schema) == columns
    encoded = encode_batch(batch, columns)
    if columns.parsed:
        assert cells(batch, columns) == [expected_column(one, columns) for one in some]
        assert [content(one) for one in encoded] == [content(one) for one in some]
        assert infer(encoded) == columns
        again = decode_batch([canonical(one) for one in some], columns)
        assert again.equals(batch) or "nan" in str(batch.to_struct_array().to_pylist())
    else:
        assert encoded == some
    if columns.kind is PayloadKind.EXAMPLE:
        # Python makes quiet NaNs of signalling ones, which columns keep.
        rewritten = [encode_example(decode_example(one).features) for one in some]
        assert encoded == rewritten or "nan" in str(batch.to_struct_array().to_pylist())
        half = columns.select(columns.names[::2])
        assert cells(decode_batch(some, half), half) == [expected_column(one, half) for one in some]
    assert encode_batch(decode_batch(some, columns, exact=True), columns) == some
    part = batch.slice(1)
    assert encode_batch(part, columns) == encoded[1:]


def example(**features: Feature) -> bytes:
    """Return an Example."""
    return encode_example(features)
