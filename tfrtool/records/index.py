"""The index of a shard: where each record starts, in DALI's format, and when it is out of date."""

from __future__ import annotations

import hashlib
import os
import secrets
from array import array
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from tfrtool.errors import CorruptShardError, ShardError, WriteError, os_reason
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.count import as_error
from tfrtool.records.framing import FRAME_SIZE, HEADER_SIZE, Fault, header
from tfrtool.records.hops import hop, reader_at
from tfrtool.records.reader import ReadOptions, read_records
from tfrtool.records.stream import open_shard
from tfrtool.storage.opening import open_regular

__all__ = [
    "cached_index_path",
    "index_path",
    "load_index",
    "make_index",
    "read_index",
    "save_index",
]

_LINES_AT_ONCE = 10_000
_PROBES = 16
_LINE_BYTES = 64
"""More than any line of an index has: two numbers below 2**63, and a line break."""


def index_path(shard: Path) -> Path:
    """Return where a shard's index is: beside it, with ``.idx`` behind its name."""
    return shard.with_name(shard.name + ".idx")


def cached_index_path(shard: Path, status: os.stat_result) -> Path:
    """Return where the index of a shard in a read-only directory is kept.

    That is below ``$XDG_CACHE_HOME`` or ``~/.cache``. The name is made from the shard's path, size
    and time, so that the index of an earlier file at that path is never found.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    facts = f"{os.path.realpath(shard)}\n{status.st_size}\n{status.st_mtime_ns}"
    digest = hashlib.blake2b(facts.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    return Path(cache) / "tfrtool" / f"{digest}.idx"


def make_index(shard: Path) -> array[int]:
    """Find the records of a shard by hopping over their headers.

    Returns:
        The offset of each record's header, and last the size of the file, in bytes: one more than
        there are records.

    Raises:
        ShardError: the file can't be read, or is compressed, so that no record can be read alone.
        CorruptShardError: its framing is damaged; names the first such record.
    """
    offsets = array("Q", (0,))
    with open_shard(shard) as file:
        compression = detect_compression(file)
        if compression is not Compression.NONE:
            raise ShardError(
                f"compressed with {compression.value}: its records can't be read at random",
                path=shard,
                hint="uncompress it first (gzip -dc SHARD > COPY)",
            )
        size = os.fstat(file.fileno()).st_size
        _, end = hop(file, size, offsets)
        if end != size:
            raise _damage(shard)
    return offsets


def _damage(shard: Path) -> CorruptShardError:
    with open_shard(shard) as file:
        for item in read_records(file, ReadOptions(verify_payload=False)):
            if isinstance(item, Fault):
                return as_error(shard, item)
    return CorruptShardError("it was changed while it was read", path=shard)


def save_index(offsets: Sequence[int], path: Path, *, until: int | None = None) -> None:
    """Write an index: a line ``offset size`` for each record, the frame's 16 bytes included.

    It appears under its name when it is whole, and replaces what was there.

    Args:
        offsets: what `make_index` returns.
        path: where to write.
        until: the time, in nanoseconds since 1970, that the index is said to be from.

    Raises:
        OSError: it can't be written.
    """
    name = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        with name.open("x", encoding="ascii", newline="\n") as file:
            for first in range(0, len(offsets) - 1, _LINES_AT_ONCE):
                some = offsets[first : first + _LINES_AT_ONCE + 1]
                file.writelines(f"{start} {end - start}\n" for start, end in pairwise(some))
            file.flush()
            os.fsync(file.fileno())
        if until is not None:
            os.utime(name, ns=(until, until))
        name.replace(path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise


def write_index(shard: Path) -> int:
    """Write the index of a shard beside it, and return the number of records.

    Raises:
        ShardError: the shard can't be read, or is compressed.
        CorruptShardError: its framing is damaged.
        WriteError: the index can't be written.
    """
    try:
        status = shard.stat()
    except OSError as error:
        raise ShardError(f"can't be read: {os_reason(error)}", path=shard) from error
    offsets = make_index(shard)
    place = index_path(shard)
    try:
        save_index(offsets, place, until=status.st_mtime_ns)
    except OSError as error:
        raise WriteError(f"can't be written: {os_reason(error)}", path=place) from error
    return len(offsets) - 1


def read_index(path: Path, size: int) -> array[int] | None:
    """Read an index, and hold it against the size of its shard.

    Args:
        path: the index.
        size: the shard's size, in bytes.

    Returns:
        What `make_index` returns; None if there is no index, or it is of another file: its records
        don't follow each other from the first byte to the last.

    Raises:
        OSError: it is there and can't be read.
    """
    offsets = array("Q", (0,))
    end = 0
    try:
        with open_regular(path) as file:
            while line := file.readline(_LINE_BYTES):
                start, length = map(int, line.split())
                if start != end or length < FRAME_SIZE or (end := start + length) > size:
                    return None
                offsets.append(end)
    except (FileNotFoundError, ValueError):
        return None
    return offsets if end == size else None


def load_index(shard: Path) -> array[int]:
    """Return the index of a shard: the one that is kept if it is up to date, else a new one.

    One beside the shard counts if it is no older than the shard, covers its size, and names places
    where headers stand, as far as some of them tell. Else a new one is made, and kept: beside the
    shard, in the user's cache where that directory is read-only, and nowhere if both are.

    Raises:
        ShardError: the shard can't be read, or is compressed.
        CorruptShardError: its framing is damaged.
    """
    try:
        status = shard.stat()
    except OSError as error:
        raise ShardError(f"can't be read: {os_reason(error)}", path=shard) from error
    places = index_path(shard), cached_index_path(shard, status)
    for place in places:
        try:
            if place.stat().st_mtime_ns >= status.st_mtime_ns:
                offsets = read_index(place, status.st_size)
                if offsets is not None and _agrees(shard, offsets):
                    return offsets
        except OSError:
            continue
    offsets = make_index(shard)
    for place in places:
        try:
            if place is places[1]:
                place.parent.mkdir(parents=True, exist_ok=True)
            save_index(offsets, place, until=status.st_mtime_ns)
        except OSError:
            continue
        break
    return offsets


def _agrees(shard: Path, offsets: Sequence[int]) -> bool:
    """Return whether headers stand at some of the places that an index names.

    A shard may have been replaced by one of the same size that is older than the index.
    """
    count = len(offsets) - 1
    with open_regular(shard, buffering=0) as file:
        read_at = reader_at(file)
        for index in {count * probe // _PROBES for probe in range(_PROBES)} if count else ():
            size = offsets[index + 1] - offsets[index]
            if read_at(HEADER_SIZE, offsets[index]) != header(size - FRAME_SIZE):
                return False
    return True
