"""Tasks on the nodes of a Ray cluster; what dies there costs only what it was about to do."""

import importlib
import io
import os
import pickle
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar, cast

from tfrtool.engines.engine import Engine
from tfrtool.errors import ClusterError, ShardError, UsageError, os_reason, reason_of
from tfrtool.storage.child import ChildError
from tfrtool.storage.progress import Counts, OnCounts, counting
from tfrtool.storage.scratch.external_sort import ScratchFile

Result = TypeVar("Result")
Task = TypeVar("Task")

_VERSION = str(sys.modules["tfrtool"].__version__)

_ATTEMPTS = 5
"""Times that a task may lose its worker: one that needs too much memory always does."""

_SECONDS = 5.0
"""What a connection may take, and what a task that is cancelled gets to end."""

_LATE = 5.0
"""How long a node looks for a path that is here: shared file systems list late."""

_LARGE = 100_000
"""Bytes that are sent to each node once, and not with each task."""

_CHECKED = 16
"""Paths of a task that a node is asked for before it begins."""

_SHOWN = "RAY_BACKEND_LOG_LEVEL"
"""Who sets this wants to see what Ray logs."""

_SETTINGS = {
    # A pulled cable is never noticed otherwise.
    "RAY_grpc_client_keepalive_time_ms": "5000",
    "RAY_grpc_client_keepalive_timeout_ms": "5000",
    "RAY_NUM_REDIS_GET_RETRIES": "3",  # each takes a second if the token is wrong
}

_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How a connection of HTTP/2 begins; both sides then send a frame of the type 4."""

_AUTH_HINT = "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE if it requires a token"
_SHARED_HINT = "use paths that are the same on every node, as on a shared file system, or URLs"


class RayCluster(Engine):
    """A Ray cluster that is running; it is left as it is.

    Where the program is connected to Ray already, it stays so.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        """Name a cluster by ``HOST:PORT`` or "auto", and how many tasks run there at a time.

        None is the environment's RAY_ADDRESS, or the cluster that the program is connected to; and
        all of its cores.
        """
        if workers is not None and workers < 1:
            raise UsageError(f"--workers must be at least 1, got {workers}")
        self._address, self._workers = address, workers
        self._held: ExitStack | None = None
        self._users = 0
        self._ray: Any = None

    def __enter__(self) -> "RayCluster":
        """Connect to the cluster, unless that is done."""
        if self._held is None:
            with ExitStack() as stack:
                self._ray = stack.enter_context(_connected(self._address))
                self._held = stack.pop_all()
        self._users += 1
        return self

    def __exit__(self, *error: object) -> None:
        """Disconnect, if this was the last who needs it."""
        self._users -= 1
        if not self._users and self._held is not None:
            self._held.close()
            self._held = None

    @property
    def ray(self) -> Any:
        """The module, connected."""
        return self._ray

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        in_order: bool,
        on_counts: OnCounts | None,
        **_: object,
    ) -> Iterator[Result]:
        """Yield the results of tasks; how large they are doesn't matter.

        Those that are done before it is their turn wait in a file. What a task counts comes with
        its result.

        Raises:
            ClusterError: the cluster can't be reached, or has another version of tfrtool.
            ShardError: a file is not there for a node; or a task lost its worker again and again.
        """

        def received(host: str, said: str, data: bytes) -> Result:
            result, counts = node_result(host, said, data)
            if on_counts is not None:
                on_counts(counts)
            return cast(Result, result)

        with self:
            early: dict[int, tuple[str, str, int, int]] = {}
            file, given = ScratchFile(), 0
            for index, (host, said, data) in self._run(partial(_run_counted, function), tasks):
                if in_order and index != given:
                    early[index] = host, said, file.append(data), len(data)
                    continue
                yield received(host, said, data)
                given += 1
                while given in early:
                    host, said, *place = early.pop(given)
                    yield received(host, said, file.read(*place))
                    given += 1

    def _run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Iterator[tuple[int, tuple[str, str, bytes]]]:
        """Yield what nodes say of tasks, with the tasks' places, as they are done."""
        ray = self._ray
        lost = tuple(getattr(ray.exceptions, name) for name in _LOST)
        head, folders = _pickled(function, Path.is_dir)
        shared = ray.put(head) if len(head) > _LARGE else head
        # Ray's own retries of what needs too much memory have no bound.
        options = {"num_cpus": 1, "max_retries": 0, "scheduling_strategy": "SPREAD"}
        run, here = ray.remote(**options)(node_call()), str(Path.cwd())
        waiting: Iterator[tuple[int, Task]] = enumerate(tasks)
        running: dict[Any, tuple[int, Task]] = {}
        attempts = Counter[int]()
        try:
            while True:
                room = self._workers or 2 * int(ray.cluster_resources().get("CPU", 0)) or 1
                for index, task in islice(waiting, max(0, room - len(running))):
                    body, paths = _pickled((task,), Path.exists)
                    call = run.remote(_VERSION, here, [*folders, *paths], shared, body)
                    running[call] = index, task
                if not running:
                    return
                done, _ = ray.wait([*running], timeout=_SECONDS)
                for call in done:
                    index, task = running.pop(call)
                    try:
                        said = ray.get(call)
                    except lost as error:
                        attempts[index] += 1
                        if attempts[index] == _ATTEMPTS:
                            raise _given_up(task, error) from error
                        waiting = chain([(index, task)], waiting)
                    except ray.exceptions.RayError as error:
                        what = f"the cluster can't run a task: {reason_of(error)}"
                        raise ClusterError(what) from error
                    else:
                        yield index, said
        finally:
            # Who cancels what just ends, as when its end woke this thread, is ended by Ray.
            left = _undone(ray, [*running], 0.0)
            for call in left:
                ray.cancel(call, force=True)
            _undone(ray, left, _SECONDS)  # nobody writes any more when this is over


def _run_counted(function: Callable[[Task], Result], task: Task) -> tuple[Result, Counts]:
    """Return what a function returns on a node, and what it has counted."""
    total = Counter[str]()
    with counting(total.update):
        result = function(task)
    return result, dict(total)


def _undone(ray: Any, calls: list[Any], seconds: float) -> list[Any]:
    if not calls:
        return []
    words = {"num_returns": len(calls), "timeout": seconds, "fetch_local": False}
    left: list[Any] = ray.wait(calls, **words)[1]
    return left


_LOST = {
    "WorkerCrashedError": "its worker process crashed",
    "NodeDiedError": "its node died",
    "LocalRayletDiedError": "Ray died on its node",
    "OutOfMemoryError": "its node ran out of memory",
    "ObjectLostError": "its result was lost",
}
"""What Ray raises where a process or a node died, and another one may do the task."""


def _given_up(task: object, error: Exception) -> ShardError:
    reason = _LOST.get(type(error).__name__, "its worker was lost")
    what = f"a task failed {_ATTEMPTS} times, the last time because {reason}"
    path = next(iter(_pickled(task, lambda _: True)[1]), None)
    return ShardError(
        what, path=path, hint="check whether it ran out of memory, or use fewer --workers"
    )


def node_call() -> Callable[..., tuple[str, str, bytes]]:
    """Return what nodes run. It is sent whole, for there may be no tfrtool, or another one."""
    late = _LATE

    def run(
        version: str, folder: str, paths: Sequence[str], function: bytes, arguments: bytes
    ) -> tuple[str, str, bytes]:
        import contextlib
        import os
        import socket
        import sys
        import time

        host, home = socket.gethostname(), os.path.join(folder, "tfrtool")  # noqa: PTH118
        if not os.path.isdir(home):  # noqa: PTH112 - Ray put the driver's folder there
            sys.path[:2] = [path for path in sys.path[:2] if path != folder]
        try:
            from tfrtool.storage import child
        except ImportError as error:
            return host, "none", str(error).encode()
        if (found := sys.modules["tfrtool"].__version__) != version:
            return host, "other", found.encode()
        with contextlib.suppress(OSError):
            os.chdir(folder)  # paths may be relative
        end = time.monotonic() + late
        for path in paths:
            while not os.path.lexists(path):
                if time.monotonic() > end:
                    return host, "absent", os.fsencode(path)
                time.sleep(0.2)
        return host, "done", child.answer(function, arguments)

    return run


def node_result(host: str, said: str, data: bytes) -> Any:
    """Return what a function returned on a node, or raise what it raised."""
    if said == "done":
        result, error, trace = pickle.loads(data)
        if error is not None:
            raise error from ChildError(trace)
        return result
    if said == "absent":
        what = f"exists on this machine, but not on node {host}"
        raise ShardError(what, path=os.fsdecode(data), hint=_SHARED_HINT)
    hint = f'run pip install "tfrtool[ray]=={_VERSION}" on that node'
    what = f"node {host} has {'no' if said == 'none' else 'another version of'} tfrtool"
    raise ClusterError(what, expected=_VERSION, found=data.decode(), hint=hint)


def arguments_of(function: Callable[..., object], *arguments: object) -> tuple[object, ...]:
    """Return what `node_call` is given to call a function of a module."""
    head, folders = _pickled(function, Path.is_dir)
    body, paths = _pickled(arguments, Path.exists)
    return _VERSION, str(Path.cwd()), [*folders, *paths], head, body


class _Pickler(pickle.Pickler):
    """Pickles, and knows which paths of this machine are in it."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.paths: list[Path] = []

    def reducer_override(self, value: Any) -> Any:
        if type(value) is type(Path()):  # and not at another place
            self.paths.append(value)
        return NotImplemented


def _pickled(value: object, there: Callable[[Path], bool]) -> tuple[bytes, list[str]]:
    """Pickle; return some of the paths in it, too, that a node must find as they are here."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return file.getvalue(), [str(path) for path in islice(filter(there, pickler.paths), _CHECKED)]


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster; give the module of Ray."""
    shown = _SHOWN in os.environ
    with _environment(_SETTINGS):
        try:
            import ray
        except ImportError as error:
            hint = 'run pip install "tfrtool[ray]"'
            raise UsageError("Ray is not installed", hint=hint) from error
        if ray.is_initialized():
            own = ray.get_runtime_context().gcs_address
            if address not in (None, "auto", own):
                what = "this program is connected to another Ray cluster"
                raise UsageError(what, expected=address, found=own)
            yield ray
            return
        address = address or os.environ.get("RAY_ADDRESS")
        if not address:
            raise UsageError(
                "--engine ray requires an address",
                expected="--engine-address HOST:PORT, or RAY_ADDRESS",
                hint="run `ray start --head` to start a cluster and see its address",
            )
        if address != "auto":
            _greet(address)
        with suppress(ImportError, AttributeError):  # the program may have imported Ray before
            native: Any = importlib.import_module("ray._raylet")
            native.Config.initialize("")
            native.AuthenticationTokenLoader.instance().reset_cache()
        before = signal.getsignal(signal.SIGTERM)
        try:
            with nullcontext() if shown else _quiet():
                level = "INFO" if shown else "CRITICAL"
                ray.init(address, log_to_driver=shown, logging_level=level)
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            what = f"can't connect to this Ray cluster: {reason_of(error)}"
            raise ClusterError(what, path=address, hint=_AUTH_HINT) from error
        finally:
            if threading.current_thread() is threading.main_thread() and before is not None:
                signal.signal(signal.SIGTERM, before)
        with nullcontext() if shown else _unprinted():
            try:
                yield ray
            finally:
                ray.shutdown()


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold back what libraries write straight to file descriptor 2."""
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


@contextmanager
def _unprinted() -> Iterator[None]:
    """Keep Ray from printing to standard output that a worker died."""
    try:
        from ray._private import worker

        printing, worker.print_worker_logs = worker.print_worker_logs, lambda *_: None
    except (ImportError, AttributeError):
        yield
        return
    try:
        yield
    finally:
        worker.print_worker_logs = printing


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set what the environment doesn't have yet, and no token that nobody named."""
    named = any(f"RAY_AUTH_{name}" in os.environ for name in ("TOKEN", "TOKEN_PATH"))
    wanted = {**settings, "RAY_AUTH_MODE": "token" if named else "disabled"}
    before = dict(os.environ)
    os.environ.update(wanted | before)
    try:
        yield
    finally:
        for name in {*wanted, "PYTHONBREAKPOINT"}:  # which Ray sets
            os.environ.pop(name, None)
            os.environ.update({name: before[name]} if name in before else {})


def _greet(address: str) -> None:
    """See whether a cluster may be there: Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and port.isascii() and int(port) < 2**16) or "/" in host:
        expected = "HOST:PORT, such as HOST:6379 for the machine that runs `ray start --head`"
        raise UsageError(f"invalid cluster address {address!r}"[:100], expected=expected)
    reason = "another service answers"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _SECONDS) as connection:
            connection.sendall(_HELLO)
            frame = b""
            while len(frame) < 4 and (more := connection.recv(4 - len(frame))):
                frame += more
        if frame[3:] == b"\4":
            return
    except OSError as error:
        reason = os_reason(error)
    raise ClusterError(f"no Ray cluster at this address: {reason}", path=address)
