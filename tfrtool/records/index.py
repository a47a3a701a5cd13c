"""The index of a shard: where each record starts."""

from __future__ import annotations

import os
import shlex
from array import array
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from tfrtool.errors import CorruptShardError, ShardError, UsageError, WriteError, os_errors_as
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.count import as_error, count_shard, hop
from tfrtool.records.stream import open_shard
from tfrtool.storage.appearing import new_file

_LINES_AT_ONCE = 10_000


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
            hint = f": gzip -dc < {shlex.quote(str(shard))} > COPY"
            raise ShardError(
                f"compressed with {compression.value}: its records can't be read at random",
                path=shard,
                hint="uncompress it first" + (hint if compression is Compression.GZIP else ""),
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
