"""Finding out what is in a directory of shards, by its metadata or by what the shards hold."""

import os
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tfrtool.errors import DatasetError, UsageError
from tfrtool.examples.dataset_files import SplitFiles, find_files
from tfrtool.examples.tfds_metadata import DATASET_INFO, read_dataset_info, read_written_shards
from tfrtool.loading.dataset import Dataset, Split
from tfrtool.loading.feature_choice import Wanted, choose_features
from tfrtool.loading.find_labels import find_labels
from tfrtool.records.count import as_error, count_shard
from tfrtool.records.framing import Fault, FaultKind
from tfrtool.records.reader import read_shard
from tfrtool.records.shard_sets import check_dataset_name, find_conflicts
from tfrtool.records.shards import Shard, find_folders
from tfrtool.storage.arguments import OnError, as_member
from tfrtool.storage.commit import unchanged_while_read
from tfrtool.storage.remote.shard_cache import ShardCache
from tfrtool.storage.remote_path import RemotePath

_UNNAMED = "train"
"""The split of shards whose names say none."""

_OTHERS = "all"
"""The same, where other shards are called "train"."""


def open_dataset(
    path: str | os.PathLike[str],
    on_error: str | OnError = "stop",
    *,
    image_feature: str | None = None,
    label_feature: str | None = None,
    shard_cache: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Open a directory of shards as a dataset for training.

    TFDS metadata is used if it exists, and compared with the files: a missing shard, or one with
    another number of records, is an error. Without metadata, splits are detected from file names,
    features and image format from the first record, and classes from all records. Every record
    header is checked, because a damaged length can crash TensorFlow.

    Args:
        path: directory with the shards, with versions of the dataset, or with one directory per
            split.
        on_error: "stop" raises an error for damaged and missing shards; "skip" accepts them. After
            "skip", call `Dataset.drop_corrupt` before TensorFlow reads the dataset.
        image_feature: feature that contains the images: encoded files, or pixels as bytes,
            serialized tensors or numbers. None detects it.
        label_feature: feature that contains the labels: a number or name, a list of these, or a
            vector of 0 and 1. None detects it.
        shard_cache: local directory in which to cache remote shards. None uses the user's cache
            directory.

    Raises:
        UsageError: a feature does not exist.
        DatasetError: the directory does not contain a dataset, does not match its metadata, is
            being replaced, or has nothing that an image classifier can be trained on.
        CorruptShardError: the framing of a shard is damaged.
    """
    skip = as_member(OnError, on_error, "on_error") is OnError.SKIP
    root, cache = find_folders(path).root, None
    if isinstance(root, RemotePath):
        written = {} if skip else read_written_shards(root)
        sha256 = {name: shard.sha256 for name, shard in written.items()}
        cache = ShardCache(shard_cache, sha256)
    elif shard_cache is not None:
        raise UsageError("--shard-cache applies to object stores; this dataset is local", path=root)
    with unchanged_while_read(root, DATASET_INFO):
        info = read_dataset_info(root)
        if info is not None:
            check_dataset_name(info.name)
            if not info.splits:
                raise DatasetError("lists no shards", path=root / DATASET_INFO)
        found = {
            name: _split(name, files, skip, cache) for name, files in split_files(root).items()
        }
        splits = {name: split for name, split in found.items() if split is not None}
        if not splits:
            raise DatasetError("has no records", path=root)
        shards = [path for split in splits.values() for path in split.shards]
        wanted = Wanted(image_feature, label_feature)
        chosen = choose_features(root, info, shards, wanted, skip=skip)
        dataset = Dataset(
            directory=root,
            name=root.name if info is None else info.name,
            splits=splits,
            image_feature=chosen.image,
            label_feature=chosen.label,
            image_form=chosen.form,
            shard_cache=cache,
            empty_splits=tuple(found.keys() - splits.keys()),
            objects=chosen.objects,
        )
        form = find_labels(dataset, chosen.example, chosen.described, skip=skip)
        return replace(dataset, label_form=form)


def split_files(directory: Path) -> dict[str, SplitFiles]:
    """Return the files of each split; those that say none are "train", or "all" beside another.

    It is a `DatasetError` if it is not clear which shards belong together.
    """
    files = find_files(directory)
    if files.info is None:
        for conflicting in find_conflicts(files.sets):
            raise DatasetError(
                "the names of the shards disagree on how many there are",
                path=directory,
                found=" and ".join(one.name for one in conflicting),
            )
        for path in files.aside:
            raise DatasetError("another shard has the same split and number", path=path)
    unnamed = _OTHERS if _UNNAMED in files.splits else _UNNAMED
    return {name or unnamed: split for name, split in files.splits.items()}


def _split(name: str, files: SplitFiles, skip: bool, cache: ShardCache | None) -> Split | None:
    """Count the records of a split; None if it has none.

    Those in a store are believed to have what the metadata says, until they are fetched.
    """
    records: dict[Path, int] = {}
    if files.missing and not skip:
        shards = len(files.shards)
        raise DatasetError(
            "a shard is missing",
            path=files.missing[0],
            expected=f"{shards + files.n_missing:,} in split {name!r}",
            found=f"{shards:,}",
        )
    for path, expected in files.shards.items():
        if cache is not None and expected is not None:
            if expected:
                records[path] = expected
            continue
        found, faults, _ = count_shard(path if cache is None else cache.fetch(path))
        damage = [fault for fault in faults if fault.kind is not FaultKind.EMPTY]
        if damage and not skip:
            # Bytes too many or too few show in the header after them; CRCs tell where they are.
            faulty = (item for item in read_shard(path) if isinstance(item, Fault))
            first = next(faulty, damage[0])
            raise as_error(path, first, in_dataset=True)
        if not skip and expected is not None and found != expected:
            raise DatasetError(
                f"the shard does not match {DATASET_INFO}",
                path=path,
                expected=f"{expected} records",
                found=found,
            )
        if found:
            records[path] = found
    if not records:
        return None
    # Only one is looked at of those in a store: the others are when they are fetched.
    kinds = {Shard.at(path).compression for path in islice(records, None if cache is None else 1)}
    if len(kinds) > 1:
        raise DatasetError(
            f"the shards of split {name!r} have different compressions",
            path=next(iter(records)).parent,
            found=", ".join(sorted(kind.value for kind in kinds)),
        )
    return Split(
        name=name,
        shards=tuple(records),
        lengths=tuple(records.values()),
        compression=kinds.pop(),
    )
