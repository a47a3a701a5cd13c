"""ArrayRecord files: payloads as they are, of which TFDS and Grain read any by its number."""

import contextlib
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfrtool.convert.formats.registry import (
    BATCH_BYTES,
    BATCH_ROWS,
    Content,
    Format,
    OnBad,
    Piece,
    Scan,
)
from tfrtool.errors import SourceError, UsageError, WriteError, os_errors_as
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.records.framing import MAX_RECORD_BYTES, Fault, FaultKind
from tfrtool.storage.child import Child, ChildDied
from tfrtool.storage.limits import MAX_LIBRARY_MEMORY
from tfrtool.storage.opening import open_regular

_WRITING = "group_size:1"
"""Each record in a chunk of its own, as TFDS 4.9.10 writes them: one is read without others."""

_READING = "readahead_buffer_size:0,max_parallelism:0"

_HEAD = bytes.fromhex("83af70d10d884a3f 0000000000000000 4000000000000000")
"""Of every file: the header of Riegeli's first block (riegeli/records/records_signature.h)."""

_PLACE = re.compile(r"\bchunk at (\d{1,18})\b")
"""Where a message of the library says that a chunk starts, in bytes."""

_MOST_FAULTS = 1000
"""Of a file; each costs as much as opening it."""

_NAME = re.compile(r"\.array_?records?(-\d{5,}-of-\d{5,})?$", re.IGNORECASE)


class ArrayRecordFormat(Format):
    """Files of the library ``array_record``, named as TFDS names them."""

    name = "arrayrecord"
    endings = (".array_record", ".arrayrecord")
    payloads = True

    def owns(self, name: str) -> bool:
        """Return whether a name has the ending, before the numbers of a shard."""
        return _NAME.search(name) is not None

    def starts(self, head: bytes) -> bool:
        """Return whether bytes start as the container does."""
        return head.startswith(_HEAD)

    def file_name(self, dataset: str, split: str, index: int, count: int) -> str:
        """Return the name that TFDS looks for."""
        return f"{dataset}-{split}.array_record-{index:05d}-of-{count:05d}"

    def scan(self, path: Path, *, columns: bool) -> Scan:
        """Read a file through; the records of a damaged chunk are faults."""
        fold, marks, faults = ColumnsFold(), [(0, 0)], []
        rows = size = 0
        for payloads, following, reason in _parts(path, 0):
            rows, size = rows + len(payloads), size + sum(map(len, payloads))
            if columns:
                fold.add(payloads)
            if reason:
                marks.append((rows, following))
                faults.append(_fault(following - 1, reason))
                if len(faults) == _MOST_FAULTS:
                    what = f"{_MOST_FAULTS} damaged records, and the others are not looked at"
                    raise SourceError(what, path=path, found=reason)
        return Scan(
            path=path,
            rows=rows,
            bytes=size,
            marks=marks,
            fold=fold if columns else None,
            faults=tuple(faults),
        )

    def read(
        self,
        piece: Piece,
        content: Content,  # noqa: ARG002
        on_bad: OnBad | None = None,  # noqa: ARG002
    ) -> Iterator[list[bytes]]:
        """Yield its payloads; what is damaged is no row."""
        left = piece.rows
        for payloads, _, _ in _parts(piece.path, piece.start + piece.skip) if left else ():
            if payloads:
                yield payloads[:left]
            left -= len(payloads)
            if left <= 0:
                return
        if left:
            raise SourceError("was changed while it was read", path=piece.path)

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> "Iterator[_ArrayRecordSink]":  # noqa: ARG002
        """Give a file to write."""
        try:
            writer = _library().ArrayRecordWriter(str(path), _WRITING)
            try:
                yield _ArrayRecordSink(writer)
            finally:
                writer.close()
        except RuntimeError as error:
            found = str(error)[:300] or None
            raise WriteError("can't be written", path=path, found=found) from error


def _fault(record: int, reason: str) -> Fault:
    place = _PLACE.search(reason)
    offset = int(place[1]) if place else 0
    return Fault(kind=FaultKind.PAYLOAD_CRC, offset=offset, record=record, message=reason)


class _ArrayRecordSink:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, rows: list[bytes]) -> None:
        for payload in rows:
            self._writer.write(payload)


def _library() -> Any:
    try:
        from array_record.python import array_record_module
    except ImportError as error:
        hint = "pip install array_record"
        raise UsageError("ArrayRecord needs array_record", hint=hint) from error
    return array_record_module


def _parts(path: Path, start: int) -> Iterator[tuple[list[bytes], int, str]]:
    """Yield payloads from a record on, the number of the next record, and what is damaged before.

    A process of its own reads them: the library is C++, and a hostile file may end it.
    """
    with os_errors_as(SourceError, path), open_regular(path) as file:
        if not file.read(1):
            raise SourceError("is empty", path=path, expected="ArrayRecord")
    _library()
    try:
        with Child() as child:
            child.call(_bound_memory)
            count, following = child.call(_count, str(path)), start
            while following < count:
                payloads, following, reason = child.call(_read, str(path), following)
                yield payloads, following, reason
    except RuntimeError as error:
        found = str(error)[:300]
        raise SourceError("no ArrayRecord file, cut or damaged", path=path, found=found) from error
    except ChildDied as error:
        raise SourceError(
            "the process that read it died: damaged, or too large",
            path=path,
            found=f"exit code {error.code}",
        ) from error


def _bound_memory() -> None:
    import resource  # array_record is nowhere where this isn't

    resource.setrlimit(resource.RLIMIT_DATA, (MAX_LIBRARY_MEMORY, MAX_LIBRARY_MEMORY))


@functools.lru_cache(maxsize=1)
def _reader(path: str) -> Any:
    reader = _library().ArrayRecordReader(path, _READING)
    if not reader.ok():  # it says 0 records of a file that is cut, or none of its own
        reader.close()  # raises what was wrong
    return reader


def _count(path: str) -> int:
    return int(_reader(path).num_records())


def _read(path: str, start: int) -> tuple[list[bytes], int, str]:
    """Read records until they are many, or one is damaged."""
    reader, payloads, size = _reader(path), list[bytes](), 0
    reader.seek(start)
    try:
        for _ in range(min(BATCH_ROWS, reader.num_records() - start)):
            payload = reader.read()
            if len(payload) > MAX_RECORD_BYTES:
                raise RuntimeError(f"{len(payload)} bytes, and at most {MAX_RECORD_BYTES} are read")
            payloads.append(payload)
            size += len(payload)
            if size > BATCH_BYTES:
                break
    except RuntimeError as error:
        _reader.cache_clear()  # it reads nothing more
        return payloads, start + len(payloads) + 1, str(error)[:300] or "damaged"
    return payloads, start + len(payloads), ""
