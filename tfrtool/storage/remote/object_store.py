"""Object stores and web servers, through obstore."""

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore import exceptions
from obstore import store as stores

from tfrtool.storage.limits import MAX_LISTED
from tfrtool.storage.remote.http_folder import is_named, named_files
from tfrtool.storage.stores import ChangedError, Status, Store

_CHUNK = 1024 * 1024
_PART = 8 * 1024 * 1024
_MOST_PARTS = 9_000

_TRIES = 5
_PAUSE = 0.1
_RETRIES: Any = {
    "max_retries": 8,
    "backoff": {
        "init_backoff": timedelta(seconds=_PAUSE),
        "max_backoff": timedelta(seconds=10),
        "base": 2,
    },
    "retry_timeout": timedelta(seconds=120),
}
"""Of requests that met a 5xx, or no server: some 25 seconds of waiting in all."""

_HINTS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN) hold credentials, "
    "AWS_SKIP_SIGNATURE=true does without",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS names a file with credentials, "
    "GOOGLE_SKIP_SIGNATURE=true does without",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN "
    "hold credentials, AZURE_SKIP_SIGNATURE=true does without",
}
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}

_STATUS = re.compile(r"status code: (\d{3}(?: [A-Z][A-Za-z-]*){0,5})")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_REFUSED = re.compile(
    r"status code: 40[13]\b|<Code>(?:Expired|Invalid(?:Access|Token|Security)|Signature|TokenRef|"
    r"AccessDenied|Auth|NoAuth|RequestTimeTooSkewed)|169\.254\.169\.254|metadata\.google|"
    r"credential",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(r"illegal character|empty path segment|parsing Path")
_UNANSWERED = re.compile(r"timed out|TimedOut|operation timed", re.IGNORECASE)


class _CutShortError(OSError):
    """An answer ended before its end."""


class ObjectStore(Store):
    """A bucket, a container or a host."""

    def __init__(self, url: str, library: Any) -> None:
        """Stand for ``url``, with what obstore has for it."""
        super().__init__(url)
        self._library = library
        self._scheme = url.partition(":")[0]
        self.lists = not self._scheme.startswith("http")

    def head(self, key: str) -> Status:
        """Ask what an object is."""
        with self._errors(key):
            return self._status(obstore.head(self._library, self._name(key)))

    def get(self, key: str, start: int, size: int, etag: str | None = None) -> tuple[bytes, Status]:
        """Read a range, and say what the object is."""
        parts: list[bytes] = []
        held, tries = 0, 0
        while True:
            before = held
            try:
                with self._errors(key):
                    options: Any = {"range": (start + held, start + size)}
                    if etag is not None:
                        options["if_match"] = etag.partition("\n")[0]
                    answer = obstore.get(self._library, self._name(key), options=options)
                    status = self._status(answer.meta)
                    if etag is not None and status.etag != etag:
                        raise ChangedError(self.url_of(key))
                    etag = status.etag
                    for part in answer.stream(_CHUNK):
                        parts.append(bytes(part))
                        held += len(part)
                if held >= min(size, status.size - start):
                    return b"".join(parts), status
            except _CutShortError:
                pass
            except _BehindEndError:
                status = self.head(key)
                if etag not in (None, status.etag) or start + held < status.size:
                    raise ChangedError(self.url_of(key)) from None
                return b"".join(parts), status
            tries = 1 if held > before else tries + 1
            if tries > _TRIES:
                what = "the store's answers end before their end"
                raise OSError(errno.EIO, what, self.url_of(key))
            time.sleep(_PAUSE * 2**tries)

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield keys and sizes of what is below a prefix."""
        if not self.lists:
            files, _ = named_files(self, prefix)
            yield from ((f"{prefix}/{name}".lstrip("/"), -1) for name in files)
            return
        with self._errors(prefix):
            for page in obstore.list(self._library, prefix or None, chunk_size=1000):
                for one in page:
                    yield one["path"], int(one["size"])

    def list_folder(self, prefix: str) -> tuple[dict[str, int], Sequence[str]]:
        """Return files with sizes, and folders."""
        if not self.lists:
            return named_files(self, prefix)
        with self._errors(prefix):
            found = obstore.list_with_delimiter(self._library, prefix or None)
        files, folders = found["objects"], found["common_prefixes"]
        if len(files) + len(folders) > MAX_LISTED:
            what = f"has more than {MAX_LISTED:,} objects"
            raise OSError(errno.EFBIG, what, self.url_of(prefix))
        start = len(prefix) + 1 if prefix else 0
        return (
            {one["path"][start:]: int(one["size"]) for one in files if one["path"] != prefix},
            [one[start:] for one in folders],
        )

    def put(
        self, key: str, data: bytes, only_new: bool = False, replacing: str | None = None
    ) -> str:
        """Make an object at once."""
        if not self.lists:
            raise self.read_only(key)
        mode: Any = "create" if only_new else None
        if replacing is not None:
            etag, _, version = replacing.partition("\n")
            mode = {"e_tag": etag} | ({"version": version} if version else {})
        with self._errors(key):
            made = obstore.put(self._library, self._name(key), data, mode=mode, use_multipart=False)
            return self._etag(made) or ""

    def upload(self, key: str, local_path: str | os.PathLike[str]) -> str:
        """Make an object of a local file."""
        if not self.lists:
            raise self.read_only(key)
        size = os.stat(local_path).st_size  # noqa: PTH116
        part = max(_PART, -(-size // _MOST_PARTS))
        with self._errors(key), Path(local_path).open("rb") as file:
            made = obstore.put(
                self._library,
                self._name(key),
                file,
                chunk_size=part,
                max_concurrency=4,
                use_multipart=size > part,
            )
            return self._etag(made) or ""

    def copy(self, source: str, target: str) -> None:
        """Copy an object in the store."""
        if not self.lists:
            raise self.read_only(target)
        with self._errors(source):
            obstore.copy(self._library, self._name(source), self._name(target))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        if not self.lists:
            raise self.read_only("")
        names = [self._name(key) for key in keys]
        for first in range(0, len(names), 1000):
            some = names[first : first + 1000]
            try:
                with self._errors(some[0]):
                    obstore.delete(self._library, some)
            except FileNotFoundError:
                for name in some:
                    with contextlib.suppress(FileNotFoundError), self._errors(name):
                        obstore.delete(self._library, name)

    def is_folder(self, prefix: str) -> bool:
        """Return whether something is below a prefix."""
        return super().is_folder(prefix) if self.lists else is_named(self, prefix)

    def _name(self, key: str) -> str:
        """Return a key as obstore takes it, which doesn't know all that a store could have."""
        if not key or any(part in ("", ".", "..") for part in key.split("/")):
            raise FileNotFoundError(errno.ENOENT, "no key of an object", self.url_of(key))
        return key

    def _etag(self, said: Any) -> str | None:
        etag, version = said.get("e_tag"), said.get("version")
        return f"{etag}\n{version}" if etag and version and self._scheme == "gs" else etag

    def _status(self, meta: Any) -> Status:
        return Status(int(meta["size"]), self._etag(meta), meta["last_modified"].timestamp())

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Raise what obstore says as an OSError, and of its text what can hold no secret."""
        try:
            yield
            return
        except (exceptions.BaseError, FileNotFoundError, ValueError, OSError) as error:
            if isinstance(error, OSError) and not _from_library(error):
                raise
            made = self._os_error(error, self.url_of(key))
        raise made from None

    def _os_error(self, error: Exception, url: str) -> OSError:
        text = str(error)
        status, code = _STATUS.search(text), _CODE.search(text)
        said = " ".join(found[1] for found in (status, code) if found is not None)
        if isinstance(error, FileNotFoundError) or said.startswith("404"):
            what = "no such bucket" if "NoSuchBucket" in said else os.strerror(errno.ENOENT)
            return FileNotFoundError(errno.ENOENT, what, url)
        if isinstance(error, exceptions.AlreadyExistsError):
            return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), url)
        if isinstance(error, exceptions.PreconditionError):
            return ChangedError(url)
        denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
        if isinstance(error, denied) or _REFUSED.search(text):
            what = f"the store refused this ({said or 'without credentials'})"
            hint = _HINTS.get(self._scheme)
            return PermissionError(errno.EACCES, what + (f": {hint}" if hint else ""), url)
        if said.startswith("416"):
            return _BehindEndError(errno.EINVAL, "no such range", url)
        if isinstance(error, ValueError) or _BAD_KEY.search(text):
            what = "an object's key has empty parts or dots between its slashes"
            return OSError(errno.EINVAL, what, url)
        if isinstance(error, exceptions.NotSupportedError) or "non-partial" in text:
            return OSError(errno.ENOTSUP, "the server gives no ranges of bytes", url)
        if said:
            return OSError(errno.EIO, f"the store answered {said}", url)
        if "Error performing" not in text:
            return _CutShortError(errno.EIO, "the store's answer was cut short", url)
        late = _UNANSWERED.search(text) is not None
        what = "the store did not answer in time" if late else "the store can't be reached"
        return OSError(errno.ETIMEDOUT if late else errno.ECONNREFUSED, what, url)


class _BehindEndError(OSError):
    """A range begins where an object has no byte any more."""


def _from_library(error: OSError) -> bool:
    """Return whether an OSError was raised by obstore, which gives it no number."""
    return error.errno is None


def open_store(scheme: str, place: str, query: str) -> ObjectStore:
    """Return a bucket, a container or a host."""
    url = f"{scheme}://{place}"
    options: dict[str, Any] = {"timeout": "60s", "connect_timeout": "10s"}
    endpoint = next(filter(None, map(os.environ.get, _ENDPOINTS.get(scheme, ()))), url)
    if endpoint.startswith("http://"):
        options["allow_http"] = True
    given: Any = {"client_options": options, "retry_config": _RETRIES}
    if scheme == "az":
        return ObjectStore(url, stores.AzureStore(place, **given))
    signed = f"{url}?{query}" if query else url
    return ObjectStore(url, stores.from_url(signed, **given))
