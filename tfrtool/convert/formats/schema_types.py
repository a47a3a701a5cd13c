"""The types of the columns of a conversion, as the file of --schema has them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from tfrtool.convert.convert_options import ConvertOptions
from tfrtool.errors import SchemaError, UsageError
from tfrtool.examples.arrow.columns import Columns, check_shape
from tfrtool.examples.arrow.value_types import TYPE_WORDS, logical_type
from tfrtool.examples.example import DType, feature_key
from tfrtool.examples.fields import (
    Field,
    Kind,
    ListOf,
    Null,
    Struct,
    Values,
    leaves_of,
    stored_values,
)
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.stored_layout import stored_dtype
from tfrtool.inspection.schema.data_schema import DataFeature, DataSchema
from tfrtool.storage.arguments import as_path
from tfrtool.storage.remote_path import AnyPath


class ChosenTypes(NamedTuple):
    """The types that options give columns.

    Attributes:
        casts: by the names of columns.
        schema: the content of the file of --schema.
    """

    casts: Mapping[str, Values]
    schema: DataSchema | None


def chosen_types(options: ConvertOptions) -> ChosenTypes:
    """Return the types of --cast and --schema; `UsageError` if they are invalid."""
    casts = {name: _cast_type(word) for name, word in (options.cast or {}).items()}
    schema = None if options.schema is None else _read_schema(as_path(options.schema))
    return ChosenTypes(casts, schema)


def _read_schema(path: AnyPath) -> DataSchema:
    """Read the file of --schema; `UsageError` if no columns have its types."""
    try:
        schema = DataSchema.read(path)
    except SchemaError as error:
        hint = "print one with inspect schema --emit json"
        raise UsageError(error.what, path=path, hint=hint) from error
    for spec in schema.features:
        try:
            check_shape(_tensor_shape(spec))
        except ValueError as error:
            raise UsageError(f"feature {spec.name!r}: {error}", path=path) from error
    return schema


def schema_types(schema: DataSchema) -> list[dict[str, Any]]:
    """Return what a conversion uses of a schema, as JSON values."""
    return [
        {
            "name": spec.name,
            "dtype": None if spec.dtype is None else spec.dtype.value,
            "list": spec.is_list,
            "single": spec.is_single,
            "shape": [*_tensor_shape(spec)],
        }
        for spec in schema.features
    ]


def values_of(dtype: DType) -> Values:
    """Return values that features store as they are; of strings, text."""
    return Values.parse("text" if dtype is DType.STRING else dtype.value)


def _cast_type(word: str) -> Values:
    """Read a type of ``--cast``; `UsageError` if it is none."""
    try:
        if word in (dtype.value for dtype in DType):
            return values_of(DType(word))
        logical_type(word)
        return Values(kind=Kind.TIME, dtype=word)
    except ValueError as error:
        raise UsageError(f"invalid --cast {word!r}", expected=f"one of {TYPE_WORDS}") from error


def apply_schema(columns: Columns, schema: DataSchema, casts: Mapping[str, Values]) -> Columns:
    """Return the columns with the types of a schema that has the same features, or their casts."""
    if isinstance(columns, FeatureColumns):
        known = columns.root.fields
        specs = [spec for spec in schema.features if spec.name in known]
        fields = {
            one.name: _fixed_field(known[one.name], one, casts.get(one.name)) for one in specs
        }
        return FeatureColumns.of(Struct(fields))
    steps = {(feature_key(spec.name), spec.is_list): spec for spec in schema.features}
    fixed = []
    for one in columns.columns:
        spec = steps.get((one.key, one.is_list))
        if spec is None:
            continue
        is_single = one.is_scalar if one.is_list else spec.is_single
        info = one.values.info if one.is_single else Null.ABSENT.info
        values = stored_values(spec.dtype or one.dtype or DType.STRING, info if is_single else {})
        is_text = one.dtype is not DType.STRING or one.is_text or one.values.info.get("is_utf8")
        if values.kind is Kind.BYTES and is_text:
            values = replace(values, kind=Kind.TEXT)
        fixed.append(replace(one, item=values if is_single else ListOf(item=values)))
    return Columns(columns.kind, tuple(fixed))


def _fixed_field(item: Field, spec: DataFeature, cast: Values | None) -> Field:
    """Return a field with the type of a schema, or a cast."""
    leaves = [*leaves_of(item)]
    if len(leaves) > 1 or leaves[0].path:
        raise UsageError(f"--schema doesn't apply to column {spec.name!r}, which has structs")
    values = replace(leaves[0].values, shape=())
    dtype = spec.dtype or stored_dtype(values) or DType.STRING
    is_text = values.kind is Kind.TEXT or bool(values.info.get("is_utf8"))
    is_text |= stored_dtype(values) is not DType.STRING
    if cast is None:
        string = Values(kind=Kind.TEXT if is_text else Kind.BYTES)
        is_string = dtype is DType.STRING
        values = string if is_string else Values(kind=Kind.NUMBER, dtype=dtype.value)
    if spec.is_single:
        return replace(values, info=leaves[0].values.info or {"optional": True})
    shape = tuple(None if size < 0 else size for size in _tensor_shape(spec))
    if shape:
        return replace(values, shape=shape, info={"optional": True})
    return ListOf(item=values)


def _tensor_shape(spec: DataFeature) -> tuple[int, ...]:
    """Return the shape of a feature with several dimensions; of any other, ``()``."""
    return spec.shape if spec.shape is not None and len(spec.shape) > 1 else ()
