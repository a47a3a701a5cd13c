"""What likely made a fault: told from the file's bytes, and not told where they don't tell."""

from __future__ import annotations

import base64
import binascii
import enum
import re
import zlib
from functools import cached_property
from pathlib import Path

from tfrtool.errors import ShardError
from tfrtool.examples.tfds_metadata import DATASET_INFO
from tfrtool.inspection.verify.bit_flip import find_bit_flip
from tfrtool.records.compression import Compression, holds_header
from tfrtool.records.framing import (
    CRC,
    FOOTER_SIZE,
    HEADER,
    HEADER_SIZE,
    LENGTH,
    Fault,
    FaultKind,
)
from tfrtool.records.shards import Shard
from tfrtool.records.stream import Stream, folder_of, open_shard

__all__ = ["Evidence", "likely_cause"]

_HEAD = 4096
_BLOCK = 1 << 20
_TRANSFER_BLOCK = 4096
_SECTOR = 512
_HOLE_REACH = 4 << 20
_FLIP_REACH = 1 << 20
_REPLACED = b"\xef\xbf\xbd"  # U+FFFD, what decoders put for bytes that are no text
_GZIP = b"\x1f\x8b\x08"
_SURE = 4
"""Line feeds that all have a carriage return before them: chance gives 2**-32."""

_DECOYS: tuple[tuple[bytes, str], ...] = (
    (
        b"version https://git-lfs.github.com/spec/",
        "git-lfs left its pointer in place of the file: git lfs pull fetches it",
    ),
    (b"PK\x03\x04", "it is a zip archive under another name: unpack it"),
    (b"\x83\xafp\xd1\r\x88J?", "it is a Riegeli or ArrayRecord file: the array_record package"),
    (b"\x0a\x23\xd7\xce", "it is an MXNet RecordIO file, another format"),
    (b"Obj\x01", "it is an Avro file, another format"),
    (b"SEQ\x06", "it is a Hadoop SequenceFile, another format"),
)
"""First bytes and what they mean, from the formats' own specifications."""


class _Ending(enum.Enum):
    """How compressed data ends."""

    WHOLE = enum.auto()
    CUT = enum.auto()
    DAMAGED = enum.auto()
    RECORDS = enum.auto()
    STRANGE = enum.auto()


class Evidence:
    """The file that faults are in. More of it is read only where a fault asks for it, and once.

    Attributes:
        shard: the file.
        records: how many whole records it has.
        looks: how many more faults are looked at closely; of a file with thousands, the first tell.
        source: what is read for it, which may be a stream's copy.
    """

    def __init__(
        self, shard: Shard, records: int, looks: int = 20, source: Path | Stream | None = None
    ) -> None:
        self.shard = shard
        self.source = source or shard.path
        self.records = records
        self.looks = looks

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the file, as they are on disk."""
        with open_shard(self.source) as file:
            file.seek(offset)
            return file.read(size)

    @property
    def is_plain(self) -> bool:
        """Whether offsets of faults are offsets in the file."""
        return self.shard.compression is Compression.NONE

    @property
    def is_described(self) -> bool:
        """Whether metadata beside the file says how many records it has."""
        folder = folder_of(self.source)
        return folder is not None and (folder / DATASET_INFO).is_file()

    @cached_property
    def text_mode(self) -> str | None:
        """What something did to the file that takes all files for text; None if nothing did."""
        return _text_mode(self.source)

    @cached_property
    def ending(self) -> _Ending:
        """How its compressed data ends."""
        return _ending(self.source, self.shard.compression)


def likely_cause(fault: Fault, evidence: Evidence) -> str | None:
    """Return what likely made a fault and what to do about it, in one line; None if unknown."""
    try:
        return _cause(fault, evidence)
    except ShardError:
        return None


def _cause(fault: Fault, evidence: Evidence) -> str | None:
    kind = fault.kind
    if kind is FaultKind.EMPTY:
        return _empty(evidence)
    if kind is FaultKind.NOT_TFRECORD:
        return _not_tfrecord(evidence)
    if kind is FaultKind.TRUNCATED:
        return _truncated(evidence)
    if kind is FaultKind.TRAILING_BYTES:
        return _trailing(fault, evidence)
    if kind is FaultKind.DECOMPRESSION:
        return _decompression(evidence)
    if kind in (FaultKind.LENGTH_CRC, FaultKind.PAYLOAD_CRC):
        return _crc(fault, evidence)
    if kind is FaultKind.OVERSIZED_LENGTH:
        return (
            "its CRC holds, so that it was written like this, by a broken writer or on purpose; "
            "TensorFlow's reader would try to reserve that memory, and may crash"
        )
    if kind is FaultKind.PARSE:
        return "its CRC holds, so that it was written like this"
    return None


def _empty(evidence: Evidence) -> str:
    if evidence.shard.bytes == 0:
        return (
            "nothing was ever written to it: a split without records, or a writer or a copy that "
            "died before its first block"
        )
    return "its writer was closed without a record"


def _not_tfrecord(evidence: Evidence) -> str | None:
    head = evidence.read(0, _HEAD)
    for magic, cause in _DECOYS:
        if head.startswith(magic):
            return cause
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head")):
        return (
            "a download saved the server's error or login page in place of the file: fetch it again"
        )
    if _is_base64(head):
        return "it is the base64 text of a TFRecord file: decode it (base64 -d)"
    if not head.strip(b"\0"):
        return "its space was reserved, but its data never came: fetch or copy it again"
    return evidence.text_mode


def _truncated(evidence: Evidence) -> str:
    cause = "the write or the download was cut"
    size = evidence.shard.bytes
    if evidence.is_plain and size % _TRANSFER_BLOCK == 0:
        cause += f" (after a whole number of blocks of {_TRANSFER_BLOCK} bytes)"
    return f"{cause}: fetch it again, or {_keep(evidence)}"


def _trailing(fault: Fault, evidence: Evidence) -> str:
    if not evidence.is_plain:
        return "bytes that are no record were written after the last one"
    tail = evidence.read(fault.offset, _HEAD)
    if not tail.strip(b"\0"):
        return (
            "its space was reserved in advance, and the writer or the copy ended before all of it "
            f"was used (a crash, a full disk): if records are missing, fetch it again; {_drop()}"
        )
    return f"something was appended to the file, or a last record was cut: {_drop()}"


def _decompression(evidence: Evidence) -> str | None:
    ending = evidence.ending
    if ending is _Ending.CUT:
        return (
            "the write or the download was cut, or its writer was never closed, which writes the "
            f"end: fetch it again, or {_keep(evidence)}"
        )
    if ending is _Ending.DAMAGED:
        text = evidence.text_mode
        return text or f"bits changed on disk or in transfer: {_copy_again(evidence)}"
    if ending is _Ending.RECORDS:
        return "an uncompressed shard was appended to a compressed one (cat): take them apart"
    if ending is _Ending.STRANGE:
        return "something that is not compressed was appended to the file"
    return None


def _crc(fault: Fault, evidence: Evidence) -> str | None:
    if evidence.is_plain:
        if evidence.read(fault.offset, len(_GZIP)) == _GZIP:
            return "a gzip shard was appended to an uncompressed one (cat): take them apart"
        text = evidence.text_mode
        if text is not None:
            return text
        evidence.looks -= 1
        close = evidence.looks >= 0
        hole = _hole(fault, evidence) if close else None
        if hole is not None:
            return (
                f"{hole}, where data should be: a copy or a download lost these blocks; "
                f"{_copy_again(evidence)}"
            )
        flip = _flipped_bit(fault, evidence) if close else None
        if flip is not None:
            return (
                f"{flip}, and all else is right: a fault of memory, disk or cable, not of "
                f"software; {_copy_again(evidence)}"
            )
    return f"bits changed on disk, in memory or in transfer: {_copy_again(evidence)}"


def _keep(evidence: Evidence) -> str:
    if not evidence.records:
        return "write it again"
    if evidence.is_described:  # a repaired one would not have the records that are said
        return "tfrtool train --on-corrupt skip leaves out what is damaged"
    noun = "record" if evidence.records == 1 else "records"
    return f"tfrtool repair keeps its {evidence.records:,} whole {noun}"


def _copy_again(evidence: Evidence) -> str:
    return f"copy it again and compare checksums, or {_keep(evidence)}"


def _drop() -> str:
    return "tfrtool repair leaves it out"


def _is_base64(head: bytes) -> bool:
    text = re.sub(rb"\s", b"", head[:64])[: HEADER_SIZE // 3 * 4]
    try:
        return holds_header(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return False


def _text_mode(source: Path | Stream) -> str | None:
    """Tell a file that went through something that takes all files for text."""
    feeds = pairs = returns = size = replaced = 0
    before = b""
    with open_shard(source) as file:
        while block := file.read(_BLOCK):
            size += len(block)
            feeds += block.count(b"\n")
            returns += block.count(b"\r")
            pairs += block.count(b"\r\n") + (before + block[:1] == b"\r\n")
            replaced += block.count(_REPLACED)
            before = block[-1:]
    if feeds == pairs >= _SURE:
        return (
            "a transfer in text mode (FTP ASCII, git autocrlf) put a carriage return before each "
            "line feed: fetch it again in binary mode"
        )
    # With bytes at random, a file this long has feeds * returns / size pairs; none of 24 is 4e-11.
    if not pairs and feeds * returns > 24 * size:
        return (
            "a transfer in text mode (FTP ASCII, dos2unix) took the carriage return from before "
            "each line feed: fetch it again in binary mode"
        )
    if replaced * 100 > size:
        return (
            "it was read as text and written again: bytes that are no UTF-8 have become U+FFFD, "
            "and can't be brought back"
        )
    return None


def _hole(fault: Fault, evidence: Evidence) -> str | None:
    """Find zero bytes that start and end where blocks of a disk do, near a fault.

    Data that is zero by itself starts and ends anywhere: at such places in 1 of 2**18 cases.
    """
    start = fault.offset // _SECTOR * _SECTOR
    data = evidence.read(start, _HOLE_REACH)
    at_end = start + len(data) == evidence.shard.bytes
    zeros = bytes(_TRANSFER_BLOCK)
    position = data.find(zeros)
    while position >= 0:
        rest = data[position:].lstrip(b"\0")
        end = len(data) - len(rest)
        if position % _SECTOR == 0 and (end % _SECTOR == 0 or (not rest and at_end)):
            return f"{end - position:,} zero bytes at offset {start + position:,}"
        position = data.find(zeros, end)
    return None


def _flipped_bit(fault: Fault, evidence: Evidence) -> str | None:
    """Tell the one bit that is wrong, with its place in the file."""
    header = evidence.read(fault.offset, HEADER_SIZE)
    if len(header) < HEADER_SIZE:
        return None
    length, stored = HEADER.unpack(header)
    start, data = fault.offset, header[: LENGTH.size]
    if fault.kind is FaultKind.PAYLOAD_CRC:
        if length > _FLIP_REACH:
            return None
        start += HEADER_SIZE
        body = evidence.read(start, length + FOOTER_SIZE)
        if len(body) < length + FOOTER_SIZE:
            return None
        data = body[:length]
        (stored,) = CRC.unpack_from(body, length)
    flip = find_bit_flip(data, stored)
    if flip is None:
        return None
    place = start + flip.byte + (len(data) if flip.in_crc else 0)
    return f"a single bit is wrong, bit {flip.bit} of the byte at offset {place:,}"


def _ending(source: Path | Stream, compression: Compression) -> _Ending:
    wbits = 31 if compression is Compression.GZIP else 15
    inflate = zlib.decompressobj(wbits)
    with open_shard(source) as file:
        rest = b""
        while True:
            if not rest and not (rest := file.read(_BLOCK // 16)):
                return _Ending.WHOLE if inflate.eof else _Ending.CUT
            if inflate.eof:
                rest += file.read(HEADER_SIZE)
                if holds_header(rest):
                    return _Ending.RECORDS
                if wbits == 15 or not rest.startswith(_GZIP):
                    return _Ending.STRANGE
                inflate = zlib.decompressobj(wbits)
            try:
                inflate.decompress(rest, _BLOCK)
            except zlib.error:
                return _Ending.DAMAGED
            rest = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
