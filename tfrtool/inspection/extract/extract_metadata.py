"""A record's features as JSON values, in full, for the file beside what was taken out."""

from __future__ import annotations

import base64
from typing import Any

from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.example import Example, Feature, Value
from tfrtool.inspection.summary.summary_json import value_json

_KEPT_BYTES = 1024
"""Bytes that are no text are kept in full up to here: hashes and keys, but no images and masks."""


def features_json(example: Example, without: str | None = None) -> dict[str, Any]:
    """Return all features of a record but one, as values; the steps of a feature list are a list.

    A single value stands for itself, several are a list, and a feature that is there without a
    kind is null. Text stays text. Other bytes are ``{"bytes": N, "content": ...}``, with their
    ``base64`` up to a kibibyte.
    """
    data = {
        name: _feature(feature) for name, feature in example.features.items() if name != without
    }
    for name, steps in example.feature_lists.items():
        if name != without:
            data[f"{name} (list)" if name in data else name] = list(map(_feature, steps))
    return data


def _feature(feature: Feature) -> Any:
    values = [_value(value) for value in feature.values]
    return None if feature.dtype is None else values[0] if len(values) == 1 else values


def _value(value: Value) -> Any:
    if not isinstance(value, bytes):
        return value_json(value)
    text = decode_text(value)
    if text is not None:
        return text
    data: dict[str, Any] = {"bytes": len(value), "content": describe_bytes(value)}
    if len(value) <= _KEPT_BYTES:
        data["base64"] = base64.b64encode(value).decode()
    return data
