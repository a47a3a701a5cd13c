"""A process that calls functions for its parent, and finds no module in the current directory.

It never outlives its parent, however that ends: when its pipe is closed, it ends itself, in the
middle of its work if need be. `multiprocessing` doesn't do: its processes load the main module,
find what is in the current directory, and go on when the parent is killed.
"""

import contextlib
import json
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar, cast

Result = TypeVar("Result")

_GRACE = 2.0
"""Seconds for a process to end by itself, such as after an operation of TensorFlow."""

_REPEAT = 0.05
"""Seconds between two signals to end: one that arrives just before Python waits has no effect."""

_START = """
import json, sys
from importlib import import_module, machinery, util
home, sys.path[:], memory = json.loads(sys.argv[1])
spec = machinery.PathFinder.find_spec("tfrtool", [home])
sys.modules["tfrtool"] = package = util.module_from_spec(spec)
spec.loader.exec_module(package)
import_module("tfrtool.storage.child").serve(memory)
"""
"""The program of a child. It takes this very package, wherever it was found, and for the rest the
parent's paths; but Python's isolated mode keeps the current directory and the environment out."""


class ChildDied(Exception):  # noqa: N818 - it describes a process
    """The process ended before its work did; mostly the system was out of memory."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code  # its exit code, or the negative number of the signal that ended it


class ChildError(Exception):
    """An error that was raised in a child, as text."""


class Child:
    """A process that calls functions, one after the other; a context manager that ends it."""

    def __init__(
        self,
        stderr: IO[bytes] | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        memory: int | None = None,
    ) -> None:
        """Start a process.

        Args:
            stderr: its standard error; None takes the one of this process.
            environment: its environment variables; None takes those of this process.
            memory: the most address space it may use, in bytes, code and libraries included
                (``RLIMIT_AS``; not enforced on macOS and Windows). Beyond it, allocations fail
                with `MemoryError`, or the process dies. Such a process is for work on untrusted
                input that writes no files: it is killed at the end without a grace period.
        """
        import subprocess  # the child needs none

        self._grace = _GRACE if memory is None else 0.0
        paths = [path for path in sys.path if isinstance(path, str) and os.path.isabs(path)]  # noqa: PTH117
        options = ["-I", "-X", f"utf8={sys.flags.utf8_mode}"]
        options += ["-B"] if sys.dont_write_bytecode else []
        self._process = subprocess.Popen(
            [
                *(sys.executable, *options, "-c", _START),
                json.dumps([str(Path(__file__).parents[2]), paths, memory]),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the parent, which ends it
        )
        self._tasks = cast(IO[bytes], self._process.stdin)
        self._answers = cast(IO[bytes], self._process.stdout)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *error: object) -> None:
        """End the process, in the middle of its work if need be."""
        from subprocess import TimeoutExpired

        if not self._grace:
            self._process.kill()
        with contextlib.suppress(OSError):  # tasks that it no longer reads
            self._tasks.close()  # it ends itself then
        with contextlib.suppress(TimeoutExpired):
            self._process.wait(self._grace)
        self._process.kill()
        self._process.wait()
        self._answers.close()

    def kill(self) -> None:
        """End the process at once; `receive` then raises `ChildDied`."""
        self._process.kill()

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function in the process and return its result; all of it is pickled.

        `ChildDied` if the process ended, `ChildError` if the function raised an error of a class
        that only another library has; any other error is raised as it is.
        """
        self.send(function, *arguments)
        return cast(Result, self.receive())

    def send(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have a function called as by `call`, after those that were sent before."""
        task = pickle.dumps(function), pickle.dumps(arguments)
        with contextlib.suppress(OSError, ValueError):  # `receive` reports it
            pickle.dump(task, self._tasks)
            self._tasks.flush()

    def receive(self) -> object:
        """Return the next value that the first function sends (`send_to_parent`), or its result."""
        try:
            result, error, trace = pickle.load(self._answers)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            raise ChildDied(self._process.wait()) from None
        if error is not None:
            raise error from ChildError(trace)
        return result


_parent: "list[IO[bytes]]" = []
"""Where a child's answers go."""

_answering = threading.Lock()


def send_to_parent(value: object) -> None:
    """Have the parent receive a value before the result of the function that runs here."""
    _send(pickle.dumps((value, None, "")))


def _send(answer: bytes) -> None:
    with _answering:
        _parent[0].write(answer)
        _parent[0].flush()


def serve(memory: int | None = None) -> None:
    """Run the tasks that arrive on standard input and send their results to standard output."""
    if memory is not None:
        _limit_memory(memory)
    _parent[:] = [os.fdopen(os.dup(1), "wb")]
    os.dup2(2, 1)  # so that output of libraries is not read as an answer
    signal.signal(signal.SIGTERM, _exit)
    tasks: queue.SimpleQueue[tuple[bytes, bytes]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    while True:
        _send(answer(*tasks.get()))


def _limit_memory(memory: int) -> None:
    """Bound the address space of this process, where the system can."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # not on Windows

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _exit(number: int, _: object) -> None:
    """End this process at the first signal; libraries delete files then."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit()


def _listen(tasks: queue.SimpleQueue[tuple[bytes, bytes]]) -> None:
    """Queue tasks until the parent closes its end, then end this process."""
    pipe = open(0, "rb", closefd=False)  # noqa: SIM115 - Python closes sys.stdin at its end
    try:
        while True:
            tasks.put(pickle.load(pipe))
    except EOFError:
        for _ in range(round(_GRACE / _REPEAT)):
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
                time.sleep(_REPEAT)
        os._exit(0)


def answer(
    function: bytes,
    arguments: bytes,
    on_buffer: Callable[[pickle.PickleBuffer], object] | None = None,
) -> bytes:
    """Call a function, both pickled; return, pickled, its result, or its error and the trace.

    ``on_buffer`` gets what `pickle.dumps` leaves out of the result.
    """
    try:
        result = pickle.loads(function)(*pickle.loads(arguments))
        return pickle.dumps((result, None, ""), 5, buffer_callback=on_buffer)
    except Exception as error:  # noqa: BLE001 - it is raised in the parent
        kind = type(error)
        if isinstance(error, MemoryError):
            error = MemoryError(str(error))  # Arrow has a subclass of its own
        elif kind.__module__.partition(".")[0] not in ("builtins", "tfrtool"):
            # The parent may not have the library, or not want to load it for this.
            error = ChildError(f"{kind.__name__}: {error}")
        return pickle.dumps((None, error, traceback.format_exc()))
