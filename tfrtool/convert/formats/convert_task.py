"""One file of a conversion: its rows are read, written, and compared when read back."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from tfrtool.convert.formats.record_format import Content, Format, Piece, naming_file
from tfrtool.errors import SourceError, WriteError
from tfrtool.examples.arrow.columns import EXACT
from tfrtool.examples.arrow.decode_batch import decode_batch
from tfrtool.examples.arrow.encode_batch import encode_batch
from tfrtool.records.framing import Fault, LocatedFault
from tfrtool.records.tally import Tally, payload_key
from tfrtool.storage.progress import RECORDS, count_work
from tfrtool.writing.job import FileTask
from tfrtool.writing.job_report import Faults, Written


@dataclass(frozen=True, kw_only=True)
class ConvertTask(FileTask):
    """Converts rows of some files, one file after the other."""

    source: Format
    target: Format
    pieces: Sequence[Piece]
    before: Content  # of the rows as they are read
    after: Content  # and as they are written: the same columns, perhaps under other names
    verify: str  # none, values or bytes
    stop: bool  # whether a record that the columns can't hold ends the work, or is left out

    def write(self, path: Path) -> Written:
        """Write the file, and verify it."""
        target, read, tally = self.target, Tally(), Tally()
        faults, payloads = Faults(stop=self.stop), self.target.payloads or self.after.exact
        unusual = dict[str, None]()
        with target.write(path, self.after) as put:
            for batch in self._batches(read, faults):
                encoded = encode_batch(batch, self.after.columns) if payloads else []
                tally.add(encoded)
                if target.has_plain_nans and not self.after.exact:
                    unusual |= dict.fromkeys(columns_with_unusual_nans(batch))
                if not payloads:
                    tally.merge(Tally(records=batch.num_rows, payload_bytes=batch.nbytes))
                put(encoded if target.payloads else batch)
        if self.verify != "none":
            piece = Piece(path=path, rows=tally.records)
            expected = self._batches(Tally(), Faults())
            found = read_rows(target, piece, self.after, Tally(), Faults(), trusted=True)
            if self.verify == "bytes" and self.after.exact:
                expected, found = (
                    (batch.select([EXACT]) for batch in some) for some in (expected, found)
                )
            row = first_difference(expected, found)
            if row is not None:
                what = "the output differs from the source when read back"
                raise WriteError(what, path=self.name, record=row)
        if payloads and not self.source.payloads:
            read = tally
        warnings = [
            f"column {name!r}: the bits of NaNs are lost in {target.spec.title}; --exact keeps them"
            for name in unusual
        ]
        facts = {"warnings": warnings} if warnings else {}
        return Written(tally=tally, read=read, faults=faults, facts=facts)

    def _batches(self, read: Tally, faults: Faults) -> Iterator[pa.RecordBatch]:
        """Yield the rows as they are to be written, and count them as work."""
        passes, rows = (1 if self.verify == "none" else 2), 0
        for piece in self.pieces:
            for batch in read_rows(self.source, piece, self.before, read, faults):
                if batch.num_columns:  # names in structs are the type's
                    fields = zip(batch.columns, self.after.schema, strict=True)
                    arrays = [array.view(field.type) for array, field in fields]
                    batch = pa.RecordBatch.from_arrays(arrays, schema=self.after.schema)
                yield batch
                # Verifying reads them again: each pass counts as a part of the work.
                count_work((rows + batch.num_rows) // passes - rows // passes, RECORDS)
                rows += batch.num_rows


def read_rows(
    form: Format,
    piece: Piece,
    content: Content,
    read: Tally,
    faults: Faults,
    *,
    trusted: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield rows of a file as record batches of the content's schema.

    All rows are counted in ``read``. Payloads that are not such rows are skipped and become
    ``faults``. A ``trusted`` file was just written by this process.
    """
    position, row, end = piece.position, piece.position.row, piece.first + piece.rows
    parts = form.read_back(piece.path) if trusted else form.read(piece.path, position)
    with naming_file(piece.path):
        while row < end:
            if (part := next(parts, None)) is None:
                raise SourceError("changed while it was being read", path=piece.path)
            first = max(piece.first, row)
            rows = part[first - row : end - row]
            row += len(part)
            batches = form.decode(rows, content, piece.path, first)
            if form.payloads:
                read.add_keys([payload_key(one.payload_crc, len(one.payload)) for one in rows])
            else:
                read.records += len(rows)
                if not content.schema.names:  # of records without any feature
                    batches = iter([decode_batch([b""] * len(rows), content.columns)])
            for batch in batches:
                if isinstance(batch, Fault):
                    offset, record = position.start + batch.offset, position.record
                    fault = replace(batch, offset=offset, record=record + (batch.record or 0))
                    faults.add(LocatedFault(path=piece.path, fault=fault))
                else:
                    yield batch


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
