"""Masked CRC-32C, the checksum of the TFRecord format.

The polynomial is Castagnoli's (RFC 3720, appendix B.4); the mask is the one of TensorFlow's
``tensorflow/core/lib/hash/crc32c.h``. It keeps a CRC that is stored beside the data which it
covers from being taken for such data.
"""

from __future__ import annotations

import google_crc32c

__all__ = ["crc32c", "extend_crc32c", "mask", "masked_crc32c", "unmask"]

_DELTA = 0xA282EAD8
_WORD = 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of ``data``, a 32-bit unsigned integer."""
    return int(google_crc32c.value(data))


def extend_crc32c(crc: int, data: bytes) -> int:
    """Return the CRC-32C of some bytes whose CRC-32C is ``crc``, followed by ``data``."""
    return int(google_crc32c.extend(crc, data))


def mask(crc: int) -> int:
    """Return the masked form of a CRC: rotated right by 15 bits, plus a constant, mod 2**32."""
    return (((crc >> 15) | (crc << 17)) + _DELTA) & _WORD


def unmask(masked: int) -> int:
    """Return the CRC whose masked form is ``masked``; the inverse of `mask`."""
    rotated = (masked - _DELTA) & _WORD
    return ((rotated >> 17) | (rotated << 15)) & _WORD


def masked_crc32c(data: bytes) -> int:
    """Return the masked CRC-32C of ``data``, as the TFRecord format stores it."""
    crc = int(google_crc32c.value(data))
    return (((crc >> 15) | (crc << 17)) + _DELTA) & _WORD
