"""Shards for property tests, and what is to be read from them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from hypothesis import strategies as st

from tfrtool.records.framing import FRAME_SIZE, HEADER_SIZE, Fault, Record, frame, masked_crc32c
from tfrtool.records.reader import read_records

payloads = st.one_of(
    st.just(b""),
    st.integers(1, 40).map(bytes),
    st.binary(max_size=40),
    st.binary(max_size=12).map(lambda data: data + bytes(8)),
)
"""Small payloads: what is hard for a reader is next to a frame, so frames should be many.

Zeros look like the upper half of every length, and an empty record is a run of them.
"""

payload_lists = st.lists(payloads, min_size=1, max_size=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that a reader gave out."""

    records: list[Record]
    faults: list[Fault]

    @property
    def payloads(self) -> list[bytes]:
        """The payloads of the records."""
        return [record.payload for record in self.records]


def shard_of(payloads: list[bytes]) -> bytes:
    """Return the bytes of a shard."""
    return b"".join(map(frame, payloads))


def offsets_of(payloads: list[bytes]) -> list[int]:
    """Return where each record starts, and at last where the shard ends."""
    return [0, *accumulate(FRAME_SIZE + len(payload) for payload in payloads)]


def read(data: bytes, **options: Any) -> Reading:
    """Read a shard from memory."""
    items = list(read_records(io.BytesIO(data), **options))
    return Reading(
        records=[item for item in items if isinstance(item, Record)],
        faults=[item for item in items if isinstance(item, Fault)],
    )


def read_strictly(data: bytes) -> list[bytes] | None:
    """Return the payloads of a shard that is whole, and None for any other.

    This is the format's definition in its simplest form, to judge the reader by.
    """
    found = []
    while data:
        length = int.from_bytes(data[:8], "little")
        end = HEADER_SIZE + length
        payload = data[HEADER_SIZE:end]
        crcs = data[8:HEADER_SIZE], data[end : end + 4]
        wanted = masked_crc32c(data[:8]), masked_crc32c(payload)
        if crcs != tuple(crc.to_bytes(4, "little") for crc in wanted):
            return None
        found.append(payload)
        data = data[end + 4 :]
    return found


def is_subsequence(part: list[bytes], whole: list[bytes]) -> bool:
    """Return whether all of ``part`` stands in ``whole``, in the same order."""
    rest = iter(whole)
    return all(item in rest for item in part)
