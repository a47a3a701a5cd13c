"""Numbers of records in the names of files."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfrtool
from tests.conftest import MakeShard


@pytest.mark.parametrize(
    ("records", "faults", "notes"),
    [
        ({"00-192x192-5.tfrec": 5, "01-192x192-6.tfrec": 4}, [], ["01-192x192-6.tfrec"]),
        ({"a_0_4.tfrecords": 4, "a_1_3.tfrecords": 2, "a_2_5.tfrecords": 5}, ["a_1_3"], []),
        ({"t00-3.tfrec.gz": 3, "t01-4.tfrec.gz": 9, "t02-5.tfrec.gz": 5}, ["t01-4"], []),
        ({"a_0_3.tfrecord": 3, "a_1_3.tfrecord": 3, "a_2_3.tfrecord": 1}, [], ["a_2_3.tfrecord"]),
        ({"a_0_3.tfrecord": 3, "a_1_9.tfrecord": 1, "a_2_8.tfrecord": 1}, [], []),
        ({"a_1_1.tfrecord": 1, "a_2_2.tfrecord": 2, "a_3_3.tfrecord": 1}, [], []),
        ({"a-1.tfrecord": 1, "a-2.tfrecord": 2, "a-3.tfrecord": 1}, [], []),
        ({"2024_1.tfrecord": 1, "2024_2.tfrecord": 2, "2024_3.tfrecord": 1}, [], []),
    ],
)
def test_counts_in_names(
    records: dict[str, int],
    faults: list[str],
    notes: list[str],
    make_shard: MakeShard,
    tmp_path: Path,
) -> None:
    """Where most names give the number of records, another number is a fault; half is a note."""
    for name, count in records.items():
        make_shard([b""] * count, name)
    report = tfrtool.verify(tmp_path)
    summary = tfrtool.inspect_dataset(tmp_path)
    assert [str(one.path.name).split(".")[0] for one in report.faults] == faults
    assert [str(one.path.name).split(".")[0] for one in summary.faults] == faults
    of_names = [note for note in report.notes if "its name gives" in note]
    assert of_names == [note for note in summary.notes if "its name gives" in note]
    assert [note.partition(":")[0] for note in of_names] == notes
    assert all("its name gives" in one.message for one in report.faults)
