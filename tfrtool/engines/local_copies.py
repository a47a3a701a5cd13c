"""Local copies of objects of stores, for commands that read them more than once."""

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tfrtool.engines.engine import Engine, Workers
from tfrtool.errors import ShardError, WriteError, os_errors_as
from tfrtool.storage.progress import BYTES, Meter, OnProgress, count_work
from tfrtool.storage.remote_path import AnyPath, RemotePath, reading_from
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.storage.stores import ChangedError, Status, Store, store_of

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
        paths: the files; local ones, and those that have a local copy, are ignored.
        workers: what reads them.
        on_progress: called with the number of bytes.
        needed_for: what requires copies; None if they only save requests.

    Raises:
        ShardError: an object can't be read, or has changed.
        WriteError: a copy can't be written, or there is not enough room for those that are needed.
    """
    remote = [path for path in paths if isinstance(path, RemotePath) and path.store.file is None]
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
    with ScratchFolder() as scratch:
        folder, objects = Path(scratch), [*dict.fromkeys(remote)]
        needed = 2 * sum(path.known().size for path in objects)
        if needed <= (free := shutil.disk_usage(folder).free):
            _download(objects, folder, on_progress)
        elif needed_for:
            what = f"not enough space for local copies of the sources, which {needed_for} requires"
            facts = {"expected": f"{needed:,} bytes, twice their size", "found": f"{free:,}"}
            hint = "set TMPDIR to a folder on another disk"
            raise WriteError(what, path=folder.parent, **facts, hint=hint)
        with reading_from(partial(_find_copy, folder)):
            yield


def _copy_path(folder: Path, url: str) -> Path:
    return folder / hashlib.sha256(url.encode()).hexdigest()


def _find_copy(folder: Path, url: str) -> Store | None:
    file = _copy_path(folder, url)
    return _FileStore(url, file) if file.is_file() else None


class _FileStore(Store):
    """Reads the copy of an object on this machine; its metadata is in its store."""

    def __init__(self, url: str, file: Path) -> None:
        super().__init__(url, None, writes=False)
        self.file = file

    def head(self, key: str) -> Status:
        return store_of(self.url).head(key)


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


def _download(objects: Sequence[RemotePath], folder: Path, on_progress: OnProgress) -> None:
    """Download objects in blocks, and fetch the next blocks ahead."""
    blocks = blocks_of(objects)
    meter = Meter(on_progress, "downloading", BYTES, sum(path.known().size for path in objects))
    fetched = blocks[0][0].store.ahead(fetch, blocks, _AT_ONCE)
    for (path, _), data in zip(blocks, fetched, strict=True):
        with (
            os_errors_as(WriteError, folder, "can't be written to"),
            _copy_path(folder, str(path)).open("ab") as file,
        ):
            file.write(data)
        meter.add({BYTES: len(data)})
    meter.finish()
