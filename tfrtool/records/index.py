"""The index of a shard, where each record starts: as DALI reads it, and as it is kept for us."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from tfrtool.errors import CorruptShardError, ShardError, UsageError, WriteError, os_errors_as
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.count import as_error, count_shard, hop
from tfrtool.records.framing import FRAME_SIZE
from tfrtool.records.stream import open_shard
from tfrtool.storage.appearing import new_file, private_folder
from tfrtool.storage.locations import user_cache
from tfrtool.storage.opening import read_bounded

_LINES_AT_ONCE = 10_000
_DIGEST_BYTES = 16
_KEPT_BYTES = 256 * 1024 * 1024
"""Of all indices that are kept in the cache: those of 33 million records."""


def index_paths(shards: Sequence[Path], out: Path | None = None) -> list[Path]:
    """Return where the indices of shards are written: ``SHARD.idx`` beside each.

    Or, in the directory ``out``, in folders as the shards are in below the one that all of them
    are in, so that no two have one name. What is named as an open file (``/dev/stdin``) needs
    that: `UsageError`.
    """
    if out is None:
        for shard in shards:
            folder = f"{os.path.realpath(shard.parent)}/"
            if folder.startswith(("/dev/fd/", "/proc/")) or shard.parent == Path("/dev"):
                hint = "--out DIR names another place for its index"
                raise UsageError("nothing is written beside it", path=shard, hint=hint)
        return [shard.with_name(f"{shard.name}.idx") for shard in shards]
    folders = [os.path.abspath(shard.parent) for shard in shards]  # noqa: PTH100 - links stay
    top = os.path.commonpath(folders) if folders else ""
    return [
        out / os.path.relpath(folder, top) / f"{shard.name}.idx"
        for folder, shard in zip(folders, shards, strict=True)
    ]


def make_index(shard: Path) -> array[int]:
    """Return the offset of each record's header, and last the size of the file, in bytes.

    `ShardError` if it is compressed, so that no record can be read alone; `CorruptShardError`,
    which names the first such record, if its framing is damaged.
    """
    offsets = array("Q", (0,))
    with open_shard(shard) as file:
        compression = detect_compression(file)
        if compression is not Compression.NONE:
            name = shlex.quote(str(shard))
            gzip = compression is Compression.GZIP
            raise ShardError(
                f"compressed with {compression.value}: its records can't be read at random",
                path=shard,
                hint="uncompress it first" + (f": gzip -dc < {name} > COPY" if gzip else ""),
            )
        size = os.fstat(file.fileno()).st_size
        _, end = hop(file, size, offsets)
    if end == size:
        return offsets
    for fault in count_shard(shard).faults:
        raise as_error(shard, fault)
    raise CorruptShardError("it was changed while it was read", path=shard)


def write_index(shard: Path, place: Path) -> int:
    """Write the index of a shard as DALI reads it, and return the number of records.

    It has a line ``offset size`` for each record, the frame's 16 bytes included, and replaces what
    was there. The errors are those of `make_index`, and `WriteError`.
    """
    offsets = make_index(shard)
    with os_errors_as(WriteError, place, "can't be written"):
        place.parent.mkdir(parents=True, exist_ok=True)
        with new_file(place) as file:
            for first in range(0, len(offsets) - 1, _LINES_AT_ONCE):
                some = offsets[first : first + _LINES_AT_ONCE + 1]
                lines = "".join(f"{start} {end - start}\n" for start, end in pairwise(some))
                file.write(lines.encode())
    return len(offsets) - 1


def load_indices(shards: Iterable[Path]) -> list[array[int]]:
    """Return what `make_index` returns of each shard, from the user's cache where it is there.

    An index beside a shard is not believed: to hold all of it against the shard takes as long as
    to make it anew. Those in the cache are our own, and of a file at that path, of that size and
    those times. Where there is no place for a cache, none is kept.
    """
    folder = user_cache("indices")
    loaded, kept = [], False
    for shard in shards:
        with open_shard(shard) as file:
            status = os.fstat(file.fileno())
        place = None if folder is None else folder / _cached_name(shard, status)
        offsets = None if place is None else _read(place, status.st_size)
        if offsets is None:
            offsets = make_index(shard)
            kept |= place is not None and _keep(offsets, place)
        loaded.append(offsets)
    if folder is not None and kept:
        _prune(folder)
    return loaded


def _cached_name(shard: Path, status: os.stat_result) -> str:
    facts = (os.path.realpath(shard), status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    text = "\n".join(map(str, (*facts, sys.byteorder)))
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _keep(offsets: array[int], place: Path) -> bool:
    body = offsets.tobytes()
    try:
        place.parent.parent.mkdir(parents=True, exist_ok=True)
        private_folder(place.parent)
        with new_file(place) as file:
            file.write(hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() + body)
    except OSError:
        return False
    return True


def _read(place: Path, size: int) -> array[int] | None:
    """Return a kept index; None if there is none that is whole, and of a file of that size."""
    offsets = array("Q")
    longest = _DIGEST_BYTES + offsets.itemsize * (size // FRAME_SIZE + 1)
    try:
        private_folder(place.parent)
        content = read_bounded(place, longest, follow=False)
        os.utime(place)  # those that were used last are pruned last
    except OSError:
        return None
    body = content[_DIGEST_BYTES:]
    if hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() != content[:_DIGEST_BYTES]:
        return None
    offsets.frombytes(body)
    return offsets if offsets[-1:] == array("Q", (size,)) else None


def _prune(folder: Path) -> None:
    """Delete the indices that were not used for longest, if all of them are too large."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        held = [(entry.stat(follow_symlinks=False), entry.path) for entry in entries]
        total = 0
        for status, path in sorted(held, key=lambda item: -item[0].st_mtime_ns):
            total += status.st_size
            if total > _KEPT_BYTES:
                os.unlink(path)  # noqa: PTH108 - as scandir gave it
