"""A file of records that are copied as they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from tfrtool.convert.pipeline.job import FileTask
from tfrtool.convert.pipeline.job_report import Faults, Written
from tfrtool.convert.pipeline.segments import Segment, read_frames
from tfrtool.convert.pipeline.shard_sink import ShardSink
from tfrtool.records.compression import Compression

_FORMAT = 1
"""To be counted up when the same task is to give other bytes than before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask(FileTask):
    """Copies stretches of shards, one after the other; each record's CRCs are checked."""

    segments: Sequence[Segment]
    compression: Compression
    stop: bool

    @property
    def fingerprint(self) -> str:
        """A digest of the records and the compression."""
        facts = (_FORMAT, self.compression.value, [one.identity for one in self.segments])
        return blake2b(repr(facts).encode(), digest_size=16).hexdigest()

    def write(self, path: Path) -> Written:
        """Copy them."""
        faults = Faults(stop=self.stop)
        with ShardSink(path, self.compression) as sink:
            for segment in self.segments:
                for frames in read_frames(segment, faults.add):
                    sink.write_frames(frames.data, frames.keys)
        return sink.written(faults)
