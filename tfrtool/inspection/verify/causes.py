"""What likely made a fault: told from the file's bytes, and not told where they don't tell."""

from __future__ import annotations

import base64
import contextlib
import re
import zlib
from functools import cached_property
from pathlib import Path

from tfrtool.errors import ShardError, human_count
from tfrtool.examples.tfds_metadata import DATASET_INFO
from tfrtool.inspection.verify.bit_flip import find_bit_flip
from tfrtool.records.compression import Compression
from tfrtool.records.framing import (
    CRC,
    FOOTER_SIZE,
    HEADER,
    HEADER_SIZE,
    LENGTH,
    Fault,
    FaultKind,
    holds_header,
)
from tfrtool.records.shards import Shard
from tfrtool.records.stream import Stream, folder_of, open_shard

_LOOKS = 20
"""Faults of a file that are looked at closely; of one with thousands, the first tell."""

_HEAD = 4096
_BLOCK = 1 << 20
_TRANSFER_BLOCK = 4096
_SECTOR = 512
_HOLE_REACH = 4 << 20
_FLIP_REACH = 1 << 20
_REPLACED = b"\xef\xbf\xbd"  # U+FFFD, what decoders put for bytes that are no text
_GZIP = b"\x1f\x8b\x08"
_SURE = 4
"""Newlines that all have a carriage return before them: chance gives 2**-32."""

_HTML = (b"<!doctype html", b"<html", b"<head")
_DECOYS = {
    b"version https://git-lfs.github.com/spec/": (
        "git-lfs left its pointer in place of the file: git lfs pull fetches it"
    ),
    b"PK\x03\x04": "it is a zip archive under another name: unpack it",
    b"\x83\xafp\xd1\r\x88J?": "it is a Riegeli or ArrayRecord file: the array_record package",
    b"\x0a\x23\xd7\xce": "it is an MXNet RecordIO file, another format",
    b"Obj\x01": "it is an Avro file, another format",
    b"SEQ\x06": "it is a Hadoop SequenceFile, another format",
}
"""First bytes and what they mean, from the formats' own specifications."""


class Causes:
    """What likely made the faults of one file, of which no more is read than they ask for."""

    def __init__(self, shard: Shard, records: int, source: Path | Stream) -> None:
        """Begin with a file of so many whole records, read from itself or a stream's copy."""
        self._shard = shard
        self._records = records
        self._source = source
        self._looks = _LOOKS

    def of(self, fault: Fault) -> str | None:
        """Return a fault's likely cause and what to do about it, in one line; None if unknown."""
        try:
            return self._cause(fault)
        except ShardError:
            return None

    def _cause(self, fault: Fault) -> str | None:
        match fault.kind:
            case FaultKind.EMPTY:
                if self._shard.bytes:
                    return "its writer was closed without a record"
                return (
                    "nothing was ever written to it: a split without records, or a writer or a "
                    "copy that died before its first block"
                )
            case FaultKind.NOT_TFRECORD:
                return self._not_tfrecord()
            case FaultKind.TRUNCATED:
                where = ""
                if self._is_plain and self._shard.bytes % _TRANSFER_BLOCK == 0:
                    where = f" (after a whole number of blocks of {_TRANSFER_BLOCK} bytes)"
                return (
                    f"the write or the download was cut{where}: fetch it again, or {self._rescue}"
                )
            case FaultKind.TRAILING_BYTES:
                return self._trailing(fault)
            case FaultKind.DECOMPRESSION:
                return self._decompression
            case FaultKind.LENGTH_CRC | FaultKind.PAYLOAD_CRC:
                return self._crc(fault)
            case FaultKind.OVERSIZED_LENGTH:
                return (
                    "its CRC holds, so that it was written like this, by a broken writer or on "
                    "purpose; TensorFlow's reader would try to reserve that memory, and may crash"
                )
        return None

    def _read(self, offset: int, size: int) -> bytes:
        with open_shard(self._source) as file:
            file.seek(offset)
            return file.read(size)

    @property
    def _is_plain(self) -> bool:
        """Whether offsets of faults are offsets in the file."""
        return self._shard.compression is Compression.NONE

    @property
    def _rescue(self) -> str:
        folder = folder_of(self._source)
        if not self._records:
            return "write it again"
        if folder is not None and (folder / DATASET_INFO).is_file():
            # A repaired one would not have the records that the metadata says.
            return "tfrtool train --on-corrupt skip leaves out what is damaged"
        return f"tfrtool repair keeps its {human_count(self._records, 'whole record')}"

    @property
    def _copy_again(self) -> str:
        return f"copy it again and compare checksums, or {self._rescue}"

    def _not_tfrecord(self) -> str | None:
        head = self._read(0, _HEAD)
        for magic, cause in _DECOYS.items():
            if head.startswith(magic):
                return cause
        if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower().startswith(_HTML):
            return (
                "a download saved the server's error or login page in place of the file: fetch it "
                "again"
            )
        text = re.sub(rb"\s", b"", head[:64])[: HEADER_SIZE // 3 * 4]
        with contextlib.suppress(ValueError):
            if holds_header(base64.b64decode(text, validate=True)):
                return "it is the base64 text of a TFRecord file: decode it (base64 -d)"
        if not head.strip(b"\0"):
            return "its space was reserved, but its data never came: fetch or copy it again"
        return self._text_mode

    def _trailing(self, fault: Fault) -> str:
        if not self._is_plain:
            return "bytes that are no record were written after the last one"
        if self._read(fault.offset, _HEAD).strip(b"\0"):
            return (
                "something was appended to the file, or a last record was cut: tfrtool repair "
                "leaves it out"
            )
        return (
            "its space was reserved in advance, and the writer or the copy ended before all of it "
            "was used (a crash, a full disk): if records are missing, fetch it again; tfrtool "
            "repair leaves it out"
        )

    @cached_property
    def _decompression(self) -> str | None:
        """Tell how compressed data ends."""
        wbits = 31 if self._shard.compression is Compression.GZIP else 15
        inflate = zlib.decompressobj(wbits)
        with open_shard(self._source) as file:
            rest = b""
            while rest or (rest := file.read(_BLOCK // 16)):
                if inflate.eof:
                    rest += file.read(HEADER_SIZE)
                    if holds_header(rest):
                        return (
                            "an uncompressed shard was appended to a compressed one (cat): take "
                            "them apart"
                        )
                    if wbits == 15 or not rest.startswith(_GZIP):
                        return "something that is not compressed was appended to the file"
                    inflate = zlib.decompressobj(wbits)
                try:
                    inflate.decompress(rest, _BLOCK)
                except zlib.error:
                    bits = f"bits changed on disk or in transfer: {self._copy_again}"
                    return self._text_mode or bits
                rest = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
        if inflate.eof:
            return None
        return (
            "the write or the download was cut, or its writer was never closed, which writes the "
            f"end: fetch it again, or {self._rescue}"
        )

    def _crc(self, fault: Fault) -> str | None:
        if self._is_plain:
            if self._read(fault.offset, len(_GZIP)) == _GZIP:
                return "a gzip shard was appended to an uncompressed one (cat): take them apart"
            if self._text_mode is not None:
                return self._text_mode
            self._looks -= 1
            if self._looks >= 0:
                if hole := self._hole(fault):
                    return (
                        f"{hole}, where data should be: a copy or a download lost these blocks; "
                        f"{self._copy_again}"
                    )
                if flip := self._flipped_bit(fault):
                    return (
                        f"{flip}, and all else is right: a fault of memory, disk or cable, not of "
                        f"software; {self._copy_again}"
                    )
        return f"bits changed on disk, in memory or in transfer: {self._copy_again}"

    @cached_property
    def _text_mode(self) -> str | None:
        """Tell a file that went through something that takes all files for text."""
        newlines = pairs = returns = size = replaced = 0
        before = b""
        with open_shard(self._source) as file:
            while block := file.read(_BLOCK):
                size += len(block)
                newlines += block.count(b"\n")
                returns += block.count(b"\r")
                pairs += block.count(b"\r\n") + (before + block[:1] == b"\r\n")
                replaced += block.count(_REPLACED)
                before = block[-1:]
        if newlines == pairs >= _SURE:
            return (
                "a transfer in text mode (FTP ASCII, git autocrlf) put a carriage return before "
                "each newline: fetch it again in binary mode"
            )
        # Bytes at random have newlines * returns / size pairs; that none of 24 is there: 4e-11.
        if not pairs and newlines * returns > 24 * size:
            return (
                "a transfer in text mode (FTP ASCII, dos2unix) took the carriage return from "
                "before each newline: fetch it again in binary mode"
            )
        if replaced * 100 > size:
            return (
                "it was read as text and written again: bytes that are no UTF-8 have become "
                "U+FFFD, and can't be brought back"
            )
        return None

    def _hole(self, fault: Fault) -> str | None:
        """Find zero bytes that start and end where blocks of a disk do, near a fault.

        Data that is zero by itself starts and ends anywhere: at such places in 1 of 2**18 cases.
        """
        start = fault.offset // _SECTOR * _SECTOR
        data = self._read(start, _HOLE_REACH)
        at_end = start + len(data) == self._shard.bytes
        zeros = bytes(_TRANSFER_BLOCK)
        position = data.find(zeros)
        while position >= 0:
            rest = data[position:].lstrip(b"\0")
            end = len(data) - len(rest)
            if position % _SECTOR == 0 and (end % _SECTOR == 0 or (not rest and at_end)):
                return f"{end - position:,} zero bytes at offset {start + position:,}"
            position = data.find(zeros, end)
        return None

    def _flipped_bit(self, fault: Fault) -> str | None:
        """Tell the one bit that is wrong, with its place in the file."""
        start, header = fault.offset, self._read(fault.offset, HEADER_SIZE)
        if len(header) < HEADER_SIZE:
            return None
        length, stored = HEADER.unpack(header)
        data = header[: LENGTH.size]
        if fault.kind is FaultKind.PAYLOAD_CRC:
            start += HEADER_SIZE
            body = self._read(start, length + FOOTER_SIZE) if length <= _FLIP_REACH else b""
            if len(body) < length + FOOTER_SIZE:
                return None
            data, (stored,) = body[:length], CRC.unpack_from(body, length)
        flip = find_bit_flip(data, stored)
        if flip is None:
            return None
        return f"a single bit is wrong, bit {flip[1]} of the byte at offset {start + flip[0]:,}"
