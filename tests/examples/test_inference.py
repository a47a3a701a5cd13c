"""What the records of a shard say about their features."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples.strategies import (
    UNSET,
    entry,
    features_of,
    float32,
    int64,
    payloads,
    raw_example,
    string,
    tf_sequence,
)
from tfrtool.examples import schema_fold
from tfrtool.examples.example import DType, Feature, PayloadKind, decode_example, encode_example
from tfrtool.examples.parsing import fit_example
from tfrtool.examples.schema import FeatureSpec
from tfrtool.examples.schema_fold import SchemaFold

JPEG = b"\xff\xd8\xff\xe0"


def fold_of(*records: dict[str, Feature]) -> SchemaFold:
    """Return a fold over Examples."""
    fold = SchemaFold()
    for record in records:
        assert fold.add_payload(encode_example(record))
    return fold


def told(fold: SchemaFold) -> object:
    """Return all that a fold tells."""
    return (fold.records, fold.sequences, fold.skipped, fold.features())


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
        assert fit_example(decode_example(payload), schema).misfits == ()
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
        assert fold.add_payload(payload)
    schema = fold.schema()
    lists = schema.to_sequence_description(tf)
    for payload in payloads:
        example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
        assert fit_example(example, schema).misfits == ()
        if lists:
            tf.io.parse_single_sequence_example(payload, schema.to_feature_description(tf), lists)


@given(found=st.lists(payloads, max_size=8), cuts=st.lists(st.integers(0, 8), max_size=4),
       values=st.booleans(), seed=st.randoms(use_true_random=False))  # fmt: skip
def test_merged_parts_are_the_whole(
    found: list[bytes], cuts: list[int], values: bool, seed: Any
) -> None:
    """Folds over any parts, pickled and merged in any order, are the fold over all."""
    whole = SchemaFold(values=values, source="a")
    for index, payload in enumerate(found):
        assert whole.add_payload(payload, index=index)
    places = sorted({0, *(min(cut, len(found)) for cut in cuts), len(found)})
    parts = []
    for start, end in itertools.pairwise(places):
        part = SchemaFold(values=values, source="a")
        for index in range(start, end):
            assert part.add_payload(found[index], index=index)
        parts.append(pickle.loads(pickle.dumps(part)))
    seed.shuffle(parts)
    merged = SchemaFold(values=values, source="a")
    while len(parts) > 1:  # in any nesting, too
        parts[0].merge(parts.pop(seed.randrange(1, len(parts))))
    for part in parts:
        merged.merge(part)
    assert told(merged) == told(whole)
    assert list(merged.schema()) == list(whole.schema())


def test_key_twice() -> None:
    """Of a name that comes twice the last value counts; the records that have it are counted."""
    fold = SchemaFold(values=True)
    x, y = entry(b"x", int64(1, 2, 3)), entry(b"y", int64(9))
    fold.add_payload(raw_example([x, y, entry(b"x", float32(0.5)), entry(b"x", float32(1.5, 2.5))]))
    fold.add_payload(raw_example([x, y]))
    fold.add_payload(raw_example([x, y, y]))
    found = {item.name: item for item in fold.features()}
    assert fold.records == 3
    assert found["x"].dtypes == {DType.FLOAT32: 1, DType.INT64: 2}
    assert (found["x"].present, found["x"].duplicates) == (3, 1)
    assert found["x"].lengths == (2, 3)
    assert (found["y"].present, found["y"].duplicates) == (3, 1)


def test_first_record_of_each_type() -> None:
    """Where types disagree, the first record of each is known, whatever the order of merging."""
    folds = []
    for source, feature, index in (("b", int64(1), 7), ("a", int64(1), 9), ("c", string(), 0)):
        folds.append(SchemaFold(source=source))
        folds[-1].add_payload(encode_example({"x": feature}), index=index)
    folds[0].merge(folds[1])
    folds[0].merge(folds[2])
    (x,) = folds[0].features()
    assert x.conflict
    first = {dtype: kind.first for dtype, kind in x.values.items()}
    assert first == {DType.INT64: ("a", 9), DType.STRING: ("c", 0)}


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names beyond the limit are not kept, and how many features that leaves out is told."""
    monkeypatch.setattr(schema_fold, "MAX_NAMES", 5)
    fold, other = SchemaFold(), SchemaFold()
    for number in range(20):
        assert fold.add_payload(encode_example({f"a{number:02}": int64(1), "b": int64(1)}))
        other.add_payload(encode_example({f"c{number:02}": int64(1)}))
    assert [item.name for item in fold.features()] == ["a00", "a01", "a02", "a03", "b"]
    assert fold.features()[-1].present == 20
    assert (fold.records, fold.skipped) == (20, 16)
    assert other.add_payload(encode_example({"c00": int64(1), "c01": UNSET}))
    fold.merge(other)
    assert len(fold.features()) == 5
    assert (fold.records, fold.skipped) == (41, 38)


def test_what_came_before_makes_no_example() -> None:
    """A name without a value is no feature, not even where an Example before had that name."""
    valueless = b"\x0a\x02\x0a\x00"
    fold = SchemaFold()
    assert fold.add_payload(encode_example({"": string(b"x")}))
    assert not fold.add_payload(valueless)
    assert not SchemaFold().add_payload(valueless)
