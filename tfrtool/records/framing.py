"""The frame around each payload of a TFRecord file, and what is found when one is read.

A record is ``uint64 length | uint32 masked CRC of the length | payload | uint32 masked CRC of the
payload``, all little-endian (TensorFlow, ``tensorflow/core/lib/io/record_writer.h``). A file is
records and nothing else: no header, footer, count or index.
"""

import enum
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tfrtool.errors import printable
from tfrtool.records.crc import masked_crc32c

HEADER_SIZE = 12
"""Bytes before the payload: its length and the length's masked CRC."""

FOOTER_SIZE = 4
"""Bytes after the payload: its masked CRC."""

FRAME_SIZE = HEADER_SIZE + FOOTER_SIZE
"""Bytes that a record takes beyond its payload."""

MAX_RECORD_BYTES = 2**31 - 1
"""The longest payload that is believed in: protobuf's own limit for a serialized message."""

LENGTH = struct.Struct("<Q")
CRC = struct.Struct("<I")
HEADER = struct.Struct("<QI")


class Record(NamedTuple):
    """One whole record of a shard, as the reader found it.

    The reader makes one for each record of a file: hence a tuple, which costs a quarter of a
    frozen dataclass, and which is checked by its maker and not again here.

    Attributes:
        index: position in the shard, from 0; a damaged stretch before it counts as one record.
        offset: where its header starts in the uncompressed stream, in bytes.
        payload: the serialized bytes, without the frame.
        payload_crc: the masked CRC-32C that the file stores for the payload.
    """

    index: int  # type: ignore[assignment]  # in place of tuple's method
    offset: int
    payload: bytes
    payload_crc: int

    @property
    def length_crc(self) -> int:
        """The masked CRC-32C of the length, as the file stores it."""
        return masked_crc32c(LENGTH.pack(len(self.payload)))


class FaultKind(enum.Enum):
    """What can be wrong with a shard or a dataset; the values are part of the JSON output."""

    LENGTH_CRC = "length-crc"
    PAYLOAD_CRC = "payload-crc"
    TRUNCATED = "truncated"
    TRAILING_BYTES = "trailing-bytes"
    OVERSIZED_LENGTH = "oversized-length"
    DECOMPRESSION = "decompression"
    NOT_TFRECORD = "not-tfrecord"
    EMPTY = "empty"
    PARSE = "parse"
    COUNT = "count"
    MISSING_SHARD = "missing-shard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Damage found in a shard.

    Attributes:
        kind: what sort of damage.
        offset: where the header of the record concerned starts in the uncompressed stream, in
            bytes.
        record: that record's index, or None where it can't be known.
        message: what was expected and what was found, in one line.
        cause: what likely made it and what to do, in one line; None where nothing tells, or nobody
            looked, as verifying does.
    """

    kind: FaultKind
    offset: int
    record: int | None
    message: str
    cause: str | None = field(default=None, compare=False)

    @property
    def title(self) -> str:
        """Its kind and its place: "payload-crc at offset 128 (record 1)"."""
        record = "" if self.record is None else f" (record {self.record})"
        return f"{self.kind.value} at offset {self.offset}{record}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedFault:
    """A fault with the file that it is in, or that is missing."""

    path: Path
    fault: Fault

    def __str__(self) -> str:
        """Return it in one line: where, what and why."""
        return printable(f"{self.path}: {self.fault.title}: {self.fault.message}")


def header(length: int) -> bytes:
    """Return the 12 bytes that stand before a payload of ``length`` bytes."""
    packed = LENGTH.pack(length)
    return packed + CRC.pack(masked_crc32c(packed))


def frame(payload: bytes) -> bytes:
    """Return ``payload`` as one record: 16 bytes longer, ready to be appended to a shard."""
    return header(len(payload)) + payload + CRC.pack(masked_crc32c(payload))


def holds_header(data: bytes, offset: int = 0) -> bool:
    """Return whether a length stands at an offset, and the CRC that belongs to it."""
    crc = data[offset + LENGTH.size : offset + HEADER_SIZE]
    return crc == CRC.pack(masked_crc32c(data[offset : offset + LENGTH.size]))
