"""File systems of fsspec, such as the Hugging Face Hub, with the methods of obstore."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import fsspec
from fsspec.registry import known_implementations

from tfrtool.errors import UsageError


class _Answer(NamedTuple):
    meta: dict[str, Any]
    data: bytes

    def bytes(self) -> bytes:
        return self.data


class FsspecFiles:
    """A file system to read from: not all of them create files atomically."""

    def __init__(self, scheme: str, _authority: str, _query: str) -> None:
        """Find the file system of a protocol; `ImportError` if its library is missing."""
        if scheme not in fsspec.available_protocols():
            expected = "s3://, gs://, az://, https://, hf:// or another that fsspec supports"
            raise UsageError(f"unsupported URL scheme {scheme}://", expected=expected)
        try:
            kind = fsspec.get_filesystem_class(scheme)
        except ImportError:
            if scheme == "hf":  # the extra has it
                raise
            requirement = known_implementations[scheme].get("err")
            raise UsageError(
                f"{scheme}:// URLs require a library that is not installed: {requirement}"
            ) from None
        if kind._get_kwargs_from_urls(f"{scheme}://host/key"):  # how to log in there is not asked
            raise UsageError(f"{scheme}:// URLs are not supported; download the files first")
        self._files = kind()

    def head(self, key: str) -> dict[str, Any]:
        """Return the metadata of a file."""
        found = self._files.info(key)
        if found["type"] != "file":
            raise FileNotFoundError
        return _meta(found)

    def get(self, key: str, options: dict[str, Any]) -> _Answer:
        """Return a range of a file."""
        meta, (start, end) = self.head(key), options["range"]
        end = min(end, meta["size"])
        data = self._files.cat_file(key, start=start, end=end) if end > start else b""
        return _Answer(meta, bytes(data))

    def list(self, prefix: str | None, chunk_size: int) -> Iterator[list[dict[str, Any]]]:  # noqa: ARG002
        """Yield the files below a folder, one list per folder."""
        for _, _, files in self._files.walk(prefix or "", detail=True):
            if files:
                yield [_meta(one) for one in files.values()]

    def list_with_delimiter(self, prefix: str | None) -> dict[str, Any]:
        """Return the files and folders in a folder."""
        found = self._files.ls(prefix or "", detail=True)
        return {
            "objects": [_meta(one) for one in found if one["type"] == "file"],
            "common_prefixes": [_path(one) for one in found if one["type"] == "directory"],
        }


def _path(found: dict[str, Any]) -> str:
    return str(found["name"]).strip("/")


def _meta(found: dict[str, Any]) -> dict[str, Any]:
    times = (found.get(name) for name in ("mtime", "LastModified", "last_modified", "created"))
    modified = next(filter(None, times), 0.0)
    if not isinstance(modified, datetime):
        number = modified if isinstance(modified, int | float) else 0.0
        modified = datetime.fromtimestamp(number, UTC)
    etag = found.get("ETag") or found.get("etag") or found.get("blob_id") or modified.isoformat()
    size = -1 if found.get("size") is None else found["size"]
    return {"path": _path(found), "size": size, "e_tag": etag, "last_modified": modified}


library_for = FsspecFiles
