"""What the records of a dataset must hold, in the terms of TensorFlow Metadata's ``Schema``.

The JSON form has the same names. Only what is checked is read; the rest is listed.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tfrtool.errors import SchemaError, UsageError, os_errors_as, printable
from tfrtool.examples.content import decode_text
from tfrtool.examples.example import DType, is_utf8
from tfrtool.examples.fields import Struct
from tfrtool.examples.schema import FeatureSpec, Schema
from tfrtool.examples.schema_fold import DISTINCT_VALUES, FeatureStatistics
from tfrtool.features.tfx_schema import TFX_TYPES, tfx_details, tree_of_tfx
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.opening import read_bounded

SEQUENCE = "##SEQUENCE##"
"""The struct that holds the feature lists of a SequenceExample, as TFDV has it."""

_FREQUENT = 5
"""Records that have each of the values, at least, if these become a domain."""

_DTYPES: dict[str, DType | None] = {name: dtype for dtype, name in TFX_TYPES.items()}
_UNCHECKED_STAGES = ("PLANNED", "ALPHA", "DEPRECATED", "DEBUG_ONLY", "DISABLED")
"""Stages of features that TFDV doesn't check either."""

_IGNORED = {"annotation", "in_environment", "not_in_environment", "name", "is_categorical"}
_RANGES = ("bool_domain", "int_domain")
_MEANINGS = ("image_domain", "natural_language_domain")
"""Domains that require nothing if they are empty."""
_PATHS_LISTED = 20

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFeature:
    """What is required of one feature.

    Attributes:
        name: name of the feature.
        dtype: type of its values, or None for any.
        is_list: whether it is a feature list of a SequenceExample.
        min_fraction, min_count: in how many records it must be, at least.
        counts: the fewest and the most values in a record; of a feature list, steps.
        step_counts: the fewest and the most values in a step of a feature list.
        shape: sizes, instead of ``counts``.
        low, high: range of numbers.
        is_bool: whether the range is that of a ``bool_domain``.
        disallow_nan, disallow_inf: whether numbers must be numbers, and finite.
        domain: all allowed values of strings, or None for any.
        min_domain_mass: the fraction of values that must be in the domain.
        checked: whether anything is required of it; if not, it may be there.
    """

    name: str
    dtype: DType | None = None
    is_list: bool = False
    min_fraction: float = 0.0
    min_count: int = 0
    counts: tuple[int, int | None] = (0, None)
    step_counts: tuple[int, int | None] = (0, None)
    shape: tuple[int, ...] | None = None
    low: float | None = None
    high: float | None = None
    is_bool: bool = False
    disallow_nan: bool = False
    disallow_inf: bool = False
    domain: frozenset[bytes] | None = None
    min_domain_mass: float = 1.0
    checked: bool = True

    @property
    def is_single(self) -> bool:
        """Whether a record has at most one value."""
        most = self.counts[1] if self.shape is None else math.prod(self.shape)
        return most == 1 and not self.is_list

    @classmethod
    def from_spec(cls, spec: FeatureSpec) -> "DataFeature":
        """Return what a feature must hold so that TensorFlow can parse it."""
        span, shape = (0, None) if spec.size is None else (spec.size, spec.size), None
        if spec.shape and not spec.is_list:
            shape = spec.shape
        return cls(
            name=spec.name,
            dtype=spec.dtype,
            is_list=spec.is_list,
            min_fraction=float(spec.default is None and spec.shape is not None),
            counts=(0, None) if spec.is_list else span,
            step_counts=span if spec.is_list else (0, None),
            shape=shape,
        )


@dataclass(frozen=True, slots=True)
class DataSchema:
    """Requirements on the features of records.

    Attributes:
        features: what is required of each feature.
        unchecked: constraints in a file that tfrtool doesn't check.
    """

    features: tuple[DataFeature, ...]
    unchecked: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "DataSchema":
        """Read what `tfrtool inspect schema` emits as ``schema``, ``pbtxt`` or ``json``.

        The first two are a ``schema.pbtxt`` of TensorFlow Metadata, and the same as JSON.

        Raises:
            UsageError: the file can't be read.
            SchemaError: it isn't a schema.
        """
        with os_errors_as(UsageError, path):
            data = read_bounded(path)
        with _schema_errors(path):
            text = data.decode()
            if (specs := _specs(text)) is not None:
                return cls(tuple(map(DataFeature.from_spec, specs)))
            return cls(*_parsed(schema_content(text)))


def read_tfx_tree(path: str | os.PathLike[str]) -> tuple[Struct, tuple[str, ...]]:
    """Return the fields that a schema of TensorFlow Metadata describes, and what they lack.

    The errors are those of `DataSchema.read`.
    """
    with os_errors_as(UsageError, path):
        data = read_bounded(path)
    with _schema_errors(path):
        return tree_of_tfx(schema_content(data.decode()))


@contextmanager
def _schema_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise errors about the content of a file as a `SchemaError`."""
    from google.protobuf import json_format, text_format

    try:
        yield
    except SchemaError as error:
        error.path = os.fspath(path)
        raise
    except (ValueError, json_format.Error, text_format.Error, RecursionError) as error:
        reason = printable(str(error).partition("\n")[0])[:300].rstrip(". ")
        what = f"invalid schema: {reason}"
        form = "what tfrtool inspect schema emits, or a tensorflow.metadata.v0.Schema"
        raise SchemaError(what, path=os.fspath(path), expected=form) from error


def schema_content(text: str) -> Json:
    """Return a text proto, or the same as JSON, as JSON values."""
    from google.protobuf import json_format, text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    if text.lstrip()[:1] == "{":
        proto = json_format.Parse(text, schema_pb2.Schema())
    else:
        proto = text_format.Parse(text, schema_pb2.Schema())
    content: Json = json_format.MessageToDict(proto, preserving_proto_field_name=True)
    return content


def _specs(text: str) -> Schema | None:
    """Return a schema of TensorFlow's feature descriptions; None for another form."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    items = content.get("feature") if isinstance(content, dict) else None
    if isinstance(items, list) and not any("dtype" in one for one in items if one):
        return None
    return Schema.from_json(text)


def _parsed(content: Json) -> tuple[tuple[DataFeature, ...], tuple[str, ...]]:
    """Return the features of a schema, and what isn't checked of it."""
    known = {key: {one.get("name"): one for one in content.pop(key, ())} for key in _DOMAINS}
    unchecked = CappedList[str](_PATHS_LISTED)
    found: dict[tuple[str, bool], DataFeature] = {}
    for data, is_list in _feature_items(content.pop("feature", ())):
        name = data.get("name", "")
        if not name or (name, is_list) in found:
            raise ValueError(
                f"feature {name!r} is listed twice" if name else "a feature has no name"
            )
        if "domain" in data:
            title = data.pop("domain")
            kind = next((key for key in _DOMAINS if title in known[key]), None)
            if kind is None:
                raise ValueError(f"feature {name!r} has an unknown domain, {title!r}")
            data[kind] = known[kind][title]
        found[name, is_list] = _feature(data, is_list)
        for key in data.keys() - _IGNORED:
            unchecked.add(f"{key} of {name!r}")
    for key in content.keys() - {"default_environment", "represent_variable_length_as_ragged"}:
        unchecked.add(key)
    return tuple(found.values()), tuple(sorted(unchecked.entries))


_DOMAINS = ("string_domain", "int_domain", "float_domain")


def _feature_items(items: Iterable[Json]) -> Iterator[tuple[Json, bool]]:
    for data in items:
        if data.get("name") == SEQUENCE:
            for one in data.get("struct_domain", {}).get("feature", ()):
                yield one, True
        else:
            yield data, False


def _feature(data: Json, is_list: bool) -> DataFeature:
    """Return what is required, and take it out of ``data``."""
    name, type_name = data.pop("name"), data.pop("type", "")
    presence, counts = data.pop("presence", {}), [data.pop("value_count", {})]
    nested = data.pop("value_counts", {}).get("value_count", ())
    counts = [*(nested or counts), {}]
    shape = data.pop("shape", None)
    numbers = [data.pop(key, None) for key in ("int_domain", "float_domain", "bool_domain")]
    is_bool = numbers[2] is not None
    span = {"min": 0, "max": 1} if is_bool else numbers[0] or numbers[1] or {}
    texts = data.pop("string_domain", None)
    for meaning in _MEANINGS:
        if not data.get(meaning, True):
            del data[meaning]
    mass = data.pop("distribution_constraints", {}).get("min_domain_mass", 1.0)
    stage, deprecated = data.pop("lifecycle_stage", ""), data.pop("deprecated", False)
    sizes = None
    if shape is not None:
        dimensions = shape.get("dim", ())
        sizes = tuple(int(one.get("size", 0)) for one in dimensions if "size" in one)
        sizes = sizes if len(sizes) == len(dimensions) else None
    number = float if numbers[1] is not None else int
    return DataFeature(
        name=name,
        dtype=_DTYPES.get(type_name),
        is_list=is_list,
        min_fraction=float(presence.get("min_fraction", 0)),
        min_count=int(presence.get("min_count", 0)),
        counts=_span(counts[0]),
        step_counts=_span(counts[1]),
        shape=sizes,
        low=number(span["min"]) if "min" in span else None,
        high=number(span["max"]) if "max" in span else None,
        is_bool=is_bool,
        disallow_nan=bool(span.get("disallow_nan")),
        disallow_inf=bool(span.get("disallow_inf")),
        domain=None if texts is None else frozenset(map(str.encode, texts.get("value", ()))),
        min_domain_mass=float(mass),
        checked=not deprecated and stage not in _UNCHECKED_STAGES,
    )


def _span(count: Mapping[str, Any]) -> tuple[int, int | None]:
    return int(count.get("min", 0)), int(count["max"]) if "max" in count else None


def schema_json(
    features: Sequence[FeatureStatistics],
    records: int,
    classes: Mapping[str, int],
    declared: Struct | None = None,
) -> tuple[Json, list[str]]:
    """Return a schema that all records fit, as JSON, and the features that it can't name.

    Args:
        features: what was seen of each feature.
        records: number of records.
        classes: number of class names of each label feature that has any.
        declared: what features.json says that records mean.
    """
    details = {} if declared is None else tfx_details(declared)
    context, lists, skipped = list[Json](), list[Json](), list[str]()
    for one in features:
        if not is_utf8(one.key):
            skipped.append(one.name)
        else:
            data = _feature_json(one, records, classes)
            if not one.is_list and not one.conflict:
                data = _detailed(data, one, records, details.get(one.name, {}))
            (lists if one.is_list else context).append(data)
    if lists:
        struct = {"name": SEQUENCE, "type": "STRUCT", "struct_domain": {"feature": lists}}
        context.append(struct)
    return {"feature": context}, skipped


def _feature_json(feature: FeatureStatistics, records: int, classes: Mapping[str, int]) -> Json:
    data: Json = {"name": feature.name}
    if feature.dtype is not None and not feature.conflict:
        data["type"] = TFX_TYPES[feature.dtype]
    share = math.floor(10 * feature.present / max(records, 1)) / 10
    data["presence"] = {"min_fraction": share, "min_count": 1} if feature.present else {}
    spans = [feature.lengths] + ([feature.steps or (0, 0)] if feature.is_list else [])
    counts = [{"min": low, **({"max": high} if low == high else {})} for low, high in spans]
    if feature.is_list:
        data["value_counts"] = {"value_count": counts}
    elif feature.present:
        data["value_count"] = counts[0]
    values = feature.range.distinct
    if feature.conflict or not values:
        return data
    if feature.dtype is DType.INT64 and (count := classes.get(feature.name)):
        if all(0 <= int(value) < count for value in values):
            data["int_domain"] = {"min": 0, "max": count - 1, "is_categorical": True}
    elif feature.dtype is DType.STRING and len(values) <= DISTINCT_VALUES:
        texts = [decode_text(value) for value in values if isinstance(value, bytes)]
        if None not in texts and min(values.values()) >= _FREQUENT:
            data["string_domain"] = {"value": sorted(filter(None, texts))}
    return data


def _detailed(data: Json, feature: FeatureStatistics, records: int, details: Json) -> Json:
    """Return a feature with those of some details that all records fit."""
    found, size = dict(details), feature.size(records)
    low, high = feature.range.minimum, feature.range.maximum
    sizes = [one["size"] for one in found.get("shape", {}).get("dim", ())]
    if sizes and math.prod(sizes) == size:
        del data["value_count"]
    else:
        found.pop("shape", None)
    if "string_domain" in data:
        found.pop("natural_language_domain", None)
    domain = {"min": 0, "max": 1} if "bool_domain" in found else found.get("int_domain")
    if domain is not None:
        if isinstance(low, int) and isinstance(high, int) and _fits(low, high, domain):
            data.pop("int_domain", None)
        else:
            found = {key: value for key, value in found.items() if key not in _RANGES}
    return data | found


def _fits(low: int, high: int, domain: Json) -> bool:
    return bool(domain["min"] <= low and high <= domain["max"])


def schema_text(content: Json, form: str) -> str:
    """Return a schema as JSON ("schema") or as a text proto ("pbtxt")."""
    if form == "schema":
        return json.dumps(content, indent=2)
    from google.protobuf import json_format, text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    proto = json_format.ParseDict(content, schema_pb2.Schema())
    return text_format.MessageToString(proto, as_utf8=True).rstrip("\n")
