"""Splits, groups and shuffles of random records compared with lists and sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.examples.tables import (
    mixed_rows,
    placements,
    read_splits,
    write_placed,
)
from tfrtool.examples.example import DType, Feature, encode_example


def _int64(value: int) -> Feature:
    return Feature(dtype=DType.INT64, values=(value,))


def _counted(splits: Mapping[str, Sequence[bytes]]) -> dict[str, Counter[bytes]]:
    return {split: Counter(payloads) for split, payloads in splits.items()}


@given(data=st.data())
def test_splits_groups_and_order(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All payloads are kept, copies and groups in one split, and in order unless shuffled."""
    rows = data.draw(mixed_rows)
    rows += data.draw(st.lists(st.sampled_from(rows), max_size=6))
    rows += [{"number": _int64(n), "group": _int64(n % 8)} for n in range(24)]
    payloads = [encode_example(row) for row in rows]
    folder = tmp_path_factory.mktemp("reshard")
    sizes = data.draw(placements(len(rows), ("test", "train")))
    locations = write_placed(folder / "in", payloads, sizes)
    options: dict[str, Any] = {
        "allow_mixed": True,
        "shuffle": data.draw(st.booleans()),
        "seed": data.draw(st.integers(0, 9)),
    }
    fraction = data.draw(st.sampled_from([0.3, 0.5, 0.7, 1.0, None]))
    if fraction is not None:
        rest = {"b": 1 - fraction} if fraction < 1 else {}
        options["splits"] = {"a": fraction} | rest
    features = sorted({name for row in rows for name, feature in row.items() if feature.values})
    group = data.draw(st.sampled_from(["group", None, "group", *features])) if fraction else None
    if group is not None:
        options["group_by"] = group
    try:
        report = tfrtool.reshard(folder / "in", folder / "out", shards=1, workers=1, **options)
    except tfrtool.WriteError:  # a split would be empty
        assert fraction in (0.3, 0.5, 0.7)
        return
    found = read_splits(folder / "out")
    assert report.records_in == report.records_out == len(rows)
    assert Counter(one for split in found.values() for one in split) == Counter(payloads)
    split_of = {payload: split for split, some in found.items() for payload in some}
    expected: dict[str, list[bytes]] = {split: [] for split in options.get("splits", sizes)}
    for payload, location in zip(payloads, locations, strict=True):
        expected[location.split if fraction is None else split_of[payload]].append(payload)
    if options["shuffle"]:
        assert _counted(found) == _counted(expected)
    else:
        assert found == expected
    if group is not None:
        together: dict[str, set[str]] = {}
        for row, payload in zip(rows, payloads, strict=True):
            feature = row.get(group)
            if feature is not None and feature.values:
                together.setdefault(repr(feature), set()).add(split_of[payload])
        assert all(len(splits) == 1 for splits in together.values())
