"""Shards that come from shards, one from one: with changes to their records, or as they are."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from tfrtool.convert.pipeline.record_pool import check_unchanged, read_counted, shard_stamp
from tfrtool.errors import WriteError, os_errors_as
from tfrtool.examples.dataset_files import DatasetFiles
from tfrtool.examples.tfds_metadata import REPORT
from tfrtool.records.count import count_shard
from tfrtool.records.tally import Tally
from tfrtool.storage.atomic_files import linked
from tfrtool.storage.opening import open_regular
from tfrtool.storage.progress import RECORDS, count_work
from tfrtool.storage.remote_path import RemotePath
from tfrtool.writing.job import FileTask
from tfrtool.writing.job_report import Faults, FinishedFile, ShardReport, Written
from tfrtool.writing.publish import listed_shards, read_object


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask(FileTask):
    """A shard that is made of another one: its records changed, in their order; or all as it is.

    Attributes:
        source: the other shard.
        stamp: its size and time of change (ns).
        known: what is noted of a shard of a store that is copied there, unread.
    """

    source: Path
    stamp: tuple[int, int]
    known: FinishedFile | None = None

    @property
    def inputs(self) -> object:
        """What the shard depends on, for the digest of a plan."""
        return str(self.source), self.stamp

    def copy_source(self) -> tuple[Path, FinishedFile] | None:
        """Return the shard that this is a copy of, if it need not be read."""
        if self.known is None:
            return None
        check_unchanged(self.source, self.stamp)
        return self.source, self.known

    def write(self, path: Path) -> Written:
        """Link the shard, and read it: damage is an error."""
        self._link(path)
        tally = Tally()
        for _ in read_counted(self.source, tally, Faults(stop=True)):
            pass
        count_work(tally.records, RECORDS)
        check_unchanged(self.source, self.stamp)
        return Written(tally=tally, read=tally)

    def _link(self, path: Path) -> None:
        """Give the file its name; copy it where the file system has no such names."""
        with os_errors_as(WriteError, path, "can't be written"):
            if not linked(self.source, path):
                with open_regular(self.source) as old, path.open("xb") as new:
                    shutil.copyfileobj(old, new, 1024 * 1024)


def one_to_one(files: DatasetFiles) -> list[ShardTask]:
    """Return a `ShardTask` for each shard of datasets."""
    listed = listed_shards(read_object(files.folders[0] / REPORT))
    tasks: list[ShardTask] = []
    for split, some in files.splits.items():
        for path, expected in some.shards.items():
            said, known, records, size = listed.get(path.name), None, expected, path.stat().st_size
            if isinstance(path, RemotePath) and said and said.get("bytes") == size:
                told = str(said.get("payload_digest"))
                digest = int(told, 16) if re.fullmatch("[0-9a-f]{16}", told) else None
                known = FinishedFile(
                    shard=ShardReport(
                        path=path.name,
                        records=records or 0,
                        bytes=size,
                        payload_bytes=said.get("payload_bytes"),
                        sha256=said.get("sha256"),
                        crc32c=said.get("crc32c"),
                        payload_digest=None if digest is None else told,
                    ),
                    split=split,
                    digest=digest,
                    read=records or 0,
                    read_digest=digest,
                )
            if known is None or records is None:
                records, known = count_shard(path).records, None
            tasks.append(
                ShardTask(
                    split=split,
                    source=path,
                    stamp=shard_stamp(path),
                    size=size,
                    records=records,
                    known=known,
                )
            )
    return tasks
