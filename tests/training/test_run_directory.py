"""The directory of a run: one run at a time, and no planted link is written through."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.training.runs import small_options
from tfrtool import DatasetError, UsageError, train
from tfrtool.storage.lock import locked
from tfrtool.training.train_report import EpochReport

pytestmark = pytest.mark.tf


def test_the_second_run_is_told_of_the_first(tmp_path: Path) -> None:
    """A directory in which a run is at work is refused, before the dataset is even opened."""
    out = tmp_path / "run"
    out.mkdir()
    with (
        locked(out, "train"),
        pytest.raises(UsageError, match=rf"train \(process {os.getpid()}\)"),
    ):
        train(**small_options(tmp_path / "nowhere", out=out))


def test_planted_links_are_not_written_through(few: Path, tmp_path: Path) -> None:
    """Links under all names that a run writes, now or ever before, leave their targets alone."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    out = tmp_path / "run"
    out.mkdir()
    names = ("history.json", "history.png", "labels.txt")
    for name in (*names, *(f".incomplete-{name}" for name in names)):
        (out / name).symlink_to(precious)

    def plant(epoch: EpochReport) -> None:
        assert epoch.epoch == 1
        (out / "model.keras").symlink_to(precious)

    train(**small_options(few, out=out, epochs=1), on_epoch=plant)
    assert precious.read_bytes() == b"precious"
    assert not any((out / name).is_symlink() for name in (*names, "model.keras"))
    assert not list(out.glob(".tfrtool-*"))


def test_no_checkpoint_is_read_through_a_link(tmp_path: Path) -> None:
    """A link in the place of a checkpoint is refused; nothing is written."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"precious")
    out = tmp_path / "run"
    out.mkdir()
    (out / "checkpoint").symlink_to(elsewhere)
    with pytest.raises(DatasetError, match=r"link|not a regular file"):
        train(**small_options(tmp_path / "nowhere", out=out, resume=True))
    assert elsewhere.read_bytes() == b"precious"
