"""Formats of payloads, as they are: TFRecord, and ArrayRecord, which is read at random.

Columns are read of them, and TFDS (tensorflow-datasets 4.9.10) reads them.
"""

import abc
import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from tfrtool.convert.formats.array_reader import library, read_parts
from tfrtool.convert.formats.registry import Content, Format, Mark, Put, Scan
from tfrtool.errors import SourceError, WriteError
from tfrtool.examples.arrow.columns import Column, Form
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.tfds_metadata import (
    DATASET_INFO,
    FEATURES,
    DatasetInfo,
    Json,
    connector,
    dimensions,
)
from tfrtool.inspection.rows.batches import decode_records, in_batches
from tfrtool.records.compression import Compression, detect_compression, starts_record
from tfrtool.records.count import as_error
from tfrtool.records.crc import masked_crc32c
from tfrtool.records.framing import Fault, FaultKind, Record, frame
from tfrtool.records.reader import read_records
from tfrtool.records.stream import open_shard

_WRITING = "group_size:1"
"""Each record in a chunk of its own, as TFDS 4.9.10 writes them: one is read without others."""

_PLACE = re.compile(r"\bchunk at (\d{1,18})\b")
"""Where a message of the library says that a chunk starts, in bytes."""

_MOST_FAULTS = 1000
"""Of a file; each costs as much as opening it."""


class PayloadFormat(Format):
    """Files of payloads, which with what is beside them are a dataset of TFDS."""

    payloads = True
    tfds_name: ClassVar[str]  # of the format

    @abc.abstractmethod
    def read(
        self, path: Path, mark: Mark, tell: Callable[[Fault], None] = lambda _: None
    ) -> Iterator[list[Record]]:
        """Yield records, and tell of what is damaged, which is no row."""

    def scan(self, path: Path) -> Scan:
        """Read a file through, and check all of it."""
        fold, marks, faults = ColumnsFold(), list[Mark](), list[Fault]()
        rows = size = 0
        for records in self.read(path, Mark(), faults.append):
            if records:
                marks.append(Mark(rows, records[0].offset, records[0].index))
            payloads = [record.payload for record in records]
            rows, size = rows + len(payloads), size + sum(map(len, payloads))
            fold.add(payloads)
        return Scan(
            path=path,
            rows=rows,
            bytes=size,
            marks=marks or [Mark()],
            content=Content(columns=fold.columns()),
            fold=fold,
            faults=tuple(faults),
        )

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

    def beside(self, content: Content, info: DatasetInfo) -> Mapping[str, str]:
        """Return class names, features.json and dataset_info.json; nothing if TFDS reads no such.

        TFDS reads records without the features that it can't describe.
        """
        columns = content.columns
        if columns.kind is not PayloadKind.EXAMPLE:
            return {}
        texts = {
            f"{name.replace('/', '_')}.labels.txt": "".join(f"{one}\n" for one in names)
            for name, names in content.class_names.items()
        }
        described = info.to_json() | {"fileFormat": self.tfds_name}
        if not info.image_feature or not info.label_feature:
            del described["supervisedKeys"]
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
    own_names = re.compile(r"\.tfrecord", re.IGNORECASE)  # numbers and a compression may follow
    file_name = "{dataset}-{split}.tfrecord-{index:05d}-of-{count:05d}"

    def starts(self, head: bytes) -> bool:
        """Return whether bytes start with a record, compressed or not."""
        return starts_record(head)

    def scan(self, path: Path) -> Scan:
        """Read a shard through; a `ShardError` if it is something else."""
        scan = super().scan(path)
        if [fault.kind for fault in scan.faults] == [FaultKind.NOT_TFRECORD]:
            raise as_error(path, scan.faults[0])
        faults = tuple(fault for fault in scan.faults if fault.kind is not FaultKind.EMPTY)
        with open_shard(path) as file:
            plain = detect_compression(file) is Compression.NONE
        return replace(scan, faults=faults, marks=scan.marks if plain else (Mark(),))

    def read(
        self, path: Path, mark: Mark, tell: Callable[[Fault], None] = lambda _: None
    ) -> Iterator[list[Record]]:
        """Yield records, and tell of what is damaged, which is no row."""
        with open_shard(path) as file:
            file.seek(mark.start)
            yield from in_batches(read_records(file), tell)

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> Iterator[Put]:  # noqa: ARG002
        """Give a shard to write."""
        with path.open("xb", buffering=1 << 20) as file:
            yield lambda payloads: file.writelines(map(frame, payloads))


class ArrayRecordFormat(PayloadFormat):
    """Files of the library ``array_record``, named as TFDS names them."""

    name, tfds_name = "arrayrecord", "array_record"
    own_names = re.compile(r"\.array_?records?(-\d{5,}-of-\d{5,})?$", re.IGNORECASE)
    magic = bytes.fromhex("83af70d10d884a3f 0000000000000000 4000000000000000")
    """The header of Riegeli's first block (riegeli/records/block.h)."""

    file_name = "{dataset}-{split}.array_record-{index:05d}-of-{count:05d}"

    def read(
        self, path: Path, mark: Mark, tell: Callable[[Fault], None] = lambda _: None
    ) -> Iterator[list[Record]]:
        """Yield payloads as records, whose offsets nobody knows, and tell of damaged chunks."""
        first = damaged = 0
        for payloads, reason in read_parts(path, mark.record):
            numbered = enumerate(payloads, start=first)
            yield [Record(number, 0, one, masked_crc32c(one)) for number, one in numbered]
            first += len(payloads) + bool(reason)
            if reason:
                place, record = _PLACE.search(reason), mark.record + first - 1
                offset, kind = int(place[1]) if place else 0, FaultKind.PAYLOAD_CRC
                tell(Fault(kind=kind, offset=offset, record=record, message=reason))
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
            raise WriteError("can't be written", path=path, found=str(error)[:300]) from error
