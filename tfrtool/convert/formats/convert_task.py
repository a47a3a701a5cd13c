"""One file of a conversion: read, changed, written, and read back."""

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tfrtool.convert.formats.registry import Content, Format, Mark, Piece, read_rows
from tfrtool.errors import WriteError
from tfrtool.examples.arrow.columns import EXACT
from tfrtool.examples.arrow.encode_batch import encode_batch
from tfrtool.records.tally import Tally
from tfrtool.storage.progress import RECORDS, count_work
from tfrtool.writing.job import FileTask
from tfrtool.writing.job_report import Faults, Written


class VerifyMode(enum.Enum):
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
        verify: what is read back.
        stop: whether a record that the columns can't hold ends the work, or is left out.
    """

    source: Format
    target: Format
    pieces: Sequence[Piece]
    before: Content
    after: Content
    verify: VerifyMode
    stop: bool

    def write(self, path: Path) -> Written:
        """Write the file, and verify it."""
        form, read, tally = self.target, Tally(), Tally()
        faults, kept = Faults(stop=self.stop), form.payloads or self.after.exact
        with form.write(path, self.after) as put:
            for batch in self._batches(read, faults):
                payloads = encode_batch(batch, self.after.columns) if kept else []
                tally.add(payloads)
                if not kept:
                    tally.merge(Tally(records=batch.num_rows, payload_bytes=batch.nbytes))
                put(payloads if form.payloads else batch)
        if self.verify is not VerifyMode.NONE:
            piece = Piece(path=path, rows=tally.records, mark=Mark())
            expected = self._batches(Tally(), Faults(), verify=True)
            found = read_rows(form, piece, self.after, Tally(), Faults(), own=True)
            if self.verify is VerifyMode.BYTES and self.after.exact:
                expected, found = (
                    (batch.select([EXACT]) for batch in some) for some in (expected, found)
                )
            row = first_difference(expected, found)
            if row is not None:
                what = "the output differs from the source when read back"
                raise WriteError(what, path=self.name, record=row)
        if kept and not self.source.payloads:
            read = tally
        return Written(tally=tally, read=read, faults=faults)

    def _batches(
        self, read: Tally, faults: Faults, *, verify: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as they are to be written."""
        passes, rows = (1 if self.verify is VerifyMode.NONE else 2), 0
        for piece in self.pieces:
            for batch in read_rows(self.source, piece, self.before, read, faults, verify=verify):
                yield renamed(batch, self.after)
                # Verifying reads them again: each time counts as a part of the work.
                count_work((rows + batch.num_rows) // passes - rows // passes, RECORDS)
                rows += batch.num_rows


def renamed(batch: pa.RecordBatch, content: Content) -> pa.RecordBatch:
    """Return a batch with the same columns as ``content`` under the names that they have there."""
    if not batch.num_columns:  # it keeps its number of rows
        return batch
    held = zip(batch.columns, content.schema, strict=True)
    arrays = [array.view(field.type) for array, field in held]  # of structs, names are the type's
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
