"""Values of JSON as Arrow takes them."""

import base64
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from tfrtool.examples.arrow.columns import TYPES
from tfrtool.examples.dtypes import FLOAT32_END, INT64, as_dtype
from tfrtool.examples.example import DType
from tfrtool.sources.formats.cell_types import NULL_IN_LIST

_DTYPES = {kind.id: dtype for dtype, kind in TYPES.items()} | {pa.string().id: DType.STRING}
"""By the numbers of Arrow's types: to hash a type takes a microsecond."""

Read = Callable[[Any], Any]


def json_reader(
    kind: pa.DataType, *, only_known_keys: bool = True, fills_missing: bool = False
) -> Read:
    """Return what makes the Arrow value that `as_json` converted to a value of JSON.

    It raises a `ValueError` if the type can't hold the value. A single value stands for a list.

    Args:
        kind: the type in Arrow.
        only_known_keys: whether objects with keys that no field has are an error.
        fills_missing: whether a struct in another one that lacks it has null in each field.
    """
    types = pa.types
    if types.is_list(kind) or types.is_fixed_size_list(kind):
        read = json_reader(kind.value_type, only_known_keys=only_known_keys)
        size = kind.list_size if types.is_fixed_size_list(kind) else None
        return partial(_read_list, read, size, types.is_nested(kind.value_type))
    if types.is_struct(kind):
        options = {"only_known_keys": only_known_keys, "fills_missing": fills_missing}
        members: dict[str, tuple[Read, Any]] = {
            one.name: (
                json_reader(one.type, **options),
                {} if fills_missing and types.is_struct(one.type) else None,
            )
            for one in kind
        }
        return partial(_read_object, kind, members, only_known_keys)
    if types.is_map(kind):
        read_pair = json_reader(kind.key_type), json_reader(kind.item_type)
        return lambda value: (
            value
            and [
                tuple(read(one) for read, one in zip(read_pair, pair, strict=True))
                for pair in value
            ]
        )
    dtype = _DTYPES.get(kind.id)
    if dtype is not None:
        return {
            DType.INT64: _read_int64,
            DType.FLOAT32: _read_float32,
            DType.STRING: _read_string,
        }[dtype]
    return partial(_read_other, kind)


def _read_list(read: Read, size: int | None, holds_null: bool, value: Any) -> Any:
    if value is None:
        return None
    values = [*map(read, value if isinstance(value, list) else [value])]
    if size is not None and len(values) != size:
        raise ValueError(f"expected {size} values, found {len(values)}")
    if not holds_null and None in values:
        raise ValueError(NULL_IN_LIST)
    return values


def _read_object(
    kind: pa.DataType, members: Mapping[str, tuple[Read, Any]], only_known_keys: bool, value: Any
) -> Any:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _type_error(kind, value)
    if only_known_keys and (unknown := value.keys() - members.keys()):
        raise ValueError(f"unknown key {min(unknown)!r}")
    return {name: read(value.get(name, missing)) for name, (read, missing) in members.items()}


def _read_int64(value: Any) -> Any:
    if (type(value) is int and value in INT64) or value is None:
        return value
    return as_dtype(value, DType.INT64)


def _read_float32(value: Any) -> Any:
    if (type(value) is float and abs(value) < FLOAT32_END) or value is None:
        return value
    return as_dtype(value, DType.FLOAT32)


def _read_string(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, dict) and list(value) == ["base64"]:
        if not isinstance(value["base64"], str):
            raise ValueError("base64 must be a string")
        return base64.b64decode(value["base64"], validate=True)
    return as_dtype(value, DType.STRING)


def _read_other(kind: pa.DataType, value: Any) -> Any:
    types = pa.types
    if value is None:
        return None
    if types.is_float64(kind):
        return float(value)
    if types.is_integer(kind):
        return int(value)
    if types.is_boolean(kind) and isinstance(value, int):
        return bool(value)
    raise _type_error(kind, value)


def _type_error(kind: pa.DataType, value: Any) -> ValueError:
    return ValueError(f"{kind} can't hold this {type(value).__name__}")
