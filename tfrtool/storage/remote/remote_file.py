"""An object of a store as a file to read."""

import errno
import hashlib
import io
import os
from collections.abc import Iterable, Iterator

from tfrtool.storage.remote_path import RemotePath
from tfrtool.storage.stores import ChangedError, Status

_LEAST = 64 * 1024
_MOST = 8 * 1024 * 1024
_STEADY = 3
"""Blocks that were read one after the other, from which on the next are fetched ahead."""

_AHEAD = 2


class RemoteFile(io.BufferedReader):
    """An object that is read by ranges: seekable, with a size instead of a descriptor.

    Read from front to back, it fetches larger and larger blocks, and the next ones ahead in
    threads. What changes while it is open is an `OSError`.
    """

    def __init__(self, path: RemotePath) -> None:
        """Look at an object; `FileNotFoundError` if it isn't there."""
        self._blocks = _Blocks(path)
        super().__init__(self._blocks, _LEAST)

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self._blocks.status.size

    @property
    def status(self) -> Status:
        """What the store says of it."""
        return self._blocks.status

    def hash_what_is_read(self) -> None:
        """Take the SHA-256 of all bytes on their way, so that they need not come twice."""
        self._blocks.digest = hashlib.sha256()

    @property
    def sha256(self) -> str | None:
        """That, once all have been read."""
        digest = self._blocks.digest
        return digest.hexdigest() if digest and self._blocks.hashed == self.size else None

    def read_at(self, size: int, offset: int) -> bytes:
        """Read a range by a request of its own, and leave the position alone."""
        return self._blocks.fetch(offset, size)

    def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """Yield what stands at offsets, with sizes; neighbours come by one request."""
        return self._blocks.store.read_ranges(self._blocks.key, ranges, self.status.etag)

    def expect_end(self, offset: int) -> None:
        """Fetch little ahead from an offset on: nothing, or not much, is read behind it."""
        self._blocks.end = offset

    def fileno(self) -> int:
        """Raise what files without a descriptor raise."""
        raise io.UnsupportedOperation("an object of a store has no descriptor")


class _Blocks(io.RawIOBase):
    def __init__(self, path: RemotePath) -> None:
        self.store, self.key, self.name = path.store, path.key, str(path)
        self._position = self._start = self._steady = 0
        self._buffer = b""
        self.digest: hashlib._Hash | None = None
        self.hashed = 0
        self._length = _LEAST  # of the block that is fetched next
        self._ahead: Iterator[tuple[int, bytes]] | None = None
        known = path.status
        if known is None or known.size < 0 or known.etag is None:
            # One request finds it and brings its beginning.
            self._buffer, path.status = self.store.get(self.key, 0, _LEAST)
            if known is not None and known.size not in (-1, path.status.size):
                raise ChangedError(self.name)
        self.status = path.known()
        self.end = self.status.size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.status.size}
        if base[whence] + offset < 0:
            raise OSError(errno.EINVAL, "a position before the start of a file", self.name)
        self._position = base[whence] + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        if self._position >= self.status.size or not view:
            return 0
        if not 0 <= self._position - self._start < len(self._buffer):
            self._start, self._buffer = self._next(len(view))
        at = self._position - self._start
        part = memoryview(self._buffer)[at : at + len(view)]
        view[: len(part)] = part
        if self.digest is not None and 0 <= (known := self.hashed - self._position) < len(part):
            self.digest.update(part[known:])
            self.hashed = self._position + len(part)
        self._position += len(part)
        return len(part)

    def fetch(self, offset: int, size: int) -> bytes:
        size = min(size, self.status.size - offset)
        return self.store.read_range(self.key, offset, size, self.status.etag)

    def _next(self, wanted: int) -> tuple[int, bytes]:
        """Return a block that holds the position, and where it begins."""
        last = self._start + len(self._buffer)
        if self._buffer and last <= self._position < last + self._length:
            self._steady += 1
            self._length = min(2 * self._length, _MOST)
        else:
            self._steady, self._length, self._ahead = 0, _LEAST, None
        if self._steady < _STEADY:
            size = max(self._length, min(wanted, _MOST))
            return self._position, self.fetch(self._position, size)
        spans = self._spans(self._position)
        blocks = self._ahead or self.store.ahead(self._block, spans, _AHEAD + 1)
        self._ahead = None  # after an error, start again
        found = next(one for one in blocks if self._position < one[0] + len(one[1]))
        self._ahead = blocks
        return found

    def _block(self, span: tuple[int, int]) -> tuple[int, bytes]:
        return span[0], self.fetch(*span)

    def _spans(self, start: int) -> Iterator[tuple[int, int]]:
        while start < self.status.size:
            yield start, (length := min(self._length, max(self.end - start, _LEAST)))
            start += length

    def close(self) -> None:
        self._ahead = None
        super().close()
