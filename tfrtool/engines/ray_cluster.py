"""Tasks on the nodes of a Ray cluster; a process or node that dies costs only its current task."""

import errno
import importlib
import io
import os
import pickle
import signal
import socket
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import chain, islice, repeat, takewhile
from pathlib import Path
from pickle import PickleBuffer
from typing import Any, TypeVar

from tfrtool.engines.engine import Engine
from tfrtool.engines.local_copies import BLOCK, Block, blocks_of, fetch
from tfrtool.errors import ClusterError, ShardError, UsageError, os_reason, reason_of
from tfrtool.storage.child import ChildError
from tfrtool.storage.extras import missing_extra
from tfrtool.storage.lock import signals_wait
from tfrtool.storage.progress import BYTES, Counts, Meter, OnCounts, OnProgress, counting
from tfrtool.storage.remote_path import RemotePath, reading_from
from tfrtool.storage.stores import ChangedError, Status, Store, etags_differ

Item = TypeVar("Item")
Result = TypeVar("Result")
Task = TypeVar("Task")

_VERSION = str(sys.modules["tfrtool"].__version__)

_RETRIES = 4  # of a task whose worker died
_SECONDS = 5.0  # for a connection, and for a cancelled task to end
_FILE_WAIT_SECONDS = 5.0
"""Seconds that a node waits for a path that exists here: shared file systems list late."""

_CHECKED = 16
"""Paths of a task that are looked for on its node."""

_INLINE = 64 * 1024
"""Most bytes of a function that are sent with each call."""

_SHOWN = "RAY_BACKEND_LOG_LEVEL"
"""If the environment has this variable, Ray's logs are shown."""

_SKIPPED = "RAY_DEDUP_LOGS_SKIP_REGEX"
"""What matches isn't printed, such as that a worker died, which Ray prints to standard output."""

_SETTINGS = {
    # An unplugged cable is never noticed otherwise.
    "RAY_grpc_client_keepalive_time_ms": "5000",
    "RAY_grpc_client_keepalive_timeout_ms": "5000",
    # Together less than ten seconds, minutes otherwise, if another service listens.
    "RAY_gcs_rpc_server_connect_timeout_s": "1",
    "RAY_py_gcs_connect_timeout_s": "5",
    "RAY_NUM_REDIS_GET_RETRIES": "1",
    "RAY_task_oom_retries": str(_RETRIES),  # without a limit otherwise
}

_LOST = {
    "WorkerCrashedError": "its worker process crashed",
    "NodeDiedError": "its node died",
    "LocalRayletDiedError": "Ray died on its node",
    "OutOfMemoryError": "its node ran out of memory",
    "ObjectLostError": "its result was lost",
}
"""Ray's errors for a task whose process or node died each time."""

_CONNECT_HINT = (
    "use the address that `ray start --head` printed; "
    "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE if it requires a token"
)
_SHARED_HINT = "use paths that are the same on every node, as on a shared file system, or URLs"


class RayCluster(Engine):
    """A running Ray cluster. A program that is already connected to Ray stays connected."""

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        """Set the address, HOST:PORT or "auto" (None: RAY_ADDRESS), and the most tasks at a time.

        None for ``workers`` takes all cores of the cluster.
        """
        if workers is not None and workers < 1:
            raise UsageError(f"--workers must be at least 1, got {workers}")
        self._address, self._workers = address, workers
        self._connection = ExitStack()
        self._users = 0
        self.ray: Any = None  # the module, while connected

    def __enter__(self) -> "RayCluster":
        """Connect, in the outermost block."""
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
        """Yield the results of tasks; the counts of a task come with its result.

        Raises:
            ClusterError: the cluster can't be reached, or has another version of tfrtool.
            ShardError: a file doesn't exist on a node; or a task lost its worker again and again.
        """
        with self, closing(self._calls(function, tasks, in_order=in_order, cpus=1)) as calls:
            for task, answer, buffers in calls:
                result, counts = self._result(task, [answer, buffers])
                if on_counts is not None:
                    on_counts(counts)
                yield result

    @contextmanager
    def hold(self, paths: Sequence[RemotePath], on_progress: OnProgress) -> Iterator[None]:
        """Download objects once, and keep them in the object stores of the nodes in the body.

        They take at most half of these. Objects that don't fit are read from their store.
        """
        sizes = {p: p.known().size for p in paths if not isinstance(p.store, _NodeCopy)}
        with self:
            if 2 * sum(sizes.values()) > self.ray.cluster_resources().get("object_store_memory", 0):
                yield
                return
            meter = Meter(on_progress, "downloading", BYTES, sum(sizes.values()))
            blocks = defaultdict[RemotePath, list[Any]](list)
            # What waits for a block that is fetched again, after its node died, has the CPUs.
            fetched = self._calls(_fetch, blocks_of(sizes), in_order=True, cpus=0)
            with closing(fetched) as calls:
                for (path, at), answer, buffers in calls:
                    meter.add(self._result((path, at), [answer])[1])
                    blocks[path].append(buffers)
            meter.finish()
            copies = [_NodeCopy(str(path), path.known(), parts) for path, parts in blocks.items()]
            with reading_from(_NodeCopies((copy.url, copy) for copy in copies).get):
                yield

    def _calls(
        self,
        function: Callable[[Task], object],
        tasks: Iterable[Task],
        *,
        in_order: bool,
        cpus: int,
    ) -> Generator[tuple[Task, Any, Any]]:
        """Yield tasks that are done, with what refers to their answers and buffers."""
        ray, here, waiting = self.ray, str(Path.cwd()), iter(tasks)
        head, folders, objects = _pickled(partial(_run_counted, function), Path.is_dir)
        # A large one is sent to each node once; but it is gone when a lost block is fetched again.
        shared = ray.put(head) if len(head) > _INLINE else head
        options = {"num_cpus": cpus, "max_retries": _RETRIES, "scheduling_strategy": "SPREAD"}
        run = ray.remote(num_returns=2, **options)(node_call())
        order: dict[Any, tuple[Task, Any]] = {}  # calls whose result was not taken
        done: set[Any] = set()
        try:
            while True:
                room = self._workers or 2 * int(ray.cluster_resources().get("CPU", 0)) or 1
                for task in islice(waiting, max(0, room - len(order) + len(done))):
                    body, paths, task_objects = _pickled((task,), Path.exists)
                    stores = (path.store for path in (*objects, *task_objects))
                    copies = {copy.url: copy for copy in stores if isinstance(copy, _NodeCopy)}
                    where = _VERSION, here, [*folders, *paths]
                    with signals_wait():  # what was sent is in `order`
                        call, buffers = run.remote(*where, shared, body, copies)
                        order[call] = task, buffers
                if not (running := [call for call in order if call not in done]):
                    break
                done.update(ray.wait(running, timeout=_SECONDS, fetch_local=False)[0])
                ready = takewhile(done.__contains__, order) if in_order else done
                for call in [*ready]:
                    done.remove(call)
                    task, buffers = order.pop(call)
                    yield task, call, buffers
        finally:
            if left := [call for call in order if call not in done]:
                # In Ray's own thread: Ray aborts if another one cancels what that is completing.
                trigger = ray.put(None).future()
                trigger.add_done_callback(lambda _: [ray.cancel(call, force=True) for call in left])
                # No task writes after this.
                ray.wait(left, num_returns=len(left), timeout=_SECONDS, fetch_local=False)

    def _result(self, task: object, parts: list[Any]) -> Any:
        """Return the result of a task, or raise its error."""
        try:
            answer = self.ray.get(parts)
        except self.ray.exceptions.RayError as error:
            reason = _LOST.get(type(error).__name__)
            if reason is None:
                raise ClusterError(f"the cluster can't run a task: {reason_of(error)}") from error
            raise ShardError(
                f"a task failed {_RETRIES + 1} times, the last time because {reason}",
                path=next(chain[str | RemotePath](*_pickled(task, lambda _: True)[1:]), None),
                hint="check whether it ran out of memory, or use fewer --workers",
            ) from error
        return node_result(*answer)


class _NodeCopy(Store):
    """Reads an object whose blocks the nodes hold, in order, instead of its store."""

    def __init__(self, url: str, status: Status, blocks: Sequence[Any]) -> None:
        super().__init__(url, None, writes=False)
        self._known, self._blocks = status, blocks

    def __reduce__(self) -> tuple[Any, ...]:
        return _NodeCopy, (self.url, self._known, self._blocks)

    def head(self, key: str) -> Status:  # noqa: ARG002
        return self._known

    def get(self, key: str, start: int, size: int, etag: str | None = None) -> tuple[bytes, Status]:  # noqa: ARG002
        ray, status = importlib.import_module("ray"), self._known
        if etags_differ(etag, status.etag):
            raise ChangedError(self.url)
        stop = min(start + size, status.size)
        first = start // BLOCK
        try:
            found = ray.get([*self._blocks[first : -(-stop // BLOCK)]])
        except ray.exceptions.RayError as error:
            what = f"its copy on the nodes is lost: {type(error).__name__}"
            raise OSError(errno.EIO, what, self.url) from error
        parts = [
            memoryview(data)[max(start - at, 0) : max(stop - at, 0)]
            for at, (data,) in zip(range(first * BLOCK, stop, BLOCK), found, strict=True)
        ]
        return b"".join(parts), status

    def ahead(
        self,
        call: Callable[[Item], Result],
        items: Iterable[Item],
        most: int = 1,  # noqa: ARG002
    ) -> Iterator[Result]:
        return map(call, items)


class _NodeCopies(dict[str, _NodeCopy]):
    """Copies, by URL, that are read where Ray is connected; other processes read the stores."""

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, ()


def _run_counted(function: Callable[[Task], Result], task: Task) -> tuple[Result, Counts]:
    """Return the result of a function, and what it has counted."""
    total = Counter[str]()
    with counting(total.update):
        result = function(task)
    return result, dict(total)


def _fetch(block: Block) -> PickleBuffer:
    return PickleBuffer(fetch(block))


def node_call() -> Callable[..., tuple[tuple[str, str, bytes], list[Any]]]:
    """Return the function that nodes run; it is sent whole, for nodes without tfrtool."""
    wait_seconds = _FILE_WAIT_SECONDS

    def run(
        version: str,
        folder: str,
        paths: Sequence[str],
        function: bytes,
        arguments: bytes,
        copies: Mapping[str, Any],
    ) -> tuple[tuple[str, str, bytes], list[Any]]:
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
            return (host, "none", str(error).encode()), []
        if (found := sys.modules["tfrtool"].__version__) != version:
            return (host, "other", found.encode()), []
        from tfrtool.storage.remote_path import reading_from

        with contextlib.suppress(OSError):
            os.chdir(folder)  # paths may be relative
        end = time.monotonic() + wait_seconds
        for path in paths:
            while not os.path.lexists(path):
                if time.monotonic() > end:
                    return (host, "absent", os.fsencode(path)), []
                time.sleep(0.2)
        buffers: list[Any] = []
        with reading_from(copies.get):
            return (host, "done", child.answer(function, arguments, buffers.append)), buffers

    return run


def node_result(answer: tuple[str, str, bytes], buffers: Iterable[Any] = repeat(b"")) -> Any:
    """Return the result of `node_call`, or raise its error.

    Without its buffers, the result of `_fetch` is empty.
    """
    host, state, data = answer
    if state == "done":
        result, error, trace = pickle.loads(
            data, buffers=map(bytearray, buffers)
        )  # Ray's can't be changed
        if error is not None:
            raise error from ChildError(trace)
        return result
    if state == "absent":
        what = f"exists on this machine, but not on node {host}"
        raise ShardError(what, path=os.fsdecode(data), hint=_SHARED_HINT)
    hint = f'run pip install "tfrtool[ray]=={_VERSION}" on that node'
    what = f"node {host} has {'no' if state == 'none' else 'another version of'} tfrtool"
    raise ClusterError(what, expected=_VERSION, found=data.decode(), hint=hint)


class _Pickler(pickle.Pickler):
    """Pickles, and collects the local paths and those in stores that are pickled."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.paths: list[Path] = []
        self.objects: list[RemotePath] = []

    def reducer_override(self, value: Any) -> Any:
        if type(value) is type(Path()):
            self.paths.append(value)
        elif type(value) is RemotePath:
            self.objects.append(value)
        return NotImplemented


def _pickled(
    value: object, exists: Callable[[Path], bool]
) -> tuple[bytes, list[str], list[RemotePath]]:
    """Pickle; also return some local paths in it, which must exist on a node; and objects."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    paths = [str(path) for path in islice(filter(exists, pickler.paths), _CHECKED)]
    return file.getvalue(), paths, pickler.objects


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, and disconnect; give the module of Ray."""
    try:
        before = dict(os.environ)
        token = any(f"RAY_AUTH_{name}" in before for name in ("TOKEN", "TOKEN_PATH"))
        mode = "token" if token else "disabled"
        hidden = {} if _SHOWN in before else {_SKIPPED: "."}
        os.environ.update({**_SETTINGS, **hidden, "RAY_AUTH_MODE": mode, **before})
        try:
            import ray
        except ImportError as error:
            raise missing_extra("Ray clusters", "ray") from error
        if ray.is_initialized():
            connected = ray.get_runtime_context().gcs_address
            if address not in (None, "auto", connected):
                what = "this program is connected to another Ray cluster"
                raise UsageError(what, expected=address, found=connected)
            yield ray
            return
        _connect(ray, address or before.get("RAY_ADDRESS"), shown=_SHOWN in before)
        try:
            yield ray
        finally:
            ray.shutdown()
    finally:
        for name in {*_SETTINGS, _SKIPPED, "RAY_AUTH_MODE", "PYTHONBREAKPOINT"} - {*before}:
            os.environ.pop(name, None)  # Ray sets the last


def _connect(ray: Any, address: str | None, *, shown: bool) -> None:
    if not address:
        raise UsageError(
            "--engine ray requires an address",
            expected="--engine-address HOST:PORT, or RAY_ADDRESS",
            hint="run `ray start --head` to start a cluster and see its address",
        )
    if address != "auto":
        _check_address(address)
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=shown, logging_level="INFO" if shown else "CRITICAL")
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        what = f"can't connect to this Ray cluster: {reason_of(error)}"
        raise ClusterError(what, path=address, hint=_CONNECT_HINT) from error
    finally:
        if is_main and handler is not None:  # Ray takes it
            signal.signal(signal.SIGTERM, handler)


def _check_address(address: str) -> None:
    """Check that something listens at an address: Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and port.isascii() and int(port) < 2**16) or "/" in host:
        expected = "HOST:PORT, such as HOST:6379 for the machine that runs `ray start --head`"
        raise UsageError(f"invalid cluster address {address!r}"[:100], expected=expected)
    try:
        socket.create_connection((host.strip("[]"), int(port)), _SECONDS).close()
    except OSError as error:
        what = f"no Ray cluster at this address: {os_reason(error)}"
        raise ClusterError(what, path=address) from error
