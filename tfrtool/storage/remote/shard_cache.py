"""Copies of remote shards on this machine: in a folder of bounded size, shared by processes.

A copy that is being fetched is called DIGEST.part, has its final size from the start, and is locked
by who fetches it. Whole and checked, it becomes DIGEST.shard. The digest is that of URL, ETag and
size: an object that changed is another copy. Who uses a copy holds a shared lock on it. What nobody
has locked may go, the least recently used first; a part that nobody has locked was left by a
process that died.
"""

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, BinaryIO

from tfrtool.errors import CorruptShardError, ShardError, UsageError, WriteError, os_reason
from tfrtool.storage.arguments import as_path, as_size, user_cache
from tfrtool.storage.atomic_files import move, private_folder
from tfrtool.storage.opening import NotRegularFileError
from tfrtool.storage.remote_path import RemotePath
from tfrtool.storage.stores import ChangedError, Status

if sys.platform != "win32":
    import fcntl

FETCHED_AT_ONCE = 4
"""Shards that a process fetches at a time."""

_PAUSE = 0.05
"""Seconds between two looks at what another process does."""

_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FULL = (errno.ENOSPC, errno.EDQUOT)


class NoRoomError(WriteError):
    """More does not fit into the cache at the moment: what it holds is in use."""


class ShardCache:
    """Where the copies of a dataset's shards are; other datasets may have theirs there, too.

    Attributes:
        folder: the folder, of this user alone; it is made if it isn't there.
        max_bytes: how large it may become; if nobody says it, half of what is free and what it has.
        sha256: digests of shards by their names, as far as they are known.
        fetched: the shards that were fetched, each as often as it was.
        failure: why a shard could not be had, the last time that one could not.
        holders: what keeps copies that are not needed yet.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        max_bytes: int | str | None = None,
        sha256: Mapping[str, str] | None = None,
    ) -> None:
        """Choose a folder, the user's own cache if none is given, and make it."""
        chosen = user_cache("shards") if folder is None else as_path(folder)
        if sys.platform == "win32" or chosen is None or isinstance(chosen, RemotePath):
            what = "the shard cache must be a local folder, on Linux or macOS"
            raise UsageError(what, path=chosen, hint="use --shard-cache DIR to choose one")
        self.folder = chosen
        self.sha256 = {**(sha256 or {})}
        self.failure: Exception | None = None
        self.fetched: list[RemotePath] = []
        self.holders: weakref.WeakSet[Any] = weakref.WeakSet()
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            private_folder(self.folder)
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            what = f"the shard cache can't be created: {os_reason(error)}"
            raise WriteError(what, path=self.folder) from error
        usual = (free + sum(size for _, _, size, _ in self._entries())) // 2
        self.max_bytes = usual if max_bytes is None else as_size(max_bytes, "--shard-cache-size")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "holders": weakref.WeakSet()}

    @contextlib.contextmanager
    def local(self, shard: Path) -> Iterator[Path]:
        """Give a file of this machine to read a shard from; the errors are those of `fetch`."""
        with self.fetch(shard) as file:
            yield Path(file.name)

    def fetch(self, shard: Path, stopped: Callable[[], bool] = lambda: False) -> BinaryIO:
        """Return a remote shard's copy, which stays where it is as long as it is open.

        It is made if it isn't there; if another process makes it, that is waited for. A local shard
        is opened. ``stopped`` is asked now and then whether to end with a `CancelledError`.

        Raises:
            NoRoomError: it doesn't fit beside what is in use.
            CorruptShardError: it is not what was written, by its SHA-256.
            ShardError: it can't be read, or was changed since it was first asked for.
            WriteError: the folder can't be written to.
        """
        if not isinstance(shard, RemotePath):
            return shard.open("rb")
        try:
            status = look_at(shard)
            facts = repr((str(shard), *status, self.sha256.get(shard.name)))
            whole = self.folder / f"{hashlib.sha256(facts.encode()).hexdigest()[:40]}.shard"
            part = whole.with_suffix(".part")
            while not stopped():
                if (file := _locked(whole)) is not None:
                    os.utime(file.fileno())
                    return file
                if (file := _locked(part, make=True)) is not None:
                    try:
                        if whole.exists():  # another process ended between the two looks
                            part.unlink()
                            continue
                        self._receive(shard, status, file, stopped)
                        fcntl.flock(file, fcntl.LOCK_SH)
                        move(part, whole)
                        if (kept := _locked(whole)) is not None:
                            return kept
                    except BaseException:
                        with contextlib.suppress(OSError):
                            part.unlink()
                        raise
                    finally:
                        file.close()
                time.sleep(_PAUSE)
        except OSError as error:
            if error.filename == str(shard):
                raise ShardError(f"can't be fetched: {os_reason(error)}", path=shard) from error
            what, hint = f"the shard cache can't be written: {os_reason(error)}", None
            if error.errno in _FULL:
                what = "the disk of the shard cache is full, and every shard in it is in use"
                hint = "free some space, or use --shard-cache DIR on another disk"
            raise WriteError(what, path=self.folder, hint=hint) from error
        raise CancelledError

    def _receive(
        self, shard: RemotePath, status: Status, file: BinaryIO, stopped: Callable[[], bool]
    ) -> None:
        """Fetch a shard into a file, and check it."""
        file.truncate(0)  # a process that died may have begun it
        self._reserve(file, status.size)
        digest = hashlib.sha256()
        for block in shard.store.stream(shard.key, status.etag):
            if stopped():
                raise CancelledError
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
                hint="run tfrtool verify to list the damage, or use --on-error skip to train or "
                "evaluate without it",
            )
        file.flush()
        os.fsync(file.fileno())
        self.fetched.append(shard)

    def _reserve(self, file: BinaryIO, size: int) -> None:
        """Make a file as large as it will be. Others go for it, where there is need."""
        with _open_own(self.folder / "lock", make=True) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entries = sorted(self._entries())  # parts come first
            excess = sum(held for _, _, held, _ in entries) + size - self.max_bytes
            for _, _, held, path in entries:
                if excess <= 0:
                    break
                excess -= held if _evict(path) else 0
            if excess > 0:
                raise NoRoomError(
                    "not enough free space in the shard cache",
                    path=self.folder,
                    expected=f"{size:,} bytes",
                    found=f"{max(size - excess, 0):,} of {self.max_bytes:,}",
                    hint="raise --shard-cache-size",
                )
            while size:
                try:
                    # What can't be had is known before it is fetched; macOS has no such call.
                    getattr(os, "posix_fallocate", lambda *_: None)(file.fileno(), 0, size)
                    os.ftruncate(file.fileno(), size)
                    return
                except OSError as error:
                    os.ftruncate(file.fileno(), 0)
                    oldest = (path for *_, path in sorted(self._entries()))
                    if error.errno not in _FULL or not any(map(_evict, oldest)):
                        raise

    def _entries(self) -> Iterator[tuple[str, int, int, Path]]:
        """Yield of each file its kind, when it was used last, its size, and where it is."""
        for stem in {path.stem for path in self.folder.glob("*.[ps]*")}:
            known = None
            # In this order: a part that becomes a shard meanwhile is met as one of them, once.
            for suffix in (".part", ".shard"):
                path = self.folder / f"{stem}{suffix}"
                with contextlib.suppress(FileNotFoundError):
                    status = path.lstat()
                    if status.st_ino != known:
                        known = status.st_ino
                        yield suffix, status.st_mtime_ns, status.st_size, path


def look_at(shard: RemotePath) -> Status:
    """Return what an object is, with its ETag, which a listing doesn't tell; asked for once."""
    if shard.status is None or (shard.status.etag is None and not shard.status.modified):
        shard.status = shard.store.head(shard.key)
    return shard.status


def _open_own(path: Path, *, make: bool = False) -> BinaryIO:
    """Open a regular file, or make one; links are not followed, and a FIFO is not waited for."""
    flags = _FLAGS | (os.O_CREAT if make else 0)
    file = open(path, "r+b", opener=lambda name, _: os.open(name, flags, 0o600))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise NotRegularFileError(str(path))
    return file


def _locked(path: Path, *, make: bool = False, exclusive: bool = False) -> BinaryIO | None:
    """Open a file, or make one, and lock it; None if it isn't there, or another one has it."""
    try:
        file = _open_own(path, make=make)
    except FileNotFoundError:
        return None
    try:
        own = fcntl.LOCK_EX if make or exclusive else fcntl.LOCK_SH
        fcntl.flock(file, own | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    file.close()
    return None


def _evict(path: Path) -> bool:
    """Remove a copy, unless somebody uses it."""
    file = _locked(path, exclusive=True)
    if file is None:
        return False
    with file:
        path.unlink(missing_ok=True)
    return True
