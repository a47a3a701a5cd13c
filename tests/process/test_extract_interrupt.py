"""What an extract leaves when its process is stopped, or the disk is full."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.examples.strategies import string
from tests.inspection.extracting import JPEG, files_below, photo, write_shard
from tests.more import more
from tests.objects_written import changed, object_record
from tests.process.effects import before_effects
from tfrtool import extract

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals"),
]


def start(
    *words: str | Path,
    program: str = "tfrtool",
    before: Callable[[], None] | None = None,
) -> subprocess.Popen[str]:
    """Start the command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        preexec_fn=before,
    )


def signalled(number: signal.Signals, shard: Path, out: Path) -> subprocess.Popen[str]:
    """Start an extract that sends itself a signal when it has written some of the files."""
    words = (out.parent, "20", number.name, "extract", shard, out)
    return start(*words, program="tests.process.effects")


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a shard of some files."""
    payloads = [photo(JPEG + bytes(100), b"%d.jpg" % n, n % 7) for n in range(60)]
    return write_shard(tmp_path_factory.mktemp("shards") / "a.tfrecord", payloads)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing(shard: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Interrupted while it writes files, an extract leaves neither DIR nor DIR.jsonl."""
    process = signalled(number, shard, tmp_path / "out")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_a_second_extract_is_refused(shard: Path, tmp_path: Path) -> None:
    """While an extract runs, another into the same folder names it and doesn't disturb it."""
    first = signalled(signal.SIGSTOP, shard, tmp_path / "out")
    os.waitpid(first.pid, os.WUNTRACED)
    for words in ([], ["--overwrite"]):
        second = start("extract", shard, tmp_path / "out", *words)
        _, errors = second.communicate(timeout=300)
        (line,) = errors.splitlines()
        assert second.returncode == 2
        assert f"another tfrtool extract (process {first.pid})" in line
    first.send_signal(signal.SIGCONT)
    first.communicate(timeout=300)
    assert first.returncode == 0


@pytest.mark.parametrize("form", ["", more("voc"), "coco", more("yolo")])
def test_killed_before_any_effect(form: str, tmp_path: Path) -> None:
    """Files are those of the old extract or the new one; the next extract completes it."""
    options: dict[str, Any] = {"annotations": form} if form else {}
    shards = []
    for shift in (0, 5):
        things = [(at + shift, at, at + 20, at + 30, at % 3) for at in range(3)]
        names = (string(b"%d.png" % at) for at in range(3 + shift))
        payloads = [changed(object_record(things), image__filename=name) for name in names]
        shards.append(write_shard(tmp_path / "shards" / f"{shift}.tfrecord", payloads))
        extract(shards[-1], tmp_path / str(shift) / "out", **options)
    old, new = (files_below(tmp_path / str(shift)) for shift in (0, 5))
    live, dead = tmp_path / "live", tmp_path / "dead"
    extract(shards[0], live / "out", **options)

    def copy(number: int) -> None:
        shutil.copytree(live, dead / f"{number:04}", symlinks=True)

    with before_effects(live, copy) as effects:
        extract(shards[1], live / "out", overwrite=True, **options)
    assert files_below(live) == new
    assert effects[0] > 20
    for folder in sorted(dead.iterdir())[:: 1 + effects[0] // 12]:
        files = files_below(folder)
        seen = {name: data for name, data in files.items() if "/.tfrtool-" not in f"/{name}"}
        assert seen.items() <= old.items() or seen.items() <= new.items()
        extract(shards[1], folder / "out", overwrite=True, **options)
        assert files_below(folder) == new


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    """Where a file can't grow any more, the error names it, and nothing is left."""
    payloads = [photo(JPEG, b"cat/1.jpg", 0), photo(JPEG + bytes(50_000), b"cat/2.jpg", 0)]
    shard = write_shard(tmp_path / "a.tfrecord", payloads)

    def limit() -> None:
        # What a full disk does to write(2), for files above 16 KiB.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 1024, 16 * 1024))

    process = start("extract", shard, tmp_path / "out", before=limit)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert output == ""
    (line,) = errors.splitlines()
    assert f"{tmp_path}/out/0/cat/2.jpg: can't be written: file too large" in line
    assert [path.name for path in tmp_path.iterdir()] == ["a.tfrecord"]
