"""ArrayRecord files: payloads as they are, of which TFDS and Grain read any by its number."""

import contextlib
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfrtool.convert.formats.registry import BATCH_BYTES, BATCH_ROWS, Content, Format, Piece, Scan
from tfrtool.convert.formats.tfds_texts import tfds_texts
from tfrtool.errors import SourceError, UsageError, WriteError, os_errors_as
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.records.framing import MAX_RECORD_BYTES, Fault, FaultKind
from tfrtool.storage.child import Child, ChildDied
from tfrtool.storage.limits import MAX_LIBRARY_MEMORY
from tfrtool.storage.opening import open_regular

_WRITING = "group_size:1"
"""Each record in a chunk of its own, as TFDS 4.9.10 writes them: one is read without others."""

_READING = "readahead_buffer_size:0,max_parallelism:0"

_HEAD = bytes.fromhex("83af70d10d884a3f 0000000000000000 4000000000000000")
"""Of every file: the header of Riegeli's first block (riegeli/records/block.h)."""

_PLACE = re.compile(r"\bchunk at (\d{1,18})\b")
"""Where a message of the library says that a chunk starts, in bytes."""

_MOST_FAULTS = 1000
"""Of a file; each costs as much as opening it."""

_NAME = re.compile(r"\.array_?records?(-\d{5,}-of-\d{5,})?$", re.IGNORECASE)


class ArrayRecordFormat(Format):
    """Files of the library ``array_record``, named as TFDS names them."""

    name = "arrayrecord"
    endings = (".array_record", ".arrayrecord")
    payloads = keeps_bytes = True

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
        """Read a file through; records of damaged chunks are faults."""
        fold, marks, faults = ColumnsFold() if columns else None, [(0, 0)], list[Fault]()
        rows = size = 0
        for payloads, following, reason in _parts(path, 0):
            rows, size = rows + len(payloads), size + sum(map(len, payloads))
            if fold is not None:
                fold.add(payloads)
            if reason:
                marks.append((rows, following))
                place, kind = _PLACE.search(reason), FaultKind.PAYLOAD_CRC
                offset, record = int(place[1]) if place else 0, following - 1
                faults.append(Fault(kind=kind, offset=offset, record=record, message=reason))
            if len(faults) > _MOST_FAULTS:
                what = f"has more than {_MOST_FAULTS:,} damaged records"
                raise SourceError(what, path=path, found=faults[0].message)
        found = tuple(faults)
        return Scan(path=path, rows=rows, bytes=size, marks=marks, fold=fold, faults=found)

    def read(self, piece: Piece, *_unused: Any) -> Iterator[list[bytes]]:
        """Yield its payloads; what is damaged is no row."""
        left = piece.rows
        for payloads, *_ in _parts(piece.path, piece.start + piece.skip):
            yield payloads[:left]
            left -= min(left, len(payloads))
            if not left:
                return
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
            raise WriteError("can't be written", path=path, found=str(error)[:300]) from error

    def beside(self, content: Content, info: DatasetInfo) -> Mapping[str, str]:
        """Return what makes the files a dataset of TFDS."""
        return tfds_texts(content, info, "array_record")


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
    """Yield payloads from a record on, the number of the next, and what was wrong with one between.

    A process of its own reads them: the library is C++, and what a file does to it ends no other.
    """
    with os_errors_as(SourceError, path), open_regular(path):
        _library()
    try:
        with Child() as child:
            count, following = child.call(_count, str(path)), start
            while following < count:
                payloads, following, reason = child.call(_read, str(path), following)
                yield payloads, following, reason
    except RuntimeError as error:
        what = "no ArrayRecord file, cut or damaged"
        raise SourceError(what, path=path, found=str(error)[:300]) from error
    except ChildDied as error:
        what = "damaged, or its records take too much memory: the process that read it died"
        raise SourceError(what, path=path, found=f"exit code {error.code}") from error


def _count(path: str) -> int:
    import resource  # array_record is only where this is

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    soft = MAX_LIBRARY_MEMORY if most < 0 else min(MAX_LIBRARY_MEMORY, most)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, most))
    return int(_reader(path).num_records())


@functools.lru_cache(maxsize=1)  # opening one takes the time of many records
def _reader(path: str) -> Any:
    reader = _library().ArrayRecordReader(path, _READING)
    if not reader.ok():  # it says that a file which is cut, or something else, has 0 records
        reader.close()  # raises what is wrong
    return reader


def _read(path: str, start: int) -> tuple[list[bytes], int, str]:
    """Read records until they are many, or one is damaged."""
    reader, payloads, size = _reader(path), list[bytes](), 0
    reader.seek(start)
    try:
        while len(payloads) < BATCH_ROWS and size < BATCH_BYTES:
            payload = reader.read()
            if len(payload) > MAX_RECORD_BYTES:
                raise RuntimeError(f"{len(payload)} bytes, and at most {MAX_RECORD_BYTES} are read")
            payloads.append(payload)
            size += len(payload)
    except IndexError:
        pass  # the end
    except RuntimeError as error:
        _reader.cache_clear()  # it reads nothing more
        return payloads, start + len(payloads) + 1, str(error)[:300] or "damaged"
    return payloads, start + len(payloads), ""
