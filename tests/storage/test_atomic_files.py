"""A file appears whole or not at all, and no planted link is written through."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfrtool.storage.atomic_files import (
    delete_leftovers,
    leftovers,
    new_file,
    new_files_by_name,
    private_folder,
    temporary_name,
)
from tfrtool.storage.lock import LOCK, locked


def names(folder: Path) -> list[str]:
    """Return what is in a folder."""
    return [path.name for path in folder.iterdir()]


def write_and_fail(path: Path) -> None:
    """Fail in the body."""
    with new_file(path) as file:
        file.write(b"new")
        raise RuntimeError


def write_too_late(path: Path) -> None:
    """Let another file take the name meanwhile."""
    with new_file(path, replace=False) as file:
        file.write(b"new")
        path.write_bytes(b"old")


def test_file_appears_whole(tmp_path: Path) -> None:
    """Under its name there is nothing until the body has ended, and nothing else is left."""
    path = tmp_path / "file"
    with new_file(path) as file:
        file.write(b"all")
        assert not path.exists()
    assert path.read_bytes() == b"all"
    assert names(tmp_path) == ["file"]


def test_failure_leaves_what_was_there(tmp_path: Path) -> None:
    """An error in the body leaves the old file, and no temporary one."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError):
        write_and_fail(path)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


PRESS_CTRL_C = """
import os, random, signal, sys
from pathlib import Path
from tfrtool.storage.atomic_files import new_file

signal.signal(signal.SIGALRM, lambda number, frame: signal.raise_signal(signal.SIGINT))
path, draw, left, pressed = Path(sys.argv[1], "file"), random.Random(7), 0, 0
for _ in range(600):
    try:
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(5e-6, 3e-4))
        with new_file(path) as file:
            file.write(b"all")
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pressed += 1
    for name in {*os.listdir(path.parent)} - {"file"}:
        left += 1
        path.with_name(name).unlink()
print(pressed > 100, left <= 6)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """At nearly any moment: only what comes between the body and what follows it may."""
    words = [sys.executable, "-c", PRESS_CTRL_C, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


def test_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """Somebody's file that a link points to keeps its bytes."""
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "file").symlink_to(tmp_path / "precious")
    with new_file(tmp_path / "file") as file:
        file.write(b"new")
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert not (tmp_path / "file").is_symlink()


def test_nothing_is_replaced_where_that_is_forbidden(tmp_path: Path) -> None:
    """Without leave to replace, what has come meanwhile stays."""
    path = tmp_path / "file"
    with pytest.raises(FileExistsError):
        write_too_late(path)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_private_folder(tmp_path: Path) -> None:
    """It is made for this user alone, found again, and a link to elsewhere is refused."""
    folder = tmp_path / "folder"
    private_folder(folder)
    private_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(OSError, match="is a link"):
        private_folder(tmp_path / "link")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="not a folder"):
        private_folder(tmp_path / "file")


def test_folder_that_others_write_to_is_not_private(tmp_path: Path) -> None:
    """What is in it may be anybody's."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder").chmod(0o770)
    with pytest.raises(PermissionError, match="other users can write"):
        private_folder(tmp_path / "folder")


@pytest.mark.parametrize("name", ["x" * 255, "\u732b" * 85, "\U0001f408" * 63])
def test_longest_names(tmp_path: Path, name: str) -> None:
    """A name that the file system takes is no longer while the file is made."""
    with new_file(tmp_path / name) as file:
        file.write(b"new")
    assert names(tmp_path) == [name]


def test_leftovers_are_of_one_name(tmp_path: Path) -> None:
    """What was being made under a name is found again, and nothing else that looks like it."""
    path = tmp_path / "a.jsonl"
    mine = temporary_name(path)
    mine.touch()
    temporary_name(tmp_path / "aa.jsonl").touch()
    temporary_name(path).symlink_to(mine)
    (tmp_path / ".tfrtool-1234.a.jsonl").touch()
    assert leftovers(path) == [mine]
    assert leftovers(tmp_path / "nowhere" / "a") == []


def test_only_leftovers_of_the_dead_are_deleted(tmp_path: Path) -> None:
    """What a killed process left goes; what a live one makes stays, and a folder without a lock."""
    path = tmp_path / "a.csv"
    killed, killed_file, unproven = (temporary_name(path) for _ in range(3))
    for folder in (killed, unproven):
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "a.csv").touch()
    (killed / LOCK).write_text("write 1\n")
    killed_file.touch()
    with new_file(path) as file, new_files_by_name([path]) as own_folder:
        by_name = own_folder / path.name
        file.write(b"one")
        by_name.write_bytes(b"two")
        delete_leftovers(path)
        assert len(names(tmp_path)) == 3
        assert by_name.exists()
    assert sorted(names(tmp_path)) == sorted(["a.csv", unproven.name])
    assert path.read_bytes() == b"one"


def test_a_file_of_the_users_is_no_lock(tmp_path: Path) -> None:
    """A file that has the lock's name by chance keeps what it says."""
    (tmp_path / LOCK).write_text("my notes\n")
    with pytest.raises(OSError, match="not a lock file that tfrtool wrote"), locked(tmp_path):
        pass
    assert (tmp_path / LOCK).read_text() == "my notes\n"
