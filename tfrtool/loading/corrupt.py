"""Damaged records: naming the one that stopped a run, and leaving out all of them beforehand."""

import os
import re
import shlex
from array import array
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import tensorflow as tf

from tfrtool.engines.pool import cores
from tfrtool.errors import DatasetError, TfrtoolError, TrainingError, WriteError, os_reason
from tfrtool.inspection.verify.payload_check import unparseable
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.decoding import full_image, parser
from tfrtool.loading.open_dataset import split_files
from tfrtool.loading.record_check import record_check
from tfrtool.loading.tensors import Tensor
from tfrtool.records.compression import TF_TYPES, Compression
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, FaultKind, LocatedFault, Record
from tfrtool.records.reader import read_shard
from tfrtool.storage.arguments import as_local_path
from tfrtool.storage.progress import OnProgress, Progress

_READ_ERRORS = (
    tf.errors.DataLossError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    UnicodeDecodeError,
)
"""What TensorFlow raises on records that it can't use; the last where it quotes one that is no
text in its message."""

_BATCH = 256
"""Positions that come from tf.data at a time; one by one they would cost as much as an image."""

_GRAPH_NODE = re.compile(r"\{\{.*?\}\}\s*|\s*\[Op:\w+\].*", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropReport:
    """What is left of a damaged dataset.

    The kind of a fault is PARSE for a whole record that can't be trained on, COUNT for records that
    are missing without a trace. ``n_skipped`` is exact where the metadata tells how many records
    there should be; else each fault counts as one.
    """

    records: int  # that can be used
    skipped: tuple[LocatedFault, ...]  # in the order of the shards
    n_skipped: int

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for people about each fault."""
        located = ((one.path, one.fault) for one in self.skipped)
        return tuple(
            str(DatasetError(one.message, path=path, record=one.record, offset=one.offset))
            for path, one in located
        )


@contextmanager
def naming_damage(dataset: Dataset, *splits: str) -> Iterator[None]:
    """Turn TensorFlow's errors about the records of some splits into ours.

    TensorFlow says "corrupted record at N" without the file, and of an image that doesn't decode
    nothing but that. The first record that can't be used is named, by a CorruptShardError if it is
    damaged and by a DatasetError if it is whole; other errors are passed on in words. Too little
    memory, as on a GPU, is a TrainingError.
    """
    cache = dataset.shard_cache
    if cache is not None:
        cache.failure = None
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise TrainingError(
            "out of memory", hint="use a smaller --batch-size or --image-size"
        ) from error
    except _READ_ERRORS as error:
        if cache is not None and cache.failure is not None:
            raise cache.failure from error
        raise _first_problem(dataset, splits) or DatasetError(
            f"TensorFlow failed: {_words(error)}", path=dataset.directory
        ) from error


def _first_problem(dataset: Dataset, splits: Collection[str]) -> TfrtoolError | None:
    for split in map(dataset.split, splits):
        for path in split.shards:
            file = dataset.fetch(path)
            faults, kept = _check(dataset, file, split.compression)
            faults = faults or _undecodable(dataset, file, file, split.compression, kept)
            for fault in faults[:1]:
                if fault.kind is not FaultKind.PARSE:
                    return as_error(path, fault, in_dataset=True)
                return DatasetError(
                    fault.message,
                    path=path,
                    record=fault.record,
                    offset=fault.offset,
                    hint=f"run tfrtool inspect shard {shlex.quote(str(path))} --record "
                    f"{fault.record} to show it, or use --on-error skip of train and evaluate",
                )
    return None


def drop_corrupt(
    dataset: Dataset,
    scratch: str | os.PathLike[str],
    splits: Collection[str] | None,
    on_progress: OnProgress,
) -> tuple[Dataset, DropReport]:
    """Leave out the records that can't be trained on, and no others; see `Dataset.drop_corrupt`."""
    scratch, directory = as_local_path(scratch), dataset.directory
    wanted = [dataset.split(name) for name in (dataset.splits if splits is None else splits)]
    files = split_files(directory)
    total = sum(len((*files[one.name].shards, *files[one.name].missing)) for one in wanted)
    done, skipped, saved = 0, list[LocatedFault](), {}
    for split in wanted:
        kept: dict[Path, int] = {}
        own = files[split.name]
        for path, expected in {**own.shards, **dict.fromkeys(own.missing)}.items():
            # Shards of two splits, in a folder each, may have the same name.
            copy = scratch / str(done) / path.name
            clean, records, faults = _clean(dataset, split.compression, path, copy)
            if expected is not None and not faults and records != expected:
                message = f"the metadata lists {expected} records, found {records}"
                faults.append(Fault(kind=FaultKind.COUNT, offset=0, record=None, message=message))
            skipped += [LocatedFault(path=path, fault=fault) for fault in faults]
            if records:
                kept[clean] = records
            done += 1
            on_progress(Progress(what="checking", done=done, total=total, unit="shards"))
        if not kept:
            raise DatasetError(f"split {split.name!r} has no usable records", path=directory)
        saved[split.name] = replace(split, shards=tuple(kept), lengths=tuple(kept.values()))
    counts = [files[split.name].expected for split in wanted]
    records = sum(split.records for split in saved.values())
    missing = max(sum(count or 0 for count in counts) - records, 0)
    report = DropReport(
        records=records,
        skipped=tuple(skipped),
        n_skipped=len(skipped) if None in counts else missing,
    )
    return replace(dataset, splits=saved), report


def _clean(
    dataset: Dataset, compression: Compression, path: Path, copy: Path
) -> tuple[Path, int, list[Fault]]:
    """Write a shard again if anything is wrong with it.

    Return the file to read, how many records it has, and what the shard has beside them.
    """
    if not path.is_file():
        message = "the shard is missing"
        kind = FaultKind.MISSING_SHARD
        return path, 0, [Fault(kind=kind, offset=0, record=None, message=message)]
    file = dataset.fetch(path)
    faults, kept = _check(dataset, file, compression)
    clean = _write(file, copy, compression, kept) if faults and kept else file
    bad = _undecodable(dataset, file, clean, compression, kept) if kept else []
    if bad:
        faults = sorted([*faults, *bad], key=lambda fault: fault.offset)
        undecodable = {fault.offset for fault in bad}
        kept = array("q", (offset for offset in kept if offset not in undecodable))
        clean = _write(file, copy, compression, kept) if kept else clean
    return path if clean == file else clean, len(kept), faults


def _check(
    dataset: Dataset, path: Path, compression: Compression
) -> "tuple[list[Fault], array[int]]":
    """Return what is wrong with a shard before decoding, and where its other records start."""
    check, faults, kept = record_check(dataset), list[Fault](), array("q")
    for item in read_shard(path, compression=compression):
        if isinstance(item, Fault):
            if item.kind is not FaultKind.EMPTY:
                faults.append(item)
        elif (problem := check(item.payload)) is not None:
            faults.append(unparseable(item, problem))
        else:
            kept.append(item.offset)
    return faults, kept


def _write(path: Path, copy: Path, compression: Compression, offsets: "array[int]") -> Path:
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
    for item in read_shard(path, compression=compression):
        if isinstance(item, Record) and item.offset in offsets:
            yield item


def _undecodable(
    dataset: Dataset, path: Path, clean: Path, compression: Compression, kept: "array[int]"
) -> list[Fault]:
    """Return the records of a shard that TensorFlow can't parse or decode.

    ``clean`` has its whole records alone, and may be the same file; ``kept`` are the offsets of
    these in ``path``.
    """
    parse = parser(dataset)

    def decode(position: Tensor, record: Tensor) -> tuple[Tensor, Tensor]:
        return position, tf.size(full_image(dataset, parse(record)))

    records = tf.data.TFRecordDataset(os.fspath(clean), TF_TYPES[compression])
    # An element that fails is dropped, and no other, for the failure is that of one call of the
    # map; which one it was shows in the positions that are left.
    decoded = records.enumerate().map(decode, num_parallel_calls=cores())
    positions = decoded.ignore_errors().map(lambda position, _: position).batch(_BATCH)
    options = tf.data.Options()
    options.autotune.enabled = False
    decodes = bytearray(len(kept))
    for batch in positions.with_options(options):
        for position in batch.numpy().tolist():
            decodes[position] = True
    bad = {offset for offset, fine in zip(kept, decodes, strict=True) if not fine}
    faults = []
    for record in _records_at(path, compression, bad) if bad else ():
        problem = f"the image in {dataset.image_feature!r} can't be decoded"
        try:
            full_image(dataset, parse(tf.constant(record.payload)))
        except _READ_ERRORS as error:
            problem = f"{problem}: {_words(error)}"
        faults.append(unparseable(record, problem))
    return faults


def _words(error: Exception) -> str:
    """Return the first line of what TensorFlow says, without the names of its graph's nodes."""
    lines = _GRAPH_NODE.sub("", str(error)).strip().splitlines()
    # What comes before an error of Python's names the dataset's stages, and the error's class.
    return lines[0].rpartition("ValueError: ")[2][:300] if lines else type(error).__name__
