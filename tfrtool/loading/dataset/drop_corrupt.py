"""Damaged records: naming the one that stopped a run, and leaving out all of them beforehand."""

from __future__ import annotations

import os
import re
import shlex
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfrtool.errors import DatasetError, TfrtoolError, WriteError, os_reason
from tfrtool.examples.tfds_metadata import read_dataset_info
from tfrtool.loading.dataset.corrupt_report import LeftOut, LostBytes, OnCorrupt, SalvageReport
from tfrtool.loading.dataset.dataset import Dataset, Split, open_dataset, shard_lengths
from tfrtool.loading.dataset.record_check import RecordCheck
from tfrtool.loading.pipeline.decode import full_image, parser
from tfrtool.records.compression import Compression
from tfrtool.records.count import as_error
from tfrtool.records.dataset_folders import find_folders
from tfrtool.records.framing import FRAME_SIZE, Fault, FaultKind, Record
from tfrtool.records.reader import ReadOptions, RecordReader
from tfrtool.records.repair import LostRange
from tfrtool.records.stream import open_shard
from tfrtool.storage.locations import as_path

__all__ = ["READ_ERRORS", "name_damage", "salvage"]

READ_ERRORS = (tf.errors.DataLossError, tf.errors.InvalidArgumentError, UnicodeDecodeError)
"""What TensorFlow raises on records that it can't use; the last where it quotes one that is no
text in its message."""

_TYPES = {Compression.NONE: "", Compression.GZIP: "GZIP", Compression.ZLIB: "ZLIB"}
_BATCH = 256
"""Positions that come from tf.data at a time; one by one they would cost as much as an image."""

_GRAPH_NODE = re.compile(r"\{\{.*?\}\}\s*|\s*\[Op:\w+\].*", re.DOTALL)


def name_damage(dataset: Dataset, splits: Iterable[Split], error: Exception) -> TfrtoolError:
    """Find the record that made TensorFlow fail, and return an error of ours that names it.

    TensorFlow says "corrupted record at N" without the file, and of an image that doesn't decode
    nothing but that. The first record that can't be used is named; other errors are passed on in
    words.

    Args:
        dataset: what was read.
        splits: those of its splits that were.
        error: what TensorFlow raised, one of `READ_ERRORS`.

    Returns:
        A CorruptShardError for damage, a DatasetError for whole records that can't be used; to
        be raised from ``error``.
    """
    shards = [(path, split.compression) for split in splits for path in split.shards]
    check = RecordCheck(dataset)
    totals = []
    for path, compression in shards:
        total = 0
        for item in _read(path, compression):
            if isinstance(item, Fault):
                if item.kind is not FaultKind.EMPTY:
                    return as_error(path, item, in_dataset=True)
            elif (problem := check.problem(item.payload)) is not None:
                return _unusable(path, item, problem)
            else:
                total += 1
        totals.append(total)
    for (path, compression), total in zip(shards, totals, strict=True):
        for position in _undecodable(dataset, path, compression, total):
            records = (item for item in _read(path, compression) if isinstance(item, Record))
            for number, record in enumerate(records):
                if number == position:
                    return _unusable(path, record, _decoding_problem(dataset, record))
    return DatasetError(f"TensorFlow can't go on: {_words(error)}", path=dataset.directory)


def _unusable(path: Path, record: Record, problem: str) -> DatasetError:
    return DatasetError(
        problem,
        path=path,
        record=record.index,
        offset=record.offset,
        hint="tfrtool train --on-corrupt skip leaves out what can't be used, and tfrtool inspect "
        f"shard {shlex.quote(str(path))} --record {record.index} shows it",
    )


def salvage(
    directory: str | os.PathLike[str],
    scratch: str | os.PathLike[str],
    *,
    splits: Collection[str] | None = None,
    decode: bool = True,
    on_shard: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[Dataset, SalvageReport]:
    """Open a dataset without the records that can't be trained on, and with all others.

    Each shard is read once, CRCs and records are checked, and shards with damage are written
    again, without it, to another directory. Nothing in the dataset's own is changed.

    Args:
        directory: where the shards are.
        scratch: an empty directory for the new shards; the caller's, to be deleted after training.
        splits: those that are wanted; None for all.
        decode: whether images are decoded, too, by all cores, which is most of the work. Without,
            an image that doesn't decode stops the training that comes to it.
        on_shard: called after each shard with their number so far and in all.

    Returns:
        The dataset, with the splits that were asked for, and what is not in it.

    Raises:
        UsageError: there is no such split.
        DatasetError: the directory holds no dataset, or a split has no record that can be used.
        ShardError: a file can't be read.
        WriteError: a shard can't be written.
    """
    scratch, dataset = as_path(scratch), open_dataset(directory, OnCorrupt.SKIP)
    wanted = [dataset.split(name) for name in (dataset.splits if splits is None else splits)]
    directory = dataset.directory
    lengths = shard_lengths(find_folders(directory), read_dataset_info(directory), OnCorrupt.SKIP)
    total = sum(len(lengths[split.name]) for split in wanted)
    done, findings, saved = 0, [], {}
    for split in wanted:
        shards = []
        for path, expected in lengths[split.name].items():
            # Shards of two splits, in a folder each, may have the same name.
            work = _Shard(dataset, split.compression, path, scratch / str(done) / path.name)
            finding = work.missing() if not path.is_file() else work.salvage(decode=decode)
            findings.append(finding.against(expected))
            shards.append(finding)
            done += 1
            on_shard(done, total)
        kept = [shard for shard in shards if shard.records]
        if not kept:
            raise DatasetError(
                f"split {split.name!r} has no record that can be used", path=directory
            )
        saved[split.name] = replace(
            split,
            shards=tuple(shard.path for shard in kept),
            lengths=tuple(shard.records for shard in kept),
        )
    counts = [length for split in wanted for length in lengths[split.name].values()]
    report = SalvageReport(
        records=sum(split.records for split in saved.values()),
        left_out=tuple(one for finding in findings for one in finding.left_out),
        lost=tuple(one for finding in findings for one in finding.lost),
        expected=None if None in counts else sum(length or 0 for length in counts),
        copied=sum(finding.copied for finding in findings),
    )
    return replace(dataset, splits=saved), report


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """What became of a shard.

    Attributes:
        shard: the file in the dataset.
        path: the file to read: the same, or a copy without the damage.
        records: how many records it has.
        left_out: what the shard had beside them.
        lost: its bytes that are in no record.
    """

    shard: Path
    path: Path
    records: int
    left_out: tuple[LeftOut, ...] = ()
    lost: tuple[LostBytes, ...] = ()

    @property
    def copied(self) -> bool:
        return self.records > 0 and self.path != self.shard

    def against(self, expected: int | None) -> _Finding:
        """Add to what was left out that records are missing without a trace."""
        if expected is None or self.left_out or self.records == expected:
            return self
        message = f"expected {expected} records by the metadata, found {self.records}"
        fault = Fault(kind=FaultKind.COUNT, offset=0, record=None, message=message)
        return replace(self, left_out=(LeftOut(path=self.shard, fault=fault),))


@dataclass(slots=True)
class _Shard:
    """The work on one shard.

    Attributes:
        dataset: it is one of its shards.
        compression: of the split.
        path: the shard.
        copy: where to write it again, if need be.
    """

    dataset: Dataset
    compression: Compression
    path: Path
    copy: Path
    _faults: list[Fault] = field(default_factory=list)
    _lost: list[LostBytes] = field(default_factory=list)
    _kept: array[int] = field(default_factory=lambda: array("q"))  # where the headers start

    def missing(self) -> _Finding:
        """Return that there is no such file."""
        message = "the shard is missing"
        fault = Fault(kind=FaultKind.MISSING_SHARD, offset=0, record=None, message=message)
        return self._finding(self.path, [fault])

    def salvage(self, *, decode: bool) -> _Finding:
        """Read, check, and write again if anything is wrong."""
        self._scan(RecordCheck(self.dataset, images=decode))
        path = self.path
        if self._faults and self._kept:
            path = self._write()
        if decode and self._kept:
            bad = set(_undecodable(self.dataset, path, self.compression, len(self._kept)))
            if bad:
                self._leave_out(bad)
                path = self._write() if self._kept else path
        return self._finding(path, sorted(self._faults, key=lambda fault: fault.offset))

    def _finding(self, path: Path, faults: list[Fault]) -> _Finding:
        return _Finding(
            shard=self.path,
            path=path,
            records=len(self._kept),
            left_out=tuple(LeftOut(path=self.path, fault=fault) for fault in faults),
            lost=tuple(self._lost),
        )

    def _scan(self, check: RecordCheck) -> None:
        end = 0
        with _reading(self.path, self.compression) as reader:
            for item in reader.read():
                if isinstance(item, Fault):
                    if item.kind is not FaultKind.EMPTY:
                        self._faults.append(item)
                    continue
                self._lose(end, item.offset)
                end = item.offset + FRAME_SIZE + len(item.payload)
                problem = check.problem(item.payload)
                if problem is None:
                    self._kept.append(item.offset)
                else:
                    self._faults.append(_fault(item, problem))
            self._lose(end, reader.find_end())

    def _lose(self, start: int, end: int) -> None:
        if end > start:
            lost = LostRange(offset=start, bytes=end - start)
            self._lost.append(LostBytes(path=self.path, range=lost))

    def _leave_out(self, positions: Collection[int]) -> None:
        offsets = {self._kept[position] for position in positions}
        for record in self._records(offsets):
            self._faults.append(_fault(record, _decoding_problem(self.dataset, record)))
        self._kept = array("q", (offset for offset in self._kept if offset not in offsets))

    def _records(self, offsets: Collection[int]) -> Iterator[Record]:
        for item in _read(self.path, self.compression):
            if isinstance(item, Record) and item.offset in offsets:
                yield item

    def _write(self) -> Path:
        offsets = frozenset(self._kept)
        try:
            self.copy.parent.mkdir(parents=True, exist_ok=True)
            with tf.io.TFRecordWriter(os.fspath(self.copy), _TYPES[self.compression]) as writer:
                for record in self._records(offsets):
                    writer.write(record.payload)
        except OSError as error:
            raise WriteError(f"can't be written: {os_reason(error)}", path=self.copy) from error
        except tf.errors.OpError as error:
            raise WriteError(f"can't be written: {_words(error)}", path=self.copy) from error
        return self.copy


def _fault(record: Record, message: str) -> Fault:
    return Fault(kind=FaultKind.PARSE, offset=record.offset, record=record.index, message=message)


@contextmanager
def _reading(path: Path, compression: Compression) -> Iterator[RecordReader]:
    with open_shard(path) as file:
        yield RecordReader(file, ReadOptions(compression=compression))


def _read(path: Path, compression: Compression) -> Iterator[Record | Fault]:
    with _reading(path, compression) as reader:
        yield from reader.read()


def _undecodable(
    dataset: Dataset, path: Path, compression: Compression, total: int
) -> Iterator[int]:
    """Yield the positions of the records that TensorFlow can't parse or decode, in order.

    Args:
        dataset: tells how.
        path: a shard whose records are whole.
        compression: of that shard.
        total: how many records it has.
    """
    parse = parser(dataset)

    def decode(position: Any, record: Any) -> tuple[Any, Any]:
        return position, tf.size(full_image(dataset, parse(record)))

    records = tf.data.TFRecordDataset(os.fspath(path), _TYPES[compression])
    # An element that fails is dropped, and no other, for the failure is that of one call of the
    # map; which one it was shows in the positions that are left.
    decoded = records.enumerate().map(decode, num_parallel_calls=os.cpu_count() or 1)
    positions = decoded.ignore_errors().map(lambda position, _: position).batch(_BATCH)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.deterministic = True
    following = 0
    for batch in positions.with_options(options):
        for position in batch.numpy().tolist():
            yield from range(following, position)
            following = position + 1
    yield from range(following, total)


def _decoding_problem(dataset: Dataset, record: Record) -> str:
    """Return what TensorFlow says of one record."""
    what = f"the image in {dataset.image_feature!r} does not decode"
    try:
        full_image(dataset, parser(dataset)(tf.constant(record.payload)))
    except READ_ERRORS as error:
        return f"{what}: {_words(error)}"
    return what


def _words(error: Exception) -> str:
    """Return the first line of what TensorFlow says, without the names of its graph's nodes."""
    lines = _GRAPH_NODE.sub("", str(error)).strip().splitlines()
    # What comes before an error of Python's names the dataset's stages, and the error's class.
    return lines[0].rpartition("ValueError: ")[2][:300] if lines else type(error).__name__
