"""Progress of work in tasks and worker processes, and how a terminal shows it."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.conftest import MakeShard
from tfrtool.engines.pool import map_shards
from tfrtool.inspection.stats.stats import stats
from tfrtool.records.framing import frame
from tfrtool.storage import progress
from tfrtool.storage.progress import Progress

_LARGE = 2000
_LOADING = """
import os, sys
from tfrtool.cli.output import Bars
with Bars() as bars, bars.loading_tensorflow():
    os.write(2, b"noise of a library")
"""
_WAITING = """
import time
from tfrtool.cli.output import Bars
from tfrtool.storage.progress import activity
with Bars() as bars:
    bars(activity("waiting"))
    time.sleep(1.4)
"""


def _large_shard(path: Path) -> Path:
    payload = tfrtool.encode_example({"label": 1, "text": "a" * 1000})
    path.write_bytes(frame(payload) * _LARGE)
    return path


def _verbs() -> Mapping[str, Callable[..., Any]]:
    return {
        "verify": lambda path, _, **words: tfrtool.verify(path, **words),
        "schema": lambda path, _, **words: tfrtool.infer_schema(path, **words),
        "dataset": lambda path, _, **words: tfrtool.inspect_dataset(path.parent, **words),
        "stats": lambda path, _, **words: stats(path, **words),
        "diff": lambda path, _, **words: tfrtool.diff(path, path, **words),
        "reshard": tfrtool.reshard,
        "edit": lambda path, out, **words: tfrtool.edit(path, out, drop=["text"], **words),
        "filter": partial(tfrtool.filter_records, where="label = 1"),
        "convert": lambda path, out, **words: tfrtool.convert(path, out, to="parquet", **words),
        "report": lambda path, out, **words: tfrtool.report(path, f"{out}.html", **words),
    }


@pytest.mark.parametrize("verb", [*_verbs()])
def test_a_single_shard_is_reported_while_it_is_read(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each verb reports bytes or records before its only shard is done, and ends at the total."""
    monkeypatch.setattr(progress, "_INTERVAL", 0.0)
    (tmp_path / "in").mkdir()
    shard, seen = _large_shard(tmp_path / "in" / "a-train.tfrecord"), list[Progress]()
    _verbs()[verb](shard, tmp_path / "out", workers=1, on_progress=seen.append)
    phases = dict.fromkeys((one.what, one.unit) for one in seen if one.unit)
    assert phases
    for phase in phases:
        steps = [one for one in seen if (one.what, one.unit) == phase]
        assert phase[1] in ("B", "records")
        assert steps[-1].done == steps[-1].total
        assert any(0 < one.done < (one.total or 0) for one in steps)


def _read_all(path: Path) -> int:
    return sum(1 for _ in tfrtool.read(path))


@pytest.mark.more
def test_worker_processes_report_what_they_have_read(tmp_path: Path) -> None:
    """Counts arrive while a task is at work, and add up to the bytes of all files."""
    paths, events = [_large_shard(tmp_path / name) for name in "ab"], list[Mapping[str, int]]()
    found = map_shards(_read_all, paths, 2, 1, on_counts=events.append)
    assert [*found] == [_LARGE, _LARGE]
    total = Counter[str]()
    for counts in events:
        total.update(counts)
    assert total == {"B": sum(path.stat().st_size for path in paths)}
    assert sum(map(bool, events)) > len(paths)


def _shown(command: list[str], *, terminal: bool) -> tuple[bytes, bytes]:
    """Run a command whose standard error is a terminal or not; return what it prints."""
    if not terminal:
        done = subprocess.run(command, capture_output=True, check=False, timeout=300)
        return done.stdout, done.stderr
    import fcntl
    import struct
    import termios

    ours, theirs = os.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:  # the other end is closed
            pass
        finally:
            os.close(ours)
        return process.communicate()[0], shown


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
def test_a_terminal_shows_progress_and_a_pipe_does_not(make_shard: MakeShard) -> None:
    """A bar is drawn on standard error if that is a terminal; standard output stays the same."""
    shard = str(make_shard([b"a", b"b"]))
    command = [sys.executable, "-m", "tfrtool", "verify", shard]
    stdout, shown = _shown(command, terminal=True)
    assert b"verifying:" in shown
    assert _shown(command, terminal=False) == (stdout, b"")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
def test_a_terminal_shows_that_tensorflow_is_loaded() -> None:
    """The line is shown although the libraries' own output is suppressed; a pipe gets nothing."""
    command = [sys.executable, "-c", _LOADING]
    stdout, shown = _shown(command, terminal=True)
    assert (stdout, b"loading TensorFlow" in shown, b"noise" in shown) == (b"", True, False)
    assert _shown(command, terminal=False) == (b"", b"")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
def test_a_phase_that_counts_nothing_shows_its_time() -> None:
    """The line of a long import doesn't stand still."""
    _, shown = _shown([sys.executable, "-c", _WAITING], terminal=True)
    assert {b"waiting  00:00", b"waiting  00:01"} <= {*shown.strip().split(b"\r")}
