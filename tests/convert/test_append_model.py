"""Appending random records and images compared with lists and sets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.examples.tables import (
    placements,
    read_splits,
    rows_of_columns,
    write_placed,
)
from tests.photos import image_bytes
from tfrtool.examples.example import encode_example
from tfrtool.examples.parsing import parse_example


@given(data=st.data())
def test_records_are_added_in_order(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each split has its old payloads and then the new ones; DATASET stays as it was."""
    old = data.draw(rows_of_columns(least=4))
    folder = tmp_path_factory.mktemp("append")
    new = data.draw(st.lists(st.sampled_from(old), min_size=1, max_size=6))
    payloads = {
        "old": [encode_example(row) for row in old],
        "new": [encode_example(row) for row in new],
    }
    split = data.draw(st.sampled_from([None, "train", "extra"]))
    splits: dict[str, dict[str, list[bytes]]] = {"old": {}, "new": {}}
    sizes = data.draw(placements(len(old), ("test", "train")))
    names = tuple(sizes) if split is None else ("test", "other")
    for side, placed in (("old", sizes), ("new", data.draw(placements(len(new), names)))):
        locations = write_placed(folder / side, payloads[side], placed)
        for payload, location in zip(payloads[side], locations, strict=True):
            target = location.split if side == "old" or split is None else split
            splits[side].setdefault(target, []).append(payload)
    report = tfrtool.append(
        folder / "old", folder / "new", out=folder / "out", split=split, workers=1
    )
    found = read_splits(folder / "out")
    assert found == {
        name: splits["old"].get(name, []) + splits["new"].get(name, [])
        for name in {**splits["old"], **splits["new"]}
    }
    assert read_splits(folder / "old") == splits["old"]
    assert report.records_out == len(old) + len(new)


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of four images, pets/1.0.0."""
    root = tmp_path_factory.mktemp("append")
    for name, tints in _KNOWN.items():
        _write_images(root / "photos" / name, tints)
    tfrtool.write(root / "photos", root / "pets" / "1.0.0", shards=1, workers=1)
    return root / "pets" / "1.0.0"


_KNOWN = {"cat": [0, 1], "dog": [2, 3]}
"""Tints of the images of a dataset, by class."""

_IMAGES = [image_bytes(tint=20 * number) for number in range(8)]


def _write_images(folder: Path, tints: list[int]) -> None:
    folder.mkdir(parents=True)
    for number, tint in enumerate(tints):
        (folder / f"{number}.jpg").write_bytes(_IMAGES[tint])


_tints = st.lists(st.integers(0, len(_IMAGES) - 1), max_size=4)


@pytest.mark.tf
@given(cats=_tints, dogs=_tints)
def test_duplicate_images_are_those_of_a_set(
    pets: Path, cats: list[int], dogs: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """--dedupe skips images that the dataset has, and all but the first of equal new ones."""
    folder = tmp_path_factory.mktemp("dedupe")
    for name, tints in (("cat", cats), ("dog", dogs)):
        _write_images(folder / "new" / name, tints)
    known = {tint for tints in _KNOWN.values() for tint in tints}
    expected, duplicates = dict[bytes, bytes](), set[str]()
    for name, tints in (("cat", cats), ("dog", dogs)):
        for number, tint in enumerate(tints):
            key = f"{name}/{number}.jpg"
            if tint in known:
                duplicates.add(key)
            else:
                expected[key.encode()] = _IMAGES[tint]
            known.add(tint)
    if not expected:
        with pytest.raises(tfrtool.SourceError, match="no image"):
            tfrtool.append(pets, folder / "new", out=folder / "out", dedupe=True, workers=1)
        return
    report = tfrtool.append(pets, folder / "new", out=folder / "out", dedupe=True, workers=1)
    (records,) = read_splits(folder / "out").values()
    rows = [parse_example(payload) for payload in records[4:]]
    assert len(rows) == len(expected)
    assert {row["image/filename"]: row["image"] for row in rows} == expected
    assert {rejected.key for rejected in report.rejected} == duplicates
