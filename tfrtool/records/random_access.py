"""Records by their number: the index of a shard, and a Sequence over shards."""

import os
import shlex
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import Any, BinaryIO, TypeVar, overload

from tfrtool.errors import (
    CorruptShardError,
    ShardError,
    UsageError,
    WriteError,
    human_count,
    os_errors_as,
)
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.count import INDEX, as_error, count_records, indexed, read_ranges, skip_records
from tfrtool.records.framing import (
    CRC,
    FOOTER_SIZE,
    HEADER_SIZE,
    FaultKind,
    Record,
    header,
    masked_crc32c,
)
from tfrtool.records.reader import read_shard
from tfrtool.records.stream import open_shard
from tfrtool.storage.arguments import Paths, as_paths
from tfrtool.storage.atomic_files import new_file
from tfrtool.storage.opening import open_regular, size_of_file
from tfrtool.storage.remote_path import AnyPath, RemotePath

T = TypeVar("T", covariant=True)
U = TypeVar("U")

_FILES_OPEN = 128
"""With more shards than this a file is opened for each record: systems allow 256 or 1,024."""


def index_paths(shards: Sequence[AnyPath], out: AnyPath | None = None) -> list[AnyPath]:
    """Return where the indices of shards are written: ``SHARD.idx`` next to each.

    Or, in the directory ``out``, in the subfolders that the shards are in below their common one.
    `UsageError` for open files, such as ``/dev/stdin``, without it.
    """
    if out is None:
        for shard in shards:
            if os.path.realpath(shard.parent).startswith(("/dev", "/proc")):
                hint = "use --out DIR to write the index elsewhere"
                raise UsageError("no index can be written next to it", path=shard, hint=hint)
        return [shard.with_name(f"{shard.name}{INDEX}") for shard in shards]
    folders = [os.path.abspath(shard.parent) for shard in shards]  # noqa: PTH100 - links stay
    top = os.path.commonpath(folders) if folders else ""
    return [
        out / os.path.relpath(folder, top) / f"{shard.name}{INDEX}"
        for folder, shard in zip(folders, shards, strict=True)
    ]


def make_index(shard: AnyPath) -> "array[int]":
    """Return the offset of each record's header, and last the size of the file, in bytes.

    `ShardError` if it is compressed, so that no record can be read alone; `CorruptShardError`,
    which names the first such record, if its framing is damaged.
    """
    offsets = array("Q", (0,))
    with open_shard(shard) as file:
        compression = detect_compression(file)
        if compression is not Compression.NONE:
            raise ShardError(
                f"compressed with {compression.value}: random access needs an uncompressed shard",
                path=shard,
                hint="decompress it first, as with tfrtool reshard",
            )
        size = size_of_file(file)
        if isinstance(shard, RemotePath) and (known := indexed(file, shard, size)):
            return array("Q", known)
        _, end = skip_records(file, size, offsets)
    if end == size:
        return offsets
    count_records(shard)  # which names the damage
    raise CorruptShardError("was changed while it was read", path=shard)


def write_index(shard: AnyPath, index: AnyPath) -> int:
    """Write the index of a shard as DALI reads it, and return the number of records.

    It has a line ``offset size`` for each record, the frame's 16 bytes included, and replaces what
    was there. The errors are those of `make_index`, and `WriteError`.
    """
    offsets = make_index(shard)
    with os_errors_as(WriteError, index, "can't be written"):
        if not isinstance(index, RemotePath):
            index.parent.mkdir(parents=True, exist_ok=True)
        with new_file(index) as file:
            file.writelines(b"%d %d\n" % (start, end - start) for start, end in pairwise(offsets))
    return len(offsets) - 1


def decode_record(decode: Callable[[bytes], U], record: Record, shard: AnyPath) -> U:
    """Return what a function makes of a payload; its `ValueError` becomes a `ShardError`."""
    try:
        return decode(record.payload)
    except ValueError as error:
        index, offset = record.index, record.offset
        raise ShardError(str(error), path=shard, record=index, offset=offset) from error


class Records(Sequence[T]):
    """Random access to the records of one or more uncompressed shards.

    ``len(records)`` is instant and ``records[i]`` costs one read, whatever the size of the files;
    both CRCs are checked. Iterating reads the files sequentially.

    The object is a map-style data source for Grain and PyTorch. It can be pickled, and used by
    several threads and forked processes at once. It holds an index of 8 bytes per record, built by
    jumping from header to header.

    The `index` and `offset` of a record refer to its own shard, which `shard_of` returns. After
    `decoded_by`, items are the decoded values instead of `Record` objects.

    Attributes:
        class_names: names of the classes by label, of images or of objects, whichever are decoded;
            empty if none are known.
    """

    class_names: tuple[str, ...] = ()
    _decode: Callable[[bytes], T] | None = None

    def __init__(self: "Records[Record]", shards: Paths) -> None:
        """Open shards, in the given order.

        Args:
            shards: path of a shard, or several.

        Raises:
            ShardError: a shard can't be read, or is compressed.
            CorruptShardError: the framing of a shard is damaged.
        """
        self._paths = as_paths(shards)
        self._offsets = [make_index(path) for path in self._paths]
        self._ends = list(accumulate(len(offsets) - 1 for offsets in self._offsets))
        self._files: dict[int, BinaryIO] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": {}}  # open files don't travel

    def decoded_by(
        self, decode: Callable[[bytes], U], class_names: tuple[str, ...] = ()
    ) -> "Records[U]":
        """Return the same records with a function applied to each payload.

        Args:
            decode: function from a payload to any value. A `ValueError` that it raises becomes a
                `ShardError` that names the record.
            class_names: names of the classes, by label.
        """
        records: Records[Any] = copy(self)
        records._decode, records.class_names = decode, class_names
        return records

    @property
    def shards(self) -> tuple[AnyPath, ...]:
        """Paths of the shards, in order."""
        return self._paths

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        """Read a record, or a list of records for a slice.

        Raises:
            IndexError: there is no such record.
            ShardError: the file can't be read, or the record can't be decoded.
            CorruptShardError: the record is damaged, or the file has changed since it was opened.
        """
        if isinstance(index, slice):
            return self.__getitems__(range(*index.indices(len(self))))
        return self.__getitems__((index,))[0]

    def __getitems__(self, indices: Iterable[int]) -> list[T]:
        """Read several records at once, as the DataLoader of PyTorch does for a batch."""
        numbers = [self._checked(index) for index in indices]
        frames = self._frames(numbers)
        return [self._record(number, frames[number]) for number in numbers]

    def __iter__(self) -> Iterator[T]:
        plain = self._decode is None
        for path in self._paths:
            for item in read_shard(path):
                if isinstance(item, Record):
                    yield item if plain else self._decoded(item, path)  # type: ignore[misc]
                elif item.kind is not FaultKind.EMPTY:
                    raise as_error(path, item)

    def shard_of(self, index: int) -> AnyPath:
        """Return the path of the shard that contains a record.

        Args:
            index: position of the record among all records; negative numbers count from the end.

        Raises:
            IndexError: there is no such record.
        """
        return self._paths[bisect_right(self._ends, self._checked(index))]

    def close(self) -> None:
        """Close the files. Reading another record reopens them."""
        files, self._files = self._files, {}
        for file in files.values():
            file.close()

    def __enter__(self) -> "Records[T]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_files"):
            self.close()

    def __repr__(self) -> str:
        shards = human_count(len(self._paths), "shard")
        return f"<{type(self).__name__}: {human_count(len(self), 'record')} in {shards}>"

    def _checked(self, index: int) -> int:
        number = index.__index__()
        if number < 0:
            number += len(self)
        if not 0 <= number < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        return number

    def _decoded(self, record: Record, path: AnyPath) -> T:
        return record if self._decode is None else decode_record(self._decode, record, path)  # type: ignore[return-value]

    def _locate(self, number: int) -> tuple[int, int]:
        shard = bisect_right(self._ends, number)
        return shard, number - (self._ends[shard - 1] if shard else 0)

    def _frames(self, numbers: Iterable[int]) -> dict[int, bytes]:
        """Return the frames of records by number; in a store, neighbors come by one request."""
        found: dict[int, bytes] = {}
        placed = sorted((*self._locate(number), number) for number in {*numbers})
        for shard, group in groupby(placed, itemgetter(0)):
            wanted, offsets = [*group], self._offsets[shard]
            ranges = [(offsets[at], offsets[at + 1] - offsets[at]) for _, at, _ in wanted]
            path = self._paths[shard]
            with os_errors_as(ShardError, path, "can't be read"), self._opened(shard) as file:
                frames = read_ranges(file, ranges)
                found.update(zip((number for _, _, number in wanted), frames, strict=True))
        return found

    @contextmanager
    def _opened(self, shard: int) -> Iterator[BinaryIO]:
        """Give a file; of many, each is closed again."""
        if len(self._paths) > _FILES_OPEN:
            with open_regular(self._paths[shard], buffering=0) as file:
                yield file
            return
        if shard not in self._files:
            opened = open_regular(self._paths[shard], buffering=0)
            if self._files.setdefault(shard, opened) is not opened:
                opened.close()  # another thread was faster
        yield self._files[shard]

    def _record(self, number: int, frame: bytes) -> T:
        shard, index = self._locate(number)
        path, offsets = self._paths[shard], self._offsets[shard]
        offset, size = offsets[index], offsets[index + 1] - offsets[index]
        end = size - FOOTER_SIZE
        payload = frame[HEADER_SIZE:end]
        if len(frame) == size and frame.startswith(header(len(payload))):
            (crc,) = CRC.unpack_from(frame, end)
            if masked_crc32c(payload) == crc:
                record = Record(index=index, offset=offset, payload=payload, payload_crc=crc)
                return self._decoded(record, path)
        raise CorruptShardError(
            "the record is damaged, or the shard has changed since it was opened",
            path=path,
            record=index,
            offset=offset,
            hint=f"run tfrtool verify {shlex.quote(str(path))} to list the damage",
        )
