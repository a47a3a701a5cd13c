"""Parsing with a schema, judged by what tf.io.parse_single_example does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples.strategies import UNSET, features, float32, int64, string, tf_example
from tests.examples.strategies import tf_sequence as sequence_of
from tfrtool.examples.example import DType, Example, Feature, PayloadKind, decode_example
from tfrtool.examples.parsing import fit_example
from tfrtool.examples.schema import FeatureSpec, Schema

SPECS = {
    "scalar": FeatureSpec.parse("x:int64"),
    "scalar with default": FeatureSpec.parse("x:int64=-1"),
    "two by two": FeatureSpec.parse("x:int64:[2,2]"),
    "two by two with default": FeatureSpec.parse("x:int64:[2,2]=1,2,3,4"),
    "one in a list": FeatureSpec.parse("x:int64:[1]"),
    "none": FeatureSpec.parse("x:int64:[0]"),
    "none with default": FeatureSpec(name="x", dtype=DType.INT64, shape=(0,), default=()),
    "any number": FeatureSpec.parse("x:int64:[*]"),
    "string": FeatureSpec.parse("x:string="),
    "float": FeatureSpec.parse("x:float32:[2]=0.5"),
}

CASES: dict[str, list[dict[str, Feature]]] = {
    "missing": [{}],
    "missing beside another": [{"y": int64(1)}],
    "no kind": [{"x": UNSET}],
    "empty list": [{"x": int64()}],
    "empty list of strings": [{"x": string()}],
    "one": [{"x": int64(7)}],
    "two": [{"x": int64(7, 8)}],
    "four": [{"x": int64(1, 2, 3, 4)}],
    "one string": [{"x": string(b"a")}],
    "two floats": [{"x": float32(0.25, 1.5)}],
    "key twice": [{"x": int64(1)}, {"x": int64(2)}],
    "key twice, other type last": [{"x": int64(1)}, {"x": string(b"a")}],
    "key twice, other type first": [{"x": string(b"a")}, {"x": int64(1)}],
    "key twice, first without kind": [{"x": UNSET}, {"x": int64(1)}],
}


def flat(tf: Any, value: Any) -> list[Any]:
    """Return a tensor's values in row-major order; those that a sparse one holds."""
    dense = value.values if isinstance(value, tf.SparseTensor) else tf.reshape(value, [-1])
    values: list[Any] = dense.numpy().tolist()
    return values


def parse_by_tf(tf: Any, payload: bytes, schema: Schema) -> dict[str, list[Any]] | None:
    """Return what tf.io.parse_single_example finds, or None where it refuses."""
    try:
        parsed = tf.io.parse_single_example(payload, schema.to_feature_description(tf))
    except tf.errors.InvalidArgumentError:
        return None
    return {name: flat(tf, value) for name, value in parsed.items()}


def parse_by_us(
    payload: bytes, schema: Schema, kind: PayloadKind = PayloadKind.EXAMPLE
) -> dict[str, list[Any]] | None:
    """Return what fit_example finds in the same form."""
    parsed = fit_example(decode_example(payload, kind), schema)
    if parsed.misfits:
        return None
    found: dict[str, list[Any]] = {}
    for spec in schema:
        value: Any = parsed.values[spec.name]
        if spec.is_list:
            found[spec.name] = [item for step in value for item in inner(spec, step)]
        else:
            found[spec.name] = inner(spec, value)
    return found


def inner(spec: FeatureSpec, value: Any) -> list[Any]:
    """Return one feature's values as a list."""
    return [value] if spec.shape == () else list(value)


@pytest.mark.parametrize("parts", CASES.values(), ids=CASES.keys())
def test_agrees_with_tensorflow(tf: Any, parts: list[dict[str, Feature]]) -> None:
    """The values are TensorFlow's, and a record is refused where TensorFlow refuses it."""
    payload = b"".join(tf_example(tf, part).SerializeToString() for part in parts)
    for name, spec in SPECS.items():
        schema = Schema((spec,))
        assert parse_by_us(payload, schema) == parse_by_tf(tf, payload, schema), name


STEPS: dict[str, list[Feature] | None] = {
    "missing": None,
    "no steps": [],
    "scalars": [int64(1), int64(2)],
    "pairs": [int64(1, 2), int64(3, 4)],
    "ragged": [int64(1), int64(2, 3), int64()],
    "step without kind": [int64(1), UNSET],
    "step of floats": [int64(1), float32(1.0)],
    "empty step": [int64()],
    "empty step of floats": [float32()],
}
LISTS = {
    "scalar": FeatureSpec(name="x", dtype=DType.INT64, is_list=True),
    "pair": FeatureSpec(name="x", dtype=DType.INT64, shape=(2,), is_list=True),
    "any number": FeatureSpec(name="x", dtype=DType.INT64, shape=None, is_list=True),
}


def parse_sequence_by_tf(tf: Any, payload: bytes, schema: Schema) -> dict[str, list[Any]] | None:
    """Return what tf.io.parse_single_sequence_example finds, or None where it refuses."""
    try:
        context, lists = tf.io.parse_single_sequence_example(
            payload, schema.to_feature_description(tf), schema.to_sequence_description(tf)
        )
    except tf.errors.InvalidArgumentError:
        return None
    return {name: flat(tf, value) for name, value in {**context, **lists}.items()}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS.keys())
def test_lists_agree_with_tensorflow(tf: Any, steps: list[Feature] | None) -> None:
    """The same for the feature lists of a SequenceExample."""
    payload = sequence_of(tf, {}, {} if steps is None else {"x": steps}).SerializeToString()
    for name, spec in LISTS.items():
        schema = Schema((spec,))
        ours = parse_by_us(payload, schema, PayloadKind.SEQUENCE_EXAMPLE)
        assert ours == parse_sequence_by_tf(tf, payload, schema), name


@pytest.mark.parametrize("notation", ["c:int64", "c:int64=-1", "c:int64:[*]", "c:int64:[2]=0"])
@pytest.mark.parametrize(
    "feature", [None, UNSET, int64(), int64(1), int64(1, 2), string(b"a"), string()]
)
def test_context_agrees_with_tensorflow(tf: Any, notation: str, feature: Feature | None) -> None:
    """The same for a SequenceExample's context, whose rules for a missing kind are others."""
    schema = Schema((FeatureSpec.parse(notation), LISTS["scalar"]))
    context = {} if feature is None else {"c": feature}
    payload = sequence_of(tf, context, {"x": [int64(5)]}).SerializeToString()
    ours = parse_by_us(payload, schema, PayloadKind.SEQUENCE_EXAMPLE)
    assert ours == parse_sequence_by_tf(tf, payload, schema)


@given(feature=features, spec=st.sampled_from(list(SPECS.values())))
def test_any_feature_agrees_with_tensorflow(tf: Any, feature: Feature, spec: FeatureSpec) -> None:
    """The same for whatever feature there is."""
    payload = tf_example(tf, {"x": feature}).SerializeToString()
    assert parse_by_us(payload, Schema((spec,))) == parse_by_tf(tf, payload, Schema((spec,)))


def test_default_is_told() -> None:
    """A default that stands in for a missing value is named, for TensorFlow says nothing."""
    schema = Schema.from_notation(["image:string=", "label:int64=-1"])
    parsed = fit_example(Example(features={"image": UNSET}), schema)
    assert parsed.values == {"image": b"", "label": -1}
    assert parsed.defaulted == ("image", "label")
    assert parsed.misfits == ()


def test_misfit_tells_expected_and_found() -> None:
    """A misfit names the feature, what was wanted, and what was there."""
    schema = Schema.from_notation(["label:int64=-1", "box:float32:[4]", "id:string"])
    example = Example(features={"label": string(b"cat"), "box": float32(1.0)})
    (label, box, missing) = fit_example(example, schema).misfits
    assert (label.name, label.expected, label.found) == ("label", "1 int64 value", "1 string value")
    assert (box.expected, box.found) == ("4 float32 values", "1 float32 value")
    assert (missing.expected, missing.found) == ("1 string value", "no feature")
