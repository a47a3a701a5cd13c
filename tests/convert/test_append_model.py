"""Appending random records compared with lists."""

from __future__ import annotations

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
from tfrtool.examples.example import encode_example


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
