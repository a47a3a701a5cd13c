"""What stores say, as errors of the operating system; what may be secret is left out."""

import errno
import os
import re
from typing import Any

_HINTS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN) hold credentials, "
    "AWS_SKIP_SIGNATURE=true does without",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS names a file with credentials, "
    "GOOGLE_SKIP_SIGNATURE=true does without",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN "
    "hold credentials, AZURE_SKIP_SIGNATURE=true does without",
    "hf": "HF_TOKEN holds a token",
}
_NUMBERS: dict[type[OSError], int] = {
    FileNotFoundError: errno.ENOENT,
    FileExistsError: errno.EEXIST,
    PermissionError: errno.EACCES,
    TimeoutError: errno.ETIMEDOUT,
    ConnectionError: errno.ECONNREFUSED,
}
_STATUS = re.compile(r"status code: (\d{3}(?: [A-Z][A-Za-z-]*){0,5})")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_REFUSED = re.compile(
    r"status code: 40[13]\b|<Code>(?:Expired|Invalid(?:Access|Token|Security)|Signature|TokenRef|"
    r"AccessDenied|Auth|NoAuth|RequestTimeTooSkewed)|169\.254\.169\.254|metadata\.google|"
    r"credential|Account must be",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(r"illegal character|empty path segment|parsing Path")
_UNREACHED = ("ConnectError", "ConnectTimeout")  # of httpx
_LATE = re.compile(r"timed out|TimedOut", re.IGNORECASE)


class ChangedError(OSError):
    """An object is not any more what it was when it was first looked at."""

    def __init__(self, url: str) -> None:
        """Say so; ``url`` is the object's."""
        super().__init__(errno.ESTALE, "was changed while it was read", url)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.filename,)


class CutShortError(OSError):
    """An answer ended before its end."""

    def __init__(self, url: str) -> None:
        """Say so; ``url`` is the object's."""
        super().__init__(errno.EIO, "the store's answers end before their end", url)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.filename,)


class BehindEndError(OSError):
    """A range begins where an object has no byte any more."""


def says(kind: type[OSError], what: str, url: str) -> OSError:
    """Return an error with a text of ours."""
    return kind(_NUMBERS.get(kind, errno.EIO), what, url)


def too_large(url: str, most: str) -> OSError:
    """Return the error of what is more than is taken."""
    return OSError(errno.EFBIG, f"has more than {most}", url)


def a_store_error(error: Exception, url: str) -> OSError:
    """Return an error of obstore or fsspec as one whose text holds nothing of theirs."""
    text, kind, scheme = str(error), type(error).__name__, url.partition(":")[0]
    number = getattr(getattr(error, "response", None), "status_code", None)  # of fsspec's
    if isinstance(number, int):
        text = f"status code: {number}"
    status, code = _STATUS.search(text), _CODE.search(text)
    said = " ".join(found[1] for found in (status, code) if found is not None)
    if isinstance(error, FileNotFoundError) or said.startswith("404"):
        what = "no such bucket" if "NoSuchBucket" in said else os.strerror(errno.ENOENT)
        return says(FileNotFoundError, what, url)
    if kind == "AlreadyExistsError":
        return says(FileExistsError, os.strerror(errno.EEXIST), url)
    if kind == "PreconditionError":
        return ChangedError(url)
    denied = kind in ("PermissionDeniedError", "UnauthenticatedError")
    # An answer to HEAD has no body that could say that credentials have expired.
    denied |= said.startswith("400") and "performing HEAD" in text
    if denied or isinstance(error, PermissionError) or _REFUSED.search(text):
        hint = f": {_HINTS[scheme]}" if scheme in _HINTS else ""
        what = f"the store refused this ({said or 'without credentials'}){hint}"
        return says(PermissionError, what, url)
    if said.startswith("416"):
        return BehindEndError(errno.EINVAL, "no such range", url)
    if _BAD_KEY.search(text):
        what = "an object's key has control characters, or empty parts or dots between its slashes"
        return OSError(errno.EINVAL, what, url)
    if kind == "NotSupportedError" or "non-partial" in text:
        return OSError(errno.ENOTSUP, "the server gives no ranges of bytes", url)
    if said:
        return says(OSError, f"the store answered {said}", url)
    if _LATE.search(text):
        return says(TimeoutError, "the store did not answer in time", url)
    if "Error performing" in text or isinstance(error, ConnectionError) or kind in _UNREACHED:
        return says(ConnectionError, "the store can't be reached", url)
    if kind == "GenericError":
        return CutShortError(url)
    return says(OSError, f"failed with {kind}", url)
