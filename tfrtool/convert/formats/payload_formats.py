"""Formats of payloads, as they are: TFRecord, and ArrayRecord, which is read at random.

TFDS (tensorflow-datasets 4.9.10) reads both.
"""

import abc
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from tfrtool.convert.formats.array_reader import library, read_parts
from tfrtool.convert.formats.format_specs import FORMATS
from tfrtool.convert.formats.record_format import Content, Format, ReadPosition, Scan, WriteBatch
from tfrtool.errors import WriteError, reason_of
from tfrtool.examples.arrow.columns import Column, DecodedColumns
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.arrow.messages import MessageColumns
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.fields import Struct
from tfrtool.examples.objects.record_features import TFDS_OBJECTS
from tfrtool.examples.tfds_metadata import (
    LABEL_MAP,
    DatasetInfo,
    Json,
    connector,
    dimensions,
    labels_file,
)
from tfrtool.features.conformed_rows import table_rows
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.schema_files import SchemaFields, described_by_tfds
from tfrtool.features.tfds_tree import tfds_of_tree, tree_of_tfds
from tfrtool.inspection.rows.batches import BATCH_BYTES, BATCH_RECORDS, decode_records
from tfrtool.records.compression import (
    Compression,
    detect_compression,
    named_compression,
)
from tfrtool.records.count import as_error
from tfrtool.records.frames import bytes_of, joined_batches
from tfrtool.records.framing import Fault, FaultKind, Record, masked_crc32c
from tfrtool.records.payloads import payloads_of
from tfrtool.records.reader import RecordReader
from tfrtool.records.stream import open_shard
from tfrtool.records.writer import ShardWriter
from tfrtool.storage.remote_path import AnyPath
from tfrtool.writing.job_report import dataset_texts

_WRITING = "group_size:1"
"""Each record in a chunk of its own, as TFDS 4.9.10 writes them: one is read without others."""

_PLACE = re.compile(r"\bchunk at (\d{1,18})\b")
"""Where a message of the library says that a chunk starts, in bytes."""


class PayloadFormat(Format):
    """Files of payloads, which with their metadata are a dataset of TFDS."""

    tfds_name: ClassVar[str]

    def __init__(self, decoded: DecodedColumns | None = None) -> None:
        """Take the columns to decode payloads to, where they are not a feature each."""
        self.decoded = decoded

    @abc.abstractmethod
    def read(
        self,
        path: AnyPath,
        position: ReadPosition,
        on_fault: Callable[[Fault], None] = lambda _: None,
    ) -> Iterator[Sequence[Record]]:
        """Yield records, and report damaged ones, which are not rows."""

    def scan(self, path: AnyPath) -> Scan:
        """Read a file through; each batch that is read becomes a position."""
        fold, positions, faults = ColumnsFold(), list[ReadPosition](), list[Fault]()
        rows = size = unknown = 0
        for records in filter(None, self.read(path, ReadPosition(), faults.append)):
            positions.append(ReadPosition(rows, records[0].offset, records[0].index))
            payloads = payloads_of(records)
            if isinstance(self.decoded, MessageColumns):
                unknown += sum(map(self.decoded.unknown_bytes, payloads))
            else:
                fold.add(payloads)
            rows += len(payloads)
            size += bytes_of(records)
        note = None
        if isinstance(self.decoded, MessageColumns):
            note = self.decoded.unknown_note(unknown)
        return Scan(
            path=path,
            rows=rows,
            bytes=size,
            positions=positions or [ReadPosition()],
            content=Content(columns=self.decoded or fold.table_columns()),
            notes=() if note is None else (note,),
            fold=fold,
            faults=tuple(fault for fault in faults if fault.kind is not FaultKind.EMPTY),
        )

    def decode(
        self,
        rows: Sequence[Record],
        content: Content,
        path: AnyPath,
        first: int,  # noqa: ARG002
    ) -> Iterator[pa.RecordBatch | Fault]:
        """Yield payloads as record batches, and a fault for each that isn't such a row."""
        native, faults = content.native or content.columns, list[Fault]()
        step = min(native.batch_records, content.columns.batch_records)
        for start in range(0, len(rows), step):
            records = rows[start : start + step]
            for batch in decode_records(path, records, native, faults.append, exact=content.exact):
                table, index = batch.table, batch.records[0].index
                if native == content.columns:
                    yield table
                elif isinstance(content.columns, FeatureColumns):
                    yield table_rows(table, content.columns, index, exact=content.exact)
                else:
                    yield table.cast(content.schema)
        yield from faults

    def metadata(self, content: Content, info: DatasetInfo) -> Mapping[str, str]:
        """Return class names, features.json and dataset_info.json; nothing if TFDS reads no such.

        TFDS reads records without the features that it can't describe. Times, decimals and tensors
        are described in a schema, from which tables get them back.
        """
        columns = content.columns
        if columns.kind is not PayloadKind.EXAMPLE:
            return {}
        texts = dict[str, str]()
        for name, names in content.class_names.items():
            file = labels_file(name, "-" if name.startswith(TFDS_OBJECTS) else "_")
            texts[file] = "".join(f"{one}\n" for one in names)
        for name in (LABEL_MAP, *(labels_file(one, "-") for one in columns.names if "/" in one)):
            if name in content.class_files:
                texts[name] = content.class_files[name]
        if isinstance(columns, FeatureColumns):
            inferred, schema = _described(columns.root, content.tfds)
        else:
            features = {
                name: _feature(name, one, content)
                for name, one in zip(columns.names, columns.columns, strict=False)
                if one.dtype is not None
            }
            inferred = connector("FeaturesDict", featuresDict={"features": features})
            schema = {}
        described = info.to_json() | {"fileFormat": self.tfds_name}
        return dataset_texts(texts, content.tfds or inferred, described) | schema


def _described(root: Struct, tfds: Mapping[str, Any] | None) -> tuple[Json, dict[str, str]]:
    """Return a tree as features.json, and the schema.json with what features.json can't say."""
    with contextlib.suppress(ValueError):
        if tfds is not None and tree_of_tfds(tfds)[0] == root:
            return tfds_of_tree(root), {}
    return tfds_of_tree(described_by_tfds(root)), SchemaFields(fields=root.fields).texts()


def _feature(name: str, column: Column, content: Content) -> Json:
    if name in content.images:
        return connector("Image", image={"dtype": "uint8", "shape": dimensions(-1, -1, 3)})
    if name in content.class_names:
        count = str(len(content.class_names[name]))
        return connector("ClassLabel", classLabel={"numClasses": count})
    scalar = connector("Scalar", column.dtype.value if column.dtype else None)
    if column.is_text:
        scalar = connector("Text", text={})
    if column.is_scalar:
        return scalar
    return connector("Sequence", sequence={"feature": scalar, "length": "-1"})


class TfrecordFormat(PayloadFormat):
    """Shards, named as TFDS names them."""

    spec = FORMATS["tfrecord"]
    tfds_name = "tfrecord"

    def scan(self, path: AnyPath) -> Scan:
        """Read a shard through; a `ShardError` if it is something else."""
        scan = super().scan(path)
        for fault in scan.faults[:1]:
            if fault.kind is FaultKind.NOT_TFRECORD:
                raise as_error(path, fault)
        with open_shard(path) as file:
            is_compressed = detect_compression(file) is not Compression.NONE
        return replace(scan, positions=[ReadPosition()]) if is_compressed else scan

    def read(
        self,
        path: AnyPath,
        position: ReadPosition,
        on_fault: Callable[[Fault], None] = lambda _: None,
    ) -> Iterator[Sequence[Record]]:
        """Yield records, and report damaged ones, which are not rows."""
        with open_shard(path) as file:
            file.seek(position.start)
            pieces = RecordReader(file).pieces()
            yield from joined_batches(pieces, on_fault, BATCH_BYTES, BATCH_RECORDS)

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> Iterator[WriteBatch]:  # noqa: ARG002
        """Give a shard to write, compressed as the ending of its name says."""
        with ShardWriter(path, named_compression(path) or Compression.NONE) as writer:
            yield writer.write_payloads


class ArrayRecordFormat(PayloadFormat):
    """Files of the library ``array_record``, named as TFDS names them."""

    spec = FORMATS["arrayrecord"]
    tfds_name = "array_record"

    def read(
        self,
        path: AnyPath,
        position: ReadPosition,
        on_fault: Callable[[Fault], None] = lambda _: None,
    ) -> Iterator[Sequence[Record]]:
        """Yield payloads as records without offsets, and report damaged chunks."""
        first = 0
        for payloads, reason in read_parts(path, position.record):
            numbered = enumerate(payloads, start=first)
            yield [Record(number, 0, one, masked_crc32c(one)) for number, one in numbered]
            first += len(payloads) + bool(reason)
            if reason:
                match, record = _PLACE.search(reason), position.record + first - 1
                offset, kind = int(match[1]) if match else 0, FaultKind.PAYLOAD_CRC
                on_fault(Fault(kind=kind, offset=offset, record=record, message=reason))

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> Iterator[WriteBatch]:  # noqa: ARG002
        """Give a file to write."""
        try:
            with contextlib.closing(library().ArrayRecordWriter(str(path), _WRITING)) as writer:
                yield lambda payloads: _write_all(writer.write, payloads)
        except RuntimeError as error:
            raise WriteError(f"can't be written: {reason_of(error)}", path=path) from error


def _write_all(write: Callable[[bytes], None], payloads: Sequence[bytes]) -> None:
    for payload in payloads:
        write(payload)
