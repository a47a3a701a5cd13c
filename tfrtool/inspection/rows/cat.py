"""Some of the records of shards, read no farther than they must be."""

import random
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, BinaryIO

from tfrtool.declare import takes
from tfrtool.errors import UsageError
from tfrtool.inspection.inspect_options import CatOptions
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.count import count_shard, indexed, skip_records
from tfrtool.records.framing import (
    FRAME_SIZE,
    Fault,
    LocatedFault,
    Record,
)
from tfrtool.records.reader import RecordReader
from tfrtool.records.stream import Stream, open_shard, path_of, size_of
from tfrtool.storage.remote_path import AnyPath, RemotePath

if TYPE_CHECKING:
    import pyarrow as pa

    from tfrtool.examples.arrow.columns import Columns
    from tfrtool.inspection.rows.batches import Batch
    from tfrtool.inspection.rows.extra_columns import ExtraColumns

OnFault = Callable[[LocatedFault], None]
Range = tuple[int, int]
"""The first index, and the one behind the last."""

END = sys.maxsize


def parse_ranges(text: str) -> tuple[Range, ...]:
    """Return what ``5``, ``10:20`` or ``0,7,9:`` mean, in order and without overlaps.

    Raises:
        UsageError: it means nothing.
    """
    found: list[Range] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(?:(\d{1,18})|(\d{0,18}):(\d{0,18}))\s*", part, re.ASCII)
        if match is None:
            raise UsageError(
                f"invalid --records {repr(text)[:100]}",
                expected="an index, a range or several, such as 5, 10:20 or 0,7,9",
            )
        start = int(match[1] or match[2] or 0)
        stop = start + 1 if match[1] else int(match[3] or END)
        if stop < start:
            raise UsageError(f"invalid --records {part[:50]!r}: the range ends before it starts")
        found.append((start, stop))
    return _merged(found)


def _merged(ranges: Sequence[Range]) -> tuple[Range, ...]:
    merged: list[Range] = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        elif start < stop:
            merged.append((start, stop))
    return tuple(merged)


@takes(CatOptions)
def cat(
    shards: Sequence[AnyPath | Stream], options: CatOptions
) -> Iterator[tuple[AnyPath, Record]]:
    """Yield records in the order of the shards, with the files that they are in.

    An uncompressed file is hopped through up to what is wanted of it; nothing is read behind that.
    One in a store that has an index is not even hopped through.
    Memory is bounded by the longest record, and with a condition by a batch of them.

    Args:
        shards: files, or a stream.

    Raises:
        ShardError: a file can't be read.
        UsageError: the records or the condition make no sense.
    """
    pieces = _pieces(shards, options)
    return ((path, record) for path, records in pieces for record in records)


@takes(CatOptions)
def cat_pieces(
    shards: Sequence[AnyPath | Stream], options: CatOptions
) -> Iterator[tuple[AnyPath, Sequence[Record]]]:
    """Yield what `cat` does, with consecutive records together that are read at once."""
    return _pieces(shards, options)


def _pieces(
    shards: Sequence[AnyPath | Stream], options: CatOptions
) -> Iterator[tuple[AnyPath, Sequence[Record]]]:
    ranges: Mapping[AnyPath | Stream, Sequence[Range]]
    if options.sample is None:
        ranges = dict.fromkeys(
            shards, parse_ranges(":" if options.records is None else options.records)
        )
    else:
        ranges = _drawn(shards, options.sample, options.seed)
    on_fault = options.on_fault
    if options.where is not None:
        matching = _matching(shards, options.where, options)
        ranges = {path: _within(ranges[path], numbers) for path, numbers in matching.items()}
        on_fault = _ignored
    pieces = _wanted(ranges, on_fault, options.on_hop)
    return pieces if options.limit is None else _first(pieces, options.limit)


def _matching(
    shards: Sequence[AnyPath | Stream], where: str, options: CatOptions
) -> Mapping[AnyPath, Iterable[int]]:
    """Return the numbers of the records that match the condition."""
    files = [shard for shard in shards if not isinstance(shard, Stream)]
    if len(files) < len(shards):
        raise UsageError("can't read standard input, because --where needs two passes")
    from tfrtool.inspection.rows.query import matching_records

    return matching_records(
        files,
        where,
        sources=options.sources or files,
        limit=options.limit if options.records is None and options.sample is None else None,
        as_stored=options.as_stored,
        types=options.types,
        proto=options.proto,
        on_fault=options.on_fault,
    )


def _ignored(fault: LocatedFault) -> None:
    """Do nothing about a fault that was reported in the first pass."""


def _first(
    pieces: Iterator[tuple[AnyPath, Sequence[Record]]], limit: int
) -> Iterator[tuple[AnyPath, Sequence[Record]]]:
    """Yield the first records, and read nothing behind them."""
    while limit > 0 and (piece := next(pieces, None)) is not None:
        path, records = piece
        yield path, records[:limit]
        limit -= len(records)
        del piece, records


def write_arrow(
    shards: Sequence[AnyPath],
    file: BinaryIO,
    select: Sequence[str] | None = None,
    *,
    explode: Sequence[str] | None = None,
    on_fault: OnFault,
    on_note: Callable[[str], None] = lambda _: None,
    **choices: Any,
) -> None:
    """Write what `cat` yields as an Arrow stream, with the columns of all records."""
    import pyarrow as pa

    choices |= {"on_fault": on_fault, "on_note": on_note}
    if explode is not None:
        schema, rows = exploded_batches(shards, explode, select, **choices)
    else:
        columns = _columns_of(shards, choices)
        select, extra = extra_columns(shards, columns, select)
        columns = columns if select is None else columns.select(select)
        schema = pa.schema([*_place_fields(), *extra.schema(columns.to_arrow())])
        rows = (table for _, table in _located(shards, columns, extra, schema, **choices))
    with pa.ipc.new_stream(file, schema) as writer:
        for batch in rows:
            writer.write_batch(batch)


def exploded_batches(
    shards: Sequence[AnyPath],
    explode: Sequence[str],
    select: Sequence[str] | None,
    **choices: Any,
) -> "tuple[pa.Schema, Iterator[pa.RecordBatch]]":
    """Return the rows for the items of lists in what `cat` yields, with their schema.

    The columns ``_shard`` and ``_record`` come before ``_item``.

    Args:
        shards: the files.
        explode: the lists.
        select: the columns and fields of items; None for all.
        choices: the options of `cat`, and of `write_arrow`.

    Raises:
        UsageError: there is no such list, or no such column.
    """
    import pyarrow as pa

    from tfrtool.inspection.rows.exploded_rows import Exploder, explode_columns

    on_note, on_fault = choices["on_note"], choices["on_fault"]
    columns = _columns_of(shards, choices)
    select, extra = extra_columns(shards, columns, select)
    extra_fields = [*_place_fields(), *extra.fields]
    columns, table = explode_columns(columns, explode, select, extra_fields)
    for text in table.notes:
        on_note(text)
    schema = pa.schema([*_place_fields(), *columns.to_arrow(), *extra.fields])

    def rows() -> "Iterator[pa.RecordBatch]":
        exploder = Exploder(table, on_fault)
        for batch, records in _located(shards, columns, extra, schema, **choices):
            yield from exploder.rows(batch, records)
        if (text := exploder.note()) is not None:
            on_note(text)

    return table.schema, rows()


def extra_columns(
    shards: Sequence[AnyPath], columns: "Columns | None", select: Sequence[str] | None
) -> "tuple[Sequence[str] | None, ExtraColumns]":
    """Return the selected columns that records store, and those that they don't.

    ``columns`` are those of records; None if they are not known.
    """
    from tfrtool.inspection.rows.extra_columns import select_extra

    return select_extra(shards, () if columns is None else columns.to_arrow().names, select)


def _place_fields() -> "list[pa.Field]":
    import pyarrow as pa

    return [pa.field("_shard", pa.string()), pa.field("_record", pa.int64())]


def _columns_of(shards: Sequence[AnyPath], choices: Mapping[str, Any]) -> "Columns":
    from tfrtool.inspection.rows.batches import infer_columns

    proto: Columns | None = choices.get("proto")
    if proto is not None:
        return proto
    as_stored, types = choices.get("as_stored", False), choices.get("types")
    return infer_columns(shards, as_stored=as_stored, types=types, on_note=choices["on_note"])


def _located(
    shards: Sequence[AnyPath],
    columns: "Columns",
    extra: "ExtraColumns",
    schema: "pa.Schema",
    **choices: Any,
) -> "Iterator[tuple[Batch, pa.RecordBatch]]":
    """Yield batches of what `cat` yields, and their tables with the places of the records."""
    import pyarrow as pa

    from tfrtool.inspection.rows.batches import BATCH_BYTES, decode_records, reporting
    from tfrtool.records.frames import in_batches

    on_fault = choices["on_fault"]
    chosen = {name: choices[name] for name in choices.keys() - {"on_note"}}
    for path, group in groupby(cat(shards, **chosen), itemgetter(0)):
        report = reporting(path, on_fault)
        records = ([record] for _, record in group)
        for part in in_batches(records, report, BATCH_BYTES, columns.batch_records):
            for batch in decode_records(path, part, columns, report):
                indexes = [record.index for record in batch.records]
                locators = [[str(path)] * len(indexes), indexes]
                arrays = [pa.array(*pair) for pair in zip(locators, schema.types, strict=False)]
                arrays += extra.add_to(batch.table, path, indexes).columns
                yield batch, pa.RecordBatch.from_arrays(arrays, schema=schema)


def _within(ranges: Sequence[Range], numbers: Iterable[int]) -> tuple[Range, ...]:
    """Return the numbers that are in some ranges, as ranges."""
    starts = [start for start, _ in ranges]
    chosen = []
    for number in numbers:
        at = bisect_right(starts, number) - 1
        if at >= 0 and number < ranges[at][1]:
            chosen.append((number, number + 1))
    return _merged(chosen)


def _drawn(
    shards: Sequence[AnyPath | Stream], sample: int, seed: int
) -> dict[AnyPath | Stream, tuple[Range, ...]]:
    if any(isinstance(shard, Stream) for shard in shards):
        raise UsageError("can't read standard input, because --sample needs two passes")
    ends = list(accumulate((count_shard(shard).records for shard in shards), initial=0))
    drawn = random.Random(seed).sample(range(ends[-1]), min(sample, ends[-1]))
    return {
        shard: _merged([(n - start, n - start + 1) for n in drawn if start <= n < end])
        for shard, start, end in zip(shards, ends, ends[1:], strict=False)
    }


def _wanted(
    ranges: Mapping[AnyPath | Stream, Sequence[Range]],
    on_fault: OnFault,
    on_hop: Callable[[int], None],
) -> Iterator[tuple[AnyPath, Sequence[Record]]]:
    for source, wanted in ranges.items():
        path = path_of(source)
        if not wanted:
            continue
        with open_shard(source) as file:
            for piece in _in_ranges(file, source, wanted, on_hop):
                if isinstance(piece, Fault):
                    on_fault(LocatedFault(path=path, fault=piece))
                else:
                    yield path, piece


def _in_ranges(
    file: BinaryIO,
    source: AnyPath | Stream,
    ranges: Sequence[Range],
    on_hop: Callable[[int], None],
) -> Iterator[Sequence[Record] | Fault]:
    """Yield the records of some ranges, and the faults that are met on the way."""
    compression = detect_compression(file)
    size = 0  # no skipping
    if not isinstance(source, Stream) and compression is Compression.NONE:
        size = size_of(source, file)
    pieces = RecordReader(file, compression).pieces()
    rest: Sequence[Record] = ()  # read, but behind the range
    index = offset = 0  # of the next record
    is_remote = isinstance(source, RemotePath)
    known: Sequence[int] | None = None if is_remote else ()
    for start, stop in ranges:
        if size and start > index:
            if known is None:
                known = indexed(file, path_of(source), size)
            if known:
                index = min(start, len(known) - 1)
                offset = known[index]
            else:
                before = offset
                skipped, offset = skip_records(file, size, start=offset, most=start - index)
                index += skipped
                if is_remote:
                    on_hop(offset - before)
            if offset == size:
                return
            file.seek(offset)
            pieces = RecordReader(file, compression, position=(index, offset)).pieces()
            rest = ()
        while index < stop:
            piece: Sequence[Record] | Fault | None = rest or next(pieces, None)
            rest = ()
            if piece is None:
                break
            if isinstance(piece, Fault):
                yield piece
                size = 0
                index = index if piece.record is None else piece.record + 1
                continue
            count = max(stop - piece[0].index, 0)
            piece, rest = piece[:count], piece[count:]
            if piece:
                last = piece[-1]
                index, offset = last.index + 1, last.offset + len(last.payload) + FRAME_SIZE
                if index > start:
                    yield piece[max(start - piece[0].index, 0) :]
                del last
            del piece  # it is not held while the next is read
            if rest:  # a damaged one was wanted, or none is left in the range
                break
