"""What fsspec reads: Hugging Face's hub, and whatever else it has an implementation of."""

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import fsspec

from tfrtool.storage.limits import MAX_LISTED
from tfrtool.storage.stores import ChangedError, Status, Store


class FileSystemStore(Store):
    """A file system of fsspec: read only, for not all of them make a file at once and whole."""

    def __init__(self, url: str, library: Any) -> None:
        """Stand for ``url``, a protocol, with fsspec's file system."""
        super().__init__(url)
        self._library = library

    def url_of(self, key: str) -> str:
        """Return how an object is called."""
        return f"{self.url}{key}"

    def head(self, key: str) -> Status:
        """Ask what an object is."""
        with self._errors(key):
            found = self._library.info(key)
            if found.get("type") == "directory":
                raise FileNotFoundError(errno.ENOENT, "is a folder", self.url_of(key))
            return _status(found)

    def get(self, key: str, start: int, size: int, etag: str | None = None) -> tuple[bytes, Status]:
        """Read a range, and say what the object is."""
        status = self.head(key)
        if etag is not None and status.etag != etag:
            raise ChangedError(self.url_of(key))
        with self._errors(key):
            end = min(start + size, status.size)
            data = self._library.cat_file(key, start=start, end=end) if end > start else b""
        if len(data) != max(end - start, 0):
            raise OSError(errno.EIO, "the answer was cut short", self.url_of(key))
        return bytes(data), status

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield keys and sizes of what is below a prefix."""
        with self._errors(prefix):
            for _, _, files in self._library.walk(prefix, detail=True):
                for one in files.values():
                    yield one["name"].lstrip("/"), _status(one).size

    def list_folder(self, prefix: str) -> tuple[dict[str, int], Sequence[str]]:
        """Return files with sizes, and folders."""
        with self._errors(prefix):
            found = self._library.ls(prefix, detail=True)
        if len(found) > MAX_LISTED:
            what = f"has more than {MAX_LISTED:,} files"
            raise OSError(errno.EFBIG, what, self.url_of(prefix))
        names = {one["name"].rstrip("/").rpartition("/")[2]: one for one in found}
        folders = [name for name, one in names.items() if one["type"] == "directory"]
        files = {name: _status(one).size for name, one in names.items() if one["type"] == "file"}
        return files, folders

    def is_folder(self, prefix: str) -> bool:
        """Return whether something is below a prefix."""
        with self._errors(prefix):
            return bool(self._library.isdir(prefix))

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Raise what fsspec says as an OSError, and nothing of its text: that may hold secrets."""
        url = self.url_of(key)
        try:
            yield
            return
        except ChangedError:
            raise
        except Exception as error:  # noqa: BLE001 - libraries of all kinds are behind it
            made = _os_error(error, url)
        raise made from None


def _os_error(error: Exception, url: str) -> OSError:
    answer = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, FileNotFoundError) or answer == 404:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)
    if isinstance(error, PermissionError) or answer in (401, 403):
        hint = ": HF_TOKEN holds a token" if url.startswith("hf:") else ""
        return PermissionError(errno.EACCES, f"the store refused this{hint}", url)
    what = f"the store answered {answer}" if answer else f"failed with {type(error).__name__}"
    return OSError(getattr(error, "errno", None) or errno.EIO, what, url)


def _status(found: dict[str, Any]) -> Status:
    etag = found.get("ETag") or found.get("etag") or found.get("blob_id") or found.get("oid")
    time = found.get("mtime") or found.get("LastModified") or found.get("created") or 0.0
    modified = time.timestamp() if isinstance(time, datetime) else time
    size = found.get("size")
    return Status(
        -1 if size is None else int(size),
        str(etag or modified or "") or None,
        modified if isinstance(modified, float) else 0.0,
    )


def open_store(scheme: str, _place: str, _query: str) -> FileSystemStore:
    """Return fsspec's file system of a protocol."""
    try:
        return FileSystemStore(f"{scheme}://", fsspec.filesystem(scheme))
    except ValueError:
        raise ImportError(f"fsspec knows no protocol {scheme}", name=scheme) from None
