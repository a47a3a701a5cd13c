"""Only regular files are opened, and never more of them is read than is asked for."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tfrtool.storage.opening import NotRegularFileError, open_regular, read_bounded


def test_pipe_is_refused_at_once(tmp_path: Path) -> None:
    """A FIFO without a writer would block for ever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotRegularFileError, match="is a pipe or a device, not a regular file"):
        open_regular(tmp_path / "pipe")


def test_socket_and_device_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a socket nor a device is read."""
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with pytest.raises(NotRegularFileError):
            open_regular("socket")
    with pytest.raises(NotRegularFileError, match="a device"):
        open_regular("/dev/zero")


def test_folder_is_called_a_folder(tmp_path: Path) -> None:
    """A folder gives the error that open gives."""
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


def test_links_are_followed_unless_told_otherwise(tmp_path: Path) -> None:
    """A user's own link is fine; where somebody else may have planted it, it is not."""
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"abc"
    with pytest.raises(OSError, match="link"):
        open_regular(tmp_path / "link", follow=False)


def test_bounded_reading(tmp_path: Path) -> None:
    """All of a file that is within the limit, and an error that names the limit for another."""
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_bounded(path, 4)
