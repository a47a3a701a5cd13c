"""What stores say, as errors of the operating system; what may be secret is left out."""

import errno
import os
import re
from typing import Any

_HINTS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), or AWS_PROFILE "
    "(requires boto3), or AWS_SKIP_SIGNATURE=true for a public bucket",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to a file of credentials, or "
    "GOOGLE_SKIP_SIGNATURE=true for a public bucket",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and either AZURE_STORAGE_ACCOUNT_KEY or "
    "AZURE_STORAGE_SAS_TOKEN, or AZURE_SKIP_SIGNATURE=true for a public container",
    "hf": "set HF_TOKEN",
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
_NO_RANGES = "the server does not support range requests"
_DENIED = ("PermissionDeniedError", "UnauthenticatedError")
_UNREACHED = ("ConnectError", "ConnectTimeout")  # of httpx
_LATE = re.compile(r"timed out|TimedOut", re.IGNORECASE)


class _ObjectError(OSError):
    number, what = errno.EIO, ""

    def __init__(self, url: str) -> None:
        """Say so; ``url`` is the object's."""
        super().__init__(self.number, self.what, url)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.filename,)


class ChangedError(_ObjectError):
    """An object is not any more what it was when it was first looked at."""

    number, what = errno.ESTALE, "it was changed while it was being read"


class CutShortError(_ObjectError):
    """An answer ended before its end."""

    what = "the store's responses are cut short"


class BehindEndError(_ObjectError):
    """A range begins where an object has no byte any more."""

    number, what = errno.EINVAL, "no such range"


def a_store_error(error: Exception, url: str) -> OSError:
    """Return an error of obstore or fsspec as one whose text holds nothing of theirs."""
    text, kind, scheme = str(error), type(error).__name__, url.partition(":")[0]
    status = getattr(getattr(error, "response", None), "status_code", None)  # of fsspec's
    if isinstance(status, int):
        text = f"status code: {status}"
    said = " ".join(found[1] for found in (_STATUS.search(text), _CODE.search(text)) if found)
    missing = isinstance(error, FileNotFoundError) or said.startswith("404")
    nothing = "no such bucket" if "NoSuchBucket" in said else os.strerror(errno.ENOENT)
    denied = isinstance(error, PermissionError) or bool(_REFUSED.search(text))
    # An answer to HEAD has no body that could say that credentials have expired.
    denied = denied or (said.startswith("400") and "performing HEAD" in text)
    refused = f"access denied by the store ({said or 'no credentials'})"
    refused += f"; {_HINTS[scheme]}" if scheme in _HINTS else ""
    bad_key = "the key has control characters, or empty parts or dots between its slashes"
    unreached = "Error performing" in text or isinstance(error, ConnectionError)
    said_so: tuple[tuple[Any, int | type[_ObjectError], str], ...] = (
        (missing, errno.ENOENT, nothing),
        (kind == "AlreadyExistsError", errno.EEXIST, os.strerror(errno.EEXIST)),
        (kind == "PreconditionError", ChangedError, ""),
        (denied or kind in _DENIED, errno.EACCES, refused),
        (said.startswith("416"), BehindEndError, ""),
        (_BAD_KEY.search(text), errno.EINVAL, bad_key),
        (kind == "NotSupportedError" or "non-partial" in text, errno.ENOTSUP, _NO_RANGES),
        (said, errno.EIO, f"the store answered {said}"),
        (_LATE.search(text), errno.ETIMEDOUT, "the store did not answer in time"),
        (unreached or kind in _UNREACHED, errno.ECONNREFUSED, "the store can't be reached"),
        (kind == "GenericError", CutShortError, ""),
        (isinstance(error, ValueError), errno.EINVAL, "invalid URL"),
        (True, errno.EIO, f"failed with {kind}"),
    )
    number, what = next((number, what) for holds, number, what in said_so if holds)
    return OSError(number, what, url) if isinstance(number, int) else number(url)
