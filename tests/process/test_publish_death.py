"""A write that is stopped at any step of giving its shards their names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tfrtool
from tests.photos import write_class_folders
from tests.process.dying import options_of, plain_shards
from tfrtool.storage.progress import Progress

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]

PUBLISHING = ".tfrtool-publishing"
REPORT = "write_report.json"
EXISTING = ("refuse", "overwrite", "resume")
CASES = {"fresh": None, "same names": 2, "other counts": 1}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Don't wait for TensorFlow."""
    monkeypatch.setattr("tfrtool.writing.write.write_shards", plain_shards)


def files(dataset: Path) -> dict[str, bytes]:
    """Return the files that others see; of the report, which tells the time, only that it is."""
    return {
        path.name: b"" if path.name == REPORT else path.read_bytes()
        for path in dataset.iterdir()
        if not path.name.startswith(".")
    }


def stopped(root: Path, signal: str, case: str) -> tuple[dict[str, bytes], dict[str, bytes], Path]:
    """Return the files of the old dataset and of the new one, and the folder of what was left."""
    write_class_folders(root / "photos", count=5)
    new = options_of(root, dataset=root / "new")
    tfrtool.write(**new)
    shards = CASES[case]
    if shards is not None:
        tfrtool.write(**options_of(root, shards=shards, seed=1))
    old = files(root / "pets") if shards is not None else {}
    words = [sys.executable, "-m", "tests.process.dying", str(root), signal, "2"]
    subprocess.run(words, check=True, timeout=120)
    return old, files(root / "new"), root / "at"


def state(dataset: Path) -> frozenset[tuple[str, bytes]]:
    """Return all that a dataset's folder holds, what is hidden too."""
    return frozenset(
        (path.relative_to(dataset).as_posix(), path.read_bytes() if path.is_file() else b"")
        for path in dataset.rglob("*")
    )


def is_refused(dataset: Path) -> bool:
    """Return whether readers say that there is no dataset; all or none of them."""
    refused = 0
    for read in (
        tfrtool.inspect_dataset,
        tfrtool.dataset,
        lambda path: tfrtool.verify([str(path)]),
    ):
        try:
            report: object = read(dataset)
        except (tfrtool.DatasetError, tfrtool.ShardError):
            refused += 1
        else:
            assert not getattr(report, "faults", ())
    assert refused in (0, 3)
    return refused == 3


@pytest.mark.several
@pytest.mark.parametrize("case", CASES)
def test_killed_at_any_step(tmp_path: Path, case: str) -> None:
    """There is the old dataset or the new one, or none; --resume ends with the new one."""
    old, new, left = stopped(tmp_path, "SIGKILL", case)
    met = {"old": 0, "new": 0, "part": 0}
    seen = set()
    for at in sorted(left.iterdir(), key=lambda path: int(path.name)):
        there = files(at)
        met["old" if there == old else "new" if there == new else "part"] += 1
        if state(at) in seen:  # no file had changed since the last step
            continue
        seen.add(state(at))
        begun = (at / PUBLISHING).exists()
        assert begun or there in (old, new)
        assert is_refused(at) == (begun or not there), at
        # Nor does a pattern take old and new shards together.
        assert there.items() <= old.items() or there.items() <= new.items()
        for existing in EXISTING if begun else ["resume"]:
            dataset = tmp_path / existing / at.name
            shutil.copytree(at, dataset)
            options = options_of(tmp_path, dataset=dataset, existing=existing)
            if existing == "refuse":
                with pytest.raises(tfrtool.UsageError, match="already exists"):
                    tfrtool.write(**options)
            else:
                tfrtool.write(**options)
            assert files(dataset) == new
            assert not list(dataset.glob(".*")) or existing == "refuse"
    assert met["old"] > 10
    assert met["part"] >= len(old) + len(new) - 1
    assert met["new"] > 3


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_signals_wait(tmp_path: Path, signal: str) -> None:
    """Interrupted at any step, a write leaves the old dataset or the new one, whole."""
    old, new, left = stopped(tmp_path, signal, "same names")
    found = [files(at) for at in left.iterdir()]
    assert len(found) > 20
    assert all(one in (old, new) for one in found)
    assert {old == one for one in found} == {True, False}
    if signal == "SIGINT":
        for at in left.iterdir():
            assert not list(at.glob(".*"))


def test_replaced_while_it_is_read(tmp_path: Path) -> None:
    """Who reads a dataset while another takes its place is told, and gets no mixture."""
    write_class_folders(tmp_path / "photos", count=5)
    tfrtool.write(**options_of(tmp_path))

    seeds = [1]

    def overwrite(now: Progress) -> None:
        if now.done and seeds:
            options = options_of(tmp_path, seed=seeds.pop(), existing="overwrite")
            tfrtool.write(**options)

    with pytest.raises(tfrtool.DatasetError, match="replaced while it was being read"):
        tfrtool.inspect_dataset(tmp_path / "pets", workers=1, on_progress=overwrite)
    tfrtool.inspect_dataset(tmp_path / "pets", workers=1)
