"""Locations: paths of this machine, and URLs."""

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.parse import unquote

from tfrtool.errors import UsageError
from tfrtool.storage.stores import OBJECT_STORES, Status, Store, keep_query, store_of

# At least two letters, because "C:/" is not a URL. One slash: pathlib turns two into one.
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+", re.IGNORECASE)

Result = TypeVar("Result")

Copies = Callable[[str], Store | None]
"""A function from the URL of an object to the store that reads its local copy, if there is one."""

_copies: ContextVar[tuple[Copies, ...]] = ContextVar("copies", default=())

MAGIC = re.compile(r"[*?\[]")
"""Characters of wildcards."""


@dataclass(order=True, unsafe_hash=True)
class RemotePath:
    """An object or a folder in a store. It is not a `Path`, but answers the same questions.

    Attributes:
        scheme: of the URL, such as "s3".
        parts: the bucket or host, and the parts of the key as in the URL.
        status: metadata, from a listing or the first request. If the object changes later, reading
            it is an error.
    """

    scheme: str
    parts: tuple[str, ...]
    status: Status | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.scheme}://{'/'.join(self.parts)}"

    __fspath__ = __str__

    def __truediv__(self, below: str | os.PathLike[str]) -> "RemotePath":
        parts = filter(None, os.fspath(below).split("/"))
        return RemotePath(self.scheme, (*self.parts, *parts))

    @property
    def store(self) -> Store:
        """The bucket or host; or the copy of this object that is read instead."""
        url = str(self)
        copies = (find(url) for find in _copies.get())
        return next(filter(None, copies), None) or store_of(url)

    @property
    def key(self) -> str:
        """The key in the store."""
        if self.scheme not in OBJECT_STORES:
            return "/".join(self.parts)
        key = "/".join(self.parts[1:])
        return unquote(key) if self.scheme.startswith("http") else key

    @property
    def name(self) -> str:
        """The last part."""
        return self.parts[-1]

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        """The ending of the name, such as ".zip"."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> "RemotePath":
        """The folder that contains it; a bucket is its own parent."""
        return self if len(self.parts) <= 1 else RemotePath(self.scheme, self.parts[:-1])

    def with_name(self, name: str) -> "RemotePath":
        """Return the path with another last part."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> "RemotePath":
        """Return the path with another ending."""
        return self.parent / PurePosixPath(self.name).with_suffix(suffix)

    def is_relative_to(self, folder: "AnyPath") -> bool:
        """Return whether it is a folder, or inside it."""
        same = isinstance(folder, RemotePath) and folder.scheme == self.scheme
        return same and self.parts[: len(folder.parts)] == folder.parts

    def relative_to(self, folder: "AnyPath") -> PurePosixPath:
        """Return the path from a folder to this file."""
        if not self.is_relative_to(folder):
            raise ValueError(f"{self} is not in {folder}")
        return PurePosixPath(*self.parts[len(folder.parts) :])

    def known(self) -> Status:
        """Return its metadata, requested once; `FileNotFoundError` if there is no such object."""
        if self.status is None or self.status.size < 0:
            self.status = self.store.head(self.key)
        return self.status

    def stat(self) -> os.stat_result:
        """Return its type, size and modification time; other fields are zero."""
        try:
            mode, known = stat.S_IFREG | 0o644, self.known()
        except FileNotFoundError:
            if not self.store.is_folder(self.key):
                raise
            mode, known = stat.S_IFDIR | 0o755, Status(0)
        seconds, nanoseconds = int(known.modified), int(known.modified * 1e6) * 1000
        row = (mode, 0, 0, 1, 0, 0, known.size, seconds, seconds, seconds)
        return os.stat_result(row, {"st_mtime_ns": nanoseconds, "st_mtime": known.modified})

    def exists(self) -> bool:
        """Return whether it is an object or a folder."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Return whether it is an object."""
        try:
            return bool(self.key) and self.known() is not None
        except FileNotFoundError:
            return False

    def is_dir(self) -> bool:
        """Return whether it is not an object, and there are objects below it."""
        # Many web servers answer for folders, too.
        is_object = self.status is not None or (self.store.lists and self.is_file())
        return not is_object and self.store.is_folder(self.key)

    def is_symlink(self) -> bool:
        """Return False."""
        return False

    def resolve(self) -> "RemotePath":
        """Return itself."""
        return self

    absolute = resolve

    def iterdir(self) -> Iterator["RemotePath"]:
        """Yield the files in a folder, with their metadata, and its folders."""
        return chain(*self.entries())

    def entries(self) -> "tuple[list[RemotePath], list[RemotePath]]":
        """Return the files and the folders in a folder."""
        files, folders = self.store.level(self.key)
        start = len(self.key) + 1 if self.key else 0
        return (
            [self._below(key[start:], status) for key, status in files if _is_sound(key[start:])],
            [self._below(key[start:]) for key in folders if _is_sound(key[start:])],
        )

    def _below(self, name: str, status: Status | None = None) -> "RemotePath":
        return RemotePath(self.scheme, (*self.parts, *name.split("/")), status)

    def fixed(self) -> "RemotePath":
        """Return the folder before the first wildcard of a pattern."""
        places = (n for n, part in enumerate(self.parts) if MAGIC.search(part))
        return RemotePath(self.scheme, self.parts[: next(places, len(self.parts))])

    def matching(self, *, below: bool = False) -> "list[RemotePath]":
        """Return the objects that match this pattern, where ``**`` matches any folders.

        With ``below``, also return objects in matching folders.
        """
        base = self.fixed()
        wanted = self.parts[len(base.parts) :]
        if not below and "**" not in wanted and len(wanted) <= 1:
            return [path for path in base.entries()[0] if _matches((path.name,), wanted)]
        found: list[RemotePath] = []
        for key, status in base.store.list(base.key):
            name = key[len(base.key) :].lstrip("/")
            parts = tuple(name.split("/"))
            ends = range(1 if below else len(parts), len(parts) + 1)
            if _is_sound(name) and any(_matches(parts[:end], wanted) for end in ends):
                found.append(base._below(name, status))
        return found


@contextmanager
def reading_from(*copies: Copies) -> Iterator[None]:
    """Read copies of objects in the body, in this thread."""
    before = _copies.get()
    _copies.set((*copies, *before))
    try:
        yield
    finally:
        _copies.set(before)  # a generator may end in another context, which has no such token


def with_copies(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function that reads the copies of this thread elsewhere; it can be pickled."""
    copies = _copies.get()
    return partial(_call_with, copies, function) if copies else function


def _call_with(
    copies: tuple[Copies, ...], function: Callable[..., Result], *arguments: object
) -> Result:
    with reading_from(*copies):
        return function(*arguments)


AnyPath = Path | RemotePath
"""Where a file or folder is."""


def is_same_file(path: AnyPath, other: AnyPath) -> bool:
    """Return whether two paths lead to the same existing file."""
    if isinstance(path, RemotePath) or isinstance(other, RemotePath):
        return path == other
    return path.samefile(other)


def _matches(parts: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    if not wanted or not parts:
        return not parts and all(part == "**" for part in wanted)
    if wanted[0] == "**":
        return any(_matches(parts[n:], wanted[1:]) for n in range(len(parts) + 1))
    hidden = parts[0].startswith(".") and not wanted[0].startswith(".")
    return (
        not hidden and fnmatch.fnmatchcase(parts[0], wanted[0]) and _matches(parts[1:], wanted[1:])
    )


def _is_sound(name: str) -> bool:
    """Return whether a name in a listing is valid inside the folder."""
    return bool(name) and "\0" not in name and not {"", ".", ".."} & {*name.split("/")}


def is_url(text: str) -> bool:
    """Return whether a path is a URL."""
    return _URL.match(text) is not None


def remote_path(url: str) -> RemotePath:
    """Return the path of a URL.

    Raises:
        UsageError: it contains a user name or a password, or its key has empty parts or dots.
    """
    found = _URL.match(url)
    scheme, rest = (found[1].lower(), url[found.end() :]) if found else ("", "")
    if found and url.startswith(":///", found.end(1)):  # the bucket is missing
        rest = f"/{rest}"
    shown = f"{scheme}://{rest.rpartition('@')[2] if '@' in rest.partition('/')[0] else rest}"
    query = ""
    if scheme in ("http", "https"):
        rest, _, query = rest.partition("#")[0].partition("?")
        shown = shown.partition("#")[0].partition("?")[0]
    authority, _, key = rest.partition("/")
    if "@" in authority and scheme != "hf":
        hint = "pass credentials in environment variables or a profile"
        raise UsageError("a URL must not contain a user name or password", path=shown, hint=hint)
    if scheme == "file":
        raise UsageError("file:// URLs are not supported, use a path", path=shown)
    if not authority:
        raise UsageError("no bucket or host in the URL", path=shown)
    if any(part in ("", ".", "..") for part in key.rstrip("/").split("/")) and key.strip("/"):
        raise UsageError("empty parts or dots between the slashes of a URL", path=shown)
    path = RemotePath(scheme, tuple(filter(None, rest.split("/"))))
    if query:
        keep_query(str(path), query)
    return path
