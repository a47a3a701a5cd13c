"""TFRecord files: payloads as they are."""

import contextlib
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from tfrtool.convert.formats.registry import Content, Format, OnBad, Piece, Scan, in_batches
from tfrtool.convert.formats.tfds_texts import tfds_texts
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.records.compression import Compression, detect_compression, starts_record
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, FaultKind, Record, frame
from tfrtool.records.reader import read_records
from tfrtool.records.shard_sets import ShardName
from tfrtool.records.stream import open_shard

_MARK_EVERY = 256
"""Records; reading starts at the mark before the first that is wanted."""


class TfrecordFormat(Format):
    """Shards, named as TFDS names them."""

    name = "tfrecord"
    endings = (".tfrecord",)
    payloads = True
    keeps_bytes = True

    def owns(self, name: str) -> bool:
        """Return whether a name has ``.tfrecord`` in it: numbers and a compression may follow."""
        return ".tfrecord" in name.lower()

    def starts(self, head: bytes) -> bool:
        """Return whether bytes start with a record, compressed or not."""
        return starts_record(head)

    def file_name(self, dataset: str, split: str, index: int, count: int) -> str:
        """Return the name of a shard."""
        return str(ShardName(dataset=dataset, split=split, index=index, count=count))

    def scan(self, path: Path, *, columns: bool) -> Scan:
        """Read a shard through, and check all of it."""
        fold, marks, faults = ColumnsFold(), [(0, 0)], []
        rows = size = 0
        with open_shard(path) as file:
            plain = detect_compression(file) is Compression.NONE

            def payloads() -> Iterator[bytes]:
                nonlocal rows, size
                for item in read_records(file):
                    if isinstance(item, Fault):
                        faults.append(item)
                        continue
                    if plain and rows % _MARK_EVERY == 0 and rows:
                        marks.append((rows, item.offset))
                    rows, size = rows + 1, size + len(item.payload)
                    yield item.payload

            for batch in in_batches(payloads()):
                if columns:
                    fold.add(batch)
        if [fault.kind for fault in faults] == [FaultKind.NOT_TFRECORD]:
            raise as_error(path, faults[0])
        return Scan(
            path=path,
            rows=rows,
            bytes=size,
            marks=marks,
            fold=fold if columns else None,
            faults=tuple(fault for fault in faults if fault.kind is not FaultKind.EMPTY),
        )

    def read(
        self,
        piece: Piece,
        content: Content,  # noqa: ARG002
        on_bad: OnBad | None = None,  # noqa: ARG002
    ) -> Iterator[list[bytes]]:
        """Yield its payloads; what is damaged is no row."""
        with open_shard(piece.path) as file:
            file.seek(piece.start)
            whole = (item.payload for item in read_records(file) if isinstance(item, Record))
            yield from in_batches(islice(whole, piece.skip, piece.skip + piece.rows))

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> "Iterator[_FrameSink]":  # noqa: ARG002
        """Give a shard to write."""
        with path.open("xb", buffering=1 << 20) as file:
            yield _FrameSink(file)

    def beside(self, content: Content, info: DatasetInfo) -> Mapping[str, str]:
        """Return what makes the shards a dataset of TFDS."""
        return tfds_texts(content, info, "tfrecord")


class _FrameSink:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, rows: list[bytes]) -> None:
        self._file.writelines(map(frame, rows))
