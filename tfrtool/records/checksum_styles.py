"""Checksums that writers other than TensorFlow store, and how a file shows which it has.

TensorFlow refuses all of these files. `repair` reads them if it is told their style, and writes
the records with proper checksums.
"""

import enum
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal, NamedTuple

from tfrtool.errors import ShardError, human_count, os_errors_as
from tfrtool.records.compression import Compression, Inflater, detect_compression
from tfrtool.records.framing import CRC, LENGTH, MAX_RECORD_BYTES, crc32c, mask, masked_crc32c
from tfrtool.records.stream import ByteSource, Stream, Window, open_shard
from tfrtool.records.wire import read_spans
from tfrtool.storage.remote_path import AnyPath

_REACH = 64 << 20
"""Bytes from the start of a file in which its style is looked for."""

_ENOUGH_BYTES, _ENOUGH_RECORDS = 1 << 20, 16
"""A chain of frames that is longer than both of these is not followed any further."""

_CHAIN = 3
"""Records in a row that show a style although what follows them is damaged."""

_MAX_FIELDS = 1000
"""Fields of a message that are looked at; an Example has one."""


class ChecksumStyle(enum.Enum):
    """What a writer stored in place of masked CRC-32C; the values are those of the CLI."""

    ZERO = "zero"
    ZERO_PAYLOAD = "zero-payload"
    UNMASKED = "unmasked"
    ZLIB = "zlib"
    BIG_ENDIAN = "big-endian"
    MISSING = "missing"

    @property
    def finding(self) -> str:
        """What is wrong with a file of this style, as a clause."""
        return _FINDINGS[self]

    @property
    def checks_payloads(self) -> bool:
        """Whether a changed payload would be detected."""
        return all(framing.checks_payloads for framing in framings_of(self))


_FINDINGS = {
    ChecksumStyle.ZERO: "its checksums are zero",
    ChecksumStyle.ZERO_PAYLOAD: "its payload checksums are zero",
    ChecksumStyle.UNMASKED: "its checksums are not masked",
    ChecksumStyle.ZLIB: "its checksums are zlib's CRC-32 instead of CRC-32C",
    ChecksumStyle.BIG_ENDIAN: "its lengths and checksums are big-endian",
    ChecksumStyle.MISSING: "its records have lengths but no checksums",
}


def _zero(_: bytes) -> int:
    return 0


def _zlib_masked(data: bytes) -> int:
    return mask(zlib.crc32(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFraming:
    """How a writer framed its records.

    Attributes:
        style: what the writer did differently; None for TensorFlow's own framing.
        length_crc: checksum of the eight bytes of a length.
        payload_crc: checksum of a payload.
        byte_order: that of lengths and checksums.
        crc_size: bytes of each checksum; 0 if there are none.
    """

    style: ChecksumStyle | None
    length_crc: Callable[[bytes], int]
    payload_crc: Callable[[bytes], int]
    byte_order: Literal["little", "big"] = "little"
    crc_size: int = CRC.size

    @property
    def header_size(self) -> int:
        """Bytes before a payload."""
        return LENGTH.size + self.crc_size

    @property
    def frame_size(self) -> int:
        """Bytes that a record takes beyond its payload."""
        return self.header_size + self.crc_size

    @property
    def checks_lengths(self) -> bool:
        """Whether a changed length would be detected."""
        return self.length_crc is not _zero

    @property
    def checks_payloads(self) -> bool:
        """Whether a changed payload would be detected."""
        return self.payload_crc is not _zero

    def read_length(self, header: bytes) -> int | None:
        """Return the length in a header, if its checksum matches and it is plausible.

        A header of zeros has none: it can't be told from a gap.
        """
        stored = header[: LENGTH.size]
        length = int.from_bytes(stored, self.byte_order)
        if len(header) < self.header_size or length > MAX_RECORD_BYTES or not any(header):
            return None
        return length if header[LENGTH.size :] == self.pack(self.length_crc(stored)) else None

    def pack(self, crc: int) -> bytes:
        """Return a checksum as the writer stored it."""
        return crc.to_bytes(CRC.size, self.byte_order)[: self.crc_size]

    def length_at(self, window: Window, offset: int) -> int | None:
        """Return what `read_length` does for the header at an offset of a stream."""
        window.load(offset, self.header_size)
        return self.read_length(window.view(offset, offset + self.header_size))


_STANDARD = RecordFraming(style=None, length_crc=masked_crc32c, payload_crc=masked_crc32c)

_FRAMINGS = (
    RecordFraming(style=ChecksumStyle.UNMASKED, length_crc=crc32c, payload_crc=crc32c),
    RecordFraming(style=ChecksumStyle.ZLIB, length_crc=zlib.crc32, payload_crc=zlib.crc32),
    RecordFraming(style=ChecksumStyle.ZLIB, length_crc=_zlib_masked, payload_crc=_zlib_masked),
    RecordFraming(
        style=ChecksumStyle.BIG_ENDIAN,
        length_crc=masked_crc32c,
        payload_crc=masked_crc32c,
        byte_order="big",
    ),
    RecordFraming(style=ChecksumStyle.ZERO_PAYLOAD, length_crc=masked_crc32c, payload_crc=_zero),
    RecordFraming(style=ChecksumStyle.ZERO, length_crc=_zero, payload_crc=_zero),
    RecordFraming(style=ChecksumStyle.MISSING, length_crc=_zero, payload_crc=_zero, crc_size=0),
)
"""In the order in which they are tried: the ones that prove most come first."""


class DetectedFraming(NamedTuple):
    """The framing that the first records of a file have.

    Attributes:
        framing: how they are framed.
        records: how many records the file has; None if it was not followed to its end.
    """

    framing: RecordFraming
    records: int | None


def framings_of(style: ChecksumStyle) -> Iterator[RecordFraming]:
    """Yield the framings that a style stands for."""
    return (framing for framing in _FRAMINGS if framing.style is style)


def detect_framing(window: Window, expected: ChecksumStyle | None = None) -> DetectedFraming | None:
    """Return how the first records of a stream are framed; None if they show no style.

    The window, which is at the start of the stream, keeps what is read. With an ``expected``
    style, payloads that are not messages are accepted for it.
    """
    pinned, window.pinned = window.pinned, 0
    try:
        for framing in (_STANDARD, *_FRAMINGS):
            chain = _Chain(framing, window)
            if chain.is_evident(any_payload=framing.style is expected):
                return DetectedFraming(framing, chain.records if chain.is_complete else None)
        return None
    finally:
        window.pinned = pinned


class _Chain:
    """The frames from the start of a stream on, as far as they follow each other.

    Attributes:
        records: how many records there are.
        matching: how many of them have the checksum of their payload.
        messages: how many payloads have the form of a protobuf message.
        is_complete: whether the last one ends where the stream does.
        is_long: whether there are so many that the rest was not read.
    """

    def __init__(self, framing: RecordFraming, window: Window) -> None:
        self._framing = framing
        self.records = self.matching = self.messages = 0
        offset = 0
        self.is_long = False
        while (length := framing.length_at(window, offset)) is not None:
            size = framing.frame_size + length
            is_enough = offset > _ENOUGH_BYTES and self.records >= _ENOUGH_RECORDS
            self.is_long = is_enough or (offset > 0 and offset + size > _REACH)
            if self.is_long or offset + size > _REACH or window.load(offset, size) < size:
                break
            body = offset + framing.header_size
            payload = window.view(body, body + length)
            stored = window.view(body + length, offset + size)
            matches = stored == framing.pack(framing.payload_crc(payload))
            if not matches and not framing.checks_payloads:
                break
            offset += size
            self.records += 1
            self.matching += matches
            self.messages += _is_message(payload)
        self.is_complete = offset > 0 and not window.load(offset, 1)

    def is_evident(self, *, any_payload: bool) -> bool:
        """Return whether the records show that the stream is framed this way."""
        framing = self._framing
        if framing.checks_payloads:
            return self.matching > 0
        if not self.records:
            return False
        if not framing.checks_lengths and not (
            self.is_complete or self.is_long or self.records >= _CHAIN
        ):
            return False
        if not framing.crc_size:
            return self.records > 1 and (any_payload or self.messages == self.records)
        if any_payload or self.records > 1:
            return True
        # A gap of zeros at the end of a single record may have replaced its payload's checksum.
        return not framing.checks_lengths and self.messages == 1


def _is_message(payload: bytes) -> bool:
    """Return whether a payload has the form of a protobuf message with a field or more."""
    try:
        fields = sum(1 for _ in read_spans(payload, most=_MAX_FIELDS))
    except ValueError:
        return False
    return fields > 0


def open_window(file: BinaryIO, compression: Compression) -> tuple[Window, Inflater | None]:
    """Return the uncompressed stream of a file, and what uncompresses it."""
    inflater = None if compression is Compression.NONE else Inflater(file, compression)
    content: ByteSource = inflater or file
    return Window(content), inflater


def detect_style(source: AnyPath | Stream) -> DetectedFraming | None:
    """Return how the first records of a file are framed, if they have other checksums.

    None for a stream, which can be read only once.
    """
    if isinstance(source, Stream):
        return None
    with open_shard(source) as file, os_errors_as(ShardError, source):
        detected = detect_framing(open_window(file, detect_compression(file))[0])
    return None if detected is None or detected.framing.style is None else detected


def explain_style(source: AnyPath | Stream) -> str | None:
    """Return what is wrong with all checksums of a file, and how to recover its records."""
    detected = detect_style(source)
    if detected is None or (style := detected.framing.style) is None:
        return None
    count = detected.records
    records = "its records" if count is None else human_count(count, "record")
    command = f"tfrtool repair --accept-checksums {style.value}"
    return f"{style.finding}; run {command} to recover {records}"
