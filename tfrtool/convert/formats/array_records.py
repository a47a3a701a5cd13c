"""ArrayRecord files: payloads as they are, of which TFDS and Grain read any by its number."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tfrtool.convert.formats.array_reader import library, read_parts
from tfrtool.convert.formats.registry import Content, Format, Piece, Put, Scan
from tfrtool.convert.formats.tfds_texts import tfds_texts
from tfrtool.errors import SourceError, WriteError
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.records.framing import Fault, FaultKind

_WRITING = "group_size:1"
"""Each record in a chunk of its own, as TFDS 4.9.10 writes them: one is read without others."""

_PLACE = re.compile(r"\bchunk at (\d{1,18})\b")
"""Where a message of the library says that a chunk starts, in bytes."""

_MOST_FAULTS = 1000
"""Of a file; each costs as much as opening it."""


class ArrayRecordFormat(Format):
    """Files of the library ``array_record``, named as TFDS names them."""

    name = "arrayrecord"
    own_names = re.compile(r"\.array_?records?(-\d{5,}-of-\d{5,})?$", re.IGNORECASE)
    magic = bytes.fromhex("83af70d10d884a3f 0000000000000000 4000000000000000")
    """The header of Riegeli's first block (riegeli/records/block.h)."""

    file_name = "{dataset}-{split}.array_record-{index:05d}-of-{count:05d}"
    payloads = True

    def scan(self, path: Path) -> Scan:
        """Read a file through; records of damaged chunks are faults."""
        fold, marks, faults = ColumnsFold(), [(0, 0)], list[Fault]()
        rows = size = 0
        for payloads, following, reason in read_parts(path, 0):
            rows, size = rows + len(payloads), size + sum(map(len, payloads))
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

    def read(self, piece: Piece, content: Content) -> Iterator[list[bytes]]:  # noqa: ARG002
        """Yield its payloads; what is damaged is no row."""
        left = piece.rows
        for payloads, *_ in read_parts(piece.path, piece.start + piece.skip):
            yield payloads[:left]
            left -= min(left, len(payloads))
            if not left:
                return
        raise SourceError("was changed while it was read", path=piece.path)

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> Iterator[Put]:  # noqa: ARG002
        """Give a file to write."""
        try:
            writer = library().ArrayRecordWriter(str(path), _WRITING)
            try:

                def put(payloads: Sequence[bytes]) -> None:
                    for payload in payloads:
                        writer.write(payload)

                yield put
            finally:
                writer.close()
        except RuntimeError as error:
            raise WriteError("can't be written", path=path, found=str(error)[:300]) from error

    def beside(self, content: Content, info: DatasetInfo) -> Mapping[str, str]:
        """Return what makes the files a dataset of TFDS."""
        return tfds_texts(content, info, "array_record")
