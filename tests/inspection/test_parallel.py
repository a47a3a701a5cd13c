"""Work on several shards at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tfrtool.engines.processes import map_shards
from tfrtool.errors import ShardError


def _size(path: Path) -> tuple[str, int, int]:
    return path.name, path.stat().st_size, os.getpid()


def _die(path: Path) -> int:
    if path.name == "1":
        os._exit(1)
    return 0


def _refuse(path: Path) -> int:
    raise ShardError("refused", path=path)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Five files of 0 to 4 bytes."""
    paths = [tmp_path / str(number) for number in range(5)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(number))
    return paths


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order(paths: list[Path], workers: int) -> None:
    """Results are in the order of the shards, from this process alone or from others."""
    results = list(map_shards(_size, paths, workers, worth=1))
    assert [(name, size) for name, size, _ in results] == [(str(n), n) for n in range(5)]
    assert ({pid for _, _, pid in results} == {os.getpid()}) is (workers == 1)


@pytest.mark.parametrize("in_order", [True, False])
def test_tasks_that_wait_at_a_process_are_done_once(paths: list[Path], in_order: bool) -> None:
    """Of tasks that only read, some wait where they are done: each comes to one result."""
    found = list(map_shards(_size, paths * 9, 2, worth=1, in_order=in_order, reads=True))
    sizes, expected = [size for _, size, _ in found], [0, 1, 2, 3, 4] * 9
    assert sizes == expected if in_order else sorted(sizes) == sorted(expected)
    assert len({pid for _, _, pid in found}) == 2


def test_small_shards_stay_in_one_process(paths: list[Path]) -> None:
    """Processes are not started for ten bytes."""
    assert {pid for _, _, pid in map_shards(_size, paths, 2)} == {os.getpid()}


def test_a_dead_worker_is_an_error(paths: list[Path]) -> None:
    """A process that dies is told as an error that names a shard, and nothing hangs."""
    with pytest.raises(ShardError) as caught:
        list(map_shards(_die, paths, 2, worth=1))
    assert caught.value.path is not None


def test_an_error_keeps_its_facts(paths: list[Path]) -> None:
    """An error of a worker arrives with its path."""
    with pytest.raises(ShardError) as caught:
        list(map_shards(_refuse, paths, 2, worth=1))
    assert caught.value.path == str(paths[0])
    assert caught.value.what == "refused"


def _kind(path: Path) -> tuple[int, int, int]:
    if path.name == "die":
        os.kill(os.getpid(), 9)
    if path.name == "refuse":
        raise ShardError("refused", path=path)
    if path.name == "wait":
        path.with_name("begun").write_text(str(os.getpid()))
        time.sleep(60)
    return os.getpid(), os.getppid(), sys.flags.isolated


_READ = """
import os, sys, threading
from pathlib import Path
from tests.inspection.test_parallel import _kind
from tfrtool.engines.processes import map_shards

if sys.argv[1] == "thread":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
try:
    sys.stdout.write("begun\\n")
    print(*map_shards(_kind, [Path(name) for name in sys.argv[2:]], 2, worth=1, reads=True))
finally:
    print("ended", os.getpid())
"""


def _read(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    # pytest has threads, and a copy of it would have all that it has.
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen([sys.executable, "-c", _READ, *map(str, arguments)], **options)


@pytest.mark.parametrize("which", ["alone", "thread"])
def test_a_process_without_threads_is_forked_to_read(paths: list[Path], which: str) -> None:
    """Copies of a process do what it would do; one with threads can't be copied."""
    process = _read(which, *paths)
    out, err = process.communicate(timeout=60)
    begun, results, ended = out.splitlines()
    assert (begun, ended, err) == ("begun", f"ended {process.pid}", "")
    found = re.findall(r"\((\d+), (\d+), (\d)\)", results)
    assert len(found) == len(paths)
    assert all(int(parent) == process.pid != int(own) for own, parent, _ in found)
    assert {isolated for _, _, isolated in found} == {"0" if which == "alone" else "1"}


@pytest.mark.parametrize("more", [0, 5])
@pytest.mark.parametrize("name", ["die", "refuse"])
def test_a_forked_process_that_fails(paths: list[Path], name: str, more: int) -> None:
    """The error is told once, by the process that was copied, whatever waits behind it."""
    process = _read("alone", *paths, paths[0].with_name(name), *paths * more)
    out, err = process.communicate(timeout=60)
    assert out.splitlines() == ["begun", f"ended {process.pid}"]
    assert err.count("Traceback") == 2  # of the error, and of what it came from
    assert {"die": "a worker process died", "refuse": "refused"}[name] in err.splitlines()[-1]


def test_a_forked_process_ends_with_the_one_that_was_copied(paths: list[Path]) -> None:
    """However that ends."""
    begun = paths[0].with_name("begun")
    process = _read("alone", paths[0].with_name("wait"), paths[1])
    while not (begun.exists() and begun.read_text()):
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=10)
    pid, end = int(begun.read_text()), time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < end
        time.sleep(0.01)
