"""Formats of payloads, as they are: TFRecord, and ArrayRecord, which is read at random.

Columns are read of them, and TFDS (tensorflow-datasets 4.9.10) reads them.
"""

import abc
import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from tfrtool.convert.formats.array_reader import library, read_parts
from tfrtool.convert.formats.registry import Content, Format, Put, ReadPosition, Scan
from tfrtool.engines.engine import Workers
from tfrtool.engines.split_shards import later, map_folds
from tfrtool.errors import SourceError, WriteError, reason_of
from tfrtool.examples.arrow.columns import Column, Form
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.tfds_metadata import (
    DATASET_INFO,
    FEATURES,
    LABEL_MAP,
    DatasetInfo,
    Json,
    connector,
    dimensions,
    labels_file,
)
from tfrtool.inspection.rows.batches import (
    decode_records,
    in_batches,
)
from tfrtool.records.compression import (
    Compression,
    detect_compression,
    named_compression,
    starts_record,
)
from tfrtool.records.count import as_error
from tfrtool.records.crc import masked_crc32c
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.records.reader import read_records
from tfrtool.records.stream import open_shard
from tfrtool.records.writer import ShardWriter
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.progress import OnCounts

_WRITING = "group_size:1"
"""Each record in a chunk of its own, as TFDS 4.9.10 writes them: one is read without others."""

_PLACE = re.compile(r"\bchunk at (\d{1,18})\b")
"""Where a message of the library says that a chunk starts, in bytes."""

_MOST_FAULTS = 1000
"""Of a file; each costs as much as opening it."""


class PayloadScan:
    """A fold over the payloads of a file. Each batch that is read becomes a position."""

    def __init__(self, path: Path, *, part: bool = False) -> None:  # noqa: ARG002
        """Begin with nothing."""
        self.faults = CappedList[Fault](sys.maxsize)
        self._path, self._fold = path, ColumnsFold()
        self._positions = list[ReadPosition]()
        self._rows = self._size = 0

    def read(self, items: Iterable[Record | Fault]) -> None:
        """Add what is read."""
        self.add(in_batches(items, self.faults.add))

    def add(self, batches: Iterable[list[Record]]) -> None:
        """Add records."""
        for records in filter(None, batches):
            self._positions.append(ReadPosition(self._rows, records[0].offset, records[0].index))
            payloads = [record.payload for record in records]
            self._rows += len(payloads)
            self._size += sum(map(len, payloads))
            self._fold.add(payloads)

    def merge(self, other: "PayloadScan", index: int) -> bool:
        """Add a fold over a part, as `ShardFold` has it."""
        if not self._fold.has_room(other._fold):
            return False
        self._positions += [
            ReadPosition(self._rows + row, start, index + record)
            for row, start, record in other._positions
        ]
        self._rows += other._rows
        self._size += other._size
        self._fold.merge(other._fold)
        self.faults.merge(later(other.faults, index))
        return True

    def found(self) -> Scan:
        """Return what was found."""
        return Scan(
            path=self._path,
            rows=self._rows,
            bytes=self._size,
            positions=self._positions or [ReadPosition()],
            content=Content(columns=self._fold.columns()),
            fold=self._fold,
            faults=tuple(self.faults.kept),
        )


class ShardScan(PayloadScan):
    """A fold over a shard; a `ShardError` if it is something else."""

    def found(self) -> Scan:
        """Return what was found. A compressed shard can be read from its start alone."""
        scan = super().found()
        if [fault.kind for fault in scan.faults] == [FaultKind.NOT_TFRECORD]:
            raise as_error(scan.path, scan.faults[0])
        faults = tuple(fault for fault in scan.faults if fault.kind is not FaultKind.EMPTY)
        with open_shard(scan.path) as file:
            plain = detect_compression(file) is Compression.NONE
        return replace(scan, faults=faults, positions=scan.positions if plain else [ReadPosition()])


class PayloadFormat(Format):
    """Files of payloads, which with what is beside them are a dataset of TFDS."""

    payloads = True
    folds: ClassVar[type[PayloadScan]] = PayloadScan
    tfds_name: ClassVar[str]  # of the format

    @abc.abstractmethod
    def read(
        self, path: Path, position: ReadPosition, on_fault: Callable[[Fault], None] = lambda _: None
    ) -> Iterator[list[Record]]:
        """Yield records, and report damaged ones, which are not rows."""

    def scan(self, path: Path) -> Scan:
        """Read a file through, and check all of it."""
        fold = self.folds(path)
        fold.add(self.read(path, ReadPosition(), fold.faults.add))
        return fold.found()

    def decode(
        self,
        rows: list[Record],
        content: Content,
        path: Path,
        first: int,  # noqa: ARG002
    ) -> Iterator[pa.RecordBatch | Fault]:
        """Yield payloads as record batches, and as faults those that are no such rows."""
        faults, step = list[Fault](), content.columns.batch_records
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            for batch in decode_records(
                path, some, content.columns, faults.append, exact=content.exact
            ):
                yield batch.table
        yield from faults

    def metadata(self, content: Content, info: DatasetInfo) -> Mapping[str, str]:
        """Return class names, features.json and dataset_info.json; nothing if TFDS reads no such.

        TFDS reads records without the features that it can't describe.
        """
        columns = content.columns
        if columns.kind is not PayloadKind.EXAMPLE:
            return {}
        texts = {
            labels_file(name): "".join(f"{one}\n" for one in names)
            for name, names in content.class_names.items()
        }
        for name in (LABEL_MAP, *(labels_file(one, "-") for one in columns.names if "/" in one)):
            if name in content.class_files:
                texts[name] = content.class_files[name]
        described = info.to_json() | {"fileFormat": self.tfds_name}
        features = {
            name: _feature(name, one, content)
            for name, one in zip(columns.names, columns.columns, strict=True)
            if one.form is not Form.FEATURE
        }
        own = connector("FeaturesDict", featuresDict={"features": features})
        texts[FEATURES] = json.dumps(content.tfds or own, indent=1)
        texts[DATASET_INFO] = json.dumps(described, indent=1)
        return texts


def _feature(name: str, column: Column, content: Content) -> Json:
    if name in content.images:
        return connector("Image", image={"dtype": "uint8", "shape": dimensions(-1, -1, 3)})
    if name in content.class_names:
        count = str(len(content.class_names[name]))
        return connector("ClassLabel", classLabel={"numClasses": count})
    scalar = connector("Scalar", column.dtype.value if column.dtype else None)
    if column.form is Form.SCALAR:
        return scalar
    return connector("Sequence", sequence={"feature": scalar, "length": "-1"})


class TfrecordFormat(PayloadFormat):
    """Shards, named as TFDS names them."""

    name = tfds_name = "tfrecord"
    folds = ShardScan
    own_names = re.compile(r"\.tfrecord", re.IGNORECASE)  # numbers and a compression may follow
    file_name = "{dataset}-{split}.tfrecord-{index:05d}-of-{count:05d}"

    def starts(self, head: bytes) -> bool:
        """Return whether bytes start with a record, compressed or not."""
        return starts_record(head)

    def scans(
        self,
        paths: Sequence[Path],
        workers: Workers,
        worth: int,
        on_counts: OnCounts | None = None,
    ) -> Iterator[Scan]:
        """Look through shards, on several workers, in parts of large ones."""
        return map_folds(ShardScan, paths, workers, worth, on_counts=on_counts)

    def read(
        self, path: Path, position: ReadPosition, on_fault: Callable[[Fault], None] = lambda _: None
    ) -> Iterator[list[Record]]:
        """Yield records, and report damaged ones, which are not rows."""
        with open_shard(path) as file:
            file.seek(position.start)
            yield from in_batches(read_records(file), on_fault)

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> Iterator[Put]:  # noqa: ARG002
        """Give a shard to write, compressed as the ending of its name says."""
        with ShardWriter(path, named_compression(path) or Compression.NONE) as writer:
            yield writer.write


class ArrayRecordFormat(PayloadFormat):
    """Files of the library ``array_record``, named as TFDS names them."""

    name, tfds_name = "arrayrecord", "array_record"
    own_names = re.compile(r"\.array_?records?(-\d{5,}-of-\d{5,})?$", re.IGNORECASE)
    magic = bytes.fromhex("83af70d10d884a3f 0000000000000000 4000000000000000")
    """The header of Riegeli's first block (riegeli/records/block.h)."""

    file_name = "{dataset}-{split}.array_record-{index:05d}-of-{count:05d}"

    def read(
        self, path: Path, position: ReadPosition, on_fault: Callable[[Fault], None] = lambda _: None
    ) -> Iterator[list[Record]]:
        """Yield payloads as records without offsets, and report damaged chunks."""
        first = damaged = 0
        for payloads, reason in read_parts(path, position.record):
            numbered = enumerate(payloads, start=first)
            yield [Record(number, 0, one, masked_crc32c(one)) for number, one in numbered]
            first += len(payloads) + bool(reason)
            if reason:
                place, record = _PLACE.search(reason), position.record + first - 1
                offset, kind = int(place[1]) if place else 0, FaultKind.PAYLOAD_CRC
                on_fault(Fault(kind=kind, offset=offset, record=record, message=reason))
                damaged += 1
            if damaged > _MOST_FAULTS:
                what = f"has more than {_MOST_FAULTS:,} damaged records"
                raise SourceError(what, path=path, found=reason)

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
            raise WriteError(f"can't be written: {reason_of(error)}", path=path) from error
