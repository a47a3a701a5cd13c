"""Files of writers that store other checksums than TensorFlow, made from the definition."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from tfrtool.records.framing import crc32c, masked_crc32c

__all__ = ["FRAMES", "file_of"]

Frame = Callable[[bytes], bytes]


def _four(value: int, order: str = "little") -> bytes:
    return value.to_bytes(4, "little" if order == "little" else "big")


def _eight(payload: bytes) -> bytes:
    return len(payload).to_bytes(8, "little")


def _with_crcs(crc: Callable[[bytes], int]) -> Frame:
    def frame(payload: bytes) -> bytes:
        length = _eight(payload)
        return length + _four(crc(length)) + payload + _four(crc(payload))

    return frame


def _zlib_masked(data: bytes) -> int:
    crc = zlib.crc32(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _big_endian(payload: bytes) -> bytes:
    length = len(payload).to_bytes(8, "big")
    crcs = [_four(masked_crc32c(data), "big") for data in (length, payload)]
    return length + crcs[0] + payload + crcs[1]


def _zero_payload(payload: bytes) -> bytes:
    length = _eight(payload)
    return length + _four(masked_crc32c(length)) + payload + bytes(4)


FRAMES: dict[str, Frame] = {
    "zero": lambda payload: _eight(payload) + bytes(4) + payload + bytes(4),
    "zero-payload": _zero_payload,
    "unmasked": _with_crcs(crc32c),
    "zlib": _with_crcs(zlib.crc32),
    "zlib masked": _with_crcs(_zlib_masked),
    "big-endian": _big_endian,
    "missing": lambda payload: _eight(payload) + payload,
}
"""By the style, and after a space its variant, what frames a payload."""


def file_of(name: str, payloads: list[bytes]) -> bytes:
    """Return a file of a style."""
    return b"".join(map(FRAMES[name], payloads))
