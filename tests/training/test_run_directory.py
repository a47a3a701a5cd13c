"""The directory of a run: one run at a time, and no planted link is written through."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.training.runs import small_options
from tfrtool import DatasetError, UsageError, train
from tfrtool.storage.atomic_files import temporary_name
from tfrtool.storage.lock import LOCK, locked
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
    (out / "run.json").write_text("{}")  # of a run that was killed early
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


@pytest.mark.parametrize("name", ["labels.txt", "history.json", "model.best.keras", "saved_model"])
def test_files_of_the_user_are_not_replaced(tmp_path: Path, name: str) -> None:
    """A directory with a file that no run made is refused, before the dataset is even opened."""
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=f"{name}: already exists, but not from a run"):
        train(**small_options(tmp_path / "nowhere", out=tmp_path))
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.more
def test_a_run_killed_while_it_saved_its_model_goes_on(few: Path, tmp_path: Path) -> None:
    """What the kill left of files and folders is deleted, and the model is saved."""
    options, out = small_options(few, out=tmp_path, epochs=1), tmp_path

    def leave(_epoch: EpochReport) -> None:
        for name in ("model.best.keras", "saved_model"):
            folder = temporary_name(out / name)
            folder.mkdir()
            (folder / name).touch()
            (folder / LOCK).write_text("write 1\n")
        temporary_name(out / "model.keras").mkdir()
        for name in ("checkpoint", "history.json", "run.json"):
            temporary_name(out / name).touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(**options, on_epoch=leave)
    assert len(list(out.glob(".tfrtool-*"))) == 6
    train(**options, resume=True)
    assert not list(out.glob(".tfrtool-*"))
    assert (out / "model.best.keras").is_file()


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
