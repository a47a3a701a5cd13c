"""Parsing an Example with a Schema, as ``tf.io.parse_single_example`` does it, with reasons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tfrtool.errors import SchemaError, human_count
from tfrtool.examples.example import Example, Feature, PayloadKind, Value, decode_example
from tfrtool.examples.schema import FeatureSpec, Schema

ParsedValue = Value | Sequence[Value] | Sequence[Sequence[Value]]


class Misfit(NamedTuple):
    """Why a feature does not fit its spec: what the schema wants, and what the record holds."""

    name: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"feature {self.name!r}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A record, parsed with a schema."""

    values: Mapping[str, ParsedValue]  # as `parse_example` returns them
    misfits: tuple[Misfit, ...]  # what makes TensorFlow refuse the record
    defaulted: tuple[str, ...]  # the features that are missing and that a default stands in for


def parse_example(payload: bytes, schema: Schema | None = None) -> dict[str, ParsedValue]:
    """Parse a payload like ``tf.io.parse_single_example``, without TensorFlow.

    If the schema has feature lists, parse like ``tf.io.parse_single_sequence_example``.

    Args:
        payload: a serialized tf.train.Example or SequenceExample.
        schema: features to extract. None extracts all features as stored, with several values as a
            list.

    Returns:
        Mapping of feature name to value: bytes, int or float for the shape ``[]``, otherwise a list
        of them in row-major order. A feature list is a list of these.

    Raises:
        SchemaError: the payload can't be parsed, or does not match the schema.
    """
    try:
        example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
    except ValueError as error:
        what = f"payload ({len(payload)} bytes) is not a tf.train.Example or SequenceExample"
        raise SchemaError(what) from error
    if schema is not None:
        parsed = fit_example(example, schema)
        if parsed.misfits:
            raise SchemaError("; ".join(map(str, parsed.misfits)))
        return dict(parsed.values)
    found: dict[str, ParsedValue] = {}
    for name, feature in example.features.items():
        found[name] = feature.values[0] if len(feature.values) == 1 else list(feature.values)
    steps = example.feature_lists.items()
    return found | {name: [list(step.values) for step in some] for name, some in steps}


def fit_example(example: Example, schema: Schema) -> Parsed:
    """Parse one record.

    As ``tf.io.parse_single_example`` has it, a feature without a kind is missing, and a wrong dtype
    or number of values an error even where there is a default. For a schema with feature lists,
    ``tf.io.parse_single_sequence_example`` gives a default only for what is not there at all.
    """
    values: dict[str, ParsedValue] = {}
    misfits: list[Misfit] = []
    defaulted: list[str] = []
    sequence = any(spec.is_list for spec in schema)
    for spec in schema:
        name = spec.name
        if spec.is_list:
            steps = example.feature_lists.get(name)
            found = [(f"{name}[{n}]", _unfit(spec, step)) for n, step in enumerate(steps or ())]
            wrong = next((item for item in found if item[1]), None)
            if steps is None and spec.size is not None:
                wrong = name, "no feature list"
            if wrong is None:
                values[name] = [_shaped(spec, step.values) for step in steps or ()]  # type: ignore[assignment]
            else:
                misfits.append(Misfit(wrong[0], _expected(spec), wrong[1]))
            continue
        feature = example.features.get(name)
        if feature is None or (feature.dtype is None and not sequence):
            if spec.default:  # TensorFlow takes a default without values for no default
                values[name] = _shaped(spec, spec.default)
                defaulted.append(name)
                continue
            if spec.size is None:
                values[name] = ()
                continue
        problem = _unfit(spec, feature)
        if problem:
            misfits.append(Misfit(name, _expected(spec), problem))
        elif feature is not None:
            values[name] = _shaped(spec, feature.values)
    return Parsed(values=values, misfits=tuple(misfits), defaulted=tuple(defaulted))


def _shaped(spec: FeatureSpec, values: Sequence[Value]) -> Value | Sequence[Value]:
    return values[0] if spec.shape == () else values


def _expected(spec: FeatureSpec) -> str:
    dtype = spec.dtype.value
    value = f"{dtype} value"
    text = f"any number of {value}s" if spec.size is None else human_count(spec.size, value)
    return f"steps of {text}" if spec.is_list else text


def _unfit(spec: FeatureSpec, feature: Feature | None) -> str:
    """Return what a feature has in place of what a spec requires; empty if it matches."""
    if feature is None:
        return "no feature"
    if feature.dtype is None:
        return "" if spec.size is None else "a feature without a value"
    fits = feature.dtype is spec.dtype and spec.size in (None, len(feature.values))
    return "" if fits else human_count(len(feature.values), f"{feature.dtype.value} value")
