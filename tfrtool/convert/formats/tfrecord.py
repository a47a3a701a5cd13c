"""TFRecord files: payloads as they are."""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tfrtool.convert.formats.payload_format import PayloadFormat
from tfrtool.convert.formats.registry import Content, Mark, Put, Scan
from tfrtool.inspection.rows.batches import in_batches
from tfrtool.records.compression import Compression, detect_compression, starts_record
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, FaultKind, Record, frame
from tfrtool.records.reader import read_records
from tfrtool.records.stream import open_shard


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
