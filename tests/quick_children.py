"""Children of a process that start at once: forks of one that has the libraries already.

A `tfrtool.storage.child.Child` takes half a second of processor time to import DuckDB, Arrow and
the modules of a query, and hundreds of tests start some. Here a child is what it is otherwise: a
process in a session of its own, with its own environment, limits and pipes. Only what was imported
before differs.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

from tfrtool.storage import child
from tfrtool.storage.child import Child

__all__ = ["quick_children"]

_MODULES = (
    *("duckdb", "msgspec", "numpy", "pandas", "pyarrow", "pyarrow.compute", "pyarrow.parquet"),
    *("pyarrow.pandas_compat", "tfrtool.inspection.rows.query_tables", "tfrtool.view.live"),
    *("tfrtool.inspection.rows.query", "tfrtool.features.exploded_columns"),
    *(f"tfrtool.sources.formats.{name}" for name in ("csv_rows", "json_rows", "parquet_reader")),
)
_LARGEST = 1 << 20
"""Bytes of a request, most of which is the environment."""


class _Started:
    """What a child needs of `subprocess.Popen`."""

    def __init__(self, status: int) -> None:
        self._status = os.fdopen(status, "rb", buffering=0)
        self.pid = int(self._status.readline())
        self._code: int | None = None
        self._lock = threading.Lock()  # a thread may wait for a child that another one closes

    def wait(self, timeout: float | None = None) -> int:
        with self._lock:
            if self._code is None:
                if not select.select([self._status], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired("child", timeout or 0.0)
                self._code = int(self._status.readline() or -signal.SIGKILL)
                self._status.close()
            return self._code

    def kill(self) -> None:
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class _Origin:
    """The process that is forked; it ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.quick_children"],
                cwd=Path(__file__).parents[1],
                stdin=theirs.fileno(),
                start_new_session=True,
            )
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST)
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()

    def start(
        self,
        made: Child,
        stderr: IO[bytes] | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        memory: int | None = None,
    ) -> None:
        """Do what `Child.__init__` does."""
        paths = [path for path in sys.path if isinstance(path, str) and Path(path).is_absolute()]
        variables = dict(os.environ if environment is None else environment)
        request = json.dumps([str(Path.cwd()), variables, paths, memory]).encode()
        pipes = [os.pipe() for _ in range(3)]
        (stdin, tasks), (answers, stdout), (status, told) = pipes
        error = 2 if stderr is None else stderr.fileno()
        with self._lock:
            socket.send_fds(self._socket, [request], [stdin, stdout, error, told])
        for end in (stdin, stdout, told):
            os.close(end)
        made._grace = child._GRACE if memory is None else 0.0
        made._process = _Started(status)  # type: ignore[assignment]
        made._tasks, made._answers = os.fdopen(tasks, "wb"), os.fdopen(answers, "rb")


_origins: list[_Origin] = []


@contextmanager
def quick_children() -> Iterator[None]:
    """Let children be forks."""
    if sys.platform != "linux":
        yield
        return
    if not _origins:
        _origins.append(_Origin())
    origin = _origins[0]

    def init(made: Child, *arguments: Any, **options: Any) -> None:
        origin.start(made, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Child, "__init__", init)
        yield


def _serve(request: bytes, ends: list[int]) -> None:
    """Be a child."""
    folder, variables, paths, memory = json.loads(request)
    os.setsid()
    for number, end in enumerate(ends[:3]):
        os.dup2(end, number)
    os.closerange(3, 1024)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:] = paths
    code = 0
    try:
        child.serve(memory)
    except SystemExit:
        pass
    except BaseException:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    os._exit(code)


def _report_end(process: int, status: int) -> None:
    """Say how a child has ended."""
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with suppress(OSError):  # nobody listens any more
        os.write(status, b"%d\n" % code)
    os.close(status)


def main() -> None:
    """Fork for every request."""
    requests = socket.socket(fileno=os.dup(0))
    # What the libraries would read when a child is started; its own variables come later.
    os.environ.update({"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"})
    for name in _MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    poll, children = select.poll(), dict[int, tuple[int, int]]()
    poll.register(requests, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready != requests.fileno():
                poll.unregister(ready)
                os.close(ready)
                _report_end(*children.pop(ready))
                continue
            request, ends, _, _ = socket.recv_fds(requests, _LARGEST, 4)
            if not request:
                os._exit(0)  # without a word of libraries on what they leave
            process = os.fork()
            if not process:
                _serve(request, ends)
            for end in ends[:3]:
                os.close(end)
            os.write(ends[3], b"%d\n" % process)
            ended = os.pidfd_open(process)
            poll.register(ended, select.POLLIN)
            children[ended] = process, ends[3]


if __name__ == "__main__":
    main()
