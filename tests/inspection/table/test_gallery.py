"""Which rows are shown: as plain Python chooses them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.datasets import image_payload
from tests.examples.strategies import int64, string
from tests.inspection.table.tables import make_table, write_rows_of
from tests.photos import image_bytes
from tests.records.strategies import shard_of
from tfrtool.inspection.table import gallery, near_copies
from tfrtool.inspection.table.gallery import UNLABELLED, labels_of


def test_labels_strips_and_examples(tmp_path: Path) -> None:
    """Each row has its label, each cell of a strip the commonest one there."""
    values = [3, 3, None, 1, 1, 1, 2, None, 3, 2]
    rows = [{} if one is None else {"label": int64(one)} for one in values]
    paths = [write_rows_of(tmp_path / f"{n}.tfrecord", rows[7 * n : 7 * n + 7]) for n in (0, 1)]
    table = make_table(paths, tmp_path / "t")
    labels = labels_of(table, "label")
    assert labels.names == ("1", "2", "3")
    names = [None if code == UNLABELLED else labels.names[code] for code in labels.codes]
    assert names == [None if one is None else str(one) for one in values]
    assert gallery.strips(table, labels, cells=4) == {
        str(paths[0]): [2, 0], str(paths[1]): [None, 1]
    }  # fmt: skip
    assert gallery.examples(labels, 2, 9) == {"1": [3, 5], "2": [6, 9], "3": [0, 8]}
    assert labels_of(table, "nothing").names == ()
    words = [{"w": string(b"b")}, {"w": string("ä".encode())}, {"w": string(b"\xff")}]
    table = make_table([write_rows_of(tmp_path / "w.tfrecord", words)], tmp_path / "t")
    assert labels_of(table, "w").names == ("b", "ä", "\\xff")


def test_unusual_images(tmp_path: Path) -> None:
    """The smallest, widest, darkest are found."""
    pictures = [image_bytes(size=size) for size in ((40, 30), (40, 31), (90, 20), (8, 8), (41, 30))]
    path = tmp_path / "a.tfrecord"
    payloads = [image_payload(n, data=one) for n, one in enumerate([*pictures, b"no picture"])]
    path.write_bytes(shard_of([*payloads, b"no Example"]))
    table = make_table([path], tmp_path / "t", images=True)
    found = gallery.unusual(table, 2)
    assert found["widest"] == [(2, "90 x 20")]
    assert found["smallest"][0] == (3, "8 x 8")
    assert "tallest" not in found
    assert np.array_equal(table.numbers("image.width"), [40, 40, 90, 8, 41, np.nan, np.nan], True)


@settings(max_examples=100)
@given(st.lists(st.integers(0, 2**64 - 1), max_size=20), st.data())
def test_near_copies(hashes: list[int], data: st.DataObject) -> None:
    """Hashes in a group are alike to one of them; any two that are equal are in the same group."""
    for one in data.draw(st.lists(st.sampled_from(hashes), max_size=9)) if hashes else []:
        flips = data.draw(st.sets(st.integers(0, 63), max_size=near_copies.MOST_BITS + 1))
        hashes.append(one ^ sum(1 << bit for bit in flips))
    groups, more = near_copies.near_copies(np.array(hashes, np.uint64))
    assert not more
    placed = [place for group in groups for place in group]
    assert len(placed) == len(set(placed))

    def alike(a: int, b: int) -> bool:
        return (hashes[a] ^ hashes[b]).bit_count() <= near_copies.MOST_BITS

    for group in groups:
        assert any(all(alike(centre, one) for one in group) for centre in group)
    lonely = set(range(len(hashes))) - set(placed)
    assert not any(alike(a, b) for a in lonely for b in lonely if a != b)


def test_too_many_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has a value of its own in each record is no label."""
    monkeypatch.setattr(gallery, "_CLASSES", 5)
    path = write_rows_of(tmp_path / "a.tfrecord", [{"id": int64(n)} for n in range(9)])
    labels = labels_of(make_table([path], tmp_path / "t"), "id")
    assert (labels.names, labels.overflowed) == ((), True)
