"""A tree of fields in the terms of TensorFlow Metadata's ``Schema``, which TFX uses, and back.

The JSON form has the names of the protocol buffer.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tfrtool.examples.example import DType
from tfrtool.examples.fields import (
    MAX_DEPTH,
    Encoding,
    Field,
    Kind,
    ListOf,
    Struct,
    Values,
    class_count,
    leaves_of,
)
from tfrtool.features.stored_layout import check_tree, is_field_name, stored_leaf

Json = dict[str, Any]

TFX_TYPES = {DType.STRING: "BYTES", DType.INT64: "INT", DType.FLOAT32: "FLOAT"}

_INTEGER_RANGES = {
    f"{sign}int{bits}": (0, (1 << bits) - 1) if sign else (-(1 << bits - 1), (1 << bits - 1) - 1)
    for bits in (8, 16, 32)
    for sign in ("", "u")
}
"""The least and the greatest value of the types that are stored as int64."""

_DOMAINS = ("string_domain", "int_domain", "float_domain")
"""Domains that features can share by name."""

_TEXTS = ("string_domain", "natural_language_domain", "url_domain")


def tfx_details(root: Struct) -> dict[str, Json]:
    """Return what a schema says of stored features besides their types, by name.

    These are the shapes of tensors, and domains: of booleans, labels, narrow integers, images.
    """
    details = dict[str, Json]()
    for leaf in leaves_of(root):
        values, found = leaf.values, Json()
        if values.encoding is not Encoding.NONE:
            continue
        if not leaf.level and values.shape and not {None, 0} & {*values.shape}:
            found["shape"] = {"dim": [{"size": size} for size in values.shape]}
        if values.kind is Kind.BOOL:
            found["bool_domain"] = {}
        elif values.kind is Kind.LABEL and (count := class_count(values)):
            found["int_domain"] = {"min": 0, "max": count - 1, "is_categorical": True}
        elif values.dtype in _INTEGER_RANGES:
            low, high = _INTEGER_RANGES[values.dtype]
            found["int_domain"] = {"min": low, "max": high}
        elif values.kind is Kind.IMAGE:
            found["image_domain"] = {}
        elif values.kind is Kind.TEXT:
            found["natural_language_domain"] = {}
        details[stored_leaf(leaf).values.key] = found
    return details


def tfx_of_tree(root: Struct) -> Json:
    """Return a schema of what records store."""
    from tfrtool.features.outputs import stored_schema  # Arrow, which the rest does without

    details, features = tfx_details(root), list[Json]()
    for spec in stored_schema(root):
        data: Json = {"name": spec.name, "type": TFX_TYPES[spec.dtype], "presence": {}}
        if spec.shape is not None:
            data["presence"] = {"min_fraction": 1.0, "min_count": 1}
        found = details.get(spec.name, {})
        if "shape" not in found:
            size = None if spec.shape is None else math.prod(spec.shape)
            data["value_count"] = {"min": 0} if size is None else {"min": size, "max": size}
        features.append(data | found)
    return {"feature": features}


def tree_of_tfx(content: Mapping[str, Any]) -> tuple[Struct, tuple[str, ...]]:
    """Return the tree that a schema describes, and notes on features that it can't describe.

    A ``STRUCT`` is a struct, or a list of structs. `ValueError` if records can't store the tree.
    """
    notes = list[str]()
    domains = {key: {one.get("name"): one for one in content.get(key, ())} for key in _DOMAINS}
    root = _struct(content.get("feature", ()), domains, notes, 0)
    check_tree(root)
    return root, tuple(notes)


def _struct(
    features: Iterable[Json],
    domains: Mapping[str, Mapping[str, Json]],
    notes: list[str],
    depth: int,
) -> Struct:
    if depth > MAX_DEPTH:
        raise ValueError("structs are nested too deeply")
    fields = dict[str, Field]()
    for data in features:
        name = data.get("name", "")
        if not is_field_name(name) or name in fields:
            raise ValueError(f"feature {name[:40]!r} is listed twice, or has no name")
        for key, known in domains.items():
            if data.get("domain") in known:
                data = {**data, key: known[data["domain"]]}
        if "struct_domain" in data:
            inner = data["struct_domain"].get("feature", ())
            struct = _struct(inner, domains, notes, depth + 1)
            fields[name] = _sized(data, struct)
        elif (values := _values(data)) is None:
            notes.append(f"{name!r} is not shown: it has no type")
        else:
            fields[name] = _sized(data, values)
    return Struct(fields)


def _values(data: Json) -> Values | None:
    """Return what each value of a feature is; None if the schema doesn't say it."""
    match data.get("type"):
        case "FLOAT":
            return Values(kind=Kind.NUMBER, dtype="float32")
        case "INT":
            return _integers(data)
        case "BYTES":
            texts = any(key in data for key in _TEXTS)
            kind = Kind.IMAGE if "image_domain" in data else Kind.TEXT if texts else Kind.BYTES
            return Values(kind=kind)
    return None


def _integers(data: Json) -> Values:
    if "bool_domain" in data:
        return Values(kind=Kind.BOOL, dtype="bool")
    domain = data.get("int_domain", {})
    low, high = (int(domain[key]) if key in domain else None for key in ("min", "max"))
    if domain.get("is_categorical") and low == 0 and high is not None:
        return Values(kind=Kind.LABEL, info={"numClasses": str(high + 1)})
    known = (dtype for dtype, bounds in _INTEGER_RANGES.items() if bounds == (low, high))
    return Values(kind=Kind.NUMBER, dtype=next(known, "int64"))


def _sized(data: Json, item: Values | Struct) -> Field:
    """Return a field with the shape that a schema says, or else a list of any length."""
    if "shape" in data:
        sizes = [one.get("size") for one in data["shape"].get("dim", ())]
        shape = tuple(None if size is None else int(size) for size in sizes)
        if isinstance(item, Values):
            is_image = item.kind is Kind.IMAGE and shape
            return ListOf(item=item) if is_image else replace(item, shape=shape)
        return ListOf(item=item) if shape else item
    nested = data.get("value_counts", {}).get("value_count")
    field: Field = item
    for count in reversed(nested or [data.get("value_count", {"min": 1, "max": 1})]):
        low, high = int(count.get("min", 0)), int(count.get("max", 0))
        if isinstance(field, Values) and low == high > 1 and field.kind is not Kind.IMAGE:
            field = replace(field, shape=(high, *field.shape))
        elif high != 1:
            field = ListOf(item=field)
    is_optional = float(data.get("presence", {}).get("min_fraction", 0)) < 1
    if isinstance(field, Values) and not field.shape and is_optional:
        return replace(field, info={**field.info, "optional": True})
    return field
