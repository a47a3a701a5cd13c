"""Detect compression or another format from the first bytes, and decompress streams."""

import enum
import io
import zlib
from pathlib import PurePath
from typing import BinaryIO

from tfrtool.errors import UsageError
from tfrtool.records.framing import HEADER_SIZE, holds_header
from tfrtool.storage.remote_path import RemotePath

HEAD_BYTES = 4096
"""Bytes at the start of a file by which its compression is detected."""

_INPUT_BLOCK = 64 * 1024
_GZIP_MAGIC = b"\x1f\x8b\x08"  # RFC 1952: ID1, ID2 and the only method in use, deflate.


class Compression(enum.Enum):
    """How a shard's bytes are compressed, as a whole; the values are those of the CLI."""

    NONE = "none"
    GZIP = "gzip"
    ZLIB = "zlib"


SUFFIXES = {".gz": Compression.GZIP, ".gzip": Compression.GZIP, ".zlib": Compression.ZLIB}
"""What the names of compressed files end in."""

_NEVER_WRITTEN = (".bz2", ".xz", ".zst", ".lz4", ".br", ".snappy")

WBITS = {Compression.GZIP: 31, Compression.ZLIB: 15}
"""What zlib calls the formats."""

TF_TYPES = {Compression.NONE: "", Compression.GZIP: "GZIP", Compression.ZLIB: "ZLIB"}
"""What TensorFlow calls them."""


def starts_record(head: bytes) -> bool:
    """Return whether the first bytes of a file, or what they uncompress to, start a record."""
    return holds_header(head) or holds_header(_inflated(head, _by_magic(head)) or b"")


def named_compression(path: PurePath | RemotePath) -> Compression | None:
    """Return the compression that the name of a file to write ends in, if it does.

    A `UsageError` if nothing here writes it.
    """
    suffix = path.suffix.lower()
    if suffix in _NEVER_WRITTEN:
        what = f"files ending in {suffix} can't be written"
        raise UsageError(what, path=path, hint="remove the ending, or use .gz")
    return SUFFIXES.get(suffix)


def detect_compression(file: BinaryIO) -> Compression:
    """Return the compression of a shard, detected from its bytes; ``file`` stays where it is.

    The CRC of the first length is checked before magic numbers: an uncompressed shard
    whose first record has 559,903 bytes starts with gzip's ``1f 8b 08 00``. Should that CRC be
    damaged, too, then what follows the magic number doesn't uncompress.
    """
    if isinstance(file, io.BufferedReader):
        head = file.peek(HEAD_BYTES)
    else:
        position = file.tell()
        head = file.read(HEAD_BYTES)
        file.seek(position)
    if holds_header(head):
        return Compression.NONE
    named = _by_magic(head)
    return Compression.NONE if _inflated(head, named) is None else named


def _by_magic(head: bytes) -> Compression:
    if head.startswith(_GZIP_MAGIC):
        return Compression.GZIP
    # RFC 1950: deflate with a window of 32 KiB or less, and a header that is a multiple of 31.
    if len(head) >= 2 and head[0] & 0x8F == 0x08 and (head[0] << 8 | head[1]) % 31 == 0:
        return Compression.ZLIB
    return Compression.NONE


def _inflated(head: bytes, compression: Compression) -> bytes | None:
    """Return the header that the first bytes of a file uncompress to, or None if they don't."""
    try:
        return zlib.decompressobj(WBITS[compression]).decompress(head, HEADER_SIZE)
    except (KeyError, zlib.error):
        return None


class Inflater:
    """The uncompressed bytes of a gzip or zlib file, a piece at a time.

    A gzip file may have several members, as bgzip and ``cat a.gz b.gz`` make them.

    Attributes:
        name: that of the compression, for messages.
        failure: why the stream ended before its proper end, or None. Bytes that came before the
            damage have all been given out by then.
    """

    def __init__(self, file: BinaryIO, compression: Compression) -> None:
        """Begin where ``file`` is."""
        self.name = compression.value
        self.failure: str | None = None
        self._file = file
        self._wbits = WBITS[compression]
        self._inflate = zlib.decompressobj(self._wbits)
        self._input = b""
        self._finished = False

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes, and none only at the end of the stream."""
        while not self._finished:
            if self._inflate.eof and not self._next_member():
                break
            self._input = self._input or self._file.read(_INPUT_BLOCK)
            ended = not self._input
            # zlib throws away what it made in a call that fails; the copy gets it back.
            before = self._inflate.copy()
            try:
                output = self._inflate.decompress(self._input, size)
            except zlib.error:
                return self._rescue(before)
            self._input = self._inflate.unconsumed_tail
            if output:
                return output
            if ended and not self._inflate.eof:
                self._end(f"{self.name} data is truncated: no end marker")
        return b""

    def _next_member(self) -> bool:
        rest = self._inflate.unused_data or self._file.read(_INPUT_BLOCK)
        if not rest:
            self._end(None)
            return False
        while len(rest) < len(_GZIP_MAGIC) and (more := self._file.read(_INPUT_BLOCK)):
            rest += more
        if self.name != "gzip" or not rest.startswith(_GZIP_MAGIC):
            self._end(f"extra bytes after the end of the {self.name} data")
            return False
        self._inflate = zlib.decompressobj(self._wbits)
        self._input = rest
        return True

    def _rescue(self, inflate: "zlib._Decompress") -> bytes:
        """Return all that comes before the damage: byte by byte, for none goes with the failure."""
        pieces = []
        reason = "inconsistent data"
        try:
            # What zlib holds already may be enough for more.
            for part in (b"", *(bytes((value,)) for value in self._input)):
                while piece := inflate.decompress(part, 1):
                    pieces.append(piece)
                    part = inflate.unconsumed_tail
        except zlib.error as error:
            reason = str(error).rpartition(": ")[2]  # Error -3 ...: incorrect header check
        self._end(f"{self.name} data is damaged: {reason}")
        return b"".join(pieces)

    def _end(self, failure: str | None) -> None:
        self._finished = True
        self.failure = failure


_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs.github.com/spec/", "a Git LFS pointer (run git lfs pull)"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"PK\x03\x04", "a zip archive (unpack it)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data (unpack it)"),
    (b"\xfd7zXZ\x00", "xz data (unpack it)"),
    (b"\x28\xb5\x2f\xfd", "zstd data (unpack it)"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"PAR1", "a Parquet file"),
    (b"\x83\xafp\xd1\r\x88J?", "a Riegeli or ArrayRecord file (read it with array_record)"),
)
"""First bytes and what they mean, from the formats' own specifications."""


def describe_content(head: bytes) -> str:
    """Describe a file that is not TFRecord by its first bytes, such as "an HTML page"."""
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if head[257:262] == b"ustar":
        return "a tar archive (unpack it)"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head")):
        return "an HTML page (perhaps an error page saved in place of the file)"
    if text.startswith(b"<?xml"):
        return "an XML document"
    if not head.strip(b"\0"):
        return "only zero bytes" if head else "no data"
    if is_text(head):
        return "JSON text" if text.startswith((b"{", b"[")) else "plain text"
    return "unknown binary data"


def is_text(head: bytes) -> bool:
    """Return whether the first bytes of a file read as UTF-8 text."""
    try:
        decoded = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character may be cut where the first bytes end.
        if error.start < len(head) - 3 or error.start == 0:
            return False
        decoded = head[: error.start].decode("utf-8")
    return all(c.isprintable() or c in "\t\n\r\f\v" for c in decoded)
