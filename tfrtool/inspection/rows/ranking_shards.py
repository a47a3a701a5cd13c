"""Shards of lists of Examples, as TensorFlow Ranking stores them."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from tfrtool.engines.engine import Workers
from tfrtool.engines.pool import map_shards
from tfrtool.features.ranking_columns import Packing, RankingColumns, RankingFold, packing_of
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_records, read_shard
from tfrtool.records.stream import open_shard, total_bytes
from tfrtool.storage.progress import BYTES, Meter, OnProgress, no_progress
from tfrtool.storage.remote_path import AnyPath

_SAMPLED_RECORDS = 100
"""Records that show what all of them are."""

_BATCH_RECORDS, _BATCH_BYTES = 1024, 16 * 1024 * 1024
"""Records that are looked at together at most, and bytes from which on there are no more."""

_MIN_BYTES_PER_PROCESS = 8 * 1024 * 1024
"""Bytes that are decoded in the time that a process takes to start, roughly."""


def ranking_columns(
    shards: Sequence[AnyPath],
    on_note: Callable[[str], None],
    *,
    exact: bool = False,
    workers: Workers = None,
    on_progress: OnProgress = no_progress,
) -> RankingColumns | None:
    """Return the columns of lists of Examples; None for shards of other records.

    Their types fit all intact records of all shards.

    Args:
        shards: the files.
        on_note: called with what is not shown.
        exact: whether records can be restored from a table with these columns.
        workers: how many processes at most; None takes the cores.
        on_progress: called with the bytes that are read.

    Raises:
        ShardError: a file can't be read.
    """
    packing = _find_packing(shards)
    if packing is None:
        return None
    meter = Meter(on_progress, "finding columns", BYTES, total_bytes(shards))
    total, fold = RankingFold(packing), partial(_fold, packing=packing)
    worth = _MIN_BYTES_PER_PROCESS
    for found in map_shards(fold, shards, workers, worth, on_counts=meter.add, short=True):
        total.merge(found)
    meter.finish()
    columns = total.columns(exact=exact)
    for text in columns.notes:
        on_note(text)
    return columns


def _find_packing(shards: Sequence[AnyPath]) -> Packing | None:
    """Return how records hold Examples, if the first ones of each shard do in the same way.

    An empty record can be anything.
    """
    packings = set[Packing | None]()
    for shard in shards:
        most = 1 if packings else _SAMPLED_RECORDS
        for item in islice(read_shard(shard), most):
            if isinstance(item, Record) and item.payload:
                packings.add(packing_of(item.payload))
                if None in packings or len(packings) > 1:
                    return None
    return packings.pop() if packings else None


def _fold(path: AnyPath, *, packing: Packing) -> RankingFold:
    fold = RankingFold(packing)
    with open_shard(path) as file:
        payloads = (item.payload for item in read_records(file) if isinstance(item, Record))
        for part in _batched(payloads):
            fold.add(part)
    return fold


def _batched(payloads: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Yield payloads in lists of bounded size."""
    part, size = list[bytes](), 0
    for payload in payloads:
        part.append(payload)
        size += len(payload)
        if len(part) == _BATCH_RECORDS or size >= _BATCH_BYTES:
            yield part
            part, size = [], 0
    yield part
