"""Digests of 128 bits, by which copies of records and images are found."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

DIGESTS = [("high", "<u8"), ("low", "<u8")]
"""The halves of a digest, as numpy takes them."""


def digest_halves(contents: Sequence[bytes]) -> "npt.NDArray[Any]":
    """Return 128-bit digests of contents as rows of two numbers."""
    import numpy as np

    joined = b"".join(blake2b(content, digest_size=16).digest() for content in contents)
    return np.frombuffer(joined, DIGESTS)


class KnownImages:
    """The images of a dataset, by 128-bit digests of their bytes: 16 bytes for each."""

    def __init__(self, digests: "npt.NDArray[Any]") -> None:
        """Take the halves of digests; those that are zero are of no image."""
        import numpy as np

        order = np.argsort(digests["high"], kind="stable")
        self._high, self._low = digests["high"][order], digests["low"][order]

    def __contains__(self, data: bytes) -> bool:
        high, low = digest_halves([data])[0].tolist()
        start, stop = (int(self._high.searchsorted(high, side)) for side in ("left", "right"))
        return bool((self._low[start:stop] == low).any())
