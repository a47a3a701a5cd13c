"""Merging sources with different features, and sampling and comparing by features."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import write_foreign
from tests.examples.strategies import string
from tfrtool.cli import main
from tfrtool.records.framing import Record


def _write(folder: Path, *rows: dict[str, Any]) -> Path:
    return write_foreign(folder, [[tfrtool.encode_example(row) for row in rows]])


@pytest.fixture
def sources(tmp_path: Path) -> tuple[Path, Path]:
    """Return thirty records with a weight, and twelve without."""
    one = _write(tmp_path / "a", *({"id": n, "label": n % 3, "w": n / 2} for n in range(30)))
    other = _write(tmp_path / "b", *({"id": 100 + n, "label": n % 3} for n in range(12)))
    return one, other


def _rows(folder: Path) -> list[dict[str, Any]]:
    records = (one for shard in tfrtool.find_shards(folder) for one in tfrtool.read_records(shard))
    return [dict(tfrtool.parse_example(one.payload)) for one in records if isinstance(one, Record)]


def test_what_is_missing_is_added_before_a_merge(
    sources: tuple[Path, Path], tmp_path: Path
) -> None:
    """Sources with different features are refused until edit gives them the same."""
    with pytest.raises(tfrtool.SchemaError, match=r"w \(missing\).*tfrtool edit --add"):
        tfrtool.reshard(sources, tmp_path / "out")
    edited = ["edit", str(sources[1]), str(tmp_path / "filled"), "--add", "w:float32=7"]
    assert main(edited) == 0
    report = tfrtool.reshard(
        [sources[0], tmp_path / "filled"], tmp_path / "out", shuffle=True, shards=3
    )
    assert (report.records_in, report.records_out) == (42, 42)
    weights = {row["id"]: row["w"] for row in _rows(tmp_path / "out")}
    assert weights == {n: n / 2 for n in range(30)} | {100 + n: 7.0 for n in range(12)}
    assert tfrtool.verify(tmp_path / "out").is_sound


def test_all_differences_are_reported_at_once(tmp_path: Path) -> None:
    """An error names each feature that is missing, new or of another type, of each source."""
    one = _write(tmp_path / "a", {"id": 1, "w": 1.5, "kind": "x"})
    two = _write(tmp_path / "b", {"id": "1", "w": 1.5, "extra": 1})
    three = _write(tmp_path / "c", {"id": 1, "w": 2})
    with pytest.raises(tfrtool.SchemaError) as caught:
        tfrtool.reshard([one, two, three], tmp_path / "out")
    for part in (
        "extra (only here)",
        "id (string, not int64)",
        "kind (missing)",
        "w (int64, not float32)",
    ):
        assert part in str(caught.value)


def test_appended_records_have_the_same_features(
    sources: tuple[Path, Path], tmp_path: Path
) -> None:
    """The error names what is missing."""
    with pytest.raises(tfrtool.SchemaError, match="w"):
        tfrtool.append(*sources, out=tmp_path / "out", split="train")
    assert not (tmp_path / "out").exists()


def test_samples_of_each_class_and_one_record_per_key(
    sources: tuple[Path, Path], tmp_path: Path
) -> None:
    """A number or a share of each value of a feature; the first record with each value."""
    few = tfrtool.filter_records(sources[0], tmp_path / "few", sample=2, sample_per="label")
    assert Counter(row["label"] for row in _rows(tmp_path / "few")) == {0: 2, 1: 2, 2: 2}
    assert few.skipped == {"sample": 24}
    half = tfrtool.filter_records(sources[0], tmp_path / "half", sample="50%", sample_per="label")
    assert half.records_out == 15
    tfrtool.filter_records(sources[0], tmp_path / "first", dedupe_by="label")
    assert [row["id"] for row in _rows(tmp_path / "first")] == [0, 1, 2]
    mixed = _write(
        tmp_path / "m", {"k": "x"}, {"other": 1}, {"k": "x"}, {"other": 1}, *[{"k": string()}] * 2
    )
    kept = tfrtool.filter_records(mixed, tmp_path / "kept", dedupe_by="k")
    assert (kept.records_out, kept.skipped) == (5, {"dedupe-by": 1})
    with pytest.raises(tfrtool.UsageError, match="--sample-per requires --sample"):
        tfrtool.filter_records(sources[0], tmp_path / "no", sample_per="label")
    with pytest.raises(tfrtool.UsageError, match="no feature 'labell' for --dedupe-by"):
        tfrtool.filter_records(sources[0], tmp_path / "no", dedupe_by="labell")


def test_records_are_matched_by_position(sources: tuple[Path, Path], tmp_path: Path) -> None:
    """Without a key, records that differ are pairs if they are at the same place."""
    rows = _rows(sources[0])
    rows[7] = rows[7] | {"label": 9}
    other = _write(tmp_path / "c", *rows, {"id": 30, "label": 0, "w": 0.0})
    found = tfrtool.diff(sources[0], other, by_position=True)
    assert (found.changed, found.only_a, found.only_b) == (1, 0, 1)
    assert found.features == {"label": 1}
    assert found.examples["changed"][0]["b"].record == 7
    with pytest.raises(tfrtool.UsageError, match="--by-position"):
        tfrtool.diff(sources[0], other, key="id", by_position=True)
