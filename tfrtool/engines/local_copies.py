"""Local copies of objects of stores, for commands that read them more than once."""

import errno
import importlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tfrtool.engines.engine import Engine, Workers
from tfrtool.errors import ShardError, WriteError, os_errors_as
from tfrtool.storage.progress import BYTES, Meter, OnProgress, count_work
from tfrtool.storage.remote_path import AnyPath, RemotePath, reading_from
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.storage.stores import ChangedError, Status, Store, etags_differ

Item = TypeVar("Item")
Result = TypeVar("Result")

BLOCK = 8 * 1024 * 1024
"""Bytes that a request downloads."""

_AT_ONCE = 4

Block = tuple[RemotePath, int]
"""An object, and where a block of it starts."""


@contextmanager
def local_copies(
    paths: Iterable[AnyPath],
    workers: Workers,
    on_progress: OnProgress,
    *,
    needed_for: str | None = None,
) -> Iterator[None]:
    """Download objects of stores to the folder for temporary files, to be read there in the body.

    Copies take at most half of the free space. Objects that don't fit are read from the store. An
    engine holds copies itself, see `Engine.hold`.

    Args:
        paths: the files; local ones, and those that have a copy, are ignored.
        workers: what reads them.
        on_progress: called with the number of bytes.
        needed_for: what requires copies; None if they only save requests.

    Raises:
        ShardError: an object can't be read, or has changed.
        WriteError: a copy can't be written, or there is not enough room for those that are needed.
    """
    remote = [path for path in paths if isinstance(path, RemotePath) and path.copy is None]
    if not remote:
        yield
        return
    for path in remote:
        with os_errors_as(ShardError, path):
            path.known()
    if isinstance(workers, Engine):
        with workers.hold(remote, on_progress):
            yield
        return
    with ScratchFolder() as folder:
        copies = {path: Path(folder, str(number)) for number, path in enumerate({*remote})}
        needed = 2 * sum(path.known().size for path in copies)
        if needed <= (free := shutil.disk_usage(folder).free):
            _download(copies, on_progress)
            for path in remote:
                path.copy = copies[path]
        elif needed_for:
            what = f"not enough space for local copies of the sources, which {needed_for} requires"
            facts = {"expected": f"{needed:,} bytes, twice their size", "found": f"{free:,}"}
            hint = "set TMPDIR to a folder on another disk"
            raise WriteError(what, path=Path(folder).parent, **facts, hint=hint)
        try:
            yield
        finally:
            for path in remote:
                path.copy = None


def blocks_of(paths: Iterable[RemotePath]) -> list[Block]:
    """Return the blocks of objects, at least one for each."""
    return [(path, at) for path in paths for at in range(0, path.known().size or 1, BLOCK)]


def fetch(block: Block) -> bytes:
    """Download a block; `ShardError` if the object has changed."""
    path, start = block
    with os_errors_as(ShardError, path):
        data, status = path.store.get(path.key, start, BLOCK, path.known().etag)
        if status.size != path.known().size:
            raise ChangedError(str(path))
    count_work(len(data), BYTES)
    return data


def _download(copies: dict[RemotePath, Path], on_progress: OnProgress) -> None:
    """Download objects in blocks, and fetch the next blocks ahead."""
    blocks = blocks_of(copies)
    meter = Meter(on_progress, "downloading", BYTES, sum(path.known().size for path in copies))
    fetched = blocks[0][0].store.ahead(fetch, blocks, _AT_ONCE)
    for (path, _), data in zip(blocks, fetched, strict=True):
        with (
            os_errors_as(WriteError, copies[path].parent, "can't be written to"),
            copies[path].open("ab") as file,
        ):
            file.write(data)
        meter.add({BYTES: len(data)})
    meter.finish()


class NodeCopy(NamedTuple):
    """An object of a store whose blocks the nodes hold, in order."""

    status: Status
    blocks: Sequence[Any]


class _NodeCopyStore(Store):
    """Reads an object that the nodes hold, instead of its store."""

    def __init__(self, url: str, node_copy: NodeCopy) -> None:
        super().__init__(url, None, writes=False)
        self._node_copy = node_copy

    def head(self, key: str) -> Status:  # noqa: ARG002
        return self._node_copy.status

    def get(self, key: str, start: int, size: int, etag: str | None = None) -> tuple[bytes, Status]:  # noqa: ARG002
        ray, status = importlib.import_module("ray"), self._node_copy.status
        if etags_differ(etag, status.etag):
            raise ChangedError(self.url)
        stop = min(start + size, status.size)
        first = start // BLOCK
        try:
            found = ray.get([*self._node_copy.blocks[first : -(-stop // BLOCK)]])
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


def reading_node_copies(copies: Mapping[str, NodeCopy]) -> AbstractContextManager[None]:
    """Read objects, by URL, from what the nodes hold of them."""
    return reading_from({url: _NodeCopyStore(url, one) for url, one in copies.items()})
