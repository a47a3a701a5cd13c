"""Tasks on the nodes of a Ray cluster; a process or node that dies costs only its current task."""

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
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, TypeVar

from tfrtool.engines.engine import Engine
from tfrtool.errors import ClusterError, ShardError, UsageError, os_reason, reason_of
from tfrtool.storage.child import ChildError
from tfrtool.storage.progress import Counts, OnCounts, counting

Result = TypeVar("Result")
Task = TypeVar("Task")

_VERSION = str(sys.modules["tfrtool"].__version__)

_RETRIES = 4
"""Times that a task whose worker died is run again."""

_SECONDS = 5.0
"""What a connection may take, and what a task that is cancelled gets to end."""

_LATE = 5.0
"""How long a node looks for a path that exists here: shared file systems list late."""

_LARGE = 100_000
"""Bytes that are sent to each node once, and not with each task."""

_CHECKED = 16
"""Paths of a task that must exist on its node, too."""

_SHOWN = "RAY_BACKEND_LOG_LEVEL"
"""If the environment has this variable, what Ray logs is shown."""

_SETTINGS = {
    # A pulled cable is never noticed otherwise.
    "RAY_grpc_client_keepalive_time_ms": "5000",
    "RAY_grpc_client_keepalive_timeout_ms": "5000",
    "RAY_NUM_REDIS_GET_RETRIES": "3",  # each takes a second if the token is wrong
    "RAY_task_oom_retries": str(_RETRIES),  # without a limit otherwise
}

_LOST = {
    "WorkerCrashedError": "its worker process crashed",
    "NodeDiedError": "its node died",
    "LocalRayletDiedError": "Ray died on its node",
    "OutOfMemoryError": "its node ran out of memory",
    "ObjectLostError": "its result was lost",
}
"""Errors of Ray if a process or a node died each time that a task was run."""

_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The start of an HTTP/2 connection; the answer is a frame of the type 4."""

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
        self._connection = ExitStack()
        self._users = 0
        self.ray: Any = None  # the module, while connected

    def __enter__(self) -> "RayCluster":
        """Connect to the cluster, unless that is done."""
        if not self._users:
            self.ray = self._connection.enter_context(_connected(self._address))
        self._users += 1
        return self

    def __exit__(self, *error: object) -> None:
        """Disconnect, at the end of the outermost block."""
        self._users -= 1
        if not self._users:
            self._connection.close()

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        in_order: bool,
        on_counts: OnCounts | None,
        **_: object,
    ) -> Iterator[Result]:
        """Yield the results of tasks, whatever their size.

        Results that are early stay in the cluster until it is their turn. The counts of a task
        come with its result.

        Raises:
            ClusterError: the cluster can't be reached, or has another version of tfrtool.
            ShardError: a file doesn't exist on a node; or a task lost its worker again and again.
        """
        with self:
            ray = self.ray
            head, folders = _pickled(partial(_run_counted, function), Path.is_dir)
            shared = ray.put(head) if len(head) > _LARGE else head
            options = {
                "num_cpus": 1,
                "max_retries": _RETRIES,
                "scheduling_strategy": "SPREAD",
            }
            run, here = ray.remote(**options)(node_call()), str(Path.cwd())
            waiting = iter(tasks)
            running: dict[Any, Task] = {}
            done: dict[Any, Task] = {}
            order: dict[Any, None] = {}
            try:
                while True:
                    room = self._workers or 2 * int(ray.cluster_resources().get("CPU", 0)) or 1
                    for task in islice(waiting, max(0, room - len(running))):
                        body, paths = _pickled((task,), Path.exists)
                        call = run.remote(_VERSION, here, [*folders, *paths], shared, body)
                        running[call] = task
                        order[call] = None
                    if not running:
                        break
                    words = {"timeout": _SECONDS, "fetch_local": False}
                    for call in ray.wait([*running], **words)[0]:
                        done[call] = running.pop(call)
                    for call in [*takewhile(done.__contains__, order)] if in_order else [*done]:
                        del order[call]
                        result, counts = self._result(call, done.pop(call))
                        if on_counts is not None:
                            on_counts(counts)
                        yield result
            finally:
                # Ray ends a task that is cancelled just as it ends.
                left = self._unfinished([*running], 0.0)
                for call in left:
                    ray.cancel(call, force=True)
                self._unfinished(left, _SECONDS)  # no task writes after this

    def _result(self, call: Any, task: object) -> Any:
        """Return what a task returned, or raise its error."""
        try:
            answer = self.ray.get(call)
        except self.ray.exceptions.RayError as error:
            reason = _LOST.get(type(error).__name__)
            if reason is None:
                raise ClusterError(f"the cluster can't run a task: {reason_of(error)}") from error
            raise ShardError(
                f"a task failed {_RETRIES + 1} times, the last time because {reason}",
                path=next(iter(_pickled(task, lambda _: True)[1]), None),
                hint="check whether it ran out of memory, or use fewer --workers",
            ) from error
        return node_result(*answer)

    def _unfinished(self, calls: list[Any], seconds: float) -> list[Any]:
        words = {"num_returns": len(calls), "timeout": seconds, "fetch_local": False}
        return self.ray.wait(calls, **words)[1] if calls else []


def _run_counted(function: Callable[[Task], Result], task: Task) -> tuple[Result, Counts]:
    """Return what a function returns on a node, and what it has counted."""
    total = Counter[str]()
    with counting(total.update):
        result = function(task)
    return result, dict(total)


def node_call() -> Callable[..., tuple[str, str, bytes]]:
    """Return what nodes run. It is sent whole, for a node may have no tfrtool, or another one."""
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


def node_result(host: str, state: str, data: bytes) -> Any:
    """Return what a function returned on a node, or raise what it raised."""
    if state == "done":
        result, error, trace = pickle.loads(data)
        if error is not None:
            raise error from ChildError(trace)
        return result
    if state == "absent":
        what = f"exists on this machine, but not on node {host}"
        raise ShardError(what, path=os.fsdecode(data), hint=_SHARED_HINT)
    hint = f'run pip install "tfrtool[ray]=={_VERSION}" on that node'
    what = f"node {host} has {'no' if state == 'none' else 'another version of'} tfrtool"
    raise ClusterError(what, expected=_VERSION, found=data.decode(), hint=hint)


def arguments_of(function: Callable[..., object], *arguments: object) -> tuple[object, ...]:
    """Return the arguments with which `node_call` calls a function of a module."""
    head, folders = _pickled(function, Path.is_dir)
    body, paths = _pickled(arguments, Path.exists)
    return _VERSION, str(Path.cwd()), [*folders, *paths], head, body


class _Pickler(pickle.Pickler):
    """Pickles, and collects the paths of this machine that are pickled."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.paths: list[Path] = []

    def reducer_override(self, value: Any) -> Any:
        if type(value) is type(Path()):
            self.paths.append(value)
        return NotImplemented


def _pickled(value: object, exists: Callable[[Path], bool]) -> tuple[bytes, list[str]]:
    """Pickle; also return some of the paths in it, which must exist on a node as they do here."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return file.getvalue(), [str(path) for path in islice(filter(exists, pickler.paths), _CHECKED)]


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, and disconnect; give the module of Ray."""
    token = any(f"RAY_AUTH_{name}" in os.environ for name in ("TOKEN", "TOKEN_PATH"))
    shown = _SHOWN in os.environ
    with _environment({**_SETTINGS, "RAY_AUTH_MODE": "token" if token else "disabled"}):
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
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set variables that the environment doesn't have yet."""
    before = dict(os.environ)
    os.environ.update({**settings, **before})
    try:
        yield
    finally:
        for name in {*settings, "PYTHONBREAKPOINT"}:  # which Ray sets
            os.environ.pop(name, None)
            os.environ.update({name: before[name]} if name in before else {})


@contextmanager
def _unprinted() -> Iterator[None]:
    """Keep Ray from printing to standard output that a worker died: no setting does that."""
    worker: Any = importlib.import_module("ray._private.worker")
    printing = worker.print_worker_logs
    worker.print_worker_logs = lambda *_: None
    try:
        yield
    finally:
        worker.print_worker_logs = printing


@contextmanager
def _quiet() -> Iterator[None]:
    """Discard what Ray's C++ code writes to standard error."""
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def _greet(address: str) -> None:
    """Check that a cluster may be there: Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and port.isascii() and int(port) < 2**16) or "/" in host:
        expected = "HOST:PORT, such as HOST:6379 for the machine that runs `ray start --head`"
        raise UsageError(f"invalid cluster address {address!r}"[:100], expected=expected)
    reason = "another service answers"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _SECONDS) as connection:
            connection.sendall(_HELLO)
            if connection.recv(4, socket.MSG_WAITALL)[3:] == b"\4":
                return
    except OSError as error:
        reason = os_reason(error)
    raise ClusterError(f"no Ray cluster at this address: {reason}", path=address)
