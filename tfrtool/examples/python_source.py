"""A feature_description as Python source that is ready to paste."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from tfrtool.examples.example import DType, is_utf8
from tfrtool.examples.statistics import FeatureStatistics
from tfrtool.examples.wording import conflict_text, lengths_text, presence_text, values_text

_WIDTH = 100
_INDENT = "    "
_DTYPES = {DType.STRING: "tf.string", DType.INT64: "tf.int64", DType.FLOAT32: "tf.float32"}

_USE = "example = tf.io.parse_single_example(payload, feature_description)"
_USE_SEQUENCE = (
    "context, sequence = tf.io.parse_single_sequence_example(\n"
    "#     payload, context_features, sequence_features\n# )"
)


def python_source(
    features: Sequence[FeatureStatistics], records: int, *, notes: Sequence[str] = ()
) -> str:
    """Return Python source that describes features to ``tf.io``, without a final line break.

    It defines ``feature_description``, or ``context_features`` and ``sequence_features`` where
    there are feature lists. What each record has in the same number becomes ``FixedLenFeature``;
    what is missing or varies becomes ``VarLenFeature``, with the counts beside it. A default is
    never written: it would hide what is missing. The notes are comments for the top.
    """
    lists = [feature for feature in features if feature.is_list]
    context = [feature for feature in features if not feature.is_list]
    lines = [f"# {line}" for note in notes for line in _wrapped(note, _WIDTH - 2)]
    lines += ["import tensorflow as tf", ""]
    if not all(is_utf8(feature.key) for feature in features):
        # TensorFlow sorts the names; it takes bytes and text, but not both in one description.
        lines.append("# Some names are no UTF-8, so that all of them are given as bytes.")
    lines += _dictionary("context_features" if lists else "feature_description", context, records)
    if lists:
        lines += _dictionary("sequence_features", lists, records)
    if features:
        lines += ["", f"# {_USE_SEQUENCE if lists else _USE}"]
    return "\n".join(lines)


def _dictionary(name: str, features: Sequence[FeatureStatistics], records: int) -> Iterator[str]:
    if not features:
        yield f"{name} = {{}}"
        return
    as_bytes = not all(is_utf8(feature.key) for feature in features)
    yield f"{name} = {{"
    for feature in features:
        key = repr(feature.key) if as_bytes else _literal(feature.key.decode())
        code = f"{_INDENT}{key}: {_call(feature, records)},"
        comment = _comment(feature, records)
        if len(code) + 4 + len(comment) <= _WIDTH:
            yield f"{code}  # {comment}"
            continue
        for line in _wrapped(comment, _WIDTH - len(_INDENT) - 2):
            yield f"{_INDENT}# {line}"
        yield code
    yield "}"


def _literal(name: str) -> str:
    """Return a literal in ASCII, in double quotes where that needs no escape, as formatters do."""
    text = ascii(name)
    if text.startswith("'") and '"' not in text:
        return f'"{text[1:-1]}"'
    return text


def _call(feature: FeatureStatistics, records: int) -> str:
    dtype = _DTYPES[feature.dtype or DType.STRING]
    size = feature.size(records)
    if size is None:
        return f"tf.io.VarLenFeature({dtype})"
    kind = "FixedLenSequenceFeature" if feature.is_list else "FixedLenFeature"
    return f"tf.io.{kind}({[] if size == 1 else [size]}, {dtype})"


def _comment(feature: FeatureStatistics, records: int) -> str:
    lengths = lengths_text(feature)
    if not feature.is_list:
        said = lengths == "1" or feature.size(records) is not None
        lengths = "" if said or not lengths else f"{lengths} values"
    parts = [
        conflict_text(feature),
        presence_text(feature, records),
        lengths,
        values_text(feature),
    ]
    return "; ".join(part for part in parts if part)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]
