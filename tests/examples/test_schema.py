"""Feature descriptions and their notations."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples.strategies import int64, names, string, tf_sequence, values
from tfrtool.errors import SchemaError
from tfrtool.examples.example import DType
from tfrtool.examples.schema import FeatureSpec, Schema

shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)


@st.composite
def specs(draw: st.DrawFn, *, lists: bool = True) -> FeatureSpec:
    """Draw any spec that can exist."""
    name, dtype = draw(names), draw(st.sampled_from(DType))
    is_list = lists and draw(st.booleans())
    shape = draw(st.none() | shapes)
    default = None
    if shape is not None and not is_list and draw(st.booleans()):
        size = math.prod(shape)
        default = tuple(draw(st.lists(values[dtype], min_size=size, max_size=size)))
    return FeatureSpec(name=name, dtype=dtype, shape=shape, default=default, is_list=is_list)


def has_notation(spec: FeatureSpec) -> bool:
    """Return whether a spec can be written as text: a name is there, and has no "="."""
    commas = spec.dtype is DType.STRING and spec.shape != ()
    parts = [value for value in spec.default or () if isinstance(value, bytes)]
    return (
        spec.name != ""
        and "=" not in spec.name
        and not (commas and any(b"," in part for part in parts))
    )


@given(spec=specs(lists=False).filter(has_notation))
def test_notation_round_trip(spec: FeatureSpec) -> None:
    """What is written as NAME:DTYPE[:SHAPE][=DEFAULT] is read again."""
    assert FeatureSpec.parse(str(spec)) == spec


def by_name(schema: Schema) -> list[FeatureSpec]:
    """Return the specs in an order that does not depend on the schema's."""
    return sorted(schema, key=lambda spec: (spec.name, spec.is_list))


@given(found=st.lists(specs(), max_size=5, unique_by=lambda spec: (spec.name, spec.is_list)))
def test_json_round_trip(found: list[FeatureSpec]) -> None:
    """What is written as JSON is read again, from text and from bytes."""
    schema = Schema(tuple(found))
    text = json.dumps(schema.to_json())
    assert by_name(Schema.from_json(text)) == by_name(schema)
    assert Schema.from_json(text.encode()) == Schema.from_json(text)


NOTATIONS: list[tuple[str, FeatureSpec]] = [
    ("image:string=", FeatureSpec(name="image", dtype=DType.STRING, default=(b"",))),
    ("label:int64=-1", FeatureSpec(name="label", dtype=DType.INT64, default=(-1,))),
    ("label:int64", FeatureSpec(name="label", dtype=DType.INT64)),
    ("label:int64:[]", FeatureSpec(name="label", dtype=DType.INT64)),
    ("box:float32:[4]", FeatureSpec(name="box", dtype=DType.FLOAT32, shape=(4,))),
    ("m:float32:[2,2]=0", FeatureSpec(name="m", dtype=DType.FLOAT32, shape=(2, 2),
                                      default=(0.0, 0.0, 0.0, 0.0))),
    ("m:int64:[2]=1,2", FeatureSpec(name="m", dtype=DType.INT64, shape=(2,), default=(1, 2))),
    ("ids:int64:[*]", FeatureSpec(name="ids", dtype=DType.INT64, shape=None)),
    ("image/filename:string", FeatureSpec(name="image/filename", dtype=DType.STRING)),
    ("label:tf.int64=0", FeatureSpec(name="label", dtype=DType.INT64, default=(0,))),
    ("a:b:string", FeatureSpec(name="a:b", dtype=DType.STRING)),
    ("s:string=a,b=c:d", FeatureSpec(name="s", dtype=DType.STRING, default=(b"a,b=c:d",))),
]  # fmt: skip


@pytest.mark.parametrize(("notation", "spec"), NOTATIONS)
def test_notation(notation: str, spec: FeatureSpec) -> None:
    """The notation means what the command line's contract says."""
    assert FeatureSpec.parse(notation) == spec


@pytest.mark.parametrize(
    "notation",
    [
        "", "label", ":int64", "label:", "x:tf.", "x:tf.int32", "label:uint8=1", "label:int64=x",
        "label:int64=1.5", "label:int64=9223372036854775808", "box:float32:[4]=1,2",
        "box:float32:[-1]", "box:float32:[a]", "box:float32:4", "ids:int64:[*]=1", "x:int64:[,]",
    ],
)  # fmt: skip
def test_malformed_notation(notation: str) -> None:
    """A malformed notation is refused."""
    with pytest.raises(SchemaError):
        FeatureSpec.parse(notation)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "1", "{", '{"a": 1}', '{"a": {}}', '{"a": {"dtype": "int32"}}',
        '{"a": {"dtype": ["int64"]}}', '{"a": {"dtype": "int64", "shape": 3}}',
        '{"a": {"dtype": "int64", "shape": [true]}}', '{"a": {"dtype": "int64", "shape": [-1]}}',
        '{"a": {"dtype": "int64", "default": "1"}}', '{"a": {"dtype": "int64", "default": true}}',
        '{"a": {"dtype": "string", "default": 1}}', '{"a": {"dtype": "int64", "typo": 1}}',
        '{"a": {"dtype": "int64", "shape": ["*"], "default": 1}}',
        '{"a": {"dtype": "int64", "default": 1, "list": true}}',
        '{"a": {"dtype": "int64", "shape": [0], "list": true}}', "[" * 100_000,
        '{"a": [{"dtype": "int64"}, {"dtype": "string"}]}', '{"a": [[{"dtype": "int64"}]]}',
        '{"a": [{"dtype": "int64"}, 1]}', '{"a": []}',
    ],
)  # fmt: skip
def test_malformed_json(text: str) -> None:
    """JSON that is no feature description is refused."""
    with pytest.raises(SchemaError):
        Schema.from_json(text)


@given(data=st.binary())
def test_json_of_any_bytes(data: bytes) -> None:
    """Whatever the bytes, they are a schema or a SchemaError."""
    try:
        Schema.from_json(data)
    except SchemaError:
        return
    assert json.loads(data) == {}


def test_feature_twice() -> None:
    """A name comes once, but may be in the context and a list."""
    with pytest.raises(SchemaError, match=r"duplicate.*'a'"):
        Schema.from_notation(["a:int64", "a:string"])
    one = FeatureSpec(name="a", dtype=DType.INT64)
    assert len(Schema((one, FeatureSpec(name="a", dtype=DType.INT64, is_list=True)))) == 2


@given(spec=specs(lists=False).filter(lambda spec: spec.name.isprintable()))
def test_tensorflow_takes_every_description(tf: Any, spec: FeatureSpec) -> None:
    """tf.io parses with every description, and gives the default for what is missing."""
    description = Schema((spec,)).to_feature_description(tf)
    if spec.shape is None:
        parsed = tf.io.parse_single_example(b"", description)
        assert parsed[spec.name].values.numpy().tolist() == []
    elif spec.default is None:
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.io.parse_single_example(b"", description)
    else:
        found = tf.io.parse_single_example(b"", description)[spec.name]
        assert tuple(found.shape) == spec.shape
        assert tuple(tf.reshape(found, [-1]).numpy().tolist()) == spec.default


def test_tensorflow_takes_sequence_descriptions(tf: Any) -> None:
    """tf.io parses a SequenceExample with both descriptions of a schema."""
    specs = (
        FeatureSpec(name="id", dtype=DType.INT64),
        FeatureSpec(name="box", dtype=DType.INT64, shape=(2,), is_list=True),
        FeatureSpec(name="word", dtype=DType.STRING, shape=None, is_list=True),
    )
    schema = Schema(specs)
    lists_in = {"box": [int64(1, 2), int64(3, 4)], "word": [string(b"a"), string()]}
    payload = tf_sequence(tf, {"id": int64(7)}, lists_in).SerializeToString()
    context, lists = tf.io.parse_single_sequence_example(
        payload, schema.to_feature_description(tf), schema.to_sequence_description(tf)
    )
    assert context["id"].numpy() == 7
    assert lists["box"].numpy().tolist() == [[1, 2], [3, 4]]
    assert lists["word"].values.numpy().tolist() == [b"a"]


def test_enormous_default_is_refused() -> None:
    """A shape of a thousand million with a default is refused, and not filled."""
    with pytest.raises(SchemaError, match="too large"):
        FeatureSpec.parse("x:int64:[1000,1000,1000]=0")
    with pytest.raises(SchemaError, match="too large"):
        Schema.from_json('{"x": {"dtype": "int64", "shape": [1000000000], "default": 0}}')


def test_a_default_beyond_all_floats_is_refused() -> None:
    """A number that no float can be is no default of a float32 feature."""
    text = json.dumps({"x": {"dtype": "float32", "default": 10**400}})
    with pytest.raises(SchemaError, match="expected float32"):
        Schema.from_json(text)
