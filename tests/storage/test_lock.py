"""One writer of a folder at a time, and others are told who it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfrtool.errors import UsageError
from tfrtool.storage.lock import LOCK, locked


def test_the_second_is_told_who_is_first(tmp_path: Path) -> None:
    """The error names the command and its process; afterwards nothing is left."""
    with (
        locked(tmp_path, "train"),
        pytest.raises(UsageError, match=rf"tfrtool train \(process {os.getpid()}\)"),
        locked(tmp_path),
    ):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["symbolic", "hard", "pipe"])
def test_planted_lock_is_not_written_to(tmp_path: Path, kind: str) -> None:
    """A link, or a pipe, under the lock's name is refused and left alone."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    folder = tmp_path / "folder"
    folder.mkdir()
    if kind == "symbolic":
        (folder / LOCK).symlink_to(precious)
    elif kind == "hard":
        os.link(precious, folder / LOCK)
    else:
        os.mkfifo(folder / LOCK)
    with pytest.raises(OSError, match=r"link|not a lock"), locked(folder):
        pass
    assert precious.read_bytes() == b"precious"
