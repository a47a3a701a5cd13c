"""URLs as paths: code that takes a `Path` takes them, too."""

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Iterator
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, NoReturn
from urllib.parse import unquote

from tfrtool.errors import UsageError
from tfrtool.storage.stores import OBJECT_STORES, Status, Store, keep_query, store_of

# Two letters at least, so that ``C:/`` is none; and one slash, for pathlib makes one of two.
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+", re.IGNORECASE)


class RemotePath(type(Path())):  # type: ignore[misc]
    """An object or a folder of a store. Its text is its URL, without secrets.

    Its metadata stays that of a listing, or of the first request: reading it is an error if it
    has changed since.
    """

    status: Status | None = None

    def __str__(self) -> str:
        parts = self.parts
        if parts and parts[0].endswith(":"):
            return f"{parts[0]}//{'/'.join(parts[1:])}"
        return str(PurePath(*parts))  # what `relative_to` makes

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.parts, {"status": self.status}

    @property
    def store(self) -> Store:
        """The bucket or host."""
        return store_of(str(self))

    @property
    def key(self) -> str:
        """The key in the store."""
        if self.parts[0][:-1] not in OBJECT_STORES:
            return "/".join(self.parts[1:])
        key = "/".join(self.parts[2:])
        return unquote(key) if self.parts[0].startswith("http") else key

    @property
    def parent(self) -> "RemotePath":
        """The folder that contains it; a bucket is its own parent."""
        return self if len(self.parts) <= 2 else RemotePath(*self.parts[:-1])

    def known(self) -> Status:
        """Return its metadata, requested once; `FileNotFoundError` if there is no such object."""
        if self.status is None or self.status.size < 0:
            self.status = self.store.head(self.key)
        return self.status

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ARG002
        """Return its size and its time of change; other fields are zero."""
        try:
            mode, known = stat.S_IFREG | 0o644, self.known()
        except FileNotFoundError:
            if not self.store.is_folder(self.key):
                raise
            mode, known = stat.S_IFDIR | 0o755, Status(0)
        seconds, nanoseconds = int(known.modified), int(known.modified * 1e6) * 1000
        named = {"st_mtime_ns": nanoseconds, "st_mtime": known.modified}
        row = (mode, 0, 0, 1, 0, 0, known.size, seconds, seconds, seconds)
        return os.stat_result(row, named)

    def exists(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002
        """Return whether it is an object or a folder."""
        return self.is_file() or self.is_dir()

    def is_file(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002
        """Return whether it is an object."""
        try:
            return bool(self.key) and self.known() is not None
        except FileNotFoundError:
            return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002
        """Return whether it is no object and there are objects below it."""
        # Many a web server answers for folders, too.
        unlike = self.status is None and not (self.store.lists and self.is_file())
        return unlike and self.store.is_folder(self.key)

    def is_symlink(self) -> bool:
        """Return False."""
        return False

    def samefile(self, other: Any) -> bool:
        """Return whether another path is this one."""
        return isinstance(other, RemotePath) and self == other

    def resolve(self, strict: bool = False) -> "RemotePath":  # noqa: ARG002
        """Return itself."""
        return self

    absolute = resolve

    def iterdir(self) -> Iterator["RemotePath"]:
        """Return the files in a folder, with their metadata, and its folders."""
        return chain(*self.entries())

    def entries(self) -> "tuple[list[RemotePath], list[RemotePath]]":
        """Return the files and the folders in a folder, separately."""
        files, folders = self.store.level(self.key)
        start = len(self.key) + 1 if self.key else 0
        return (
            [self._below(key[start:], status) for key, status in files if _sound(key[start:])],
            [self._below(key[start:]) for key in folders if _sound(key[start:])],
        )

    def _below(self, key: str, status: Status | None = None) -> "RemotePath":
        path: RemotePath = self / key
        path.status = status
        return path

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a folder exists as soon as it contains an object."""

    def fixed(self) -> "RemotePath":
        """Return the folder in front of the first wildcard of a pattern."""
        places = (n for n, part in enumerate(self.parts) if MAGIC.search(part))
        return RemotePath(*self.parts[: next(places, len(self.parts))])

    def matching(self, *, below: bool = False) -> "list[RemotePath]":
        """Return the objects that match this pattern, where ``**`` matches any folders.

        With ``below``, return objects in matching folders, too.
        """
        base = self.fixed()
        wanted = self.parts[len(base.parts) :]
        deep = below or "**" in wanted or len(wanted) > 1
        found: list[RemotePath] = []
        if not deep:
            return [path for path in base.entries()[0] if _matches((path.name,), wanted)]
        for key, status in base.store.list(base.key):
            name = key[len(base.key) :].lstrip("/")
            parts = tuple(name.split("/"))
            ends = range(1 if below else len(parts), len(parts) + 1)
            if _sound(name) and any(_matches(parts[:end], wanted) for end in ends):
                found.append(base._below(name, status))
        return found


MAGIC = re.compile(r"[*?\[]")


def _matches(parts: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    if not wanted:
        return not parts
    if wanted[0] == "**":
        return any(_matches(parts[n:], wanted[1:]) for n in range(len(parts) + 1))
    hidden = bool(parts) and parts[0].startswith(".") and not wanted[0].startswith(".")
    one = bool(parts) and not hidden and fnmatch.fnmatchcase(parts[0], wanted[0])
    return one and _matches(parts[1:], wanted[1:])


def _sound(name: str) -> bool:
    """Return whether a name in a listing is valid inside the folder."""
    return bool(name) and "\0" not in name and not {"", ".", ".."} & {*name.split("/")}


def _refused(self: RemotePath, *_: Any, **__: Any) -> NoReturn:
    raise OSError(errno.ENOTSUP, "a URL is not a local file", str(self))


for _name in (
    *("open", "write_bytes", "write_text", "touch", "rename", "replace", "rmdir", "glob", "rglob"),
    *("walk", "chmod", "symlink_to", "hardlink_to", "readlink", "read_bytes", "unlink"),
):
    setattr(RemotePath, _name, _refused)


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
    if found and url.startswith(":///", found.end(1)):  # what follows is no bucket
        rest = f"/{rest}"
    shown = f"{scheme}://{rest.rpartition('@')[2] if '@' in rest.partition('/')[0] else rest}"
    query = ""
    if scheme in ("http", "https"):
        rest, _, query = rest.partition("#")[0].partition("?")
        shown = shown.partition("#")[0].partition("?")[0]
    place, _, key = rest.partition("/")
    if "@" in place and scheme != "hf":
        hint = "pass credentials in environment variables or a profile"
        raise UsageError("a URL must not contain a user name or password", path=shown, hint=hint)
    if not place or scheme == "file":
        what = "no bucket or host in the URL"
        if scheme == "file":
            what = "file:// URLs are not supported, use a path"
        raise UsageError(what, path=shown)
    if any(part in ("", ".", "..") for part in key.rstrip("/").split("/")) and key.strip("/"):
        raise UsageError("empty parts or dots between the slashes of a URL", path=shown)
    path = RemotePath(f"{scheme}:", *filter(None, rest.split("/")))
    if query:
        keep_query(str(path), query)
    return path
