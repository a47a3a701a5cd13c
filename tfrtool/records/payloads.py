"""Payloads in a stretch of bytes, without an object for each."""

import struct
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

import numpy as np
from numpy.typing import NDArray

from tfrtool.records import frames
from tfrtool.records.frames import Frames
from tfrtool.records.framing import (
    FOOTER_SIZE,
    HEADER_SIZE,
    MASK_DELTA,
    Record,
    crc32c,
    header,
)

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

LONG_STRING = 1024
"""Mean bytes of strings that are left to Arrow, whose allocator keeps the memory for the next."""


class Payloads(Sequence[bytes]):
    """Payloads in a stretch of bytes, in order; each becomes an object when it is asked for.

    Attributes:
        data: the bytes.
        starts: where each payload starts in ``data``.
        ends: and where it ends.
    """

    def __init__(
        self, data: bytes, starts: Ints, ends: Ints, keys: NDArray[np.uint64] | None = None
    ) -> None:
        """Take payloads, and the `payload_key` of each if these are known."""
        self.data, self.starts, self.ends = data, starts, ends
        self._keys = keys

    @classmethod
    def joined(cls, payloads: Sequence[bytes]) -> "Payloads":
        """Join payloads; a zero follows, so that there is at least a byte."""
        sizes = np.fromiter(map(len, payloads), np.int64, len(payloads))
        ends = np.cumsum(sizes)
        # One alone, which may be large, is not copied.
        single = payloads[0] if len(payloads) == 1 else b""
        return cls(single or b"".join([*payloads, b"\0"]), ends - sizes, ends)

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, item: int) -> bytes: ...
    @overload
    def __getitem__(self, item: slice) -> "Payloads": ...
    def __getitem__(self, item: int | slice) -> "bytes | Payloads":
        """Return a payload, or those of a slice."""
        if isinstance(item, slice):
            keys = None if self._keys is None else self._keys[item]
            return Payloads(self.data, self.starts[item], self.ends[item], keys)
        return self.data[self.starts[item] : self.ends[item]]

    def __iter__(self) -> Iterator[bytes]:
        data = self.data
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            yield data[start:end]

    @property
    def sizes(self) -> Ints:
        """How long each is."""
        return self.ends - self.starts

    @property
    def keys(self) -> NDArray[np.uint64]:
        """The `payload_key` of each."""
        if self._keys is None:
            sizes = self.sizes.astype(np.uint64) & np.uint64(0xFFFFFFFF)
            self._keys = self._masked_crcs().astype(np.uint64) << np.uint64(32) | sizes
        return self._keys

    def framed(self) -> bytes:
        """Return them with a frame around each, one behind the other."""
        if frames.native is None:
            return self._framed_in_python()
        found: bytes = frames.native.frame(self.data, self.starts, self.ends, self.keys)
        return found

    def _framed_in_python(self) -> bytes:
        sizes = self.sizes.tolist()
        headers = {size: header(size) for size in {*sizes}}
        crcs = (self.keys >> np.uint64(32)).astype(f"<u{FOOTER_SIZE}").tobytes()
        footers = (crc for (crc,) in struct.iter_unpack(f"{FOOTER_SIZE}s", crcs))
        framed = zip(map(headers.__getitem__, sizes), self, footers, strict=True)
        return b"".join(chain.from_iterable(framed))

    def _masked_crcs(self) -> NDArray[np.uint32]:
        if frames.native is None:
            crcs = np.fromiter(map(crc32c, self), np.uint32, len(self))
            # As `mask` does, of all at once: numbers of 32 bits wrap around.
            return (crcs >> np.uint32(15) | crcs << np.uint32(17)) + np.uint32(MASK_DELTA)
        found = frames.native.masked_crcs(self.data, self.starts, self.ends)
        return np.frombuffer(found, np.uint32)


def payloads_of(records: Sequence[Record]) -> Sequence[bytes]:
    """Return the payloads of records, without objects if that is possible."""
    if not isinstance(records, Frames):
        return [record.payload for record in records]
    starts = np.frombuffer(records.starts, np.uint64).astype(np.int64)
    keys = np.frombuffer(records.keys, np.uint64)
    return Payloads(records.data, starts[:-1] + HEADER_SIZE, starts[1:] - FOOTER_SIZE, keys)


def sizes_of(payloads: Sequence[bytes]) -> Ints:
    """Return how long each payload is."""
    if isinstance(payloads, Payloads):
        return payloads.sizes
    return np.fromiter(map(len, payloads), np.int64, len(payloads))
