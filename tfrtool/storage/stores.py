# ruff: noqa: ARG002 - the base of all stores can do nothing
"""Where objects are: a bucket of an object store, or a host that gives files by http.

The libraries, obstore and fsspec, are imported when a URL is met. They find credentials in the
usual ways; nothing that they say is shown as it is, for it may hold some.
"""

import errno
import importlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from tfrtool.errors import UsageError

OBJECT_STORES = ("s3", "gs", "az", "http", "https")
"""What obstore speaks; fsspec has the rest, which are only read."""

AT_ONCE = 8
"""Requests of one store that are under way at once."""

_SIGNED = "TFRTOOL_SIGNED_URLS"

_APART = 512 * 1024
_TOGETHER = 8 * 1024 * 1024
"""Bytes: ranges that are no farther apart become one request, of about this size at most."""


class Status(NamedTuple):
    """What a store says of an object.

    An ``etag`` changes with the content; it is opaque, and None where the store gives none.
    """

    size: int
    etag: str | None = None
    modified: float = 0.0  # seconds since 1970


class ChangedError(OSError):
    """An object is not any more what it was when it was first looked at."""

    def __init__(self, url: str, what: str = "was changed while it was read") -> None:
        """Say so; ``url`` is the object's."""
        super().__init__(errno.ESTALE, what, url)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.filename, self.strerror)


class Store:
    """One bucket or host. Keys are relative to it, without a slash before or behind them.

    Errors are OSErrors (`FileNotFoundError`, `FileExistsError`, `PermissionError`, `ChangedError`)
    whose texts hold no credentials. What is transient is tried again, after longer and longer
    pauses. Threads may share one.
    """

    lists = True
    """Whether it can be listed; a web server can't."""

    def __init__(self, url: str) -> None:
        """Stand for a ``url`` such as ``s3://bucket``."""
        self.url = url
        self._pool: ThreadPoolExecutor | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return store_of, (self.url,)  # credentials stay where they are

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    @property
    def pool(self) -> ThreadPoolExecutor:
        """Threads that wait for answers."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tfrtool-store")
        return self._pool

    def head(self, key: str) -> Status:
        """Ask what an object is; `FileNotFoundError` if it isn't there."""
        raise NotImplementedError

    def get(self, key: str, start: int, size: int, etag: str | None = None) -> tuple[bytes, Status]:
        """Read a range and say what the object is; else it is `read_range`."""
        raise NotImplementedError

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield the keys and sizes of all objects in a folder and in those below it."""
        raise NotImplementedError

    def list_folder(self, prefix: str) -> tuple[dict[str, int], Sequence[str]]:
        """Return the names and sizes of a folder's files, and the names of the folders in it.

        The size is -1 where the store doesn't say it.
        """
        raise NotImplementedError

    def put(
        self, key: str, data: bytes, only_new: bool = False, replacing: str | None = None
    ) -> str:
        """Make an object, at once and whole, and return its ETag.

        Args:
            key: where.
            data: all of it.
            only_new: raise `FileExistsError` if something is there.
            replacing: raise `ChangedError` unless the object that is there has this ETag.
        """
        raise self.read_only(key)

    def upload(self, key: str, local_path: str | os.PathLike[str]) -> str:
        """Make an object of a local file and return its ETag; a large one is sent in parts."""
        raise self.read_only(key)

    def copy(self, source: str, target: str) -> None:
        """Make an object that is another's copy; the bytes don't come by here."""
        raise self.read_only(target)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that aren't there are no error."""
        raise self.read_only("")

    def is_folder(self, prefix: str) -> bool:
        """Return whether there are objects below a prefix."""
        return next(self.list(prefix), None) is not None

    def url_of(self, key: str) -> str:
        """Return how an object is called in messages."""
        return f"{self.url}/{key}" if key else self.url

    def read_only(self, key: str) -> OSError:
        """Return the error of writing where that can't be done."""
        return PermissionError(errno.EROFS, "this kind of URL can only be read", self.url_of(key))

    def read_range(self, key: str, start: int, size: int, etag: str | None = None) -> bytes:
        """Read ``size`` bytes from ``start`` on, fewer only where the object ends before.

        It is a `ChangedError` if the object has another ETag, or gets one meanwhile.
        """
        return self.get(key, start, size, etag)[0] if size > 0 else b""

    def read_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], etag: str | None = None
    ) -> Iterator[bytes]:
        """Yield what stands at ranges, each a start and a size, in their order.

        Those which follow each other closely are one request; some requests are made ahead.
        """
        groups: list[list[tuple[int, int]]] = []
        for start, size in ranges:
            if groups:
                first, last = groups[-1][0][0], sum(groups[-1][-1])
                near = first <= start <= last + _APART and start + size - first <= _TOGETHER
                if near and start + size >= last:
                    groups[-1].append((start, size))
                    continue
            groups.append([(start, size)])

        def fetch(group: Sequence[tuple[int, int]]) -> bytes:
            return self.read_range(key, group[0][0], sum(group[-1]) - group[0][0], etag)

        for group, data in zip(groups, self.ahead(fetch, groups, 3), strict=True):
            for start, size in group:
                yield data[start - group[0][0] :][:size] if len(group) > 1 else data

    def stream(self, key: str, etag: str | None = None) -> Iterator[bytes]:
        """Yield an object from its start to its end; the errors are those of `read_range`."""
        first, status = self.get(key, 0, 1024 * 1024, etag)
        yield first
        rest = range(len(first), status.size, _TOGETHER)
        etag = etag or status.etag
        yield from self.ahead(lambda at: self.read_range(key, at, _TOGETHER, etag), rest, 2)

    def ahead(self, call: Any, items: Iterable[Any], most: int = AT_ONCE) -> Iterator[Any]:
        """Yield ``call(item)`` in order; up to ``most`` are under way in threads."""
        from collections import deque

        waiting: deque[Any] = deque()
        try:
            for item in items:
                waiting.append(self.pool.submit(call, item))
                if len(waiting) >= most:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def keep_query(url: str, query: str) -> None:
    """Remember the query of a signed URL, which is a secret, for requests of this process.

    And for those of its children: like other credentials, it is in their environment.
    """
    os.environ[_SIGNED] = json.dumps({**_queries(), url: query})


def _queries() -> dict[str, str]:
    known: dict[str, str] = json.loads(os.environ.get(_SIGNED) or "{}")
    return known


def store_of(url: str) -> Store:
    """Return the store that a URL is in; `UsageError` if it has none, or its library is missing.

    Args:
        url: ``s3://bucket``, or anything in it.
    """
    scheme, _, rest = url.partition("://")
    place = rest.partition("/")[0] if scheme in OBJECT_STORES else ""
    query = _queries().get(url, "") if scheme.startswith("http") else ""
    return _store(scheme, place, query, os.getpid())  # a forked process has its own connections


@lru_cache(maxsize=64)
def _store(scheme: str, place: str, query: str, _process: int) -> Store:
    kind = "object_store" if scheme in OBJECT_STORES else "file_system_store"
    try:
        module = importlib.import_module(f"tfrtool.storage.remote.{kind}")
        store: Store = module.open_store(scheme, place, query)
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        raise UsageError(
            f"{missing or 'a library'} is not installed, which reads {scheme}:// URLs",
            hint='pip install "tfrtool[cloud]" installs what URLs need',
        ) from None
    return store


def download(store: Store, key: str, target: Path, limit: int, etag: str | None = None) -> str:
    """Copy an object to a new local file of at most ``limit`` bytes, and return its SHA-256."""
    import hashlib

    digest, size = hashlib.sha256(), 0
    with target.open("xb") as file:
        for part in store.stream(key, etag):
            size += len(part)
            if size > limit:
                raise OSError(errno.EFBIG, f"has more than {limit:,} bytes", store.url_of(key))
            digest.update(part)
            file.write(part)
    return digest.hexdigest()
