"""Where objects are: a bucket of an object store, or a host that gives files by http.

The libraries, obstore and fsspec, are imported when a URL is met. They find credentials in the
usual ways; nothing that they say is shown as it is, for it may hold some.
"""

import contextlib
import errno
import importlib
import json
import os
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tfrtool.errors import TfrtoolError, UsageError
from tfrtool.storage.limits import MAX_OBJECTS
from tfrtool.storage.remote.store_errors import (
    BehindEndError,
    ChangedError,
    CutShortError,
    a_store_error,
)

__all__ = ["ChangedError", "Status", "Store", "keep_query", "store_of"]

OBJECT_STORES = ("s3", "gs", "az", "http", "https")
"""What obstore speaks; fsspec has the rest, which are only read."""

_SIGNED = "TFRTOOL_SIGNED_URLS"

_AT_ONCE = 8
"""Requests of one store that are under way at once."""

_APART = 512 * 1024
_TOGETHER = 8 * 1024 * 1024
"""Bytes: ranges that are no farther apart become one request, of about this size at most."""

_PART = 8 * 1024 * 1024
_MOST_PARTS = 9_000
_CHUNK = 1024 * 1024

_REPEATS = 16
"""How often pages of a listing may begin with the same path: the library drops the slashes at the
end of a key, so that a few keys can have one path."""

_LONG = 5.0
"""Seconds that the listing of one folder may take without being looked at."""

_LONGEST = 300.0
"""Seconds that a thousand objects of a listing may take."""

_TRIES = 5
_PAUSE = 0.1

Item = TypeVar("Item")
Result = TypeVar("Result")


class Status(NamedTuple):
    """What a store says of an object.

    An ``etag`` changes with the content; it is opaque, and None where the store gives none.
    """

    size: int
    etag: str | None = None
    modified: float = 0.0  # seconds since 1970


ONLY_READ = "this kind of URL is read-only"


class Store:
    """One bucket or host. Keys are relative to it, without a slash before or behind them.

    Errors are OSErrors (`FileNotFoundError`, `FileExistsError`, `PermissionError`, `ChangedError`)
    whose texts hold no credentials. What is transient is tried again, after longer and longer
    pauses. Threads may share one.

    Attributes:
        url: it, such as ``s3://bucket``.
        lists: whether it can be listed; a web server can't.
        writes: whether it can be written to.
    """

    def __init__(self, url: str, library: Any, *, lists: bool = True, writes: bool = True) -> None:
        """Stand for ``url``, with a store of obstore's, or what is like one."""
        self.url, self.lists, self.writes = url, lists, writes
        self._library = library
        # Threads that wait for answers; none is started before it is needed.
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tfrtool-store")

    def __reduce__(self) -> tuple[Any, ...]:
        return store_of, (self.url,)  # credentials stay where they are

    def head(self, key: str) -> Status:
        """Ask what an object is; `FileNotFoundError` if it isn't there."""
        with self._errors(key):
            return self._status(self._library.head(self._named(key)))

    def get(self, key: str, start: int, size: int, etag: str | None = None) -> tuple[bytes, Status]:
        """Read a range and say what the object is; else it is `read_range`."""
        self._named(key)
        options: dict[str, Any] = {}
        if etag is not None and not etag.startswith("W/"):  # which matches nothing
            options["if_match"] = f'"{_bare(etag)}"'
        parts: list[bytes] = []  # an answer that was cut goes on from where it was

        def ask() -> tuple[bytes, Status]:
            nonlocal etag
            options["range"] = (start + sum(map(len, parts)), start + size)
            answer = self._library.get(key, options=options)
            status = self._status(answer.meta)
            if _differ(etag, status.etag):
                raise ChangedError(self.url_of(key))
            etag = status.etag
            parts.extend(map(bytes, answer.stream(_CHUNK)))
            missing = min(size, max(status.size - start, 0)) - sum(map(len, parts))
            if missing < 0:
                what = "the store sent more bytes than requested"
                raise OSError(errno.EIO, what, self.url_of(key))
            if missing:
                raise CutShortError(self.url_of(key))
            return b"".join(parts), status

        try:
            return self._answer(key, ask)
        except BehindEndError:
            status = self.head(key)
            if _differ(etag, status.etag) or start < status.size:
                raise ChangedError(self.url_of(key)) from None
            return b"", status

    def read_range(self, key: str, start: int, size: int, etag: str | None = None) -> bytes:
        """Read ``size`` bytes from ``start`` on, fewer only where the object ends before.

        It is a `ChangedError` if the object has another ETag, or gets one meanwhile.
        """
        return self.get(key, start, size, etag)[0] if size > 0 else b""

    def read_ranges(
        self, key: str, ranges: Iterable[tuple[int, int]], etag: str | None = None
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
        first, status = self.get(key, 0, _CHUNK, etag)
        yield first
        rest, etag = range(len(first), status.size, _TOGETHER), status.etag
        yield from self.ahead(lambda at: self.read_range(key, at, _TOGETHER, etag), rest, 2)

    def ahead(
        self, call: Callable[[Item], Result], items: Iterable[Item], most: int = _AT_ONCE
    ) -> Iterator[Result]:
        """Yield ``call(item)`` in order; up to ``most`` are under way in threads."""
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

    def list(
        self, prefix: str, after: str | None = None, most: int | None = MAX_OBJECTS
    ) -> Iterator[tuple[str, Status]]:
        """Yield the keys of all objects in a folder and in those below it, and what they are.

        Buckets give them in their order, and those behind a key where ``after`` names one. It is an
        `OSError` if there are more than ``most``, or if the store gives the same ones again.
        """
        if not self.lists:
            files, _ = self.list_folder(prefix)
            yield from ((f"{prefix}/{name}".lstrip("/"), one) for name, one in files.items())
            return
        pages: Iterator[Any] | None = None

        def turn() -> Any:
            nonlocal pages
            offset = {"offset": after} if after else {}
            now = pages or iter(self._library.list(prefix or None, chunk_size=1000, **offset))
            pages = None  # if this fails, the next try begins behind what was given
            page = self._page(now, prefix)
            pages = now
            return page

        firsts, count = Counter[str](), 0
        while page := self._answer(prefix, turn):
            firsts[page[0]["path"]] += 1
            if firsts[page[0]["path"]] > _REPEATS:
                what = "the store keeps listing the same objects"
                raise OSError(errno.EIO, what, self.url_of(prefix))
            count += len(page)
            if most is not None and count > most:
                what = f"more than {most:,} objects are below it"
                raise OSError(errno.EFBIG, what, self.url_of(prefix))
            yield from ((one["path"], self._status(one)) for one in page)
            after = page[-1]["path"]

    def _page(self, pages: Iterator[Any], prefix: str) -> Any:
        """Return the next page of a listing; a store may send empty ones for ever."""
        answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        _answer_later(lambda: next(pages, None), answers)
        try:
            page, error = answers.get(timeout=_LONGEST)
        except queue.Empty:
            what = "the store's listing does not end"
            raise OSError(errno.ETIMEDOUT, what, self.url_of(prefix)) from None
        if error is not None:
            raise error
        return page

    def list_folder(self, prefix: str) -> tuple[dict[str, Status], Sequence[str]]:
        """Return the names of a folder's files and what they are, and the names of its folders.

        A size is -1 where the store doesn't say it.
        """
        if not self.lists:
            from tfrtool.storage.remote.http_folder import named_files

            return named_files(self, prefix)
        files, folders = self.level(prefix)
        start = len(prefix) + 1 if prefix else 0
        return {key[start:]: one for key, one in files if key != prefix}, [
            one[start:] for one in folders
        ]

    def level(self, prefix: str) -> tuple[Sequence[tuple[str, Status]], Sequence[str]]:
        """Return the keys of a folder's objects and what they are, and of the folders in it.

        What only marks the folder is an object of the folder's own key.
        """
        found = self._answer(prefix, lambda: self._delimited(prefix))
        files, folders = found["objects"], found["common_prefixes"]
        if len(files) + len(folders) > MAX_OBJECTS:
            raise self._too_many(prefix)
        return [(one["path"], self._status(one)) for one in files], folders

    def _delimited(self, prefix: str) -> Any:
        """Ask the library for a level, which it returns whole.

        What takes long is listed a second time, in pages, to find out whether it ends.
        """
        ask = getattr(self._library, "list_with_delimiter_async", None)
        if ask is None:
            return self._library.list_with_delimiter(prefix or None)
        answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        started: list[tuple[Any, Any]] = []

        import asyncio  # 15 ms that commands on local files don't need

        async def wait() -> Any:
            started.append((asyncio.get_running_loop(), asyncio.current_task()))
            return await ask(prefix or None)

        _answer_later(lambda: asyncio.run(wait()), answers)
        try:
            try:
                found, error = answers.get(timeout=_LONG)
            except queue.Empty:
                self._check_level(prefix, answers)
                found, error = answers.get()
        finally:
            for loop, task in started:
                with contextlib.suppress(RuntimeError):  # it has ended
                    loop.call_soon_threadsafe(task.cancel)
        if error is not None:
            raise error
        return found

    def _check_level(self, prefix: str, answers: "queue.SimpleQueue[Any]") -> None:
        """Raise an `OSError` if a folder holds too much, or its listing never ends."""
        names, start = set[str](), len(prefix) + 1 if prefix else 0
        for key, _ in self.list(prefix, most=None):
            names.add(key[start:].partition("/")[0])
            if len(names) > MAX_OBJECTS:
                raise self._too_many(prefix)
            if not answers.empty():
                return

    def _too_many(self, prefix: str) -> OSError:
        return OSError(errno.EFBIG, f"more than {MAX_OBJECTS:,} objects", self.url_of(prefix))

    def is_folder(self, prefix: str) -> bool:
        """Return whether there are objects below a prefix."""
        if self.lists:
            return next(self.list(prefix), None) is not None
        with contextlib.suppress(FileNotFoundError):
            name = f"{prefix}/dataset_info.json".lstrip("/")  # and no page for what is missing
            return self.read_range(name, 0, 64).lstrip().startswith(b"{")
        return False

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
        mode: Any = "create" if only_new else None
        if replacing is not None:
            etag, _, version = replacing.partition("\n")
            mode = {"e_tag": etag} | ({"version": version} if version else {})
        with self._changes(key):
            return self._etag(self._library.put(key, data, mode=mode, use_multipart=False)) or ""

    def upload(self, key: str, local_path: str | os.PathLike[str]) -> str:
        """Make an object of a local file and return its ETag; a large one is sent in parts."""
        size = Path(local_path).stat().st_size
        part = max(_PART, -(-size // _MOST_PARTS))
        how = {"chunk_size": part, "max_concurrency": 4, "use_multipart": size > part}
        with self._changes(key), Path(local_path).open("rb") as file:
            return self._etag(self._library.put(key, file, **how)) or ""

    def copy(self, source: str, target: str) -> None:
        """Make an object that is another's copy; the bytes don't come by here."""
        with self._changes(source):
            self._library.copy(source, target)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that aren't there are no error."""
        if not (names := [*keys]):
            return
        try:
            with self._changes(names[0]):
                self._library.delete(names)
        except FileNotFoundError:
            for name in names:
                with contextlib.suppress(FileNotFoundError), self._changes(name):
                    self._library.delete(name)

    def url_of(self, key: str) -> str:
        """Return how an object is called in messages."""
        return f"{self.url}{'' if self.url.endswith('/') else '/'}{key}".rstrip("/")

    def _etag(self, said: Any) -> str | None:
        etag, version = said.get("e_tag"), said.get("version")
        # Google's goes by versions where an object is replaced.
        return f"{etag}\n{version}" if etag and version and self.url.startswith("gs:") else etag

    def _status(self, meta: Any) -> Status:
        return Status(int(meta["size"]), self._etag(meta), meta["last_modified"].timestamp())

    def _answer(self, key: str, ask: Callable[[], Result]) -> Result:
        """Ask, and ask again where an answer was cut: obstore does so for bodies with an ETag."""
        for tries in range(1, _TRIES + 1):
            with contextlib.suppress(CutShortError), self._errors(key):
                return ask()
            time.sleep(_PAUSE * 2**tries)
        with self._errors(key):
            return ask()

    def _named(self, key: str) -> str:
        """Return a key; a bucket is none, and is asked for where no folder is found in it."""
        if not key and self.lists:
            raise FileNotFoundError(errno.ENOENT, "it is empty", self.url)
        return key

    @contextlib.contextmanager
    def _changes(self, key: str) -> Iterator[None]:
        with self._errors(key):
            if not self.writes:
                raise OSError(errno.EACCES, ONLY_READ, self.url_of(key))
            yield

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Raise what a library says as an OSError, and of its text what can hold no secret."""
        try:
            yield
            return
        except Exception as error:
            if isinstance(error, UsageError) or (isinstance(error, OSError) and error.errno):
                raise
            made = a_store_error(error, self.url_of(key))
        raise made from None


def _answer_later(
    ask: Callable[[], Any], answers: "queue.SimpleQueue[tuple[Any, BaseException | None]]"
) -> None:
    """Ask in a thread, so that this one can be interrupted, and has no loop; nobody waits for it.

    The answer is put into a queue, or the error.
    """

    def work() -> None:
        try:
            answers.put((ask(), None))
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            answers.put((None, error))

    threading.Thread(target=work, daemon=True).start()


def _differ(before: str | None, now: str | None) -> bool:
    return before is not None and _bare(before) != _bare(now or "")


def _bare(etag: str) -> str:
    """Return an ETag without what listings leave out: Google's versions, quotes of Azure's."""
    return etag.partition("\n")[0].strip('"')


def keep_query(url: str, query: str) -> None:
    """Remember the query of a signed URL, which is a secret, for requests of this process.

    And for those of its children: like other credentials, it is in their environment.
    """
    os.environ[_SIGNED] = json.dumps({**_queries(), url: query})


def _queries() -> dict[str, str]:
    known: dict[str, str] = json.loads(os.environ.get(_SIGNED) or "{}")
    return known


def store_of(url: str) -> Store:
    """Return the store that a URL is in.

    Args:
        url: ``s3://bucket``, or anything in it.

    Raises:
        UsageError: nothing that is installed reads such URLs.
    """
    scheme, _, rest = url.partition("://")
    place = rest.partition("/")[0] if scheme in OBJECT_STORES else ""
    query = _queries().get(url, "") if scheme.startswith("http") else ""
    # A forked process makes its own connections.
    return _store(scheme, place, query, os.getpid())


@lru_cache(maxsize=64)
def _store(scheme: str, place: str, query: str, _process: int) -> Store:
    web, url = scheme.startswith("http"), f"{scheme}://{place}"
    kind = "obstore_stores" if scheme in OBJECT_STORES else "fsspec_files"
    try:
        module = importlib.import_module(f"tfrtool.storage.remote.{kind}")
        library = module.library_for(scheme, place, query)
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        raise UsageError(
            f"{scheme}:// URLs require {missing or 'a library'}, which is not installed",
            hint='run pip install "tfrtool[hf]"',
        ) from None
    except TfrtoolError:
        raise
    except Exception as error:  # noqa: BLE001 - of its text nothing is shown
        raise a_store_error(error, url) from None
    return Store(url, library, lists=not web, writes=not web and scheme in OBJECT_STORES)
