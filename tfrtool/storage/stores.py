"""Buckets of object stores, and hosts that serve files by http.

The libraries, obstore and fsspec, are imported when a URL is met. They find credentials as usual;
their messages are never shown, because these may contain credentials.
"""

import errno
import importlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tfrtool.errors import TfrtoolError, UsageError
from tfrtool.storage.extras import missing_extra
from tfrtool.storage.limits import MAX_METADATA_BYTES, MAX_OBJECTS, MAX_SHARDS
from tfrtool.storage.remote.store_errors import (
    BehindEndError,
    ChangedError,
    CutShortError,
    as_os_error,
)

__all__ = ["ChangedError", "Status", "Store", "keep_query", "store_of"]

OBJECT_STORES = ("s3", "gs", "az", "http", "https")
"""Schemes that obstore reads; fsspec has the others, which are read-only here."""

ONLY_READ = "this kind of URL is read-only"

_INFO = "dataset_info.json"
_SHARD_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"

_SIGNED = "TFRTOOL_SIGNED_URLS"

_AT_ONCE = 8
"""Requests of one store at a time."""

_GAP = 512 * 1024
_BLOCK = 8 * 1024 * 1024
"""Bytes: ranges with a smaller gap between them share a request, of about a block at most."""

_FIRST = 1024 * 1024
_PART = 8 * 1024 * 1024
_MOST_PARTS = 9_000

_PAUSES = (0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds before a request is repeated whose response was cut short."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Status(NamedTuple):
    """Metadata of an object.

    Attributes:
        size: its bytes; -1 if a web server doesn't list it.
        etag: changes with the content; opaque, and None if the store gives none.
        modified: seconds since 1970.
    """

    size: int
    etag: str | None = None
    modified: float = 0.0


class Store:
    """One bucket or host. Keys are relative to it, without slashes at their ends.

    Errors are OSErrors (`FileNotFoundError`, `FileExistsError`, `PermissionError`, `ChangedError`)
    whose texts hold no credentials. Transient faults are retried with growing pauses. Threads may
    share a store.

    Attributes:
        url: its URL, such as ``s3://bucket``.
        lists: whether it can be listed; a web server can't.
        writes: whether it can be written to.
        file: the only object that it has, if that is a file of this machine.
    """

    file: Path | None = None

    def __init__(self, url: str, library: Any, *, lists: bool = True, writes: bool = True) -> None:
        """Take a store of obstore's, or an object with the same methods."""
        self.url, self.lists, self.writes = url, lists, writes
        self._library = library
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tfrtool-store")

    def __reduce__(self) -> tuple[Any, ...]:
        return store_of, (self.url,)  # credentials are not pickled

    def head(self, key: str) -> Status:
        """Return the metadata of an object; `FileNotFoundError` if it doesn't exist."""
        self._check_key(key)
        return self._ask(key, lambda: self._status(self._library.head(key)))

    def get(self, key: str, start: int, size: int, etag: str | None = None) -> tuple[bytes, Status]:
        """Read a range as `read_range` does; also return the metadata of the object."""
        self._check_key(key)
        options: dict[str, Any] = {"range": (start, start + size)}
        if etag is not None and not etag.startswith("W/"):  # a weak ETag matches nothing
            options["if_match"] = f'"{_bare(etag)}"'

        def ask() -> tuple[bytes, Status]:
            answer = self._library.get(key, options=options)
            status = self._status(answer.meta)
            if etags_differ(etag, status.etag):
                raise ChangedError(self.url_of(key))
            data = bytes(answer.bytes())
            missing = min(size, max(status.size - start, 0)) - len(data)
            if missing > 0:
                raise CutShortError(self.url_of(key))
            if missing < 0:
                what = "the store sent more bytes than requested"
                raise OSError(errno.EIO, what, self.url_of(key))
            return data, status

        try:
            return self._ask(key, ask)
        except BehindEndError:
            status = self.head(key)
            if etags_differ(etag, status.etag) or start < status.size:
                raise ChangedError(self.url_of(key)) from None
            return b"", status

    def read_range(self, key: str, start: int, size: int, etag: str | None = None) -> bytes:
        """Read ``size`` bytes from ``start`` on, fewer only at the end of the object.

        `ChangedError` if the object has another ETag.
        """
        return self.get(key, start, size, etag)[0] if size > 0 else b""

    def read_ranges(
        self, key: str, ranges: Iterable[tuple[int, int]], etag: str | None = None
    ) -> Iterator[bytes]:
        """Yield the bytes of ranges, each a start and a size, in their order.

        Ranges with small gaps share a request, and some requests are made ahead. obstore's
        ``get_ranges`` has no ETag, and returns all ranges at once.
        """
        groups: list[list[tuple[int, int]]] = []
        for start, size in ranges:
            if groups:
                first, last = groups[-1][0][0], sum(groups[-1][-1])
                near = first <= start <= last + _GAP and start + size - first <= _BLOCK
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
        """Yield the blocks of an object; the errors are those of `read_range`."""
        # Threads of the pool are joined at exit; in a daemon thread, obstore may abort the process.
        first, status = self._pool.submit(self.get, key, 0, _FIRST, etag).result()
        yield first
        starts = range(len(first), status.size, _BLOCK)
        yield from self.ahead(lambda at: self.read_range(key, at, _BLOCK, status.etag), starts, 2)

    def ahead(
        self, call: Callable[[Item], Result], items: Iterable[Item], most: int = _AT_ONCE
    ) -> Iterator[Result]:
        """Yield ``call(item)`` in order, with up to ``most`` calls in threads at a time."""
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(self._pool.submit(call, item))
                if len(waiting) >= most:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def list(self, prefix: str, most: int | None = MAX_OBJECTS) -> Iterator[tuple[str, Status]]:
        """Yield the keys of all objects below a folder, with their metadata.

        Buckets list them in order. It is an `OSError` if there are more than ``most``.
        """
        if not self.lists:
            yield from self.level(prefix)[0]
            return
        pages: Iterator[Any] | None = None
        after: str | None = None

        def next_page() -> Any:
            nonlocal pages
            offset = {"offset": after} if after else {}
            now = pages or iter(self._library.list(prefix or None, chunk_size=1000, **offset))
            pages = None  # after an error, the listing goes on behind the last key
            page = next(now, None)
            pages = now
            return page

        count = 0
        while page := self._ask(prefix, next_page):
            count += len(page)
            if most is not None and count > most:
                raise self._too_many(prefix)
            yield from ((meta["path"], self._status(meta)) for meta in page)
            after = page[-1]["path"]

    def level(self, prefix: str) -> tuple[Sequence[tuple[str, Status]], Sequence[str]]:
        """Return the keys of a folder's objects with their metadata, and the keys of its folders.

        An object that only marks the folder has the key of the folder. A web server's folder has
        the files that its dataset_info.json names.
        """
        if not self.lists:
            return _named_files(self, prefix)
        found = self._ask(prefix, lambda: self._library.list_with_delimiter(prefix or None))
        files, folders = found["objects"], found["common_prefixes"]
        if len(files) + len(folders) > MAX_OBJECTS:
            raise self._too_many(prefix)
        return [(meta["path"], self._status(meta)) for meta in files], folders

    def _too_many(self, prefix: str) -> OSError:
        what = f"more than {MAX_OBJECTS:,} objects are below it"
        return OSError(errno.EFBIG, what, self.url_of(prefix))

    def is_folder(self, prefix: str) -> bool:
        """Return whether there are objects below a prefix."""
        if self.lists:
            return next(self.list(prefix), None) is not None
        with suppress(FileNotFoundError):
            name = f"{prefix}/{_INFO}".lstrip("/")  # not the page of a missing file
            return self.read_range(name, 0, 64).lstrip().startswith(b"{")
        return False

    def put(
        self, key: str, data: bytes, only_new: bool = False, replacing: str | None = None
    ) -> str:
        """Create an object atomically, and return its ETag.

        Args:
            key: its key.
            data: its content.
            only_new: raise `FileExistsError` if the object exists.
            replacing: raise `ChangedError` unless the existing object has this ETag.
        """
        mode: Any = "create" if only_new else None
        if replacing is not None:
            etag, _, version = replacing.partition("\n")
            mode = {"e_tag": etag} | ({"version": version} if version else {})
        options = {"mode": mode, "use_multipart": False}
        return self._write(key, lambda: self._etag(self._library.put(key, data, **options))) or ""

    def upload(self, key: str, local_path: str | os.PathLike[str]) -> str:
        """Create an object from a local file and return its ETag; a large file is sent in parts."""
        size = Path(local_path).stat().st_size
        part = max(_PART, -(-size // _MOST_PARTS))
        options = {"chunk_size": part, "max_concurrency": 4, "use_multipart": size > part}
        with Path(local_path).open("rb") as file:
            put = self._library.put
            return self._write(key, lambda: self._etag(put(key, file, **options))) or ""

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store."""
        self._write(source, lambda: self._library.copy(source, target))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored."""
        if not (names := [*keys]):
            return
        try:
            self._write(names[0], lambda: self._library.delete(names))
        except FileNotFoundError:
            for name in names:
                with suppress(FileNotFoundError):
                    self._write(name, lambda name=name: self._library.delete(name))  # type: ignore[misc]

    def url_of(self, key: str) -> str:
        """Return the URL of an object, for messages."""
        return f"{self.url}{'' if self.url.endswith('/') else '/'}{key}".rstrip("/")

    def _etag(self, meta: Any) -> str | None:
        etag, version = meta.get("e_tag"), meta.get("version")
        # Google compares versions when an object is replaced.
        return f"{etag}\n{version}" if etag and version and self.url.startswith("gs:") else etag

    def _status(self, meta: Any) -> Status:
        return Status(int(meta["size"]), self._etag(meta), meta["last_modified"].timestamp())

    def _check_key(self, key: str) -> None:
        if not key and self.lists:
            raise FileNotFoundError(errno.ENOENT, "it is empty", self.url)

    def _write(self, key: str, call: Callable[[], Result]) -> Result:
        if not self.writes:
            raise OSError(errno.EACCES, ONLY_READ, self.url_of(key))
        return self._ask(key, call, once=True)  # a second try might meet what the first has done

    def _ask(self, key: str, call: Callable[[], Result], *, once: bool = False) -> Result:
        """Call the library, again if a response was cut; its errors become `OSError`."""
        for pause in (None,) if once else (*_PAUSES, None):
            try:
                return call()
            except Exception as error:  # noqa: BLE001 - see `as_os_error`
                is_translated = isinstance(error, UsageError) or (
                    isinstance(error, OSError) and error.errno
                )
                found = error if is_translated else as_os_error(error, self.url_of(key))
            if pause is None or not isinstance(found, CutShortError):
                raise found from None
            time.sleep(pause)
        raise AssertionError


def etags_differ(before: str | None, now: str | None) -> bool:
    return before is not None and _bare(before) != _bare(now or "")


def _bare(etag: str) -> str:
    """Return an ETag without what listings leave out: Google's versions, quotes of Azure's."""
    return etag.partition("\n")[0].strip('"')


def _named_files(store: Store, prefix: str) -> tuple[list[tuple[str, Status]], list[str]]:
    """Return the files and folders that a folder's dataset_info.json names, as `Store.level` does.

    Their sizes are unknown. It is an `OSError` if there is no such file.
    """
    try:
        text = store.read_range(f"{prefix}/{_INFO}".lstrip("/"), 0, MAX_METADATA_BYTES)
        names = [*_shard_names(json.loads(text))]
    except FileNotFoundError:
        what = f"a web server can't list files, and there is no {_INFO} that names them"
        raise FileNotFoundError(errno.ENOENT, what, store.url_of(prefix)) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        what = f"its {_INFO} lists no shards"
        raise OSError(errno.EINVAL, what, store.url_of(prefix)) from None
    start = f"{prefix}/" if prefix else ""
    files = dict.fromkeys([_INFO, *(name for name in names if "/" not in name)])
    folders = sorted({name.partition("/")[0] for name in names if "/" in name})
    return [(start + name, Status(-1)) for name in files], [start + name for name in folders]


def _shard_names(info: Mapping[str, Any]) -> Iterator[str]:
    left = MAX_SHARDS
    for split in info["splits"]:
        count = len(split["shardLengths"])
        left -= count
        if left < 0:
            raise ValueError
        template = str(split.get("filepathTemplate") or _SHARD_TEMPLATE).removeprefix("{DIRPATH}/")
        for index in range(count):
            name = template
            for word, value in {
                "{DATASET}": info["name"],
                "{SPLIT}": split["name"],
                "{FILEFORMAT}": info.get("fileFormat") or "tfrecord",
                "{SHARD_COUNT}": f"{count:05d}",
                "{SHARD_X_OF_Y}": f"{index:05d}-of-{count:05d}",
                "{SHARD_INDEX}": f"{index:05d}",
            }.items():
                name = name.replace(word, str(value))
            yield name


def keep_query(url: str, query: str) -> None:
    """Remember the query of a signed URL, a secret, for requests of this process.

    Its children find it in their environment, as they do other credentials.
    """
    os.environ[_SIGNED] = json.dumps({**_queries(), url: query})


def _queries() -> dict[str, str]:
    queries: dict[str, str] = json.loads(os.environ.get(_SIGNED) or "{}")
    return queries


def store_of(url: str) -> Store:
    """Return the store of a URL.

    Args:
        url: ``s3://bucket``, or the URL of anything in it.

    Raises:
        UsageError: no installed library reads such URLs.
    """
    scheme, _, rest = url.partition("://")
    authority = rest.partition("/")[0] if scheme in OBJECT_STORES else ""
    query = _queries().get(url, "") if scheme.startswith("http") else ""
    # A forked process makes connections of its own.
    return _store(scheme, authority, query, os.getpid())


@lru_cache(maxsize=64)
def _store(scheme: str, authority: str, query: str, _process: int) -> Store:
    web, url = scheme.startswith("http"), f"{scheme}://{authority}"
    kind = "obstore_stores" if scheme in OBJECT_STORES else "fsspec_files"
    try:
        module = importlib.import_module(f"tfrtool.storage.remote.{kind}")
        library = module.library_for(scheme, authority, query)
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        raise missing_extra(f"{scheme}:// URLs", "hf", missing) from None
    except TfrtoolError:
        raise
    except Exception as error:  # noqa: BLE001 - its text is never shown
        raise as_os_error(error, url) from None
    return Store(url, library, lists=not web, writes=not web and scheme in OBJECT_STORES)
