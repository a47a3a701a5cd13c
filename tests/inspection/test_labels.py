"""The labels that a dataset's records have."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import MakeShard
from tests.datasets import flip_bit
from tests.examples.strategies import float32, int64, string, tf_sequence
from tfrtool.examples.example import DType, Feature, PayloadKind, encode_example
from tfrtool.inspection.dataset.dataset_summary import (
    DatasetSummary,
    SplitSummary,
    inspect_dataset,
)
from tfrtool.records.framing import frame


def labelled(value: int | bytes) -> bytes:
    """Return a record with a label, and with features before and after it."""
    label = int64(value) if isinstance(value, int) else string(value)
    return encode_example({"a": float32(0.5), "label": label, "z": string(b"x" * 50)})


def looked(make_shard: MakeShard, *payloads: bytes, label: str | None = None) -> DatasetSummary:
    """Return the summary of a dataset of one shard."""
    return inspect_dataset(make_shard(payloads, "d/a.tfrecord").parent, label=label, workers=1)


def split_of(summary: DatasetSummary) -> SplitSummary:
    """Return the only split."""
    (split,) = summary.splits.values()
    return split


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.binary(min_size=1, max_size=8), min_size=1))
def test_labels_are_counted(tmp_path_factory: pytest.TempPathFactory, stored: list[Any]) -> None:
    """Integers and strings are counted, each for itself."""
    folder = tmp_path_factory.mktemp("shard")
    (folder / "a.tfrecord").write_bytes(b"".join(frame(labelled(value)) for value in stored))
    split = split_of(inspect_dataset(folder, label="label", workers=1))
    assert sorted(split.labels.values()) == sorted(Counter(stored).values())
    assert split.unlabelled == 0


def test_minus_one_is_no_label_where_classes_have_names(make_shard: MakeShard) -> None:
    """TFDS stores -1 for an image without a label; without names, it is a label like others."""
    payloads = [labelled(value) for value in (0, -1, 1, -1)]
    summary = looked(make_shard, *payloads)
    assert (summary.distinct_labels, split_of(summary).unlabelled) == (3, 0)
    folder = make_shard(payloads, "d/a.tfrecord").parent
    (folder / "label.labels.txt").write_text("cat\ndog\n")
    summary = inspect_dataset(folder, label="label", workers=1)
    (shard,) = split_of(summary).shards
    assert (summary.distinct_labels, shard.unlabelled) == (2, 2)
    assert split_of(summary).labels == shard.labels == {"cat": 1, "dog": 1}


def test_records_without_a_label_are_counted(make_shard: MakeShard) -> None:
    """No such feature, none or two values, floats and long bytes are not a label."""
    summary = looked(
        make_shard,
        labelled(3),
        encode_example({"other": int64(1)}),
        encode_example({"label": Feature(dtype=DType.INT64, values=())}),
        encode_example({"label": int64(1, 2)}),
        encode_example({"label": float32(1.0)}),
        encode_example({"label": string(b"x" * 2000)}),
        encode_example({"label": Feature(dtype=None, values=())}),
        b"",
        labelled(4),
    )
    split = split_of(summary)
    assert (split.labels, split.records, split.unlabelled) == ({"3": 1, "4": 1}, 9, 7)
    assert summary.faults == ()


def test_of_a_key_that_comes_twice_the_last_counts(make_shard: MakeShard, tf: Any) -> None:
    """TensorFlow reads the features as a map; a SequenceExample has the label in its context."""
    payload = labelled(1) + labelled(2)
    theirs = tf.train.Example.FromString(payload).features.feature["label"].int64_list.value[0]
    assert split_of(looked(make_shard, payload)).labels == {str(theirs): 1} == {"2": 1}
    payload = tf_sequence(tf, {"label": int64(7)}, {"x": [float32(1.0)]}).SerializeToString()
    assert split_of(looked(make_shard, payload)).labels == {"7": 1}


def test_damage_and_other_payloads_are_faults(make_shard: MakeShard) -> None:
    """A damaged record is skipped; a payload that is not an Example is reported."""
    path = make_shard([labelled(1), labelled(2), b"\xff no message", labelled(4)], "d/a.tfrecord")
    flip_bit(path, 20)
    summary = inspect_dataset(path.parent, workers=1)
    assert (split_of(summary).labels, split_of(summary).unlabelled) == ({"2": 1, "4": 1}, 1)
    found = [(one.fault.kind.value, one.fault.record) for one in summary.faults]
    assert found == [("payload-crc", 0), ("parse", 2)]


def test_without_a_label_nothing_is_parsed(make_shard: MakeShard) -> None:
    """Records of any kind are counted, and their CRCs checked."""
    path = make_shard([b"\xff no message", b"hello"], "d/a.tfrecord")
    flip_bit(path, -1 + path.stat().st_size)
    summary = inspect_dataset(path.parent, workers=1)
    assert (summary.records, split_of(summary).unlabelled, summary.label) == (1, 0, None)
    assert [one.fault.kind.value for one in summary.faults] == ["payload-crc"]


def test_which_feature_is_the_label(make_shard: MakeShard) -> None:
    """Records without the label in front don't hide it; without any, candidates are listed."""
    found = looked(make_shard, b"", encode_example({"a": float32(1)}), labelled(1))
    assert (found.payload, found.label) == (PayloadKind.EXAMPLE, "label")
    several = {"x": int64(1), "z": int64(2), "f": float32(1), "t": string(b"hi")}
    found = looked(make_shard, encode_example(several))
    assert (found.label, sorted(found.label_candidates)) == (None, ["t", "x", "z"])


@pytest.mark.parametrize(
    ("payloads", "kind"), [([], PayloadKind.EMPTY), ([b"hello"], PayloadKind.UNKNOWN)]
)
def test_other_payloads_have_no_label(
    make_shard: MakeShard, payloads: list[bytes], kind: PayloadKind
) -> None:
    """An empty shard, and records that are not Examples, have no label."""
    found = looked(make_shard, *payloads)
    assert (found.payload, found.label, found.label_candidates) == (kind, None, ())
