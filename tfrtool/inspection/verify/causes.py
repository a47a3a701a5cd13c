"""The likely causes of faults, by the bytes of the file."""

from functools import cached_property

from tfrtool.errors import ShardError, human_count
from tfrtool.examples.tfds_metadata import DATASET_INFO
from tfrtool.records.checksum_styles import explain_style
from tfrtool.records.compression import Compression, is_text
from tfrtool.records.framing import (
    CRC,
    FOOTER_SIZE,
    HEADER,
    HEADER_SIZE,
    LENGTH,
    Fault,
    FaultKind,
    crc32c,
    mask,
    unmask,
)
from tfrtool.records.shards import Shard
from tfrtool.records.stream import Stream, folder_of, open_shard
from tfrtool.storage.remote_path import AnyPath

# Faults of a file in which a single wrong bit is looked for; of thousands, the first are enough.
_LOOKS = 20
_HEAD = 4096
_BLOCK = _FLIP_REACH = 1 << 20
_LOOKED_AT = 256 << 20
"""Bytes from a file's start that show whether it was treated as text."""
_REPLACED = b"\xef\xbf\xbd"  # U+FFFD, what decoders put for invalid bytes
_GZIP = b"\x1f\x8b\x08"


STYLED_KINDS = frozenset({FaultKind.NOT_TFRECORD, FaultKind.PAYLOAD_CRC})
"""Faults of a file without intact records that may be due to its writer's checksums."""


class Causes:
    """The likely causes of the faults of one file, which is read only as far as needed."""

    def __init__(self, shard: Shard, records: int, source: AnyPath | Stream) -> None:
        """Begin with a file and the number of its intact records."""
        self._is_plain = shard.compression is Compression.NONE  # offsets are those in the file
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
        if not self._records and fault.kind in STYLED_KINDS and self._style is not None:
            return self._style
        match fault.kind:
            case FaultKind.EMPTY:
                return (
                    "the split has no records, or the writer or the copy stopped before anything "
                    "was written"
                )
            case FaultKind.NOT_TFRECORD:  # text has whatever line ends it was written with
                return None if is_text(self._read(0, _HEAD)) else self._text_mode
            case FaultKind.TRUNCATED:
                return f"the write, copy or download was interrupted; {self._again}"
            case FaultKind.TRAILING_BYTES:
                return (
                    "something was appended to the file, its last record was cut, or space was "
                    "reserved for it and not used; run tfrtool repair to drop these bytes"
                )
            case FaultKind.DECOMPRESSION:
                return self._text_mode or (
                    "the write, copy or download was interrupted or corrupted, or the writer was "
                    f"never closed; {self._again}"
                )
            case FaultKind.LENGTH_CRC | FaultKind.PAYLOAD_CRC:
                return self._crc(fault)
            case FaultKind.OVERSIZED_LENGTH:
                return (
                    "its checksum is valid, so it was written this way, by a broken writer or "
                    "deliberately; TensorFlow would try to allocate that much memory and may crash"
                )
        return None

    def _crc(self, fault: Fault) -> str:
        again = f"copy it again and compare checksums, or {self._rescue}"
        if self._is_plain:
            if self._read(fault.offset, len(_GZIP)) == _GZIP:
                return "a gzip shard was appended to an uncompressed one (as with cat); split them"
            if self._read(fault.offset, HEADER_SIZE) == bytes(HEADER_SIZE):
                return f"a write or copy left a gap of zeros; {again}"
            if self._text_mode is not None:
                return self._text_mode
            self._looks -= 1
            flip = self.flipped_bit(fault) if self._looks >= 0 else None
            if flip is not None:
                return (
                    f"one bit is flipped (bit {flip[1]} of the byte at offset {flip[0]:,}) and the "
                    "rest is intact, which points to memory, disk or cable rather than software; "
                    f"{again}"
                )
        return f"data was changed on disk, in memory or in transfer; {again}"

    @property
    def _again(self) -> str:
        return f"copy or download it again, or {self._rescue}"

    @property
    def _rescue(self) -> str:
        folder = folder_of(self._source)
        if not self._records:
            return "write it again"
        if folder is not None and (folder / DATASET_INFO).is_file():
            # A repaired one would have fewer records than the metadata lists.
            return "train with --on-error skip to skip damaged records"
        intact = human_count(self._records, "intact record")
        return f"run tfrtool repair to recover its {intact}"

    @cached_property
    def _style(self) -> str | None:
        """Return what is wrong with all checksums alike, and how to recover the records."""
        return explain_style(self._source)

    def _read(self, offset: int, size: int) -> bytes:
        with open_shard(self._source) as file:
            file.seek(offset)
            return file.read(size)

    @cached_property
    def _text_mode(self) -> str | None:
        """Return a cause if the file went through a program that treats all files as text."""
        newlines = pairs = returns = size = replaced = 0
        before = b""
        with open_shard(self._source) as file:
            while size < _LOOKED_AT and (block := file.read(_BLOCK)):
                size += len(block)
                newlines += block.count(b"\n")
                returns += block.count(b"\r")
                pairs += block.count(b"\r\n") + (before + block[:1] == b"\r\n")
                replaced += block.count(_REPLACED)
                before = block[-1:]
        put_in = newlines == pairs >= 4  # by chance: 2**-32
        # Bytes at random have newlines * returns / size pairs; that none of 24 is there: 4e-11.
        taken_out = not pairs and newlines * returns > 24 * size
        if put_in or taken_out or replaced * 100 > size:
            return (
                "the file was treated as text, which changed its bytes (FTP in ASCII mode, git "
                "autocrlf, dos2unix, an editor); copy or download it again in binary mode"
            )
        return None

    def flipped_bit(self, fault: Fault) -> tuple[int, int] | None:
        """Return where the one bit is that is wrong, in the file and in its byte.

        None if it isn't a single bit of an uncompressed shard, or no checksum is wrong.
        """
        if not self._is_plain or fault.kind not in (FaultKind.LENGTH_CRC, FaultKind.PAYLOAD_CRC):
            return None
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
        return None if flip is None else (start + flip[0], flip[1])


def find_bit_flip(data: bytes, stored: int) -> tuple[int, int] | None:
    """Find the bit of ``data`` or of its stored masked CRC that, flipped back, makes both agree.

    The result is the byte, counted on into the CRC, and the bit's number, 0 for the lowest. A CRC
    is linear: what two texts of one length differ in decides alone what their CRCs differ in. The
    difference of the CRCs is therefore led back byte by byte, from the end of the data, until it
    is that of a single bit. It takes about 0.1 s a MiB; a difference of another sort passes for a
    single bit in 1 of 2**29 cases a byte.
    """
    difference = unmask(stored) ^ crc32c(data)
    masked = stored ^ mask(crc32c(data))
    if masked.bit_count() == 1:
        byte, bit = divmod(masked.bit_length() - 1, 8)
        return len(data) + byte, bit
    zero = crc32c(b"\0")
    table = [crc32c(bytes((value,))) ^ zero for value in range(256)]
    bits = {table[1 << bit]: bit for bit in range(8)}
    by_top = {entry >> 24: value for value, entry in enumerate(table)}  # these are all different
    for byte in range(len(data) - 1, -1, -1):
        if difference in bits:
            return byte, bits[difference]
        value = by_top[difference >> 24]
        difference = ((difference ^ table[value]) << 8 | value) & 0xFFFFFFFF
    return None
