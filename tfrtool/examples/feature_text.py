"""Statistics in few words, and a feature_description with them as Python source."""

import textwrap
from collections.abc import Iterator, Sequence

from tfrtool.errors import human_count, named_record, printable
from tfrtool.examples.content import decode_text
from tfrtool.examples.example import DType, Value, feature_key, is_utf8
from tfrtool.examples.fields import shape_text
from tfrtool.examples.schema_fold import FeatureStatistics

_LISTED = 4
"""Distinct values that are named one by one."""

_LONGEST_VALUE = 16
"""Characters of a distinct value that is named."""

_WIDTH = 100

_USE = "# example = tf.io.parse_single_example(payload, feature_description)"
_USE_SEQUENCE = """\
# context, sequence = tf.io.parse_single_sequence_example(
#     payload, context_features, sequence_features
# )"""


def name_text(name: str) -> str:
    """Return a feature's name for people: as it is, or as Python writes it where it must.

    That is where a terminal would take it for something else, or a reader would. No two names
    have the same text.
    """
    if name.isprintable() and name == name.strip() and not name.startswith(("'", '"', "b'", 'b"')):
        return name or "''"
    return repr(name if is_utf8(key := feature_key(name)) else key)


def conflict_text(feature: FeatureStatistics) -> str:
    """Return which types records have, where they disagree, and where each comes first."""
    if not feature.conflict:
        return ""
    parts = []
    for dtype, count in sorted(feature.dtypes.items(), key=lambda item: (-item[1], item[0].value)):
        source, index = feature.values[dtype].first
        where = named_record(printable(source), index) if source else f"record {index}"
        unit = human_count(count, "step" if feature.is_list else "record")
        parts.append(f"{dtype.value} in {unit} (first in {where})")
    return f"conflicting types: {', '.join(parts)}"


def lengths_text(feature: FeatureStatistics) -> str:
    """Return how many values a record has, or how many steps of how many values."""
    if not feature.present:
        return ""
    text = _span(*feature.lengths)
    steps = f" of {_span(*feature.steps)}" if feature.steps else ""
    return f"{text} steps{steps}" if feature.is_list else text


def values_text(feature: FeatureStatistics) -> str:
    """Return what bytes hold, and the distinct values if they are few, or their range."""
    found, strings = feature.range, feature.dtype is DType.STRING
    parts = [feature.described_content or ""]
    if any(feature.image_shape[:2]):
        parts = [f"{parts[0]} {shape_text(feature.image_shape)}"]
    distinct = found.distinct
    texts = not strings or set(feature.content) <= {"text", "empty"}
    shown = [value_text(v) for v in sorted(distinct)] if distinct and texts else []
    if 0 < len(shown) <= _LISTED and all(len(text) <= _LONGEST_VALUE for text in shown):
        parts.append(", ".join(shown))
    else:
        if found.minimum is not None and found.maximum is not None and not (distinct and strings):
            low, high = value_text(found.minimum), value_text(found.maximum)
            parts.append((low if low == high else f"{low} to {high}") + " bytes" * strings)
        parts += [f"{len(distinct)} distinct" if distinct else ""]
    nonfinite = ((found.nan, "NaN"), (found.infinite, "infinite"))
    parts += [f"{count:,} {what}" for count, what in nonfinite if count]
    return ", ".join(filter(None, parts))


def value_text(value: Value) -> str:
    """Return one value: strings as Python writes them, of a float32 the digits that count."""
    if isinstance(value, bytes):
        text = decode_text(value)
        return repr(value if text is None else text)
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def python_source(
    features: Sequence[FeatureStatistics], records: int, *, notes: Sequence[str] = ()
) -> str:
    """Return Python source that describes features to ``tf.io``, without a final line break.

    It defines ``feature_description``, or ``context_features`` and ``sequence_features`` where
    there are feature lists. What each record has in the same number becomes ``FixedLenFeature``;
    what is missing or varies becomes ``VarLenFeature``, with the counts as a comment. A default is
    never written: it would hide what is missing. The notes are comments for the top.
    """
    lists = [feature for feature in features if feature.is_list]
    context = [feature for feature in features if not feature.is_list]
    lines = [line for note in notes for line in _comment(note)]
    lines += ["import tensorflow as tf", ""]
    if not all(is_utf8(feature.key) for feature in features):
        # TensorFlow sorts the names; it takes bytes and text, but not both in one description.
        lines.append("# Some names are not UTF-8, so all of them are given as bytes.")
    lines += _dictionary("context_features" if lists else "feature_description", context, records)
    if lists:
        lines += _dictionary("sequence_features", lists, records)
    if features:
        lines += ["", _USE_SEQUENCE if lists else _USE]
    return "\n".join(lines)


def _dictionary(name: str, features: Sequence[FeatureStatistics], records: int) -> Iterator[str]:
    as_bytes = not all(is_utf8(feature.key) for feature in features)
    yield f"{name} = {{" + ("" if features else "}")
    for feature in features:
        key = repr(feature.key) if as_bytes else ascii(feature.key.decode())
        if key.startswith("'") and '"' not in key:
            key = f'"{key[1:-1]}"'  # as formatters have it
        spec = feature.spec(records)
        dtype = f"tf.{spec.dtype.value}"
        call = f"VarLenFeature({dtype})"
        if spec.shape is not None:
            kind = "FixedLenSequenceFeature" if feature.is_list else "FixedLenFeature"
            call = f"{kind}({[*spec.shape]}, {dtype})"
        code, note = f"    {key}: tf.io.{call},", _note(feature, records)
        if len(code) + 4 + len(note) <= _WIDTH:
            yield f"{code}  # {note}" if note else code
        else:
            yield from _comment(note, "    ")
            yield code
    if features:
        yield "}"


def _note(feature: FeatureStatistics, records: int) -> str:
    """Return the comment of a feature: facts that its description doesn't contain."""
    parts = [conflict_text(feature)]
    if feature.dtype is None and not feature.is_list:
        parts.append("never set")
    elif feature.present != records:
        parts.append(f"in {feature.present:,} of {records:,} records")
    if feature.unset:
        unit = human_count(feature.unset, "step" if feature.is_list else "record")
        parts.append(f"without a value in {unit}")
    if feature.duplicates:
        unit = human_count(feature.duplicates, "record")
        parts.append(f"repeated in {unit}, where the last value is used")
    lengths = lengths_text(feature)
    if feature.is_list:
        parts.append(lengths)
    elif lengths and feature.size(records) is None and lengths != "1":
        parts.append(f"{lengths} values")
    return "; ".join(filter(None, [*parts, values_text(feature)]))


def _comment(text: str, indent: str = "") -> list[str]:
    lines = textwrap.wrap(text, _WIDTH - len(indent) - 2, break_on_hyphens=False) or [""]
    return [f"{indent}# {line}" for line in lines]
