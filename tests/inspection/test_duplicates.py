"""Images that are there more than once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.examples.strategies import int64, string
from tests.photos import image_bytes
from tfrtool.examples.example import Feature, encode_example
from tfrtool.examples.roles import Roles
from tfrtool.inspection.verify.duplicates import (
    COPIES_KEPT,
    Duplicates,
    find_duplicates,
)
from tfrtool.inspection.verify.image_check import FINGERPRINT
from tfrtool.inspection.verify.verify import verify
from tfrtool.records.framing import frame

RED, GREEN, BLUE = (image_bytes(tint=tint) for tint in (10, 20, 30))


def write(path: Path, *items: tuple[bytes, int, str]) -> None:
    """Write images, labels and names as a shard."""
    features: list[Mapping[str, Feature]] = [
        {"image": string(data), "label": int64(label), "filename": string(name.encode())}
        for data, label, name in items
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(frame(encode_example(item)) for item in features))


def duplicates_of(directory: Path) -> Duplicates:
    """Verify a directory with its images."""
    found = verify([str(directory)], images=True, workers=1).duplicates
    assert found is not None
    return found


def test_across_splits_is_a_fault(tmp_path: Path) -> None:
    """What is tested must not have been trained on."""
    write(tmp_path / "train-00000-of-00001", (RED, 0, "a"), (GREEN, 1, "b"))
    write(tmp_path / "test-00000-of-00001", (BLUE, 0, "c"), (GREEN, 1, "d"))
    report = verify([str(tmp_path)], images=True, workers=1)
    assert report.n_faults == 1
    assert not report.is_sound
    (group,) = duplicates_of(tmp_path).groups
    assert (group.across_splits, group.across_labels) == (True, False)
    assert [(copy.split, copy.record, copy.name) for copy in group.copies] == [
        ("test", 1, "d"),
        ("train", 1, "b"),
    ]


def test_contradicting_labels_are_a_fault(tmp_path: Path) -> None:
    """One image of two classes is wrong in one of them; class names are shown."""
    write(tmp_path / "a.tfrecord", (RED, 0, "cat/1"), (RED, 1, "dog/1"))
    (tmp_path / "label.labels.txt").write_text("cat\ndog\n")
    report = verify([str(tmp_path)], images=True, workers=1)
    assert report.n_faults == 1
    (group,) = duplicates_of(tmp_path).groups
    assert (group.across_splits, group.across_labels) == (False, True)
    assert [copy.label for copy in group.copies] == ["cat", "dog"]


def test_many_copies_are_counted_and_not_listed(tmp_path: Path) -> None:
    """Of a frame that is there again and again, the first copies are listed."""
    items = [(RED, 0, "a")] * (COPIES_KEPT + 50)
    write(tmp_path / "a.tfrecord", *items, (RED, 1, "b"))
    (group,) = duplicates_of(tmp_path).groups
    assert group.count == COPIES_KEPT + 51
    assert len(group.copies) == COPIES_KEPT
    assert group.across_labels


def test_one_record_with_one_image_twice_is_no_copy_of_itself(tmp_path: Path) -> None:
    """A record's list may repeat an image."""
    images = (string(GREEN), string(RED, BLUE, RED))
    payloads = [encode_example({"image": image}) for image in images]
    (tmp_path / "a.tfrecord").write_bytes(b"".join(map(frame, payloads)))
    assert duplicates_of(tmp_path) == Duplicates()
    payloads.append(encode_example({"image": string(RED)}))
    (tmp_path / "a.tfrecord").write_bytes(b"".join(map(frame, payloads)))
    (group,) = duplicates_of(tmp_path).groups
    assert [copy.record for copy in group.copies] == [1, 2]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 2)), max_size=30))
def test_groups_are_those_of_a_dictionary(items: list[tuple[int, int, int]]) -> None:
    """For any images, labels and shards, the counts are those of a plain search."""
    shards = []
    for number in range(3):
        prints = sorted(
            FINGERPRINT.pack(bytes([image]) * 16, bytes([label]) * 8, record, 0)
            for record, (image, label, shard) in enumerate(items)
            if shard == number
        )
        shards.append(
            (
                Path(f"no such file {number}"),
                (None, "train", "test")[number],
                Roles(image=None, label=None, name=None),
                b"".join(prints),
            )
        )
    found = find_duplicates(shards)
    groups: dict[int, list[tuple[int, int]]] = {}
    for image, label, shard in items:
        groups.setdefault(image, []).append((label, shard))
    several = [group for group in groups.values() if len(group) > 1]
    splits = [len({shard for _, shard in group} - {0}) > 1 for group in several]
    labels = [len({label for label, _ in group} - {0}) > 1 for group in several]
    assert found.across_splits == sum(splits)
    assert found.across_labels == sum(labels)
    assert found.spoiled == sum(map(max, zip(splits, labels, strict=True)))
    assert found.within == len(several) - found.spoiled
    assert sorted(group.count for group in found.groups) == sorted(map(len, several))
    assert [group.is_fault for group in found.groups] == sorted(
        (group.is_fault for group in found.groups), reverse=True
    )
