"""Processes of their own: what they find, what they send back, and when they end."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfrtool.errors import ShardError
from tfrtool.storage.child import Child, ChildDied, ChildError


class Foreign(Exception):  # noqa: N818 - it stands for one of a library's
    """An error that the parent is not asked to know."""


def _path() -> list[str]:
    return sys.path


def _print(text: str) -> str:
    print(text)  # noqa: T201 - as a library may
    return text


def _fail(error: type[Exception]) -> None:
    raise error("a", "b") if error is OSError else error("what it was")


def _end(code: int) -> None:
    os._exit(code) if code >= 0 else os.kill(os.getpid(), -code)


def _unpicklable() -> object:
    return lambda: None


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    """Return a child for all that it survives."""
    with Child() as started:
        yield started


def test_it_calls_one_function_after_the_other(child: Child) -> None:
    """All calls are done by one process, which is another than this."""
    pids = {child.call(os.getpid) for _ in range(3)}
    assert len(pids) == 1
    assert pids != {os.getpid()}


def test_what_it_prints_is_no_answer(child: Child) -> None:
    """A library that prints disturbs nothing."""
    assert child.call(_print, "disturbing") == "disturbing"


@pytest.mark.parametrize("error", [ShardError, MemoryError, OSError, KeyError])
def test_errors_are_raised_here(child: Child, error: type[Exception]) -> None:
    """An error of this package, or of Python itself, is raised as what it is."""
    with pytest.raises(error):
        child.call(_fail, error)


def test_a_foreign_error_comes_as_text(child: Child) -> None:
    """An error that only a library knows is told with its name."""
    with pytest.raises(ChildError, match="Foreign: what it was"):
        child.call(_fail, Foreign)


def test_a_result_that_cannot_be_sent_is_an_error(child: Child) -> None:
    """Nothing hangs where a result can't be pickled."""
    with pytest.raises((ChildError, AttributeError, TypeError)):
        child.call(_unpicklable)
    assert child.call(os.getppid) == os.getpid()


@pytest.mark.parametrize("code", [3, 0, -9])
def test_a_death_is_told_with_its_code(code: int) -> None:
    """A process that ends in the middle of its work is an error, however it ended."""
    with Child() as child:
        with pytest.raises(ChildDied) as caught:
            child.call(_end, code)
        with pytest.raises(ChildDied):
            child.call(os.getpid)
    assert caught.value.code == code


def test_it_finds_what_its_parent_finds_but_not_what_lies_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent's paths are its own, but for those that mean the current directory."""
    for name in ("pickle", "json", "sitecustomize", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('planted')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "."]))
    mine = list(sys.path)
    monkeypatch.setattr(sys, "path", ["", ".", *mine, str(tmp_path / "more")])
    with Child() as child:
        assert child.call(_path) == [*mine, str(tmp_path / "more")]


def _leave(path: str) -> None:
    atexit.register(Path(path).unlink)
    Path(path).touch()


def _work(path: str) -> None:
    Path(path).touch()
    time.sleep(3600)


@pytest.mark.parametrize("busy", [False, True])
def test_what_is_to_be_done_at_its_end_is_done(
    tmp_path: Path, busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow deletes temporary files when a process ends, idle or in the midst of its work."""
    monkeypatch.setattr("tfrtool.storage.child._GRACE", 300.0)  # for a busy machine
    path, started = tmp_path / "temporary", tmp_path / "started"
    with Child() as child:
        child.call(_leave, str(path))
        assert path.exists()
        if busy:
            child.send(_work, str(started))
            while not started.exists():
                time.sleep(0.01)
    assert not path.exists()


PARENT = """
import os, time
from tfrtool.storage.child import Child
child = Child()
print(child.call(os.getpid), flush=True)
child.call(time.sleep, 60)
"""


def test_it_ends_when_its_parent_is_killed() -> None:
    """A child whose parent is gone ends in the middle of its work."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    try:
        parent.communicate(timeout=300)  # until the child, too, has closed standard error
    except subprocess.TimeoutExpired:
        os.kill(pid, 9)
        pytest.fail("it outlived its parent")


def _fill(size: int) -> int:
    return len(b"\1" * size)


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is enforced on Linux alone")
def test_memory_is_limited() -> None:
    """An allocation beyond the limit fails in the child, which can go on with other work."""
    with Child(memory=1024**3) as limited:
        with pytest.raises(MemoryError):
            limited.call(_fill, 2 * 1024**3)
        assert limited.call(_fill, 1024**2) == 1024**2


def _on_terminate(file: Path) -> None:
    signal.signal(signal.SIGTERM, lambda *_: file.touch())


def test_a_limited_child_is_killed_at_once(tmp_path: Path) -> None:
    """A child with limited memory is killed, without a signal that it could handle first."""
    with Child(memory=1024**3) as limited:
        limited.call(_on_terminate, tmp_path / "terminated")
        limited.send(time.sleep, 60)
    assert not (tmp_path / "terminated").exists()
