"""A feature_description as source: it runs as pasted, and tf.io parses every record with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples.strategies import (
    entry,
    features_of,
    float32,
    int64,
    raw_example,
    string,
)
from tests.inspection.real_files import SOME_FILES, payloads_of
from tfrtool.examples.description_file import parse_source
from tfrtool.examples.example import DType, encode_example
from tfrtool.examples.feature_text import python_source
from tfrtool.examples.schema_fold import FeatureStatistics, SchemaFold, ValueStatistics


def source_of(payloads: list[bytes]) -> str:
    """Return the source for some records, and check what every source keeps to."""
    fold = SchemaFold(values=True, source="dir/a.tfrecord")
    for payload in payloads:
        assert fold.add_payload(payload)
    source = python_source(fold.features(), fold.records, notes=["A note."])
    assert {*parse_source(source.encode())} == {*fold.schema()}  # --description reads it
    for line in source.splitlines():
        assert len(line) <= 100 or "tf.io." in line or " " not in line.strip(" #")
    return source


def parse_all(tf: Any, source: str, payloads: list[bytes]) -> list[Any]:
    """Run the source, and parse each record with what it defines."""
    held: dict[str, Any] = {}
    exec(compile(source, "pasted.py", "exec"), held)
    parsed = []
    for payload in payloads:
        if "sequence_features" in held:
            parsed.append(
                tf.io.parse_single_sequence_example(
                    payload, held["context_features"], held["sequence_features"]
                )
            )
        elif held["feature_description"]:
            parsed.append(tf.io.parse_single_example(payload, held["feature_description"]))
    return parsed


def test_as_it_is_pasted() -> None:
    """The source is what a person would write, with what was seen beside it."""
    records = [
        {"image": string(b"\x89PNG\r\n\x1a\n"), "label": int64(n % 2), "box": float32(0.5, n)}
        for n in range(3)
    ]
    records[0]["ids"] = int64(7, 8)
    assert (
        source_of([encode_example(record) for record in records])
        == """# A note.
import tensorflow as tf

feature_description = {
    "box": tf.io.FixedLenFeature([2], tf.float32),  # 0, 0.5, 1, 2
    "ids": tf.io.VarLenFeature(tf.int64),  # in 1 of 3 records; 2 values; 7, 8
    "image": tf.io.FixedLenFeature([], tf.string),  # image/png, 1 distinct
    "label": tf.io.FixedLenFeature([], tf.int64),  # 0, 1
}

# example = tf.io.parse_single_example(payload, feature_description)"""
    )


NAMES = ["a", "a/b", "it's", 'say "hi"', "'\"", "line\nbreak", "# no comment", "ü", "日本", "\\x41",
         "{}", "a\\", "\u2028", '"""', "😀"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_a_literal(tf: Any, name: str) -> None:
    """Whatever a name holds, the source runs, and tf.io finds the feature by it."""
    payload = raw_example([entry(name.encode(), int64(1)), entry(b"z", int64(2))])
    kinds = {"int64_list": ValueStatistics(present=1, low=1, high=1)}
    feature = FeatureStatistics(name.encode(), kinds=kinds)
    (parsed,) = parse_all(tf, python_source([feature], 1), [payload])
    assert parsed[name].numpy() == 1


@given(names=st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=4, unique=True))
def test_any_bytes_are_a_name(tf: Any, names: list[bytes]) -> None:
    """Names that are no UTF-8 are given as bytes, all of them: tf.io takes no mixture."""
    fold = SchemaFold(values=True)
    payload = raw_example([entry(name, int64(1)) for name in names])
    if not fold.add_payload(payload):
        return
    source = python_source(fold.features(), 1)
    assert {*parse_source(source.encode())} == {*fold.schema()}
    (parsed,) = parse_all(tf, source, [payload])
    found = {name if isinstance(name, bytes) else name.encode() for name in parsed}
    assert found == set(names)


def test_conflict_is_told() -> None:
    """Where types disagree, the source says so, with the counts and the first of each."""
    source = source_of([encode_example({"x": held}) for held in (int64(1), int64(2), string(b"a"))])
    text = " ".join(source.replace("#", "").split())
    path = "dir/a.tfrecord"
    assert f"int64 in 2 records (first in {path}:0)" in text
    assert f"string in 1 record (first in {path}:2)" in text


@st.composite
def shards(draw: st.DrawFn) -> list[bytes]:
    """Draw records whose features have one type each, and may be missing in both ways."""
    dtypes = draw(st.dictionaries(st.sampled_from("abc"), st.sampled_from(DType)))
    record = st.fixed_dictionaries(
        {}, optional={n: features_of(d) | features_of(None) for n, d in dtypes.items()}
    )
    lists = draw(st.booleans())
    step_type = draw(st.sampled_from(DType))
    steps = st.lists(features_of(step_type) | features_of(None), max_size=3)
    records = []
    for _ in range(draw(st.integers(1, 4))):
        entries = [entry(name.encode(), item) for name, item in draw(record).items()]
        # A record without the list at all, too.
        held = draw(st.none() | st.just({b"a": draw(steps)})) if lists else None
        records.append(raw_example(entries, held))
    return records


@given(records=shards())
def test_every_record_is_parsed(tf: Any, records: list[bytes]) -> None:
    """Where types agree, tf.io parses each record with the source."""
    parse_all(tf, source_of(records), records)


@pytest.mark.parametrize("name", SOME_FILES)
def test_real_files(shared_data: Path, tf: Any, name: str) -> None:
    """Every record of every file of Examples parses with the source made from it."""
    payloads = payloads_of(shared_data / "tfrecord" / name)
    source = source_of(payloads)
    held: dict[str, Any] = {}
    exec(source, held)
    dataset = tf.data.Dataset.from_tensor_slices(payloads)
    if "sequence_features" in held:
        first, second = held["context_features"], held["sequence_features"]
        parsed = dataset.map(lambda p: tf.io.parse_single_sequence_example(p, first, second))
    else:
        description = held["feature_description"]
        parsed = dataset.map(lambda p: tf.io.parse_single_example(p, description))
    assert sum(1 for _ in parsed) == len(payloads)
