"""What Google's store says otherwise than S3's, so that moto can stand for it.

Both have an XML interface with the same paths and bodies. Its conditions are on generations, which
are numbers, where S3's are on ETags, and some headers are called otherwise.
"""

from __future__ import annotations

import itertools

__all__ = ["Generations"]

Headers = list[tuple[str, str]]

_SIGNED = (
    "AWS4-HMAC-SHA256 Credential=anyone/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)
"""moto wants to see that a request is signed, and believes it."""


class Generations:
    """The number that each version of an object has."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._etags: dict[int, str] = {}
        self._next = itertools.count(1_000)

    def asked(self, headers: Headers) -> Headers:
        """Return the headers of a request as S3's store wants them."""
        translated = [pair for header in headers for pair in self._translated(*header)]
        return [*translated, ("authorization", _SIGNED)]

    def answered(self, headers: Headers, path: str) -> Headers:
        """Return the headers of an answer as Google's store gives them."""
        etag = dict(headers).get("etag")
        if etag is None:
            return headers
        whole = f"{path} {etag}"
        if whole not in self._numbers:
            self._numbers[whole] = next(self._next)
            self._etags[self._numbers[whole]] = etag
        return [*headers, ("x-goog-generation", str(self._numbers[whole]))]

    def _translated(self, name: str, value: str) -> Headers:
        if name == "x-goog-if-generation-match":
            if value == "0":
                return [("if-none-match", "*")]
            return [("if-match", self._etags.get(int(value), '"none"'))]
        if name.startswith("x-goog-"):
            return [(name.replace("x-goog-", "x-amz-"), value)]
        return [] if name == "authorization" else [(name, value)]
