"""One file of a conversion: read, changed, written, and read back."""

import enum
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa

from tfrtool.convert.formats.registry import Content, Piece, format_of
from tfrtool.convert.pipeline.job import FileTask
from tfrtool.convert.pipeline.job_report import Written
from tfrtool.convert.pipeline.tally import Tally
from tfrtool.errors import SchemaError, WriteError
from tfrtool.examples.arrow.columns import EXACT
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.arrow.encode_batch import encode_batch

_FORMAT = 2
"""To be counted up when the same task is to give other bytes than before."""


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
    """

    source: str
    target: str
    pieces: Sequence[Piece]
    before: Content
    after: Content
    prove: Prove

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the sources and the options."""
        stats = [one.path.stat() for one in self.pieces]
        contents = [json.dumps(one.to_json()) for one in (self.before, self.after)]
        stamps = [(one.st_size, one.st_mtime_ns) for one in stats]
        facts = (_FORMAT, self.source, self.target, self.pieces, stamps, contents)
        return blake2b(repr(facts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

    def write(self, path: Path) -> Written:
        """Write the file, and prove it."""
        form, read, tally = format_of(self.target), Tally(), Tally()
        with form.write(path, self.after) as put:
            for batch in self._batches(read):
                if form.payloads:
                    payloads = encode_batch(batch, self.after.columns)
                    tally.add(payloads)
                    put(payloads)
                else:
                    tally.merge(Tally(records=batch.num_rows, payload_bytes=batch.nbytes))
                    put(batch)
        if self.prove is not Prove.NONE:
            exact = self.prove is Prove.BYTES and self.after.exact
            row = first_difference(
                *(
                    (one.select([EXACT]) if exact else one for one in batches)
                    for batches in (self._batches(Tally()), self._found(path, tally.records))
                )
            )
            if row is not None:
                what = "what was read back is not what was written"
                raise WriteError(what, path=self.name, record=row)
        if form.payloads and not format_of(self.source).payloads:
            read = tally
        elif self.after.exact:
            tally.digest = read.digest
        return Written(tally=tally, read=read)

    def _batches(self, read: Tally) -> Iterator[pa.RecordBatch]:
        """Yield the rows as they are to be written."""
        form, step = format_of(self.source), self.before.columns.batch_records
        for piece in self.pieces:
            first = piece.first
            for rows in form.read(piece, self.before):
                if not form.payloads:
                    read.records += rows.num_rows
                    yield renamed(rows, self.after)
                    continue
                read.add(rows)
                for start in range(0, len(rows), step):
                    batch = _decoded(rows[start : start + step], self.before, piece.path, first)
                    yield renamed(batch, self.after)
                    first += batch.num_rows

    def _found(self, path: Path, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield what a file that was written holds."""
        form, step = format_of(self.target), self.after.columns.batch_records
        piece = Piece(path=path, first=0, rows=rows, start=0)
        for held in form.read(piece, self.after) if rows else ():
            if not form.payloads:
                yield held
                continue
            for start in range(0, len(held), step):
                yield _decoded(held[start : start + step], self.after, path, start)


def _decoded(payloads: list[bytes], content: Content, path: Path, first: int) -> pa.RecordBatch:
    try:
        return decode_batch(payloads, content.columns, exact=content.exact)
    except MisfitError as error:
        row = first + error.index
        raise SchemaError(f"no columns hold it: {error.why}", path=path, record=row) from error


def renamed(batch: pa.RecordBatch, content: Content) -> pa.RecordBatch:
    """Return a batch with the same columns as ``content`` under the names that they have there."""
    if not batch.num_columns:  # it keeps its number of rows
        return batch
    arrays = [
        one
        if one.type == field.type  # else it is a struct of features
        else pa.StructArray.from_arrays(one.flatten(), fields=list(field.type), mask=one.is_null())
        for one, field in zip(batch.columns, content.schema, strict=True)
    ]
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
