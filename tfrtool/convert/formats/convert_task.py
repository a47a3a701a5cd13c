"""One file of a conversion: its rows are read, written, and compared when read back."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tfrtool.convert.formats.assumed_records import AssumingTfrecord
from tfrtool.convert.formats.payload_formats import PayloadFormat
from tfrtool.convert.formats.record_format import Content, Format, Piece, naming_file
from tfrtool.convert.formats.table_digest import TableDigest
from tfrtool.errors import SchemaError, SourceError, WriteError
from tfrtool.examples.arrow.columns import EXACT
from tfrtool.examples.arrow.decode_batch import decode_batch
from tfrtool.examples.arrow.encode_batch import encode_payloads
from tfrtool.features.conformed_rows import without_null_structs
from tfrtool.features.explode import ExplodedTable
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.inspection.rows.batches import BATCH_BYTES, BATCH_RECORDS, decode_records, reporting
from tfrtool.inspection.rows.exploded_rows import Exploder, with_numbers
from tfrtool.inspection.rows.extra_columns import ExtraColumns
from tfrtool.records.frames import bytes_of, keys_of
from tfrtool.records.framing import Fault, LocatedFault
from tfrtool.records.tally import Tally
from tfrtool.storage.progress import RECORDS, count_work
from tfrtool.writing.job import FileTask
from tfrtool.writing.job_report import COUNTED, Faults, Written


@dataclass(frozen=True, kw_only=True)
class ConvertTask(FileTask):
    """Converts rows of some files, one file after the other."""

    source: Format
    target: Format
    pieces: Sequence[Piece]
    before: Content  # of the rows as they are read
    after: Content  # and as they are written: the same columns, perhaps under other names
    exploded: ExplodedTable | None = None  # how records become rows for the items of their lists
    extra: ExtraColumns = field(default_factory=ExtraColumns)  # that no record stores
    first: int = 0  # the number of the first record in its split
    verify: str  # none, values or bytes
    stop: bool  # whether a record that the columns can't hold ends the work, or is left out
    assumed: bool = False  # whether the pieces were not scanned: see `AssumingTfrecord`

    def write(self, path: Path) -> Written:
        """Write the file, and verify it."""
        target, read, tally = self.target, Tally(), Tally()
        faults, payloads = Faults(stop=self.stop), self.target.payloads or self.after.exact
        unusual, warnings, nulls = dict[str, None](), list[str](), Counter[str]()
        digest = None if self.verify == "none" else TableDigest()
        with target.write(path, self.after) as put:
            for batch in self._batches(read, faults, warnings.append, nulls):
                if digest is not None:
                    digest.add(self._verified(batch))
                encoded = None
                if payloads:
                    with self._locating(tally.records):
                        encoded = encode_payloads(batch, self.after.columns)
                    tally.add_keys(encoded.keys)
                else:
                    tally.records += batch.num_rows
                    tally.payload_bytes += batch.nbytes
                if target.has_plain_nans and not self.after.exact:
                    unusual |= dict.fromkeys(columns_with_unusual_nans(batch))
                put(encoded if target.payloads else batch)
        if digest is not None:
            self._verify(path, tally.records, digest)
        if payloads and not self.source.payloads:
            read = tally
        warnings += [
            f"column {name!r}: the bits of NaNs are lost in {target.spec.title}; --exact keeps them"
            for name in unusual
        ]
        facts = {"warnings": warnings, COUNTED: _null_warnings(nulls)}
        return Written(tally=tally, read=read, faults=faults, facts=facts)

    def _verify(self, path: Path, rows: int, written: TableDigest) -> None:
        """Read the file back, and compare; the source is read again only to find a row."""
        target, piece, found = self.target, Piece(path=path, rows=rows), TableDigest()

        def read_back() -> Iterator[pa.RecordBatch]:
            batches = read_rows(target, [piece], self.after, Tally(), Faults(), written=True)
            return map(self._verified, batches)

        done = 0
        for batch in read_back():
            found.add(batch)
            if self.exploded is None:  # then rows are counted as work, and not records
                count_work((done + batch.num_rows + 1) // 2 - (done + 1) // 2, RECORDS)
                done += batch.num_rows
        if found == written:
            return
        expected = map(self._verified, self._batches(Tally(), Faults()))
        row = first_difference(expected, read_back())
        if row is not None:  # equal ones may have NaNs of other bits
            what = "the output differs from the source when read back"
            raise WriteError(what, path=self.name, record=row)

    def _verified(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return what of some rows must come back equal."""
        by_bytes = self.verify == "bytes" and self.after.exact
        return batch.select([EXACT]) if by_bytes else batch

    @contextlib.contextmanager
    def _locating(self, row: int) -> Iterator[None]:
        """Name the file and the row in an error about rows that start at ``row``."""
        try:
            yield
        except SchemaError as error:
            row += error.record or 0
            for piece in self.pieces:
                if row < piece.rows:
                    error.path = str(piece.path)
                    error.record = None if error.record is None else piece.first + row
                    break
                row -= piece.rows
            raise

    def _batches(
        self,
        read: Tally,
        faults: Faults,
        on_note: Callable[[str], None] = lambda _: None,
        nulls: Counter[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as they are to be written, and count them as work.

        ``nulls`` counts structs that are null, by path, if the target has no such structs.
        """
        passes, rows = (1 if self.verify == "none" else 2), 0
        if self.exploded is not None:
            yield from self._items(self.exploded, read, faults, on_note)
            return
        for batch in self._rows(read, faults):
            if batch.num_columns:  # names in structs are the type's
                fields = zip(batch.columns, self.after.schema, strict=True)
                arrays = [array.view(field.type) for array, field in fields]
                batch = pa.RecordBatch.from_arrays(arrays, schema=self.after.schema)
            columns = self.after.columns
            if not self.target.has_null_structs and type(columns) is FeatureColumns:
                batch = without_null_structs(batch, columns, Counter() if nulls is None else nulls)
            yield batch
            # Reading the file back is the other half of the work.
            count_work((rows + batch.num_rows) // passes - rows // passes, RECORDS)
            rows += batch.num_rows

    def _rows(self, read: Tally, faults: Faults) -> Iterator[pa.RecordBatch]:
        """Yield the rows as they are read, with the columns that no record stores."""
        source = self.source
        if self.assumed and isinstance(source, PayloadFormat):
            source = AssumingTfrecord(source.decoded)
        if not self.extra.columns:
            yield from read_rows(source, self.pieces, self.before, read, faults)
            return
        for _, group in groupby(self.pieces, lambda piece: self.extra.same_values(piece.path)):
            pieces = [*group]
            for batch in read_rows(source, pieces, self.before, read, faults):
                yield self.extra.add_to(batch, pieces[0].path, range(batch.num_rows))

    def _items(
        self,
        exploded: ExplodedTable,
        read: Tally,
        faults: Faults,
        on_note: Callable[[str], None],
    ) -> Iterator[pa.RecordBatch]:
        """Yield a row for each item; records are counted as work."""
        found, first = list[LocatedFault](), self.first
        exploder, columns = Exploder(exploded, found.append), self.before.columns
        step = columns.batch_records
        for piece in self.pieces:
            report = reporting(piece.path, found.append)
            for part in _read_parts(piece, self.source.read(piece.path, piece.position)):
                read.add_keys(keys_of(part.rows))
                numbers = {one.index: n for n, one in enumerate(part.rows, first + part.first)}
                for start in range(0, len(part.rows), step):
                    records = part.rows[start : start + step]
                    for batch in decode_records(piece.path, records, columns, report):
                        indexes = [one.index for one in batch.records]
                        table = self.extra.add_to(batch.table, piece.path, indexes)
                        batch = batch._replace(table=table)
                        yield from exploder.rows(batch, with_numbers(batch, numbers))
                for one in found:
                    faults.add(replace(one, fault=_in_file(one.fault, piece)))
                found.clear()
                count_work(len(part.rows), RECORDS)
            first += piece.rows
        if (text := exploder.note()) is not None:
            on_note(text)


class _Part(NamedTuple):
    """Consecutive rows of a piece, as its format reads them."""

    piece: Piece
    rows: Any
    first: int  # the number of the first row in the file


def read_rows(
    source_format: Format,
    pieces: Sequence[Piece],
    content: Content,
    read: Tally,
    faults: Faults,
    *,
    written: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield rows of files as record batches of the content's schema.

    All rows are counted in ``read``. Payloads that are not such rows are skipped and become
    ``faults``. A ``written`` file is one that this process has just written. Short parts of
    payloads are decoded together: with a batch for each, thousands of small shards took minutes.
    """
    short, records, size = list[_Part](), 0, 0
    for piece in pieces:
        if written:
            parts = source_format.read_back(piece.path, content)
        else:
            parts = source_format.read(piece.path, piece.position)
        for part in _read_parts(piece, parts):
            if not source_format.payloads:
                read.records += len(part.rows)
                yield from _decode(source_format, part, content, faults)
                continue
            read.add_keys(keys_of(part.rows))
            short.append(part)
            records += len(part.rows)
            size += bytes_of(part.rows)
            if records >= BATCH_RECORDS // 2 or size >= BATCH_BYTES // 2:
                yield from _decode_together(source_format, short, content, faults)
                short, records, size = [], 0, 0
    yield from _decode_together(source_format, short, content, faults)


def _read_parts(piece: Piece, parts: Iterator[Any]) -> Iterator[_Part]:
    """Yield the rows of a piece as they are in the file, whose ``parts`` are read."""
    row, end = piece.position.row, piece.first + piece.rows
    with naming_file(piece.path):
        while row < end:
            if (part := next(parts, None)) is None:
                raise SourceError("changed while it was being read", path=piece.path)
            first = max(piece.first, row)
            rows = part[first - row : end - row]
            row += len(part)
            if len(rows):
                yield _Part(piece, rows, first)


def _decode_together(
    source_format: Format, parts: Sequence[_Part], content: Content, faults: Faults
) -> Iterator[pa.RecordBatch]:
    """Yield payloads of several files in one batch; if any of them is a fault, file by file."""
    if len(parts) > 1:
        records, first = [record for part in parts for record in part.rows], parts[0]
        with contextlib.suppress(SchemaError):  # which is to name the file
            decoded = source_format.decode(records, content, first.piece.path, first.first)
            batches, size = list[pa.RecordBatch](), 0
            while size <= BATCH_BYTES and not isinstance(batch := next(decoded, None), Fault):
                if batch is None:
                    yield from batches
                    return
                batches.append(batch)
                size += batch.nbytes
    for part in parts:
        yield from _decode(source_format, part, content, faults)


def _decode(
    source_format: Format, part: _Part, content: Content, faults: Faults
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part, and note its faults by their places in the file."""
    path = part.piece.path
    with naming_file(path):
        if source_format.payloads or content.schema.names:
            batches = source_format.decode(part.rows, content, path, part.first)
        else:  # of records without any feature
            batches = iter([decode_batch([b""] * len(part.rows), content.columns)])
        for batch in batches:
            if isinstance(batch, Fault):
                faults.add(LocatedFault(path=path, fault=_in_file(batch, part.piece)))
            else:
                yield batch


def _in_file(fault: Fault, piece: Piece) -> Fault:
    """Return a fault whose place counts from the start of a piece with its place in the file."""
    start, record = piece.position.start, piece.position.record
    return replace(fault, offset=start + fault.offset, record=record + (fault.record or 0))


def _null_warnings(nulls: Mapping[str, int]) -> dict[str, int]:
    """Return the warnings on structs that are null, by path, each with its number of rows."""
    what = "column {!r}: null structs come back as structs of nulls"
    return {what.format(path): count for path, count in nulls.items()}


def columns_with_unusual_nans(batch: pa.RecordBatch) -> list[str]:
    """Return the names of columns with NaNs whose bits are not those that text is read as."""
    columns = zip(batch.schema.names, batch.columns, strict=True)
    return [name for name, array in columns if _has_unusual_nans(array)]


def _has_unusual_nans(array: pa.Array) -> bool:
    kind = array.type
    if pa.types.is_struct(kind):
        return any(map(_has_unusual_nans, array.flatten()))
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return _has_unusual_nans(array.flatten())
    if not (pa.types.is_float32(kind) or pa.types.is_float64(kind)):
        return False
    numbers = np.asarray(array.drop_null())
    bits, plain = f"u{numbers.itemsize}", np.array(np.nan, numbers.dtype)
    return bool((np.isnan(numbers) & (numbers.view(bits) != plain.view(bits))).any())


def first_difference(left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]) -> int | None:
    """Return the first row that differs between two tables in batches; None if there is none."""
    row, a, b = 0, next(left, None), next(right, None)
    while a is not None and b is not None:
        rows = min(a.num_rows, b.num_rows)
        if not _equal(a.slice(0, rows), b.slice(0, rows)):
            differ = (not _equal(a.slice(at, 1), b.slice(at, 1)) for at in range(rows))
            return row + list(differ).index(True)
        row += rows
        a = a.slice(rows) if rows < a.num_rows else next(left, None)
        b = b.slice(rows) if rows < b.num_rows else next(right, None)
    return None if a is b else row


def _equal(a: pa.RecordBatch, b: pa.RecordBatch) -> bool:
    """Return whether batches are equal; to Arrow no NaN is, but their texts are."""
    return a.equals(b) or repr(a.to_pylist()) == repr(b.to_pylist())
