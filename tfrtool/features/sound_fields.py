"""Fields that are sound: encoded, or samples whose rate another feature has.

Hugging Face's datasets take sound as encoded files, so samples become WAV files there.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from tfrtool.errors import SchemaError
from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import DType, Feature
from tfrtool.examples.fields import Field, Kind, ListOf, Struct, Values
from tfrtool.examples.sound import is_sound_name, rate_feature, rate_of, samples_of, wav_of
from tfrtool.features.first_examples import FirstExamples
from tfrtool.features.leaf_arrays import numpy_dtype

_AS_NUMBERS = "use --as-stored to write samples as numbers"

RATE = "rate"
"""The key of a type's info under which is the sample rate, or the feature that has it."""


def sound_types(first: FirstExamples) -> dict[str, str]:
    """Return the types of the features that are sound, by the first records."""
    types, features = dict[str, str](), _features(first)
    for name, feature in sorted(features.items()):
        if feature.dtype is DType.STRING:
            strings = [value for found in first.values(name) for value in found]
            if all(describe_bytes(bytes(one)).startswith("audio/") for one in strings):
                types[name] = "audio"
        elif feature.dtype is not None and len(feature.values) > 1 and is_sound_name(name):
            rate = rate_feature(features, name)
            types |= {} if rate is None else {name: f"{feature.dtype.value}[*]"}
    return types


def with_rates(root: Struct, first: FirstExamples) -> Struct:
    """Return a tree whose samples know the feature with their rate, or their rate."""
    features = _features(first)

    def rated(name: str, item: Field) -> Field:
        if isinstance(item, ListOf) and isinstance(item.item, Values) and not item.item.shape:
            is_sound = "audio" in item.item.info or is_sound_name(name)
            flat = replace(item.item, shape=(None,))
            changed = rated(name, flat) if is_sound and item.item.kind is Kind.NUMBER else flat
            return item if changed is flat else changed
        if not isinstance(item, Values) or item.kind is not Kind.NUMBER or not item.shape:
            return item
        declared = item.info.get("audio") or {}
        text = str(declared.get("sampleRate", "")) if isinstance(declared, Mapping) else ""
        rate: int | str | None = rate_of([int(text)]) if text.isdecimal() else None
        if rate is None and ("audio" in item.info or is_sound_name(name)):
            rate = rate_feature(features, name)
        is_sound = rate is not None and len(item.shape) <= 2
        return replace(item, info={**item.info, RATE: rate}) if is_sound else item

    return Struct({name: rated(name, item) for name, item in root.fields.items()})


def is_rated(item: Field) -> bool:
    """Return whether a field is samples of a known rate."""
    return isinstance(item, Values) and RATE in item.info


def wav_files(item: Field, samples: pa.Array, rows: pa.RecordBatch) -> pa.Array:
    """Return samples as WAV files, null where there are none.

    ``rows`` has the column with the sample rates.

    Raises:
        SchemaError: a record has no sample rate, or has numbers that are no samples.
    """
    rate = item.info[RATE] if isinstance(item, Values) else None
    rates = [rate] * len(samples)
    if isinstance(rate, str):
        if rate not in rows.schema.names:
            what = f"no column {rate!r}, which has the sample rate"
            raise SchemaError(what, hint=_AS_NUMBERS)
        rates = rows.column(rate).to_pylist()
    files = list[bytes | None]()
    for value, hertz in zip(samples, rates, strict=True):
        known = rate_of(hertz if isinstance(hertz, list) else [hertz])
        if value.is_valid and known is None:
            what = "a record has samples, but no sample rate"
            raise SchemaError(what, hint=_AS_NUMBERS)
        try:
            is_sound = known is not None and value.is_valid
            file = wav_of(_numbers(value.values), known or 0, exact=True) if is_sound else None
        except ValueError as error:
            what = f"samples can't become sound: {error}"
            raise SchemaError(what, hint=_AS_NUMBERS) from error
        files.append(file)
    return pa.array(files, pa.binary())


def samples_of_files(item: Field, files: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return what `wav_files` made files of; ``kind`` is the type of the samples.

    `ValueError` if a file is of another program.
    """
    values = item if isinstance(item, Values) else Values(kind=Kind.BYTES)
    samples = list[Any]()
    for file in files.to_pylist():
        found = None if file is None else samples_of(file)
        samples.append(None if found is None else found.astype(numpy_dtype(values)).tolist())
    return pa.array(samples, kind)


def _numbers(array: pa.Array) -> NDArray[Any]:
    """Return the samples of a record, or of its channels."""
    channels = 0
    while pa.types.is_fixed_size_list(array.type) or pa.types.is_list(array.type):
        channels = array.type.list_size if pa.types.is_fixed_size_list(array.type) else 0
        array = array.flatten()
    numbers: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return numbers.reshape(-1, channels) if channels else numbers


def _features(first: FirstExamples) -> dict[str, Feature]:
    """Return the first values of each feature."""
    return {
        name: Feature(dtype=first.stored_type(name), values=tuple(found[0]))
        for name in first.keys
        if first.stored_type(name) is not None and (found := first.values(name))
    }
