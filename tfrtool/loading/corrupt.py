"""Damaged records: naming the one that stopped a run, and skipping all of them beforehand."""

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import tensorflow as tf

from tfrtool.engines.engine import cores
from tfrtool.errors import DatasetError, TfrtoolError, TrainingError, WriteError, reason_of
from tfrtool.examples.example import decode_example
from tfrtool.images.header import limit_problem
from tfrtool.inspection.verify.payload_check import unparseable
from tfrtool.loading.dataset_facts import DatasetFacts, Split, split_files
from tfrtool.loading.decoding import parser, record_decoder
from tfrtool.loading.labels import label_tensor
from tfrtool.records.compression import TF_TYPES, Compression
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, FaultKind, LocatedFault, Record
from tfrtool.records.reader import read_shard
from tfrtool.storage.arguments import as_local_path
from tfrtool.storage.progress import OnProgress, Progress
from tfrtool.storage.remote_path import AnyPath

_READ_ERRORS = (
    tf.errors.DataLossError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    UnicodeDecodeError,
)
"""What TensorFlow raises on records that it can't use; the last if it quotes bytes that aren't
text in its message."""

_CHECKED_AT_ONCE = 64
_GRAPH_NODE = re.compile(r"\{\{.*?\}\}\s*|\s*\[Op:\w+\].*", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropReport:
    """What is left of a damaged dataset.

    The kind of a fault is PARSE for an intact record that can't be trained on, COUNT for records
    that are missing without a trace. ``n_skipped`` is exact if the metadata says how many records
    there should be; otherwise each fault counts as one.
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
def naming_damage(
    dataset: DatasetFacts, *splits: str, disk_cache: Path | None = None
) -> Iterator[None]:
    """Turn TensorFlow's errors about the records of some splits into tfrtool's.

    TensorFlow says "corrupted record at N" without the file, and nothing of where an image is that
    doesn't decode. The first unusable record is named, by a `CorruptShardError` if it is damaged
    and by a `DatasetError` if it is intact. Too little memory is a `TrainingError`. If no record is
    unusable and images come from a disk cache, in the folder ``disk_cache``, that is damaged.
    """
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise TrainingError(
            "out of memory", hint="use a smaller --batch-size or --image-size"
        ) from error
    except _READ_ERRORS as error:
        what = f"TensorFlow failed: {_words(error)}"
        failure = DatasetError(what, path=dataset.directory)
        if disk_cache is not None and isinstance(error, tf.errors.DataLossError):
            what = f"a disk cache in this folder is damaged: {_words(error)}"
            hint = "delete it to decode the images again"
            failure = DatasetError(what, path=disk_cache, hint=hint)
        raise _first_problem(dataset, splits) or failure from error


def _first_problem(dataset: DatasetFacts, splits: Collection[str]) -> TfrtoolError | None:
    for split in map(dataset.split, splits):
        files = dataset.local_split(split.name).shards
        for path, file in zip(split.shards, files, strict=True):
            fault = next(_faults(dataset, file, split.compression), None)
            if fault is not None and fault.kind is not FaultKind.PARSE:
                return as_error(path, fault, in_dataset=True)
            if fault is not None:
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
    dataset: DatasetFacts,
    scratch: str | os.PathLike[str],
    splits: Collection[str] | None,
    on_progress: OnProgress,
) -> tuple[Mapping[str, Split], DropReport]:
    """Return splits without the records that can't be trained on; see `Dataset.drop_corrupt`."""
    scratch, directory = as_local_path(scratch), dataset.directory
    files = split_files(dataset.source)
    wanted = [dataset.split(name) for name in (dataset.splits if splits is None else splits)]
    total = sum(len((*files[one.name].shards, *files[one.name].missing)) for one in wanted)
    done, skipped, clean = 0, list[LocatedFault](), {}
    for split in wanted:
        kept: dict[AnyPath, int] = {}
        own = files[split.name]
        for path, expected in {**own.shards, **dict.fromkeys(own.missing)}.items():
            # Shards of two splits, in a folder each, may have the same name.
            copy = scratch / str(done) / path.name
            file, records, faults = _clean(dataset, split, path, copy)
            if expected is not None and not faults and records != expected:
                message = f"the metadata lists {expected} records, found {records}"
                faults.append(Fault(kind=FaultKind.COUNT, offset=0, record=None, message=message))
            skipped += [LocatedFault(path=path, fault=fault) for fault in faults]
            if records:
                kept[file] = records
            done += 1
            on_progress(Progress(what="checking", done=done, total=total, unit="shards"))
        if not kept:
            raise DatasetError(f"split {split.name!r} has no usable records", path=directory)
        clean[split.name] = replace(split, shards=tuple(kept), lengths=tuple(kept.values()))
    counts = [files[split.name].expected for split in wanted]
    records = sum(split.records for split in clean.values())
    missing = max(sum(count or 0 for count in counts) - records, 0)
    n_skipped = len(skipped) if None in counts else missing
    report = DropReport(records=records, skipped=tuple(skipped), n_skipped=n_skipped)
    return clean, report


def _clean(
    dataset: DatasetFacts, split: Split, path: AnyPath, copy: Path
) -> tuple[AnyPath, int, list[Fault]]:
    """Return a file with the usable records of a shard, their number, and its faults.

    It is the shard itself if it has no faults.
    """
    if not path.is_file():
        missing = Fault(
            kind=FaultKind.MISSING_SHARD, offset=0, record=None, message="the shard is missing"
        )
        return path, 0, [missing]
    file = path if dataset.shard_cache is None else dataset.shard_cache.fetch(path)
    faults = list(_faults(dataset, file, split.compression))
    unusable = {fault.offset for fault in faults}
    items = read_shard(file, compression=split.compression)
    usable = (item for item in items if isinstance(item, Record) and item.offset not in unusable)
    if not faults:
        return file, sum(1 for _ in usable), []
    count = 0
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        with tf.io.TFRecordWriter(os.fspath(copy), TF_TYPES[split.compression]) as writer:
            for record in usable:
                writer.write(record.payload)
                count += 1
    except (OSError, tf.errors.OpError) as error:
        raise WriteError(f"can't be written: {reason_of(error)}", path=copy) from error
    return copy, count, faults


def _faults(dataset: DatasetFacts, file: AnyPath, compression: Compression) -> Iterator[Fault]:
    """Yield the faults of a shard, and those of its records that can't be trained on."""
    check = _record_check(dataset)
    items = read_shard(file, compression=compression)
    with ThreadPoolExecutor(cores()) as pool:
        while chunk := list(islice(items, _CHECKED_AT_ONCE)):
            for item, problem in zip(chunk, pool.map(check, chunk), strict=True):
                if isinstance(item, Record) and problem is not None:
                    yield unparseable(item, problem)
                elif isinstance(item, Fault) and item.kind is not FaultKind.EMPTY:
                    yield item


def _record_check(dataset: DatasetFacts) -> Callable[[Record | Fault], str | None]:
    """Return a function from an item of a shard to the reason why a record can't be used."""
    image = dataset.image_feature
    own = dataset.decode is not None
    signature = [tf.TensorSpec([], tf.string)]
    decode = tf.function(record_decoder(dataset), signature, autograph=False)
    parse = None if own else parser(dataset)

    def check(item: Record | Fault) -> str | None:
        if isinstance(item, Fault):
            return None
        stage = "its record can't be parsed"
        try:
            if parse is not None:
                values = decode_example(item.payload).values(image)
                data = values[0] if len(values) == 1 else None
                if isinstance(data, bytes) and not dataset.image_form.size:
                    problem = limit_problem(data)  # TensorFlow's decoders have no such limits
                    if problem is not None:
                        return f"the image in {image!r} can't be decoded: {problem}"
                features = parse(item.payload)
                for label, form in dataset.label_forms.items():
                    try:
                        label_tensor(form, features[label])
                    except tf.errors.InvalidArgumentError:  # about an index of its gather
                        return f"invalid label in feature {label!r}: expected {form.expected}"
                stage = f"the image in {image!r} can't be decoded"
            decode(item.payload)
        except (*_READ_ERRORS, ValueError) as error:
            return f"{stage}: {_words(error)}"
        return None

    return check


def _words(error: Exception) -> str:
    """Return the first line of an error of TensorFlow's, without the names of graph nodes."""
    lines = _GRAPH_NODE.sub("", str(error)).strip().splitlines()
    # Before an error of Python's stand the names of the dataset's stages, and the error's class.
    return lines[0].rpartition("ValueError: ")[2][:300] if lines else type(error).__name__
