"""Masked CRC-32C, the checksum of the TFRecord format.

The polynomial is Castagnoli's (RFC 3720, appendix B.4); the mask is the one of TensorFlow's
``tensorflow/core/lib/hash/crc32c.h``. Without the mask, data followed by
its own CRC would always have the same CRC.
"""

from collections.abc import Callable
from typing import Any

import google_crc32c

MASK_DELTA = 0xA282EAD8
_WORD = 0xFFFFFFFF

Buffer = Any
"""bytes, or an array of numpy, but no memoryview."""

# The library's own functions: the reader calls them for every record.
crc32c: Callable[[Buffer], int] = google_crc32c.value
extend_crc32c: Callable[[int, Buffer], int] = google_crc32c.extend


def mask(crc: int) -> int:
    """Return the masked form of a CRC: rotated right by 15 bits, plus a constant, mod 2**32."""
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & _WORD


def unmask(masked: int) -> int:
    """Return the CRC whose masked form is ``masked``; the inverse of `mask`."""
    rotated = (masked - MASK_DELTA) & _WORD
    return ((rotated >> 17) | (rotated << 15)) & _WORD


def masked_crc32c(data: bytes) -> int:
    """Return the masked CRC-32C of ``data``, as the TFRecord format stores it."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & _WORD  # a call of mask costs a third
