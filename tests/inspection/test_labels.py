"""The labels of a shard, one after the other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import MakeShard
from tests.datasets import flip_bit
from tests.examples.strategies import float32, int64, string, tf_sequence
from tfrtool.errors import ShardError
from tfrtool.examples.example import DType, Feature, PayloadKind, encode_example
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.inspection.dataset import record_labels as labels_module
from tfrtool.inspection.dataset.record_labels import ShardLabels, look_for_label, read_labels


def labelled(value: int | bytes) -> bytes:
    """Return a record with a label, and with features before and after it."""
    label = int64(value) if isinstance(value, int) else string(value)
    return encode_example({"a": float32(0.5), "label": label, "z": string(b"x" * 50)})


def values(found: ShardLabels) -> list[int | bytes]:
    """Return the labels in order."""
    return [found.labels[code] for code in found.codes]


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=8), max_size=30))
def test_labels_come_in_order(tmp_path_factory: pytest.TempPathFactory, stored: list[Any]) -> None:
    """Whole numbers and strings come back, each in its place."""
    from tfrtool.records.framing import frame

    path = tmp_path_factory.mktemp("shard") / "a.tfrecord"
    path.write_bytes(b"".join(frame(labelled(value)) for value in stored))
    found = read_labels(path, "label")
    assert values(found) == stored
    assert len(set(found.labels)) == len(found.labels)
    assert (found.verdict.records, found.unlabelled) == (len(stored), 0)


def test_records_without_a_label_are_counted(make_shard: MakeShard) -> None:
    """No such feature, none or two values, floats and long bytes are no label."""
    path = make_shard(
        [
            labelled(3),
            encode_example({"other": int64(1)}),
            encode_example({"label": Feature(dtype=DType.INT64, values=())}),
            encode_example({"label": int64(1, 2)}),
            encode_example({"label": float32(1.0)}),
            encode_example({"label": string(b"x" * 2000)}),
            encode_example({"label": Feature(dtype=None, values=())}),
            b"",
            labelled(4),
        ]
    )
    found = read_labels(path, "label")
    assert values(found) == [3, 4]
    assert (found.verdict.records, found.unlabelled, found.verdict.faults) == (9, 7, ())


def test_of_a_key_that_comes_twice_the_last_counts(make_shard: MakeShard, tf: Any) -> None:
    """As for TensorFlow, which reads the features as a map."""
    payload = labelled(1) + labelled(2)
    theirs = tf.train.Example.FromString(payload).features.feature["label"].int64_list.value[0]
    assert values(read_labels(make_shard([payload]), "label")) == [theirs] == [2]


def test_sequence_examples_have_labels_in_their_context(make_shard: MakeShard, tf: Any) -> None:
    """The label of a SequenceExample is found in its context."""
    payload = tf_sequence(tf, {"label": int64(7)}, {"x": [float32(1.0)]}).SerializeToString()
    path = make_shard([payload])
    assert look_for_label([path], None).label == "label"
    assert values(read_labels(path, "label")) == [7]


def test_damage_and_strangers_are_faults(make_shard: MakeShard) -> None:
    """A damaged record is passed; a payload that is no Example is told, with its place."""
    path = make_shard([labelled(1), labelled(2), b"\xff no message", labelled(4)])
    flip_bit(path, 20)
    found = read_labels(path, "label")
    assert values(found) == [2, 4]
    assert [(fault.kind.value, fault.record) for fault in found.verdict.faults] == [
        ("payload-crc", 0),
        ("parse", 2),
    ]
    assert found.verdict.records == 3


def test_without_a_label_nothing_is_parsed(make_shard: MakeShard) -> None:
    """Records of any kind are counted, and their CRCs checked."""
    path = make_shard([b"\xff no message", b"hello"])
    flip_bit(path, -1 + path.stat().st_size)
    found = read_labels(path, None)
    assert (found.verdict.records, found.unlabelled, len(found.codes)) == (1, 0, 0)
    assert [fault.kind.value for fault in found.verdict.faults] == ["payload-crc"]


def test_faults_are_kept_up_to_a_number(
    make_shard: MakeShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is wrong in every record doesn't fill the memory; the rest is counted."""
    monkeypatch.setattr(labels_module, "FAULTS_KEPT", 3)
    found = read_labels(make_shard([b"\xff"] * 10), "label")
    assert (len(found.verdict.faults), found.verdict.n_faults, found.verdict.records) == (3, 10, 10)


@pytest.mark.parametrize(("distinct", "overflowed"), [(4, False), (5, True)])
def test_too_many_labels(
    make_shard: MakeShard, monkeypatch: pytest.MonkeyPatch, distinct: int, overflowed: bool
) -> None:
    """Beyond the limit labels are dropped, and that is said; records are still counted."""
    monkeypatch.setattr(labels_module, "MAX_LABELS", 4)
    found = read_labels(make_shard([labelled(value) for value in range(distinct)] * 2), "label")
    assert found.overflowed is overflowed
    assert found.verdict.records == 2 * distinct
    assert len(found.codes) == (0 if overflowed else 2 * distinct)


def test_the_label_is_looked_for_beyond_the_first_record(make_shard: MakeShard) -> None:
    """Records without the label in front don't hide it."""
    found = look_for_label(
        [make_shard([b"", encode_example({"a": float32(1)}), labelled(1)])], None
    )
    assert (found.payload, found.label) == (PayloadKind.EXAMPLE, "label")


def test_metadata_names_the_label(make_shard: MakeShard) -> None:
    """What dataset_info.json says comes first; where nothing says it, candidates are named."""
    payload = encode_example({"x": int64(1), "z": int64(2), "f": float32(1), "t": string(b"hi")})
    path = make_shard([payload])
    info = DatasetInfo(name="a", version="1.0.0", splits=(), label_feature="z")
    assert look_for_label([path], info).label == "z"
    found = look_for_label([path], None)
    assert (found.label, sorted(found.candidates)) == (None, ["t", "x", "z"])


@pytest.mark.parametrize(
    ("payloads", "kind"), [([], PayloadKind.EMPTY), ([b"hello"], PayloadKind.UNKNOWN)]
)
def test_other_payloads_have_no_label(
    make_shard: MakeShard, payloads: list[bytes], kind: PayloadKind
) -> None:
    """An empty shard, and records that are no Example, have no label."""
    found = look_for_label([make_shard(payloads)], None)
    assert (found.payload, found.label, found.candidates) == (kind, None, ())


def test_missing_file(make_shard: MakeShard) -> None:
    """A file that can't be read is an error that names it."""
    path = make_shard([]).with_name("none")
    for look in (lambda: look_for_label([path], None), lambda: read_labels(path, "label")):
        with pytest.raises(ShardError, match="can't be read"):
            look()
