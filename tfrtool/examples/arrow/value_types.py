"""Types of a table's values that a feature doesn't have, and how features store their values.

Times are int64, in microseconds since 1970; decimals are text with all their digits.
"""

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tfrtool.examples.arrow.arrays import list_array, struct_array

TYPE_WORDS = "int64, float32, string, timestamp, timestamp(ZONE), date or decimal(DIGITS,SCALE)"

_WORD = re.compile(
    r"(timestamp)(?:\(([A-Za-z0-9_+:/-]{1,64})\))?|(date)|decimal\((\d{1,2}),(\d{1,2})\)"
)
_MICROSECONDS = pa.timestamp("us")
_MOST_DIGITS = 38, 76
"""Of a decimal in 128 and in 256 bits."""


def logical_type(word: str) -> pa.DataType:
    """Return the Arrow type that a word such as ``timestamp(UTC)`` names; `ValueError` if none."""
    match = _WORD.fullmatch(word)
    if match is None:
        raise ValueError(f"invalid type {word!r}")
    if match[4] is None:
        return pa.date32() if match[3] else pa.timestamp("us", match[2])
    digits, scale = int(match[4]), int(match[5])
    if not (1 <= digits <= _MOST_DIGITS[1] and scale <= digits):
        raise ValueError(f"invalid type {word!r}")
    make = pa.decimal128 if digits <= _MOST_DIGITS[0] else pa.decimal256
    return make(digits, scale)


def logical_word(kind: pa.DataType) -> str | None:
    """Return the word for a type of times or decimals; None for any other type."""
    types = pa.types
    word = None
    if types.is_timestamp(kind):
        word = f"timestamp({kind.tz})" if kind.tz else "timestamp"
    elif types.is_date(kind):
        word = "date"
    elif types.is_decimal(kind):
        word = f"decimal({kind.precision},{kind.scale})"
    return word if word and _WORD.fullmatch(word) else None


def texts_of(array: pa.Array) -> pa.Array:
    """Return times and decimals as text: ISO 8601, and all digits without an exponent."""
    if pa.types.is_decimal(array.type):
        texts = [None if one is None else format(one, "f") for one in array.to_pylist()]
        return pa.array(texts, pa.string())
    return array.cast(pa.string())


def shown_texts(array: pa.Array) -> pa.Array:
    """Return times and decimals as SQL shows them: fractions without zeros at the end, in UTC."""
    import pyarrow.compute as pc

    kind = array.type
    if not pa.types.is_timestamp(kind):
        return texts_of(array)
    texts = array.cast(pa.timestamp("us")).cast(pa.string())
    texts = pc.replace_substring_regex(texts, r"\.?0*$", "")
    return pc.binary_join_element_wise(texts, "+00" if kind.tz else "", "")


def innermost_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values in lists of any depth."""
    while pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return kind


def short_floats(array: pa.Array) -> pa.Array:
    """Return float32 as doubles, which are written with the fewest digits that identify them."""
    if not pa.types.is_float32(array.type):
        return array
    return array.cast(pa.string()).cast(pa.float64())


def microseconds_of(array: pa.Array) -> pa.Array:
    """Return times as int64; `ValueError` if one has nanoseconds."""
    types, kind = pa.types, array.type
    if types.is_date32(kind):
        array = array.cast(pa.timestamp("s"))
    micros = pa.timestamp("us", getattr(kind, "tz", None))
    if types.is_time(kind) or types.is_duration(kind):
        micros = pa.time64("us") if types.is_time(kind) else pa.duration("us")
    return array.cast(micros).cast(pa.int64())


def as_logical(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values of any type as times or decimals; `ValueError` if one can't be converted."""
    types = pa.types
    if types.is_binary(array.type) or types.is_large_binary(array.type):
        array = array.cast(pa.string())
    if types.is_decimal(kind):
        return (array if types.is_decimal(array.type) else array.cast(pa.string())).cast(kind)
    if types.is_date(kind):
        times = as_logical(array, _MICROSECONDS)
        days = times.cast(kind)
        if not days.cast(_MICROSECONDS).equals(times):
            raise ValueError("a time within a day")
        return days
    if types.is_integer(array.type):
        array = array.cast(pa.int64())
    elif not (types.is_temporal(array.type) or types.is_string(array.type)):
        array = array.cast(pa.string())
    return array.cast(kind)


def map_values(array: pa.Array, function: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return an array with a function applied to its values, at any depth."""
    import pyarrow.compute as pc

    types, kind = pa.types, array.type
    if not types.is_nested(kind):
        return function(array)
    if types.is_struct(kind):
        fields = [map_values(one, function) for one in array.flatten()]
        struct_fields = [
            pa.field(one.name, field.type) for one, field in zip(kind, fields, strict=True)
        ]
        places = np.flatnonzero(np.asarray(array.is_valid()))
        return struct_array(pa.struct(struct_fields), len(array), places, fields)
    if types.is_map(kind):
        keys, items = map_values(array.keys, function), map_values(array.items, function)
        maps = pa.MapArray.from_arrays(array.offsets, keys, items)
        return pc.if_else(array.is_valid(), maps, None)
    inner = map_values(array.flatten(), function)
    places = np.flatnonzero(np.asarray(array.is_valid()))
    counts = np.asarray(pc.fill_null(pc.list_value_length(array), 0))[places]
    return list_array(pa.list_(inner.type), len(array), places, counts, inner)
