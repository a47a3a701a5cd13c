"""Errors of obstore and fsspec as OSErrors, without the texts, which may contain secrets."""

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


class _ObjectError(OSError):
    number, what = errno.EIO, ""

    def __init__(self, url: str) -> None:
        """Take the URL of the object."""
        super().__init__(self.number, self.what, url)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.filename,)


class ChangedError(_ObjectError):
    """An object differs from when it was first looked at."""

    number, what = errno.ESTALE, "it was changed while it was being read"


class CutShortError(_ObjectError):
    """A response ended early."""

    what = "the store's responses are cut short"


class BehindEndError(_ObjectError):
    """A range begins behind the end of an object."""

    number, what = errno.EINVAL, "no such range"


_DENIED = "|".join(
    (
        r"status code: 40[13]\b",
        r"<Code>(?:Expired|Invalid(?:Access|Token|Security)|Signature|TokenRef|AccessDenied|Auth|"
        r"NoAuth|RequestTimeTooSkewed)",
        r"169\.254\.169\.254|metadata\.google|(?i:credential|Account must be)",
        # An answer to HEAD has no body that could say that credentials have expired.
        r"performing HEAD.*status code: 400",
    )
)
_CASES: tuple[tuple[str, str, int | type[_ObjectError], str], ...] = (
    ("", "<Code>NoSuchBucket", errno.ENOENT, "no such bucket"),
    ("FileNotFoundError", "code: 404", errno.ENOENT, os.strerror(errno.ENOENT)),
    ("AlreadyExistsError", "", errno.EEXIST, os.strerror(errno.EEXIST)),
    ("PreconditionError", "", ChangedError, ""),
    (
        "PermissionError PermissionDeniedError UnauthenticatedError",
        _DENIED,
        errno.EACCES,
        "access denied by the store ({reason}){hint}",
    ),
    ("", r"status code: 416", BehindEndError, ""),
    (
        "",
        r"illegal character|empty path segment|parsing Path",
        errno.EINVAL,
        "the key has control characters, or empty parts or dots between its slashes",
    ),
    (
        "NotSupportedError",
        "non-partial",
        errno.ENOTSUP,
        "the server does not support range requests",
    ),
    ("", f"{_STATUS.pattern}|{_CODE.pattern}", errno.EIO, "the store answered {reason}"),
    ("", r"(?i:timed out|TimedOut)", errno.ETIMEDOUT, "the store did not answer in time"),
    (
        "ConnectionError ConnectError ConnectTimeout",
        "Error performing",
        errno.ECONNREFUSED,
        "the store can't be reached",
    ),
    ("GenericError", "", CutShortError, ""),
    ("ValueError", "", errno.EINVAL, "invalid URL"),
)
"""Classes of an error, a pattern of its classes and text, and the error that stands for it."""


def as_os_error(error: Exception, url: str) -> OSError:
    """Return an error of obstore or fsspec as an OSError that contains none of its text."""
    kind, text, scheme = type(error), str(error), url.partition(":")[0]
    status = getattr(getattr(error, "response", None), "status_code", None)  # of fsspec's errors
    if isinstance(status, int):
        text = f"status code: {status}"
    reason = " ".join(match[1] for match in (_STATUS.search(text), _CODE.search(text)) if match)
    facts = {
        "reason": reason or "no credentials",
        "hint": f"; {_HINTS[scheme]}" if scheme in _HINTS else "",
    }
    names = [base.__name__ for base in kind.__mro__]
    subject = f"{' '.join(names)}: {text}"
    for classes, pattern, number, what in _CASES:
        matches = pattern and re.search(pattern, subject, re.DOTALL)
        if matches or not {*names}.isdisjoint(classes.split()):
            if isinstance(number, int):
                return OSError(number, what.format(**facts), url)
            return number(url)
    return OSError(errno.EIO, f"failed with {kind.__name__}", url)
