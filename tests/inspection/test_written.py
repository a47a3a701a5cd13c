"""Verifying a dataset against the report of the write that made it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.datasets import write_pets
from tfrtool.examples.tfds_metadata import read_written_shards
from tfrtool.inspection.verify.verify import verify
from tfrtool.records.framing import frame

pytestmark = pytest.mark.tf


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """A dataset as tfrtool writes it."""
    return write_pets(tmp_path)


def test_what_was_written_verifies(pets: Path) -> None:
    """A fresh dataset is sound, and each shard has the digest of the report."""
    report = verify([str(pets)])
    assert report.is_sound
    written = read_written_shards(pets)
    assert len(written) == 4
    assert {v.path.name: v.sha256 for v in report.shards} == {
        name: shard.sha256 for name, shard in written.items()
    }


def test_a_shard_that_was_made_anew_is_told(pets: Path) -> None:
    """A shard with as many whole records of the same sizes, but others, is a fault."""
    (path,) = pets.glob("pets-validation.tfrecord-00001-*")
    data = path.read_bytes()
    first = int.from_bytes(data[:8], "little") + 16
    payload = bytearray(data[12 : first - 4])
    payload[-1] ^= 1  # the label's value: dog for cat
    path.write_bytes(frame(bytes(payload)) + data[first:])
    faults = verify([str(pets)]).faults
    assert [(fault.kind.value, fault.path) for fault in faults] == [("count", path)]
    assert "SHA-256 differs from the one in write_report.json" in faults[0].message


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"splits": {"a": {"shards": [1]}}}', "[" * 9999])
def test_a_broken_report_is_a_fault(pets: Path, text: str) -> None:
    """A report that can't be read is told, once, and the shards are checked all the same."""
    (pets / "write_report.json").write_text(text)
    report = verify([str(pets)])
    assert [(f.kind.value, f.path.name) for f in report.faults] == [("parse", "write_report.json")]
    assert report.records == 20


def test_names_in_a_report_are_not_believed(pets: Path) -> None:
    """A path in place of a shard's name is passed over."""
    shard = {"path": "../x", "records": 1, "bytes": 1, "sha256": ""}
    report = {"splits": {"a": {"shards": [shard]}}}
    (pets / "write_report.json").write_text(json.dumps(report))
    assert read_written_shards(pets) == {}
