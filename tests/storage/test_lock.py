"""One writer of a folder at a time, and others are told who it is."""

from __future__ import annotations

import os
import threading
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


def test_a_lock_is_had_by_one(tmp_path: Path) -> None:
    """Of many threads that want a lock at once, one has it at a time, and no file is left."""
    inside, most, had, lock = 0, 0, 0, threading.Lock()

    def work() -> None:
        nonlocal inside, most, had
        for _ in range(50):
            try:
                with locked(tmp_path):
                    with lock:
                        inside += 1
                        most = max(most, inside)
                        had += 1
                    with lock:
                        inside -= 1
            except UsageError:
                continue

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert had > 0
    assert list(tmp_path.iterdir()) == []
