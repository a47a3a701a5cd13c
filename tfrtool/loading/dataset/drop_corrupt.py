"""Damaged records: naming the one that stopped a run, and leaving out all of them beforehand."""

from __future__ import annotations

import os
import re
import shlex
from array import array
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import tensorflow as tf

from tfrtool.errors import DatasetError, TfrtoolError, WriteError, os_reason
from tfrtool.examples.tfds_metadata import read_dataset_info
from tfrtool.loading.dataset.classes import read_items
from tfrtool.loading.dataset.corrupt_report import DroppedRecord, DropReport, OnCorrupt
from tfrtool.loading.dataset.dataset import Dataset, Split, shard_lengths
from tfrtool.loading.dataset.record_check import RecordCheck
from tfrtool.loading.pipeline.decode import full_image, parser
from tfrtool.loading.pipeline.reading import TF_TYPES
from tfrtool.loading.pipeline.tensors import Tensor
from tfrtool.records.compression import Compression
from tfrtool.records.count import as_error
from tfrtool.records.dataset_folders import find_folders
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.storage.locations import as_path
from tfrtool.storage.progress import OnProgress, Progress, silent

__all__ = ["READ_ERRORS", "drop_corrupt", "name_damage"]

READ_ERRORS = (tf.errors.DataLossError, tf.errors.InvalidArgumentError, UnicodeDecodeError)
"""What TensorFlow raises on records that it can't use; the last where it quotes one that is no
text in its message."""

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
        for item in read_items(path, compression):
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
            records = (item for item in read_items(path, compression) if isinstance(item, Record))
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


def drop_corrupt(
    dataset: Dataset,
    scratch: str | os.PathLike[str],
    *,
    splits: Collection[str] | None = None,
    decode: bool = True,
    on_progress: OnProgress = silent,
) -> tuple[Dataset, DropReport]:
    """Leave out the records that can't be trained on, and no others.

    Each shard is read once, CRCs and records are checked, and shards with damage are written
    again, without it, to another directory. Nothing in the dataset's own is changed.

    Args:
        dataset: as it was opened, with ``on_corrupt="skip"`` where its shards are damaged.
        scratch: an empty directory for the new shards; the caller's, to be deleted after training.
        splits: those that are wanted; None for all.
        decode: whether images are decoded, too, by all cores, which is most of the work. Without,
            an image that doesn't decode stops the training that comes to it.
        on_progress: told after each shard.

    Returns:
        The dataset, with the splits that were asked for, and what is not in it.

    Raises:
        UsageError: there is no such split.
        DatasetError: the directory holds no dataset, or a split has no record that can be used.
        ShardError: a file can't be read.
        WriteError: a shard can't be written.
    """
    scratch, directory = as_path(scratch), dataset.directory
    wanted = [dataset.split(name) for name in (dataset.splits if splits is None else splits)]
    lengths = shard_lengths(find_folders(directory), read_dataset_info(directory), OnCorrupt.SKIP)
    total = sum(len(lengths[split.name]) for split in wanted)
    done, left_out, saved = 0, list[DroppedRecord](), {}
    for split in wanted:
        kept: dict[Path, int] = {}
        for path, expected in lengths[split.name].items():
            # Shards of two splits, in a folder each, may have the same name.
            copy = scratch / str(done) / path.name
            clean, records, faults = _clean(dataset, split.compression, path, copy, decode)
            if expected is not None and not faults and records != expected:
                message = f"expected {expected} records by the metadata, found {records}"
                faults.append(Fault(kind=FaultKind.COUNT, offset=0, record=None, message=message))
            left_out += [DroppedRecord(path=path, fault=fault) for fault in faults]
            if records:
                kept[clean] = records
            done += 1
            on_progress(Progress(what="checking", done=done, total=total, unit="shards"))
        if not kept:
            raise DatasetError(
                f"split {split.name!r} has no record that can be used", path=directory
            )
        saved[split.name] = replace(split, shards=tuple(kept), lengths=tuple(kept.values()))
    counts = [length for split in wanted for length in lengths[split.name].values()]
    report = DropReport(
        records=sum(split.records for split in saved.values()),
        left_out=tuple(left_out),
        expected=None if None in counts else sum(length or 0 for length in counts),
    )
    return replace(dataset, splits=saved), report


def _clean(
    dataset: Dataset, compression: Compression, path: Path, copy: Path, decode: bool
) -> tuple[Path, int, list[Fault]]:
    """Write a shard again if anything is wrong with it.

    Returns:
        The file to read, how many records it has, and what the shard has beside them.
    """
    if not path.is_file():
        message = "the shard is missing"
        kind = FaultKind.MISSING_SHARD
        return path, 0, [Fault(kind=kind, offset=0, record=None, message=message)]
    check, faults = RecordCheck(dataset, images=decode), list[Fault]()
    kept = array("q")  # where the headers start
    for item in read_items(path, compression):
        if isinstance(item, Fault):
            if item.kind is not FaultKind.EMPTY:
                faults.append(item)
        elif (problem := check.problem(item.payload)) is not None:
            faults.append(_fault(item, problem))
        else:
            kept.append(item.offset)
    clean = path
    if faults and kept:
        clean = _write(path, copy, compression, kept)
    if decode and kept:
        bad = {kept[n] for n in _undecodable(dataset, clean, compression, len(kept))}
        if bad:
            faults += [
                _fault(record, _decoding_problem(dataset, record))
                for record in _records_at(path, compression, bad)
            ]
            kept = array("q", (offset for offset in kept if offset not in bad))
            clean = _write(path, copy, compression, kept) if kept else clean
    return clean, len(kept), sorted(faults, key=lambda fault: fault.offset)


def _write(path: Path, copy: Path, compression: Compression, offsets: Iterable[int]) -> Path:
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        with tf.io.TFRecordWriter(os.fspath(copy), TF_TYPES[compression]) as writer:
            for record in _records_at(path, compression, frozenset(offsets)):
                writer.write(record.payload)
    except OSError as error:
        raise WriteError(f"can't be written: {os_reason(error)}", path=copy) from error
    except tf.errors.OpError as error:
        raise WriteError(f"can't be written: {_words(error)}", path=copy) from error
    return copy


def _records_at(path: Path, compression: Compression, offsets: Collection[int]) -> Iterator[Record]:
    for item in read_items(path, compression):
        if isinstance(item, Record) and item.offset in offsets:
            yield item


def _fault(record: Record, message: str) -> Fault:
    return Fault(kind=FaultKind.PARSE, offset=record.offset, record=record.index, message=message)


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

    def decode(position: Tensor, record: Tensor) -> tuple[Tensor, Tensor]:
        return position, tf.size(full_image(dataset, parse(record)))

    records = tf.data.TFRecordDataset(os.fspath(path), TF_TYPES[compression])
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
