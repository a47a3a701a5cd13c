"""Columns of tables for the folders of records, such as ``dt=2024-01-01``."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from tfrtool.convert.formats.convert_request import ConvertRequest
from tfrtool.convert.formats.record_format import Content
from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.fields import Field, Kind, Struct, Values
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.flat_fields import tree_of_flat
from tfrtool.inspection.rows.batches import LABEL_NAME
from tfrtool.inspection.rows.extra_columns import ExtraColumn, ExtraColumns
from tfrtool.records.partitions import partition_columns
from tfrtool.storage.remote_path import AnyPath


def without_folders(
    select: Sequence[str], columns: Columns, shards: Sequence[AnyPath]
) -> Sequence[str]:
    """Return the selected columns that records store."""
    names = {one.name for one in partition_columns(shards)}
    return [name for name in select if name in columns.names or name not in names]


def folder_columns(request: ConvertRequest, content: Content) -> ExtraColumns:
    """Return the selected columns that the folders of records are; none if payloads are kept."""
    columns, select = content.columns, request.options.select
    is_feature_table = columns.kind is PayloadKind.EXAMPLE
    if not request.makes_table or content.exact or not is_feature_table:
        return ExtraColumns()
    extra = ExtraColumns.of(request.files.paths, [*columns.names, LABEL_NAME])
    return ExtraColumns(tuple(x for x in extra.columns if not select or x.name in select))


def with_folders(content: Content, extra: ExtraColumns) -> Content:
    """Return content whose last columns are those of folders."""
    columns = content.columns
    if not isinstance(columns, FeatureColumns):
        columns = FeatureColumns.of(tree_of_flat(columns))
    fields = {**columns.root.fields, **folder_fields(extra)}
    return replace(content, columns=replace(columns, root=Struct(fields)), tfds=None)


def folder_fields(extra: ExtraColumns) -> dict[str, Field]:
    """Return what the columns of folders hold, by name."""
    return {one.name: _values(one) for one in extra.columns}


def _has_nulls(column: ExtraColumn) -> bool:
    return any(value is None for value in column.values.values())


def _values(column: ExtraColumn) -> Values:
    info = {"optional": True} if _has_nulls(column) else {}
    if pa.types.is_string(column.kind):
        return Values(kind=Kind.TEXT, info=info)
    if pa.types.is_date(column.kind):
        return Values(kind=Kind.TIME, dtype="date", info=info)
    return Values(kind=Kind.NUMBER, dtype="int64", info=info)
