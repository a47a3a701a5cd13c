"""A process of its own for some work, which finds no module in the current directory.

It lives no longer than the process that started it, however that ends: once nothing more can come
from there, it ends itself, in the middle of its work if need be.
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
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from subprocess import Popen

Result = TypeVar("Result")

_LAST_SECONDS = 2.0
"""What a process gets to end by itself, as after an operation of TensorFlow."""

_AGAIN_SECONDS = 0.05
"""After these it is told again: one that comes just before Python waits is not heeded."""

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


class ChildDied(Exception):  # noqa: N818 - it is no error of ours, but what became of a process
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
        forked: bool = False,
        memory: int | None = None,
    ) -> None:
        """Start a process.

        Args:
            stderr: its standard error; None takes the one of this process.
            environment: its environment variables; None takes those of this process.
            forked: copy this process, which is fast, and kill the copy at the end. Only for work
                that reads and writes no files; see `may_fork`.
            memory: the most address space it may use, in bytes, code and libraries included
                (``RLIMIT_AS``; not enforced on macOS and Windows). Beyond it, allocations fail
                with `MemoryError`, or the process dies. Such a process is for work on untrusted
                input that writes no files: it is killed at the end without a grace period.
        """
        self._expendable = memory is not None
        if forked:
            self._fork()
            return
        import subprocess  # the child needs none

        paths = [path for path in sys.path if isinstance(path, str) and os.path.isabs(path)]  # noqa: PTH117
        options = ["-I", "-X", f"utf8={sys.flags.utf8_mode}"]
        options += ["-B"] if sys.dont_write_bytecode else []
        self._process: Popen[bytes] | _Forked = subprocess.Popen(
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

    def _fork(self) -> None:
        (tasks, ours), (answers, theirs) = os.pipe(), os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            # Nothing of what the caller is about to do may be done here.
            try:
                os.setsid()
                os.dup2(tasks, 0)
                os.dup2(theirs, 1)
                for end in (tasks, ours, answers, theirs):
                    os.close(end)
                serve()
            finally:
                os._exit(0)
        os.close(tasks)
        os.close(theirs)
        self._process = _Forked(pid)
        self._tasks, self._answers = os.fdopen(ours, "wb"), os.fdopen(answers, "rb")

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *error: object) -> None:
        """End the process, in the midst of its work if need be."""
        if isinstance(self._process, _Forked):
            self._process.end()
        elif self._expendable or not self._ends(self._process):
            self._process.kill()
            self._process.wait()
        for pipe in (self._tasks, self._answers):
            with contextlib.suppress(OSError):  # of what it didn't read any more
                pipe.close()

    def kill(self) -> None:
        """End the process at once: who waits for its answer gets `ChildDied`."""
        self._process.kill()

    @staticmethod
    def _ends(process: "Popen[bytes]") -> bool:
        """Tell a process to end; return whether it does so in time."""
        from subprocess import TimeoutExpired

        for _ in range(round(_LAST_SECONDS / _AGAIN_SECONDS)):
            process.terminate()
            with contextlib.suppress(TimeoutExpired):
                process.wait(_AGAIN_SECONDS)
                return True
        return False

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Return what a function returns there; it, its arguments and its result are pickled.

        `ChildDied` if the process ended, `ChildError` if the function raised an error that only
        another library knows; any other comes as it is.
        """
        self.send(function, *arguments)
        return cast(Result, self.receive())

    def send(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have a function called there, as `call` does, after those that were sent before."""
        task = pickle.dumps(function), pickle.dumps(arguments)
        with contextlib.suppress(OSError, ValueError):  # receive tells
            pickle.dump(task, self._tasks)
            self._tasks.flush()

    def receive(self) -> object:
        """Return what the first function tells (`tell`) that is at work, or its result."""
        try:
            result, error, trace = pickle.load(self._answers)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            raise ChildDied(self._process.wait()) from None
        if error is not None:
            raise error from ChildError(trace)
        return result


class _Forked:
    """A process that was forked, and has nothing to lose.

    It stays known to the system until it is taken away: several threads may wait for it before.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def wait(self) -> int:
        """Return its exit code, as Popen has it, when it has ended."""
        with contextlib.suppress(ChildProcessError):  # it was taken away
            found = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
            if found is not None:
                exited = found.si_code == os.CLD_EXITED
                return found.si_status if exited else -found.si_status
        return -signal.SIGKILL

    def kill(self) -> None:
        """Kill it."""
        os.kill(self._pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it, and take it away."""
        self.kill()
        os.waitpid(self._pid, 0)


def may_fork() -> bool:
    """Return whether a copy of this process would be sound: no thread is there to be cut off."""
    try:
        return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208
    except OSError:  # not on Linux
        return False


_parent: "list[IO[bytes]]" = []
"""Where a child's answers go."""

_answering = threading.Lock()


def tell(value: object) -> None:
    """Have the parent receive a value before the result of the function that is at work here."""
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
    os.dup2(2, 1)  # what a library prints is no answer
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
    """Take tasks, until the parent closes its end: then there is no one to work for."""
    pipe = open(0, "rb", closefd=False)  # noqa: SIM115 - Python closes sys.stdin at its end
    try:
        while True:
            tasks.put(pickle.load(pipe))
    except EOFError:
        for _ in range(round(_LAST_SECONDS / _AGAIN_SECONDS)):
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
                time.sleep(_AGAIN_SECONDS)
        os._exit(0)


def answer(function: bytes, arguments: bytes) -> bytes:
    """Call a function, both pickled; return, pickled, its result, or its error and the trace."""
    try:
        return pickle.dumps((pickle.loads(function)(*pickle.loads(arguments)), None, ""))
    except Exception as error:  # noqa: BLE001 - it is raised in the parent
        kind = type(error)
        if isinstance(error, MemoryError):
            error = MemoryError(str(error))  # Arrow has a subclass of its own
        elif kind.__module__.partition(".")[0] not in ("builtins", "tfrtool"):
            # The parent may not have the library, or not want to load it for this.
            error = ChildError(f"{kind.__name__}: {error}")
        return pickle.dumps((None, error, traceback.format_exc()))
