"""What the records of a shard say about their features."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.examples.strategies import (
    UNSET,
    features,
    features_of,
    float32,
    int64,
    string,
    tf_sequence,
)
from tfrtool.examples.example import DType, Feature, PayloadKind, decode_example, encode_example
from tfrtool.examples.inference import SchemaFold
from tfrtool.examples.parsing import parse_example
from tfrtool.examples.schema import FeatureSpec

JPEG = b"\xff\xd8\xff\xe0"


def fold_of(*records: dict[str, Feature]) -> SchemaFold:
    """Return a fold over Examples."""
    fold = SchemaFold()
    for record in records:
        assert fold.add(encode_example(record))
    return fold


def test_statistics() -> None:
    """Presence, lengths, types and content are counted over all records."""
    fold = fold_of(
        {"image": string(JPEG), "label": int64(1), "box": float32(1.0, 2.0)},
        {"image": string(JPEG, b""), "label": int64(2), "box": UNSET},
        {"image": string(b"text"), "label": float32(1.0)},
    )
    box, image, label = fold.features()
    assert [item.name for item in (box, image, label)] == ["box", "image", "label"]
    assert (box.present, box.unset, box.min_length, box.max_length) == (1, 1, 2, 2)
    assert (image.present, image.min_length, image.max_length) == (3, 1, 2)
    assert image.content == {"image/jpeg": 2, "empty": 1, "text": 1}
    assert image.described_content == "mixed"
    assert label.dtypes == {DType.INT64: 2, DType.FLOAT32: 1}
    assert (label.dtype, label.described_content) == (DType.INT64, None)


def test_narrowest_schema() -> None:
    """A fixed shape is inferred where all records agree, and any number of values elsewhere."""
    fold = fold_of(
        {"a": int64(1), "b": float32(1.0, 2.0), "c": string(b"x"), "d": int64(1), "e": UNSET},
        {"a": int64(2), "b": float32(3.0, 4.0), "c": string(), "e": UNSET},
    )
    assert fold.schema().specs == (
        FeatureSpec(name="a", dtype=DType.INT64),
        FeatureSpec(name="b", dtype=DType.FLOAT32, shape=(2,)),
        FeatureSpec(name="c", dtype=DType.STRING, shape=None),
        FeatureSpec(name="d", dtype=DType.INT64, shape=None),
        FeatureSpec(name="e", dtype=DType.STRING, shape=None),
    )


def test_what_is_no_example() -> None:
    """Other payloads are not taken in, and count nowhere."""
    fold = SchemaFold()
    assert not fold.add(b"hello world")
    assert not fold.add(encode_example({"a": int64(1)}) + b"\x1a\x01x")
    assert fold.records == 0
    assert fold.features() == ()


types = st.dictionaries(st.sampled_from("abc"), st.sampled_from(DType))


@st.composite
def shards(draw: st.DrawFn) -> list[dict[str, Feature]]:
    """Draw records whose features have one type each, and may be missing in both ways."""
    dtypes = draw(types)
    record = st.fixed_dictionaries(
        {}, optional={name: features_of(d) | features_of(None) for name, d in dtypes.items()}
    )
    return draw(st.lists(record, min_size=1, max_size=4))


@given(records=shards())
def test_every_record_fits_the_inferred_schema(tf: Any, records: list[dict[str, Feature]]) -> None:
    """Where types agree, the inferred schema parses each record, here and in TensorFlow."""
    schema = fold_of(*records).schema()
    for record in records:
        payload = encode_example(record)
        assert parse_example(decode_example(payload), schema).misfits == ()
        if len(schema):
            tf.io.parse_single_example(payload, schema.to_feature_description(tf))


steps = st.sampled_from(DType).flatmap(
    lambda dtype: st.lists(
        st.none() | st.lists(features_of(dtype) | features_of(None), max_size=3),
        min_size=1,
        max_size=3,
    )
)


@given(column=steps)
def test_every_sequence_fits_the_inferred_schema(
    tf: Any, column: list[list[Feature] | None]
) -> None:
    """The same for a feature list, which may be missing, have no steps, or steps of nothing."""
    fold = SchemaFold()
    payloads = [
        tf_sequence(tf, {"id": int64(1)}, {} if item is None else {"x": item}).SerializeToString()
        for item in column
    ]
    for payload in payloads:
        assert fold.add(payload)
    schema = fold.schema()
    lists = schema.to_sequence_description(tf)
    for payload in payloads:
        example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
        assert parse_example(example, schema).misfits == ()
        if lists:
            tf.io.parse_single_sequence_example(payload, schema.to_feature_description(tf), lists)


@given(first=features, second=features)
def test_order_of_records_does_not_matter(first: Feature, second: Feature) -> None:
    """The statistics are the same in whatever order records come."""
    one, other = fold_of({"x": first}, {"x": second}), fold_of({"x": second}, {"x": first})
    assert one.features() == other.features()


def test_sequences_are_counted(tf: Any) -> None:
    """A record with feature lists is a sequence, and one without is not."""
    fold = SchemaFold()
    fold.add(tf_sequence(tf, {}, {"x": [int64(1, 2), int64(3, 4)]}).SerializeToString())
    assert (fold.records, fold.sequences) == (1, 1)
    (x,) = fold.features()
    assert (x.is_list, x.present, x.min_length, x.min_step, x.max_step) == (True, 1, 2, 2, 2)
    fold.add(encode_example({"y": int64(1)}))
    assert (fold.records, fold.sequences) == (2, 1)
