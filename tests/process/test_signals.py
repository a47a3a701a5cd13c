"""Signals: whenever they come, a command ends in one line, and its processes with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeShard
from tests.datasets import image_payload
from tests.more import more
from tests.photos import image_bytes
from tfrtool.cli.app import run
from tfrtool.cli.output import Bars
from tfrtool.cli.process import Signals
from tfrtool.records.framing import frame
from tfrtool.storage.progress import Progress

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")

TOOL = [sys.executable, "-m", "tfrtool"]
LINUX = Path("/proc/self/stat").exists()
LINES = {
    signal.SIGINT: "tfrtool: interrupted",
    signal.SIGTERM: "tfrtool: ended by SIGTERM",
    signal.SIGHUP: "tfrtool: ended by SIGHUP",
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return shards whose images take two processes half a minute to decode."""
    directory = tmp_path_factory.mktemp("images")
    record = frame(image_payload(0, data=image_bytes("PNG", size=(1200, 900))))
    for index in range(2):
        (directory / f"x-{index:05d}-of-00002").write_bytes(record * 1200)
    return directory


def start(
    words: list[str | Path], before: Callable[[], object] | None = None
) -> subprocess.Popen[str]:
    """Start a program whose output is read, and that ignores no signal, as those of nohup do."""

    def prepare() -> None:
        for number in LINES:
            signal.signal(number, signal.SIG_DFL)
        if before is not None:
            before()

    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=prepare
    )


@pytest.fixture
def verifying(images: Path) -> Iterator[subprocess.Popen[str]]:
    """Give a process, of a group of its own, that verifies images in two more."""
    words: list[str | Path] = [*TOOL, "verify", images, "--images", "--workers", "2"]
    process = start(words, os.setpgrp)
    try:
        if LINUX:
            wait_for_children(process.pid, 2)
        time.sleep(0.3 if LINUX else 1.5)
        assert process.poll() is None, "it ended before anything could come"
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_children(parent: int, count: int) -> None:
    """Wait until a process has this number of children."""
    deadline, found = time.monotonic() + 300, 0
    while found < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)
        found = 0
        for process in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it may have ended
                found += process.read_text().rpartition(")")[2].split()[1] == str(parent)


@pytest.mark.parametrize("number", [signal.SIGINT, more(signal.SIGHUP)])
def test_workers_end_with_the_command(
    verifying: subprocess.Popen[str], number: signal.Signals, images: Path
) -> None:
    """Whatever ends a command ends its processes, says so in a line, and gives the shells' code."""
    before = {path.name: path.stat().st_mtime_ns for path in images.iterdir()}
    if number == signal.SIGINT:  # as from a terminal
        os.killpg(verifying.pid, number)
    else:
        verifying.send_signal(number)
    output, errors = verifying.communicate(timeout=300)  # until all have closed standard error
    assert verifying.returncode == 128 + number
    assert output == ""
    assert errors.strip() == LINES[number]
    assert {path.name: path.stat().st_mtime_ns for path in images.iterdir()} == before


def test_workers_end_with_a_killed_command(verifying: subprocess.Popen[str]) -> None:
    """A killed command leaves no process behind."""
    verifying.kill()
    output, errors = verifying.communicate(timeout=300)
    assert (output, errors) == ("", "")


def test_what_nohup_ignores_stays_ignored(make_shard: MakeShard, slow_click: Path) -> None:
    """A command under nohup outlives its terminal."""

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.environ["PYTHONPATH"] = str(slow_click)

    process = start([*TOOL, "count", make_shard([b"x"])], ignore)
    wait_for(slow_click / "loading")
    process.send_signal(signal.SIGHUP)
    (slow_click / "go on").touch()
    output, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (0, "")
    assert output.split()[0] == "1"


@pytest.fixture
def slow_click(tmp_path: Path) -> Path:
    """Return a folder with a module that commands load first, and that waits for a file."""
    (tmp_path / "click.py").write_text(
        "import sys, time\n"
        "from pathlib import Path\n"
        "here = Path(__file__).parent\n"
        "(here / 'loading').touch()\n"
        "while not (here / 'go on').exists():\n"
        "    time.sleep(0.01)\n"
        "sys.path.remove(str(here))\n"
        "del sys.modules['click']\n"
        "import click\n"
    )
    return tmp_path


def wait_for(path: Path) -> None:
    """Wait until a file is there."""
    deadline = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("number", LINES)
def test_a_command_that_is_not_loaded_yet(
    slow_click: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal while modules are being imported gives no traceback."""
    monkeypatch.setenv("PYTHONPATH", str(slow_click))
    process = start([*TOOL, "count", "x"])
    wait_for(slow_click / "loading")
    process.send_signal(number)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    assert errors.strip() == LINES[number]


@pytest.fixture
def signals() -> Iterator[Signals]:
    """Give what a command does about signals; take it back."""
    before = {number: signal.getsignal(number) for number in LINES}
    yield Signals()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_that_a_library_makes_an_error_of(
    signals: Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A KeyboardInterrupt in TensorFlow may come out as a TypeError; it's still an interruption."""

    def convert(*_: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise TypeError from None

    monkeypatch.setattr("tfrtool.records.shards.locate_shards", convert)
    assert run(["count", "x"], signals) == 130
    assert capsys.readouterr().err.strip() == LINES[signal.SIGINT]


def test_a_signal_that_a_library_loses(
    signals: Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A KeyboardInterrupt in a destructor is printed and lost; the next step of work ends it."""

    def lose(*_: object) -> None:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        for step in range(1000):
            Bars()(Progress(what="working", done=step, total=1000, unit="steps"))
        pytest.fail("it went on")

    monkeypatch.setattr("tfrtool.records.shards.locate_shards", lose)
    assert run(["count", "x"], signals) == 143
    assert capsys.readouterr().err.strip() == LINES[signal.SIGTERM]


def test_the_second_of_two_does_not_disturb(signals: Signals) -> None:
    """timeout(1) sends a signal to the command and to its group: cleaning up is not interrupted."""
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    assert signals.number == signal.SIGTERM


def test_the_end_of_a_file_is_no_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Click takes an EOFError for a user who types Ctrl-D; here nobody types."""

    def end(*_: object) -> None:
        raise EOFError("too short")

    monkeypatch.setattr("tfrtool.records.shards.locate_shards", end)
    assert run(["count", "x"]) == 1
    assert "unexpected EOFError: too short" in capsys.readouterr().err


@pytest.mark.parametrize(("moment", "code"), [("after", 128 + signal.SIGTERM), ("exit", 0)])
def test_a_late_signal_has_a_documented_code(moment: str, code: int, make_shard: MakeShard) -> None:
    """While libraries shut down, SIGTERM gives 143; once the interpreter ends, the command's code.

    TensorFlow and Ray take up to seconds for that.
    """
    words = ["tfrtool", "count", str(make_shard([b"x"]))]
    end = "os.kill(os.getpid(), signal.SIGTERM)"
    lines = [
        "import atexit, os, signal, sys",
        "from tfrtool.cli import main",
        f"sys.argv = {words}",
    ]
    lines += [f"atexit.register(lambda: {end})"] if moment == "exit" else []
    lines += ["code = main()"]
    lines += [end] if moment == "after" else []
    process = start([sys.executable, "-c", "\n".join([*lines, "sys.exit(code)"])])
    output, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (code, "")
    assert output.split()[0] == "1"
