"""Folders for temporary files: private, and deleted at the end, or by the next process."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.emulators import Bucket
from tests.photos import write_class_folders
from tfrtool.cli import main
from tfrtool.examples.example import encode_example
from tfrtool.records.framing import frame
from tfrtool.storage import scratch_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")

_PROGRAM = """
import os, signal, sys
import tfrtool

def stop(_):
    if sys.argv[2] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    print("here", flush=True)
    sys.stdin.read()

tfrtool.write(sys.argv[1], "none", dry_run=True, on_progress=stop)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder for temporary files, of this process and of its children."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    scratch_folder._delete_abandoned.cache_clear()
    return folder


def test_only_what_dead_processes_left_is_deleted(temporary: Path, tmp_path: Path) -> None:
    """The next command deletes a killed one's folder, and neither a live one's nor a link."""
    photos = str(write_class_folders(tmp_path / "photos", count=3))
    words = [sys.executable, "-c", _PROGRAM, photos]
    assert subprocess.run([*words, "die"], check=False).returncode == -signal.SIGKILL
    (dead,) = temporary.iterdir()
    (dead / "shard").write_bytes(bytes(1000))
    other, link = tmp_path / "other", temporary / ".tfrtool-scratch-link"
    other.mkdir()
    (other / "file").touch()
    link.symlink_to(other)
    with subprocess.Popen(
        [*words, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == b"here\n"
        assert not dead.exists()
        (live,) = set(temporary.iterdir()) - {link}
        assert main(["write", photos, str(tmp_path / "new"), "--dry-run"]) == 0
        assert live.exists()
        waiting.communicate(b"")
    assert [*temporary.iterdir()] == [link]
    assert (other / "file").exists()


@pytest.fixture
def cramped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave 17 bytes on the disk of the folder for temporary files."""
    usage = SimpleNamespace(total=20, used=3, free=17)
    monkeypatch.setattr("tfrtool.writing.store_publish.shutil.disk_usage", lambda _: usage)


@pytest.mark.tf
@pytest.mark.parametrize("options", [[], ["--resize", "8"], ["--encode", "png", "--shards", "2"]])
@pytest.mark.usefixtures("cramped")
def test_too_little_room_is_found_before_images_are_looked_at(
    bucket: Bucket,
    temporary: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
) -> None:
    """A write to a store names TMPDIR, how much room it needs, and how much there is."""
    photos = write_class_folders(tmp_path / "photos", count=3)
    if not options:
        (photos / "cat" / "bad.jpg").write_bytes(b"no image" * 1000)  # which is not looked at
    assert main(["write", str(photos), f"{bucket.url}/new", *options]) == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"{temporary}: not enough free space" in line
    assert "found 17 B; set TMPDIR to a folder on a larger disk" in line
    assert bucket.names() == []
    assert [*temporary.iterdir()] == []


def _shards(folder: Path) -> str:
    folder.mkdir()
    record = frame(encode_example({"image": bytes(1000), "label": 1}))
    for index in range(4):
        (folder / f"cats-train.tfrecord-{index:05d}-of-00004").write_bytes(record * 5)
    return str(folder)


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["reshard", "{shards}", "{new}", "--shards", "2", "--workers", "1"], 10),
        (["reshard", "{shards}", "{new}", "--shards", "4", "--workers", "3"], 15),
        (["filter", "{shards}", "{new}", "--where", "label = 1", "--shards", "1"], 20),
        (["edit", "{shards}", "{new}", "--rename", "label=kind", "--workers", "2"], 10),
        (["append", "{shards}", "{shards}", "--out", "{new}", "--workers", "1"], 5),
        (["convert", "{shards}", "{new}", "--to", "webdataset", "--shards", "2"], 10),
    ],
)
@pytest.mark.usefixtures("cramped")
def test_too_little_room_is_found_before_shards_are_made(
    bucket: Bucket,
    temporary: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    needed: int,
) -> None:
    """A job names TMPDIR and the room for the shards made at once; nothing is left in the store."""
    places = {"shards": _shards(tmp_path / "shards"), "new": f"{bucket.url}/new"}
    assert main([word.format(**places) for word in words]) == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"{temporary}: not enough free space" in line
    found = re.search(r"expected ([0-9.]+) (kB|KiB|B), found 17 B; set TMPDIR", line)
    assert found is not None, line
    size = float(found[1]) * {"kB": 1000, "KiB": 1024, "B": 1}[found[2]]
    assert size == pytest.approx(needed * 1040, rel=0.05)
    assert bucket.names() == []
    assert [*temporary.iterdir()] == []


@pytest.mark.parametrize(
    "words",
    [
        ["reshard", "{shards}", "{new}", "--shards", "1", "--compression", "gzip"],
        ["edit", "{shards}", "{new}", "--drop", "image"],
        ["convert", "{shards}", "{new}", "--to", "parquet"],
    ],
)
@pytest.mark.usefixtures("cramped", "temporary")
def test_shards_of_unknown_size_are_made(bucket: Bucket, tmp_path: Path, words: list[str]) -> None:
    """What may become much smaller than its source is not refused."""
    places = {"shards": _shards(tmp_path / "shards"), "new": f"{bucket.url}/new"}
    assert main([word.format(**places) for word in words]) == 0
    assert bucket.names()


def test_a_folder_that_cannot_be_listed(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder for temporary files that can be written to but not listed is enough."""
    photos, scan = write_class_folders(tmp_path / "photos", count=3), os.scandir

    def refuse(place: str | Path) -> object:
        if str(place) == str(temporary):
            raise PermissionError(errno.EACCES, "permission denied", place)
        return scan(place)

    monkeypatch.setattr(os, "scandir", refuse)
    assert main(["write", str(photos), str(tmp_path / "none"), "--dry-run"]) == 0
