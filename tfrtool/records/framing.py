"""The frame around each payload of a TFRecord file, and what is found when one is read.

A record is ``uint64 length | uint32 masked CRC of the length | payload | uint32 masked CRC of the
payload``, all little-endian (TensorFlow, ``tensorflow/core/lib/io/record_writer.h``). A file is
records and nothing else: no header, footer, count or index.

The CRC's polynomial is Castagnoli's (RFC 3720, appendix B.4). Its mask is the one of TensorFlow's
``tensorflow/core/lib/hash/crc32c.h``: data followed by its own CRC would always have the same CRC.
"""

import enum
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import google_crc32c

from tfrtool.errors import named_record, printable
from tfrtool.storage.remote_path import AnyPath

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
FOOTER_AND_HEADER = struct.Struct("<IQI")
"""A payload's CRC, and the length and its CRC of the record that follows."""


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


_SHORT = 64
"""Bytes of a payload that the ``repr`` of a record has."""


class Record(NamedTuple):
    """An intact record of a shard, as returned by the reader.

    The reader creates one for every record. It is a named tuple, which costs a quarter of a frozen
    dataclass, and its values are not validated again here.

    Attributes:
        index: position in the shard, counted from 0. A damaged stretch before it counts as one
            record.
        offset: byte offset of the record's header in the uncompressed stream.
        payload: the serialized bytes, without the framing.
        payload_crc: masked CRC-32C of the payload, as stored in the file.
    """

    index: int  # type: ignore[assignment]  # in place of tuple's method
    offset: int
    payload: bytes
    payload_crc: int

    @property
    def length_crc(self) -> int:
        """Masked CRC-32C of the length, as stored in the file."""
        return masked_crc32c(LENGTH.pack(len(self.payload)))

    def __repr__(self) -> str:
        """Return the values on one line: of the payload its size."""
        size, crc = len(self.payload), self.payload_crc
        payload = repr(self.payload) if size <= _SHORT else f"<{size:,} bytes>"
        return f"Record(index={self.index}, offset={self.offset}, {payload=!s}, payload_crc={crc})"

    def _repr_html_(self) -> str:
        """Return the picture and the features, for notebooks."""
        # Examples and images are read by packages above this one.
        shown: str = sys.modules["tfrtool"].show(self)._repr_html_()
        return shown


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
    SCHEMA = "schema"
    COUNT = "count"
    MISSING_SHARD = "missing-shard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Damage found in a shard.

    Attributes:
        kind: type of damage.
        offset: byte offset, in the uncompressed stream, of the header of the affected record.
        record: index of the affected record, or None if it can't be determined.
        message: the expected and the found value, on one line.
        cause: likely cause and how to fix it, on one line. None if the cause is unknown. Only
            `verify` looks for causes, and `inspect_shard` for checksums of other writers.
    """

    kind: FaultKind
    offset: int
    record: int | None
    message: str
    cause: str | None = field(default=None, compare=False)

    @property
    def title(self) -> str:
        """Kind and location, such as "payload-crc at offset 128 (record 1)"."""
        record = "" if self.record is None else f" (record {self.record})"
        return f"{self.kind.value} at offset {self.offset}{record}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedFault:
    """A fault with the file that it is in, or that is missing."""

    path: AnyPath
    fault: Fault

    def __str__(self) -> str:
        """Return it in one line: where, what and why."""
        return printable(f"{self.title}: {self.fault.message}")

    @property
    def title(self) -> str:
        """Location and kind, such as "a.tfrecord:1: payload-crc at offset 128"."""
        fault, location = self.fault, str(self.path)
        if fault.record is not None:
            location = named_record(location, fault.record)
        return f"{location}: {fault.kind.value} at offset {fault.offset}"


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
