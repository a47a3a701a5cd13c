"""Opening files to read: regular files only, and no more of them than is asked for."""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

from tfrtool.storage.limits import MAX_METADATA_BYTES
from tfrtool.storage.remote_path import RemotePath, is_url, remote_path

_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    # A FIFO without a writer, or a terminal, must not be waited for.
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)


def size_of_file(file: BinaryIO) -> int:
    """Return how many bytes an open file has."""
    size: int | None = getattr(file, "size", None)
    return os.fstat(file.fileno()).st_size if size is None else size


def stamp_of(file: BinaryIO) -> tuple[int, int]:
    """Return what changes when an open file is written to: its size, and its time of change (ns).

    Of an object of a store it is a number made of its ETag instead of the time.
    """
    if isinstance(status := getattr(file, "status", None), tuple):
        return status[0], int(hashlib.sha256(repr(status[1]).encode()).hexdigest()[:15], 16)
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


class NotRegularFileError(OSError):
    """A name stands for a pipe, a socket or a device, which can block or never end."""

    def __init__(self, name: str) -> None:
        """Say so; ``name`` is the file's."""
        super().__init__(errno.EINVAL, "it is a pipe or a device, not a regular file", name)


def open_descriptor(path: str | os.PathLike[str], *, follow: bool = True) -> int:
    """Open a regular file to read, and return its descriptor, which the caller closes.

    It never blocks. Anything but a regular file is a `NotRegularFileError` or an
    `IsADirectoryError`, and a link is an `OSError` unless it may be followed.
    """
    name = os.fspath(path)
    try:
        descriptor = os.open(name, _FLAGS | (0 if follow else getattr(os, "O_NOFOLLOW", 0)))
    except OSError as error:
        if error.errno == errno.ENXIO:  # what opening a socket, or a device that isn't there, says
            raise NotRegularFileError(name) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    raise NotRegularFileError(name)


def open_regular(
    path: str | os.PathLike[str], *, follow: bool = True, buffering: int = -1
) -> BinaryIO:
    """Open a regular file to read; the arguments and errors are those of `open_descriptor`.

    An object of a store is a `RemoteFile`, which has no descriptor, but a `size` and `read_at`; or
    its local copy, with the object's `status`.
    """
    if isinstance(path, str) and is_url(path):
        path = remote_path(path)
    if isinstance(path, RemotePath):
        if (file := path.store.file) is not None:
            copy: Any = open(open_descriptor(file), "rb", buffering=buffering)  # noqa: SIM115
            copy.status = path.known()
            return copy  # type: ignore[no-any-return]
        from tfrtool.storage.remote.remote_file import RemoteFile

        return RemoteFile(path)
    name = os.fspath(path)
    return open(
        name,
        "rb",
        buffering=buffering,
        opener=lambda path, _: open_descriptor(path, follow=follow),
    )


def read_bounded(
    path: str | os.PathLike[str], limit: int = MAX_METADATA_BYTES, *, follow: bool = True
) -> bytes:
    """Return all bytes of a small regular file; the errors are those of `open_descriptor`.

    It is an `OSError`, too, if it has more than ``limit`` bytes; `strerror` says which.
    """
    with open_regular(path, follow=follow, buffering=0) as file:
        parts, size = [], 0
        while part := file.read(limit + 1 - size):
            parts.append(part)
            size += len(part)
            if size > limit:
                raise OSError(errno.EFBIG, f"larger than {limit:,} bytes", os.fspath(path))
    return b"".join(parts)


def read_ahead(path: str | os.PathLike[str]) -> None:
    """Have the system read a local file into its cache, while this process does something else.

    Nothing comes of it if that is not possible: whoever reads the file reports why.
    """
    with contextlib.suppress(OSError, AttributeError):  # Windows and macOS don't have it
        descriptor = open_descriptor(path)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def hashed_while_read(file: BinaryIO, wanted: bool) -> Iterator[list[str]]:
    """Give a list that has the SHA-256 of a file in the end, if the body reads all of it.

    It is empty where that is not ``wanted``, or takes no second transfer: of a local file.
    """
    found: list[str] = []
    remote: Any = file if wanted and hasattr(file, "hash_what_is_read") else None
    if remote is not None:
        remote.hash_what_is_read()
    yield found
    if remote is not None and remote.sha256 is not None:
        found.append(remote.sha256)


def file_sha256(path: str | os.PathLike[str], *, follow: bool = True) -> str:
    """Return the SHA-256 of a regular file, in hexadecimal; the errors are `open_descriptor`'s."""
    digest = hashlib.sha256()
    with open_regular(path, follow=follow, buffering=0) as file:
        while block := file.read(256 * 1024):
            digest.update(block)
    return digest.hexdigest()
