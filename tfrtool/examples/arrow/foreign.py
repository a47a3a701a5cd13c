"""Tables of any Arrow types as columns of features."""

import pyarrow as pa

from tfrtool.errors import SchemaError
from tfrtool.examples.arrow.columns import EXACT, Column, Columns, Form
from tfrtool.examples.example import DType, PayloadKind, feature_key


def foreign_columns(schema: pa.Schema) -> tuple[Columns, tuple[str, ...]]:
    """Return the columns that hold the rows of any schema, and notes on what changes.

    Raises:
        SchemaError: no feature holds a column; the error names it.
    """
    columns = []
    for field in schema:
        held, form = field.type, Form.SCALAR
        if pa.types.is_list(held) or pa.types.is_large_list(held):
            held, form = held.value_type, Form.LIST
        if pa.types.is_integer(held) or pa.types.is_boolean(held):
            dtype = DType.INT64
        elif pa.types.is_floating(held):
            dtype = DType.FLOAT32
        elif pa.types.is_string(held) or pa.types.is_binary(held):
            dtype = DType.STRING
        else:
            raise SchemaError(f"no feature holds the column {field.name!r}", found=field.type)
        columns.append(Column(key=feature_key(field.name), form=form, dtype=dtype))
    return Columns(PayloadKind.EXAMPLE, tuple(columns)), ()


def conform(batch: pa.RecordBatch, columns: Columns, first_row: int) -> pa.RecordBatch:
    """Return a batch of any Arrow types as one of these columns.

    Raises:
        SchemaError: a value that no feature holds; the error names the column and the row.
    """
    schema = columns.to_arrow(exact=EXACT in batch.schema.names)
    try:
        arrays = [batch.column(field.name).cast(field.type) for field in schema]
    except (pa.ArrowException, KeyError) as error:
        raise SchemaError(f"rows from {first_row}: {error}") from error
    return pa.record_batch(arrays, schema=schema)
