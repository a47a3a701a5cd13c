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
