"""One file of a conversion: read, changed, written, and read back."""

import enum
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa

from tfrtool.convert.formats.registry import Content, OnBad, Piece, format_of, good_rows
from tfrtool.convert.pipeline.job import FileTask
from tfrtool.convert.pipeline.job_report import Written
from tfrtool.convert.pipeline.tally import Tally
from tfrtool.errors import SchemaError, WriteError
from tfrtool.examples.arrow.columns import EXACT, PAYLOAD
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.arrow.encode_batch import encode_batch

_FORMAT = 1
"""To be counted up when the same task is to give other bytes than before."""

_REASONS = 100
"""Rows left out that are told one by one."""


class Prove(enum.Enum):
    """What is read back and compared with the source."""

    NONE = "none"
    VALUES = "values"
    BYTES = "bytes"


@dataclass(frozen=True, kw_only=True)
class ConvertTask(FileTask):
    """Converts rows of some files, one after the other.

    Attributes:
        source: the format to read.
        target: the format to write.
        pieces: the rows.
        before: what they hold as they are read.
        after: what they hold as they are written: the same columns, under other names perhaps.
        prove: what is read back.
        skip_bad: whether rows that can't be held are left out.
        whole: whether all columns are written, under the names that they have.
    """

    source: str
    target: str
    pieces: Sequence[Piece]
    before: Content
    after: Content
    prove: Prove
    skip_bad: bool
    whole: bool

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the sources and the options."""
        stamps = [
            (one, one.path.stat().st_size, one.path.stat().st_mtime_ns) for one in self.pieces
        ]
        contents = [json.dumps(one.to_json()) for one in (self.before, self.after)]
        facts = (
            _FORMAT,
            self.source,
            self.target,
            self.pieces,
            stamps,
            contents,
            self.skip_bad,
            self.whole,
        )
        return blake2b(repr(facts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

    @property
    def copies(self) -> bool:
        """Whether payloads go from file to file as they are."""
        both = format_of(self.source).payloads and format_of(self.target).payloads
        return both and self.whole

    def write(self, path: Path) -> Written:
        """Write the file, and prove it."""
        form, read, tally = format_of(self.target), Tally(), Tally()
        bad: dict[str, int] = {}

        def on_bad(error: SchemaError) -> None:
            reason = str(error) if len(bad) < _REASONS else "others that can't be held"
            bad[reason] = bad.get(reason, 0) + 1

        with form.write(path, self.after) as sink:
            for batch in self._batches(read, on_bad if self.skip_bad else None):
                if form.payloads:
                    payloads = self._payloads(batch)
                    tally.add(payloads)
                    sink.write(payloads)
                else:
                    tally.merge(Tally(records=batch.num_rows, payload_bytes=batch.nbytes))
                    sink.write(batch)
        if self.prove is not Prove.NONE:
            expected = self._batches(Tally(), (lambda _: None) if self.skip_bad else None)
            row = first_difference(self._proved(expected), self._proved(self._found(path)))
            if row is not None:
                what = "what was read back is not what was written"
                raise WriteError(what, path=self.name, record=row)
        if form.payloads and not format_of(self.source).payloads:
            read = tally
        elif self.after.exact:
            tally.digest = read.digest
        return Written(tally=tally, read=read, left_out=bad)

    def _batches(self, read: Tally, on_bad: OnBad | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows as they are to be written; payloads that are copied, in one column."""
        form = format_of(self.source)
        for piece in self.pieces:
            first = piece.first
            for rows in form.read(piece, self.before, on_bad):
                if not form.payloads:
                    read.records += rows.num_rows
                    yield renamed(rows, self.after)
                    continue
                read.add(rows)
                if self.copies:
                    yield pa.record_batch({PAYLOAD: pa.array(rows, pa.binary())})
                    continue
                decode = partial(self._decoded, piece.path, rows, first)
                step = self.before.columns.batch_records
                for start in range(0, len(rows), step):
                    stop = min(start + step, len(rows))
                    for batch in good_rows(decode, start, stop, on_bad):
                        yield renamed(batch, self.after)
                first += len(rows)

    def _decoded(
        self, path: Path, payloads: list[bytes], first: int, start: int, stop: int
    ) -> pa.RecordBatch:
        try:
            return decode_batch(payloads[start:stop], self.before.columns, exact=self.before.exact)
        except MisfitError as error:
            row = first + start + error.index
            raise SchemaError(f"no columns hold it: {error.why}", path=path, record=row) from error

    def _payloads(self, batch: pa.RecordBatch) -> list[bytes]:
        if self.copies:
            return list(batch.column(0).to_pylist())
        return encode_batch(batch, self.after.columns)

    def _found(self, path: Path) -> Iterator[pa.RecordBatch]:
        """Yield what a file that was written holds."""
        form = format_of(self.target)
        scan = form.scan(path, columns=False)
        for rows in form.read(scan.piece(0, scan.rows), self.after) if scan.rows else ():
            if not form.payloads:
                yield rows
            elif self.copies:
                yield pa.record_batch({PAYLOAD: pa.array(rows, pa.binary())})
            else:
                yield decode_batch(rows, self.after.columns, exact=self.after.exact)

    def _proved(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield of batches the columns that are compared."""
        exact = self.prove is Prove.BYTES and self.after.exact
        return (batch.select([EXACT]) if exact else batch for batch in batches)


def renamed(batch: pa.RecordBatch, content: Content) -> pa.RecordBatch:
    """Return a batch with the same columns as ``content`` under the names that they have there."""
    if not batch.num_columns:  # it keeps its number of rows
        return batch
    arrays = []
    for array, field in zip(batch.columns, content.schema, strict=True):
        if array.type != field.type:  # a struct of features
            array = pa.StructArray.from_arrays(
                array.flatten(), fields=list(field.type), mask=array.is_null()
            )
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=content.schema)


def first_difference(left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]) -> int | None:
    """Return the first row that differs between two tables in batches; None if there is none."""
    row, a, b = 0, next(left, None), next(right, None)
    while a is not None and b is not None:
        rows = min(a.num_rows, b.num_rows)
        if not _same(a.slice(0, rows), b.slice(0, rows)):
            differ = (not _same(a.slice(at, 1), b.slice(at, 1)) for at in range(rows))
            return row + list(differ).index(True)
        row += rows
        a = a.slice(rows) if rows < a.num_rows else next(left, None)
        b = b.slice(rows) if rows < b.num_rows else next(right, None)
    return None if a is b else row


def _same(a: pa.RecordBatch, b: pa.RecordBatch) -> bool:
    """Return whether batches are equal; to Arrow no NaN is, but their texts are."""
    return a.equals(b) or repr(a.to_pylist()) == repr(b.to_pylist())
