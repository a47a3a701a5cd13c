"""TFDS' own datasets: prepared by TFDS, then read from its shards without it."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

from tfrtool.errors import SourceError, UsageError, printable
from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.example import Feature
from tfrtool.sources.folders.listing import size_problem
from tfrtool.sources.items import Item, LeftOut, Source, Starting
from tfrtool.sources.tfds.tfds_download import missing_hosts, quiet_tfds
from tfrtool.sources.tfds.tfds_records import TfdsReader, TfdsShard, read_examples, single_value

_NOTATION = re.compile(r"[a-zA-Z]\w*(/[\w.+-]+)?(:[0-9*]+\.[0-9*]+\.[0-9*]+)?", re.ASCII)

_NAMES = ("image/filename", "image/file_name", "filename", "file_name")
"""Features that name the file an image came from, in TFDS' catalogue."""

_SUFFIXES = {"jpeg": ".jpg", "tiff": ".tif"}
"""Where a format's usual suffix is not its name."""

_REASON_SHOWN = 300
"""Characters; TFDS' own messages go on for pages."""


class _Dataset(NamedTuple):
    """What is known of a prepared dataset: its shards, and which feature is which."""

    directory: str
    shards: tuple[TfdsShard, ...]
    image: str
    label: str
    name: str | None
    """The feature that names the image's file; None where there is none."""
    classes: tuple[str, ...]


def read_tfds(notation: str, starting: Starting = nullcontext) -> Source:
    """List the images of a dataset of TFDS, which downloads and prepares it if need be.

    Every record is read once, and both of its CRCs are checked. Classes keep TFDS' numbers. Splits
    are kept where there are several. Keys are the names that TFDS keeps with the images, after the
    split's where they come in several; without usable names, split and number of the record.

    Raises:
        UsageError: the notation is no ``NAME[/CONFIG][:VERSION]``.
        SourceError: TFDS can't prepare the dataset, or it has no images with classes, or a shard
            of it is damaged.
    """
    if _NOTATION.fullmatch(notation) is None:
        raise UsageError(
            "not a dataset of TFDS",
            expected="tfds:NAME[/CONFIG][:VERSION], such as tfds:cats_vs_dogs",
            found=repr(notation),
        )
    dataset = _describe(_prepared(notation, starting))
    items, rejected = _listed_by_name(dataset) or _listed(dataset, _numbered_keys(dataset))
    if not items:
        raise SourceError("holds no labelled images", path=dataset.directory)
    used = {item.split for item in items}
    if len(used) == 1:  # then it has none, and may be split in any way
        items = [dataclasses.replace(item, split=None) for item in items]
        used.clear()
    return Source(
        items=tuple(sorted(items, key=lambda item: item.key)),
        labels=dataset.classes,
        reader=TfdsReader(
            shards=tuple(shard.path for shard in dataset.shards), image=dataset.image
        ),
        splits=tuple(dict.fromkeys(one.split for one in dataset.shards if one.split in used)),
        rejected=tuple(sorted(rejected, key=lambda entry: entry.key)),
    )


def _prepared(notation: str, starting: Starting) -> Any:
    """Return the builder of a dataset that is on disk, and prepare it first if it isn't."""
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise SourceError(f"tensorflow_datasets can't be imported: {error}") from error
    try:
        with quiet_tfds(tfds):
            builder = tfds.builder(notation)
            if builder.is_prepared():
                return builder
    except Exception as error:  # builders are anyone's code
        raise SourceError(f"TFDS can't open {notation}: {_reason(error)}") from error
    if hosts := missing_hosts(builder):
        raise SourceError(
            f"{notation} is not prepared there, and what TFDS downloads it from can't be reached",
            path=builder.data_dir,
            found=hosts,
            hint="TFDS_DATA_DIR names another place where it is prepared",
        )
    with starting():
        import tensorflow as tf

        tf.config.list_logical_devices()  # TFDS looks for them when it encodes the first image
    try:
        with quiet_tfds(tfds):
            builder.download_and_prepare()
    except Exception as error:
        raise SourceError(
            f"TFDS can't download and prepare {notation}: {_reason(error)}",
            path=builder.data_dir,
            hint="prepared data is looked for there; TFDS_DATA_DIR names another place",
        ) from error
    return builder


def _reason(error: Exception) -> str:
    """Return what an error of other people's code says, in a line."""
    lines = str(error).strip().splitlines() or [""]
    text = printable(lines[0])
    return f"{type(error).__name__}: {text[:_REASON_SHOWN]}{'...' if text[_REASON_SHOWN:] else ''}"


def _describe(builder: Any) -> _Dataset:
    """Return what TFDS knows of a prepared dataset; a SourceError if that are no images."""
    from tensorflow_datasets import features as kinds

    info, directory = builder.info, os.fspath(builder.data_dir)
    if info.file_format is None or info.file_format.value != "tfrecord":
        raise SourceError(
            "is in another format",
            path=directory,
            expected="tfrecord",
            found=info.file_format and info.file_format.value,
            hint="prepare it with TFDS' file_format='tfrecord'",
        )
    features = dict(info.features.items()) if hasattr(info.features, "items") else {}
    keys = info.supervised_keys or ()
    image = _choose(
        (name for name, feature in features.items() if _is_image(feature, kinds)), keys[:1]
    )
    label = _choose(
        (name for name, feature in features.items() if isinstance(feature, kinds.ClassLabel)),
        keys[1:2],
    )
    if image is None or label is None:
        raise SourceError(
            f"which of its features is the {'image' if image is None else 'label'} can't be told",
            path=directory,
            expected="supervised keys, or one Image and one ClassLabel",
            found=", ".join(f"{name}: {type(item).__name__}" for name, item in features.items()),
        )
    shards = tuple(_shards(info.splits))
    if not shards:
        raise SourceError(
            "holds no records", path=directory, expected="a dataset_info.json that names splits"
        )
    names = (name for name in _NAMES if isinstance(features.get(name), kinds.Text))
    classes = tuple(map(features[label].int2str, range(features[label].num_classes or 0)))
    for name in classes:
        if not name or len(name.splitlines()) != 1 or name.strip() != name:
            raise SourceError(
                "a class's name can't stand on a line of its own",
                path=directory,
                found=f"'{printable(name)}'",
            )
    return _Dataset(directory, shards, image, label, next(names, None), classes)


def _is_image(feature: Any, kinds: Any) -> bool:
    # TFDS stores the numbers of float32 images as the bytes of four channels.
    return (
        isinstance(feature, kinds.Image)
        and not isinstance(feature, kinds.LabeledImage)
        and "float32" not in str(feature.np_dtype)
    )


def _choose(candidates: Iterable[str], supervised: tuple[object, ...]) -> str | None:
    found = list(candidates)
    chosen = next((name for name in found if name in supervised), None)
    return found[0] if len(found) == 1 else chosen


def _shards(splits: Mapping[str, Any]) -> Iterator[TfdsShard]:
    for name, split in splits.items():
        first = 0
        for path, records in zip(split.filepaths, split.shard_lengths, strict=True):
            yield TfdsShard(path=os.fspath(path), split=str(name), first=first, records=records)
            first += records


_KeyOf = Callable[[TfdsShard, int, Mapping[str, Feature], bytes], str]
"""Makes a record's key of its shard, its number there, its features and its image."""


class _NamelessError(Exception):
    """The names of a dataset's images can't be keys."""


def _listed_by_name(dataset: _Dataset) -> tuple[list[Item], list[LeftOut]] | None:
    """List a dataset by the names of its images; None where these are no keys."""
    if dataset.name is None:
        return None
    # Splits may share names. That is seen when all are read, and then they are read once more.
    for with_split in (False, True):
        try:
            items, rejected = _listed(dataset, _name_keys(dataset.name, with_split=with_split))
        except _NamelessError:
            return None
        keys = {item.key for item in items} | {entry.key for entry in rejected}
        if len(keys) == len(items) + len(rejected):
            return items, rejected
    return None


def _name_keys(feature: str, *, with_split: bool) -> _KeyOf:
    def key_of(shard: TfdsShard, _number: int, features: Mapping[str, Feature], _: bytes) -> str:
        value = single_value(features, feature)
        name = decode_text(value) if isinstance(value, bytes) else None
        if not name or not name.isprintable():
            raise _NamelessError
        return f"{shard.split}/{name}" if with_split else name

    return key_of


def _numbered_keys(dataset: _Dataset) -> _KeyOf:
    largest = max(shard.first + shard.records for shard in dataset.shards)
    width = max(6, len(str(largest - 1)))

    def key_of(
        shard: TfdsShard, number: int, _features: Mapping[str, Feature], image: bytes
    ) -> str:
        kind, _, format_ = describe_bytes(image).partition("/")
        suffix = _SUFFIXES.get(format_, f".{format_}") if kind == "image" else ""
        return f"{shard.split}/{shard.first + number:0{width}d}{suffix}"

    return key_of


def _listed(dataset: _Dataset, key_of: _KeyOf) -> tuple[list[Item], list[LeftOut]]:
    """Read every record of a dataset once; a damaged shard is a SourceError."""
    items: list[Item] = []
    rejected: list[LeftOut] = []
    for number, shard in enumerate(dataset.shards):
        for index, offset, features in read_examples(shard):
            image = single_value(features, dataset.image)
            label = single_value(features, dataset.label)
            encoded = image if isinstance(image, bytes) else b""
            key = key_of(shard, index, features, encoded)
            if not encoded:
                rejected.append(LeftOut(key=key, reason="its record holds no image"))
            elif problem := size_problem(len(encoded)):
                rejected.append(LeftOut(key=key, reason=problem))
            elif not isinstance(label, int) or not 0 <= label < len(dataset.classes):
                reason = f"its label is {label}" if isinstance(label, int) else "no label"
                rejected.append(LeftOut(key=key, reason=f"{reason}, which is no class"))
            else:
                items.append(
                    Item(
                        key=key,
                        label=dataset.classes[label],
                        bytes=len(encoded),
                        place=offset * len(dataset.shards) + number,
                        split=shard.split,
                    )
                )
    return items, rejected
