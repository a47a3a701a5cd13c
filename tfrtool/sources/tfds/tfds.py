"""TFDS' own datasets: prepared by TFDS, then read from its shards without it."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tfrtool.errors import SourceError, UsageError, os_errors_as, printable
from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.example import Feature, Value, decode_example
from tfrtool.records.compression import Compression
from tfrtool.records.framing import Fault, Record
from tfrtool.records.reader import read_records
from tfrtool.sources.folders.listing import size_problem
from tfrtool.sources.items import Item, LeftOut, Source, Starting, label_problem
from tfrtool.sources.manifest import ManifestWriter
from tfrtool.sources.tfds.tfds_prepare import prepared_builder
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import (
    MAX_LISTED,
)
from tfrtool.storage.opening import open_regular
from tfrtool.storage.sorted_rows import SortedRows

_NOTATION = re.compile(r"[a-zA-Z]\w*(/[\w.+-]+)?(:[0-9*]+\.[0-9*]+\.[0-9*]+)?", re.ASCII)

_NAMES = ("image/filename", "image/file_name", "filename", "file_name")
"""Features that name the file an image came from, in TFDS' catalogue."""

_SUFFIXES = {"jpeg": ".jpg", "tiff": ".tif"}
"""Where a format's usual suffix is not its name."""

_ANEW = "prepare the dataset again"


_Row = tuple[str, int, int, int, str, str | None]
"""A record: its key, the number of its class, the bytes of its image, its place, its split, and why
it is left out."""


class _TfdsShard(NamedTuple):
    """A shard of a prepared dataset."""

    path: str
    split: str
    first: int  # the number of its first record in the split
    records: int  # how many it has, by the dataset's metadata


class _Dataset(NamedTuple):
    """What is known of a prepared dataset: its shards, and which feature is which."""

    directory: str
    shards: tuple[_TfdsShard, ...]
    image: str
    label: str
    name: str | None  # the feature that names the image's file
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TfdsReader:
    """Reads the images of records of TFDS' shards.

    An item's place is its record's offset and the number of its shard in one integer, which takes
    a third of the memory of a tuple: ``offset * len(shards) + number``.
    """

    shards: tuple[str, ...]  # their paths
    image: str  # the feature that holds the image

    def read(self, item: Item) -> bytes:
        """Return the encoded image of a record, whose CRCs are checked."""
        shard, offset = self._place(item)
        with open_regular(shard) as file, contextlib.suppress(ValueError):
            file.seek(offset)
            plain = Compression.NONE  # as TFDS writes all shards
            record = next(read_records(file, compression=plain, offset=offset), None)
            if isinstance(record, Record):
                image = _value(decode_example(record.payload).features, self.image)
                if isinstance(image, bytes):
                    return image
        raise SourceError(
            "the record is damaged or was changed after it was listed", path=shard, offset=offset
        )

    def describe(self, item: Item) -> str:
        """Return the shard of an item's record, and the offset there."""
        shard, offset = self._place(item)
        return f"{shard}, offset {offset}"

    def _place(self, item: Item) -> tuple[str, int]:
        offset, number = divmod(item.place, len(self.shards))
        return self.shards[number], offset


def read_tfds(
    notation: str, starting: Starting = nullcontext, scratch: Path | None = None
) -> Source:
    """List the images of a dataset of TFDS, which downloads and prepares it if need be.

    Every record is read once, and both of its CRCs are checked. Classes keep TFDS' numbers. Splits
    are kept where there are several. Keys are the names that TFDS keeps with the images, after the
    split's where they come in several; without usable names, split and number of the record.

    Many images are kept in a scratch folder. What is no ``NAME[/CONFIG][:VERSION]`` is a
    UsageError; what TFDS can't prepare, has no images with classes, or is damaged, a SourceError.
    """
    if _NOTATION.fullmatch(notation) is None:
        raise UsageError(
            f"invalid TFDS dataset {notation!r}",
            expected="tfds:NAME[/CONFIG][:VERSION], such as tfds:cats_vs_dogs",
        )
    dataset = _describe(prepared_builder(notation, starting))
    ways = [(dataset.name, False), (dataset.name, True), (None, True)]
    found = (
        _listed(dataset, name, scratch, with_split=split) for name, split in ways if name or split
    )
    rows = next(one for one in found if one is not None)
    used = {split for *_, split, reason in rows if reason is None}
    if not used:
        raise SourceError("no labelled images", path=dataset.directory)
    items, rejected = ManifestWriter(scratch), CappedList[LeftOut](MAX_LISTED)
    for key, label, size, place, split, reason in rows:
        if reason is not None:
            rejected.add(LeftOut(key=key, reason=reason))
            continue
        # With a single split it has none, and may be split in any way.
        own = split if len(used) > 1 else None
        items.add(Item(key=key, label=dataset.classes[label], bytes=size, place=place, split=own))
    return Source(
        items=items.close(),
        labels=dataset.classes,
        reader=TfdsReader(
            shards=tuple(shard.path for shard in dataset.shards), image=dataset.image
        ),
        splits=tuple(dict.fromkeys(one.split for one in dataset.shards if one.split in used))
        if len(used) > 1
        else (),
        rejected=tuple(rejected.kept),
        more_rejected=rejected.more,
    )


def _describe(builder: Any) -> _Dataset:
    """Return what TFDS knows of a prepared dataset; a SourceError if that are no images."""
    from tensorflow_datasets import features as kinds

    info, directory = builder.info, os.fspath(builder.data_dir)
    if info.file_format is None or info.file_format.value != "tfrecord":
        raise SourceError(
            "unsupported file format",
            path=directory,
            expected="tfrecord",
            found=info.file_format and info.file_format.value,
            hint="prepare it again with file_format='tfrecord'",
        )
    features = dict(info.features.items()) if hasattr(info.features, "items") else {}
    chosen: list[str] = []
    for at, (role, kind) in enumerate((("image", kinds.Image), ("label", kinds.ClassLabel))):
        # Of images, TFDS stores the numbers of floats as the bytes of four channels.
        names = [
            name
            for name, feature in features.items()
            if isinstance(feature, kind)
            and not isinstance(feature, kinds.LabeledImage)
            and "float32" not in str(feature.np_dtype)
        ]
        supervised = [name for name in names if name in (info.supervised_keys or ())[at : at + 1]]
        if len(names) != 1 and not supervised:
            raise SourceError(
                f"ambiguous {role} feature",
                path=directory,
                expected="supervised keys, or exactly one Image and one ClassLabel",
                found=", ".join(f"{name}: {type(one).__name__}" for name, one in features.items()),
            )
        chosen += names if len(names) == 1 else supervised
    image, label = chosen
    shards: list[_TfdsShard] = []
    for split, about in info.splits.items():
        first = 0
        for path, records in zip(about.filepaths, about.shard_lengths, strict=True):
            shards.append(_TfdsShard(os.fspath(path), str(split), first, records))
            first += records
    if not shards:
        raise SourceError(
            "no records", path=directory, expected="a dataset_info.json that lists splits"
        )
    named = (name for name in _NAMES if isinstance(features.get(name), kinds.Text))
    classes = tuple(map(features[label].int2str, range(features[label].num_classes or 0)))
    for name in classes:
        if problem := label_problem(name):
            raise SourceError(f"class name '{printable(name)}' {problem}", path=directory)
    return _Dataset(directory, tuple(shards), image, label, next(named, None), classes)


def _listed(
    dataset: _Dataset, name: str | None, scratch: Path | None, *, with_split: bool
) -> SortedRows[_Row] | None:
    """Read every record of a dataset once; None where the names that a feature has are no keys."""
    rows = SortedRows[_Row](scratch)
    width = max(6, *(len(str(shard.first + shard.records - 1)) for shard in dataset.shards))
    for number, shard in enumerate(dataset.shards):
        for index, offset, features in _examples(shard):
            image = _value(features, dataset.image)
            label = _value(features, dataset.label)
            encoded = image if isinstance(image, bytes) else b""
            if name is None:
                kind, _, format_ = describe_bytes(encoded).partition("/")
                suffix = _SUFFIXES.get(format_, f".{format_}") if kind == "image" else ""
                key = f"{shard.first + index:0{width}d}{suffix}"
            else:
                text = _value(features, name)
                key = (decode_text(text) if isinstance(text, bytes) else None) or ""
                if not key or not key.isprintable():
                    return None
            if with_split:
                key = f"{shard.split}/{key}"
            reason = None
            if not encoded:
                reason = "no image in the record"
            elif problem := size_problem(len(encoded)):
                reason = problem
            elif not isinstance(label, int) or not 0 <= label < len(dataset.classes):
                reason = f"label {label} is not a class" if isinstance(label, int) else "no label"
            known = label if isinstance(label, int) and reason is None else 0
            place = offset * len(dataset.shards) + number
            rows.add((key, known, len(encoded), place, shard.split, reason))
    keys = (key for key, *_ in rows)
    return None if any(one == other for one, other in pairwise(keys)) else rows


def _examples(shard: _TfdsShard) -> Iterator[tuple[int, int, Mapping[str, Feature]]]:
    """Yield the number, the offset and the features of each record; damage is a SourceError."""
    count = 0
    with os_errors_as(SourceError, shard.path), open_regular(shard.path) as file:
        for record in read_records(file) if shard.records else ():
            path, offset = shard.path, record.offset
            if isinstance(record, Fault):
                number, what = record.record, record.message
                raise SourceError(what, path=path, record=number, offset=offset, hint=_ANEW)
            try:
                features = decode_example(record.payload).features
            except ValueError as error:
                raise SourceError(
                    str(error), path=path, record=record.index, offset=offset
                ) from error
            yield record.index, offset, features
            count += 1
    if count != shard.records:
        raise SourceError(
            "the number of records differs from dataset_info.json",
            path=shard.path,
            expected=shard.records,
            found=count,
            hint=_ANEW,
        )


def _value(features: Mapping[str, Feature], name: str) -> Value | None:
    """Return the one value of a feature; None where there is none, or several."""
    feature = features.get(name)
    return feature.values[0] if feature is not None and len(feature.values) == 1 else None
