"""TFRecord files: payloads as they are."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from tfrtool.convert.formats.registry import Content, Format, Piece, Put, Scan
from tfrtool.convert.formats.tfds_texts import tfds_texts
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.inspection.rows.batches import in_batches
from tfrtool.records.compression import Compression, detect_compression, starts_record
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, FaultKind, frame
from tfrtool.records.reader import read_records
from tfrtool.records.stream import open_shard


class TfrecordFormat(Format):
    """Shards, named as TFDS names them."""

    name = "tfrecord"
    own_names = re.compile(r"\.tfrecord", re.IGNORECASE)  # numbers and a compression may follow
    file_name = "{dataset}-{split}.tfrecord-{index:05d}-of-{count:05d}"
    payloads = True

    def starts(self, head: bytes) -> bool:
        """Return whether bytes start with a record, compressed or not."""
        return starts_record(head)

    def scan(self, path: Path) -> Scan:
        """Read a shard through, and check all of it."""
        fold, marks, faults = ColumnsFold(), [(0, 0)], list[Fault]()
        rows = size = 0
        with open_shard(path) as file:
            plain = detect_compression(file) is Compression.NONE
            for records in in_batches(read_records(file), faults.append):
                if plain:
                    marks.append((rows, records[0].offset))
                payloads = [record.payload for record in records]
                rows, size = rows + len(payloads), size + sum(map(len, payloads))
                fold.add(payloads)
        if [fault.kind for fault in faults] == [FaultKind.NOT_TFRECORD]:
            raise as_error(path, faults[0])
        found = tuple(fault for fault in faults if fault.kind is not FaultKind.EMPTY)
        return Scan(path=path, rows=rows, bytes=size, marks=marks, fold=fold, faults=found)

    def read(self, piece: Piece, content: Content) -> Iterator[list[bytes]]:  # noqa: ARG002
        """Yield its payloads; what is damaged is no row."""
        with open_shard(piece.path) as file:
            file.seek(piece.start)
            whole = (item for item in read_records(file) if not isinstance(item, Fault))
            wanted = islice(whole, piece.skip, piece.skip + piece.rows)
            for records in in_batches(wanted, lambda _: None):
                yield [record.payload for record in records]

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> Iterator[Put]:  # noqa: ARG002
        """Give a shard to write."""
        with path.open("xb", buffering=1 << 20) as file:
            yield lambda payloads: file.writelines(map(frame, payloads))

    def beside(self, content: Content, info: DatasetInfo) -> Mapping[str, str]:
        """Return what makes the shards a dataset of TFDS."""
        return tfds_texts(content, info, "tfrecord")
