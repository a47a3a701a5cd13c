"""Single records of shards by their offsets, with the last ones kept."""

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from tfrtool.errors import ShardError, os_errors_as
from tfrtool.records.compression import Compression, Inflater, detect_compression
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_records
from tfrtool.records.stream import open_shard
from tfrtool.storage.remote_path import AnyPath

_MOST_RECENT = 200
"""Records that are kept, of up to `_LARGEST` bytes each."""

_LARGEST, _BLOCK = 1024 * 1024, 1024 * 1024


class OffsetReader:
    """Reads records of shards; threads can share it."""

    def __init__(self, shards: Sequence[AnyPath]) -> None:
        self._shards = shards
        self._recent: OrderedDict[tuple[int, int], Record] = OrderedDict()
        self._lock = Lock()

    def read(self, shard: int, offset: int) -> Record | None:
        """Return the record at an offset of the uncompressed shard; None if none is intact there.

        All records of a compressed shard up to it are read, and those next to it are kept.
        """
        found = self._recent.get((shard, offset))
        if found is not None:
            return found
        path = self._shards[shard]
        with os_errors_as(ShardError, path), open_shard(path) as file:
            form = detect_compression(file)
            is_plain = form is Compression.NONE
            start = offset if is_plain else 0
            file.seek(start)
            following = 0
            for item in read_records(file, compression=form, offset=start):
                if isinstance(item, Record):
                    if item.offset == offset:
                        found = item
                    if len(item.payload) <= _LARGEST:
                        self._keep((shard, item.offset), item)
                following += item.offset > offset
                if is_plain or following > _MOST_RECENT // 2 or (found is None and following):
                    break
        return found

    def read_bytes(self, shard: int, offset: int, size: int) -> bytes:
        """Return the bytes at an offset of the uncompressed shard, whatever they are.

        There are fewer at its end, or where compressed data is damaged.
        """
        path = self._shards[shard]
        with os_errors_as(ShardError, path), open_shard(path) as file:
            form = detect_compression(file)
            if form is Compression.NONE:
                file.seek(offset)
                return file.read(size)
            file.seek(0)
            inflater, skipped, found = Inflater(file, form), 0, bytearray()
            while len(found) < size and (part := inflater.read(_BLOCK)):
                found += part[max(offset - skipped, 0) :]
                skipped += len(part)
            return bytes(found[:size])

    def _keep(self, key: tuple[int, int], record: Record) -> None:
        with self._lock:
            self._recent[key] = record
            while len(self._recent) > _MOST_RECENT:
                self._recent.popitem(last=False)
