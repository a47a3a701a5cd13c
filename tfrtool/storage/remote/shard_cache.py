"""Local copies of remote shards, in a folder that processes share.

A copy is fetched into DIGEST.part, which the process that fetches it locks. Complete and checked,
it becomes DIGEST.shard. The digest is that of URL, ETag and size, so that a changed object has
another copy. Copies stay until somebody deletes them.
"""

import errno
import hashlib
import os
import shutil
import stat
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tfrtool.errors import CorruptShardError, ShardError, UsageError, WriteError, os_reason
from tfrtool.storage.arguments import as_path, user_cache
from tfrtool.storage.atomic_files import move, private_folder
from tfrtool.storage.opening import NotRegularFileError
from tfrtool.storage.remote_path import AnyPath, RemotePath
from tfrtool.storage.stores import ChangedError, Status

if sys.platform != "win32":
    import fcntl

FETCHED_AT_ONCE = 4

_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FULL = (errno.ENOSPC, errno.EDQUOT)


class ShardCache:
    """Copies of the shards of a dataset; other datasets may have theirs in the same folder."""

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        sha256: Mapping[str, str | None] | None = None,
    ) -> None:
        """Create the folder, readable by this user alone; None is the user's own cache.

        ``sha256`` has the known digests of shards, by file name.
        """
        chosen = user_cache("shards") if folder is None else as_path(folder)
        if sys.platform == "win32" or chosen is None or isinstance(chosen, RemotePath):
            what = "the shard cache must be a local folder, on Linux or macOS"
            raise UsageError(what, path=chosen, hint="use --shard-cache DIR to choose one")
        self.folder, self.sha256 = chosen, {**(sha256 or {})}
        self.fetched: list[RemotePath] = []
        self.failure: Exception | None = None  # the last error of a shard TensorFlow was to read
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            private_folder(self.folder)
        except OSError as error:
            what = f"the shard cache can't be created: {os_reason(error)}"
            raise WriteError(what, path=self.folder) from error

    def fetch(self, shard: AnyPath) -> Path:
        """Return the local copy of a remote shard, fetched if there is none, or a local shard.

        Raises:
            CorruptShardError: the SHA-256 is not that of the shard that was written.
            ShardError: the shard can't be read, or has changed.
            WriteError: the copy can't be written.
        """
        if not isinstance(shard, RemotePath):
            return shard
        with self._errors(shard):
            copy = self._copy_of(shard)
            if not _is_regular(copy):
                part = copy.with_suffix(".part")
                with _open_own(part) as file:
                    fcntl.flock(file, fcntl.LOCK_EX)  # wait for who fetches it
                    if not _is_regular(copy):
                        self._receive(shard, file)
                        move(part, copy)
        return copy

    def fetch_ahead(self, shards: Sequence[AnyPath]) -> None:
        """Begin to fetch shards in their order, a few at a time, in the background.

        Raises:
            ShardError: a shard does not exist.
            WriteError: there is not enough room for all of them.
        """
        remote = [shard for shard in shards if isinstance(shard, RemotePath)]
        if not remote:
            return
        with self._errors(remote[0].parent):
            deque(remote[0].store.ahead(look_at, remote), 0)
            absent = [shard for shard in remote if not _is_regular(self._copy_of(shard))]
            needed = sum(look_at(shard).size for shard in absent)
            if needed > (free := shutil.disk_usage(self.folder).free):
                raise self._full(expected=f"{needed:,} bytes for the shards", found=f"{free:,}")

        def work(shard: RemotePath) -> None:
            with suppress(Exception):  # it is raised again when the shard is read
                self.fetch(shard)

        def work_all() -> None:
            with ThreadPoolExecutor(FETCHED_AT_ONCE, "tfrtool-shards") as pool:
                deque(pool.map(work, absent), 0)

        threading.Thread(target=work_all, daemon=True).start()

    def _copy_of(self, shard: RemotePath) -> Path:
        facts = repr((str(shard), *look_at(shard), self.sha256.get(shard.name)))
        return self.folder / f"{hashlib.sha256(facts.encode()).hexdigest()[:40]}.shard"

    def _receive(self, shard: RemotePath, file: BinaryIO) -> None:
        """Fetch a shard into a file, and check it; leave nothing in it after an error."""
        status, digest = look_at(shard), hashlib.sha256()
        file.truncate(0)  # a process that was killed may have begun it
        try:
            for block in shard.store.stream(shard.key, status.etag):
                digest.update(block)
                file.write(block)
            if file.tell() != status.size:
                raise ChangedError(str(shard))
            expected = self.sha256.get(shard.name)
            if expected not in (None, digest.hexdigest()):
                raise CorruptShardError(
                    "the shard differs from what was written",
                    path=shard,
                    expected=f"SHA-256 {expected} (from the dataset's report)",
                    found=digest.hexdigest(),
                    hint="run tfrtool verify to list the damage, or use --on-error skip to train "
                    "or evaluate without it",
                )
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                os.ftruncate(file.fileno(), 0)
            raise
        self.fetched.append(shard)

    @contextmanager
    def _errors(self, shard: RemotePath) -> Iterator[None]:
        """Raise errors of the store as `ShardError`, and those of the disk as `WriteError`."""
        try:
            yield
        except OSError as error:
            if str(error.filename).startswith(shard.store.url):
                what = f"can't be fetched: {os_reason(error)}"
                raise ShardError(what, path=error.filename) from error
            if error.errno in _FULL:
                raise self._full() from error
            what = f"the shard cache can't be written: {os_reason(error)}"
            raise WriteError(what, path=self.folder) from error

    def _full(self, **facts: str) -> WriteError:
        hint = "delete files in it that you don't need, or use --shard-cache DIR on another disk"
        what = "the disk of the shard cache is full"
        return WriteError(what, path=self.folder, hint=hint, **facts)


def look_at(shard: RemotePath) -> Status:
    """Return the metadata of an object with its ETag, which listings lack; requested once."""
    if shard.status is None or (shard.status.etag is None and not shard.status.modified):
        shard.status = shard.store.head(shard.key)
    return shard.status


def _is_regular(path: Path) -> bool:
    """Return whether a file exists; a link or another kind of file in its place is an error."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode):
        raise NotRegularFileError(str(path))
    return True


def _open_own(path: Path) -> BinaryIO:
    """Open or create a regular file; links are not followed, and a FIFO is not waited for."""
    file = open(path, "r+b", opener=lambda name, _: os.open(name, _FLAGS, 0o600))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise NotRegularFileError(str(path))
    return file
