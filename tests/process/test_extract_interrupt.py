"""What an extract leaves when its process is stopped, or the disk is full."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.examples.strategies import string
from tests.inspection.extracting import JPEG, files_below, photo, write_shard
from tests.more import more
from tests.objects_written import changed, object_record
from tfrtool import extract
from tfrtool.inspection.extract.extract_files import STAGING
from tfrtool.storage.atomic_files import TEMPORARY

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals"),
]


def start(
    shard: Path, out: Path, *more: str, before: Callable[[], None] | None = None
) -> subprocess.Popen[str]:
    """Start the command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tfrtool", "extract", str(shard), str(out), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a shard whose files take their time to come out."""
    payloads = [photo(JPEG + bytes(100), b"%d.jpg" % n, n % 7) for n in range(6000)]
    return write_shard(tmp_path_factory.mktemp("large") / "a.tfrecord", payloads)


def wait_for_files(process: subprocess.Popen[str], out: Path) -> None:
    """Wait until an extract is in the midst of its work."""
    deadline = time.monotonic() + 60
    while not list(out.glob(f"{TEMPORARY}*.{STAGING}/new/3")):
        assert process.poll() is None, "it ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing(large: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Ended by a signal while files come out, it leaves neither DIR nor DIR.jsonl."""
    process = start(large, tmp_path / "out")
    wait_for_files(process, tmp_path / "out")
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_a_second_one_says_who_is_at_work(large: Path, tmp_path: Path) -> None:
    """While an extract is at work, another is told so; and what it does is not disturbed."""
    first = start(large, tmp_path / "out")
    wait_for_files(first, tmp_path / "out")
    first.send_signal(signal.SIGSTOP)
    for words in ([], ["--overwrite"]):
        second = start(large, tmp_path / "out", *words)
        _, errors = second.communicate(timeout=60)
        (line,) = errors.splitlines()
        assert second.returncode == 2
        assert f"another tfrtool extract (process {first.pid})" in line
    first.send_signal(signal.SIGCONT)
    first.communicate(timeout=60)
    assert first.returncode == 0


def test_a_killed_one_is_cleaned_up_after(large: Path, tmp_path: Path) -> None:
    """After a kill, the next extract takes away what is left, and comes to its end."""
    process = start(large, tmp_path / "out")
    wait_for_files(process, tmp_path / "out")
    process.kill()
    process.communicate()
    assert list(tmp_path.glob(f"{TEMPORARY}*"))
    again = start(large, tmp_path / "out", "--limit", "7")
    assert again.communicate(timeout=60)[1] == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.jsonl"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == list("0123456")


@pytest.mark.parametrize("form", ["voc", "coco", more("yolo")])
def test_annotations_of_a_killed_one_have_no_final_names(form: str, tmp_path: Path) -> None:
    """Killed while it writes many objects, it leaves no file but in its own folder."""
    things = [(at % 150, at % 100, at % 150 + 8, at % 100 + 9, at % 3) for at in range(2000)]
    record = object_record(things)
    names = (string(b"%d.png" % at) for at in range(8))
    payloads = [changed(record, image__filename=name) for name in names]
    shard = write_shard(tmp_path / "shards" / "a.tfrecord", payloads)
    out, words = tmp_path / form / "out", ("--annotations", form)
    process = start(shard, out, *words)
    deadline = time.monotonic() + 60
    while len([*out.glob(f"{TEMPORARY}*/new/**/*.png")]) < 4:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.kill()
    process.communicate()
    found = [*out.iterdir(), *(path for path in out.parent.iterdir() if path != out)]
    assert found
    assert all(path.name.startswith(TEMPORARY) for path in found)
    assert start(shard, out, *words).communicate(timeout=60)[1] == ""
    assert start(shard, tmp_path / "whole" / "out", *words).communicate(timeout=60)[1] == ""
    assert files_below(out) == files_below(tmp_path / "whole" / "out")


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    """Where a file can't grow any more, the error names it, and nothing is left."""
    payloads = [photo(JPEG, b"cat/1.jpg", 0), photo(JPEG + bytes(50_000), b"cat/2.jpg", 0)]
    shard = write_shard(tmp_path / "a.tfrecord", payloads)

    def limit() -> None:
        # What a full disk does to write(2), for files above 16 KiB.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 1024, 16 * 1024))

    process = start(shard, tmp_path / "out", before=limit)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert output == ""
    (line,) = errors.splitlines()
    assert f"{tmp_path}/out/0/cat/2.jpg: can't be written: file too large" in line
    assert [path.name for path in tmp_path.iterdir()] == ["a.tfrecord"]


STEPS = 8
KILLED = """
import os, sys
import tfrtool
from tfrtool.storage import atomic_files
move = atomic_files.move
def counted(*paths, **options):
    global left
    if not left:
        os._exit(9)
    left -= 1
    move(*paths, **options)
atomic_files.move = counted
for left, out in enumerate(sys.argv[2:]):
    child = os.fork()
    if not child:
        tfrtool.extract(sys.argv[1], out, overwrite=True)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
"""Extracts into each of several folders, and dies one step later each time."""


def test_killed_at_any_step_of_overwriting(tmp_path: Path) -> None:
    """No file is there but whole, old and new never together; --overwrite gets on from anywhere."""
    shards = []
    for data in (b"old", b"new"):
        payloads = [photo(JPEG + data, name, data) for name in (b"1.jpg", b"2.jpg")]
        payloads.append(photo(JPEG + data, b"3.jpg", b"both"))
        shards.append(write_shard(tmp_path / "shards" / f"{data.decode()}.tfrecord", payloads))
        extract(shards[-1], tmp_path / data.decode())
    old, new = files_below(tmp_path / "old"), files_below(tmp_path / "new")
    places = [tmp_path / str(steps) / "out" for steps in range(STEPS)]
    for out in places:
        extract(shards[0], out)
    words: list[str | Path] = [sys.executable, "-c", KILLED, shards[1], *places]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["9"] * 6 + ["0"] * (STEPS - 6)
    for out in places:
        found = {k: v for k, v in files_below(out).items() if not k.startswith(TEMPORARY)}
        assert found.items() <= old.items() or found.items() <= new.items()
        extract(shards[1], out, overwrite=True)
        assert files_below(out) == new
    assert not list(tmp_path.rglob(f"{TEMPORARY}*"))
