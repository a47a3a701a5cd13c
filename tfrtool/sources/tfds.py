"""TFDS' own datasets: prepared by TFDS, then read from its shards without it."""

import contextlib
import io
import json
import logging
import os
import re
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

from tfrtool.errors import SourceError, UsageError, os_errors_as, printable
from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.example import Feature, Value, decode_example
from tfrtool.records.compression import Compression
from tfrtool.records.framing import Fault, Record
from tfrtool.records.reader import read_records
from tfrtool.sources.folders.listing import size_problem
from tfrtool.sources.items import Item, ItemTable, LeftOut, Source, Starting, label_problem
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.extras import require_tensorflow
from tfrtool.storage.limits import MAX_LISTED
from tfrtool.storage.opening import open_regular, read_bounded
from tfrtool.storage.sorted_rows import SortedRows

_NOTATION = re.compile(r"[a-zA-Z]\w*(/[\w.+-]+)?(:[0-9*]+\.[0-9*]+\.[0-9*]+)?", re.ASCII)

_NAMES = ("image/filename", "image/file_name", "filename", "file_name")
"""Features that name the file an image came from, in TFDS' catalogue."""

_SUFFIXES = {"jpeg": ".jpg", "tiff": ".tif"}
"""Where a format's usual suffix is not its name."""

_AGAIN = "prepare the dataset again"

_PATIENCE = 3.0
"""Seconds for a host to answer; TFDS itself tries for three minutes, and behind a firewall that
answers nothing for half an hour."""

_MOST_HOSTS = 3
_REASON_SHOWN = 300
"""Characters; TFDS' own messages go on for pages."""


class _Row(NamedTuple):
    name: str  # of its image; "" where it has none that can be a key
    split: str
    number: int  # its index in the split
    suffix: str  # of the format of the image
    label: int  # the number of its class
    bytes: int  # of its image
    locator: int
    problem: str | None  # why it can't be an item


class _Dataset(NamedTuple):
    directory: str
    shards: list[tuple[str, str, int]]  # their paths, splits, and numbers of records
    image: str  # names of features
    label: str
    name: str  # of the image's file; "" for none
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
        offset, number = divmod(item.locator, len(self.shards))
        with open_regular(self.shards[number]) as file, contextlib.suppress(ValueError):
            file.seek(offset)
            plain = Compression.NONE  # as TFDS writes all shards
            record = next(read_records(file, compression=plain, offset=offset), None)
            if isinstance(record, Record):
                image = _value(decode_example(record.payload).features, self.image)
                if isinstance(image, bytes):
                    return image
        what = "the record is damaged or was changed after it was listed"
        raise SourceError(what, path=self.shards[number], offset=offset)

    def describe(self, item: Item) -> str:
        """Return the shard of an item's record, and the offset there."""
        offset, number = divmod(item.locator, len(self.shards))
        return f"{self.shards[number]}, offset {offset}"


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
    dataset = _describe(_prepared_builder(notation, starting))
    rows = SortedRows[_Row](scratch, by=2, rows=_rows(dataset))
    used = {row.split for row in map(_Row._make, rows) if row.problem is None}
    if not used:
        raise SourceError("no labelled images", path=dataset.directory)
    key_of = _naming(rows)
    items, rejected = ItemTable(scratch), CappedList[LeftOut](MAX_LISTED)
    for row in map(_Row._make, rows):
        if row.problem is not None:
            rejected.add(LeftOut(key=key_of(row), reason=row.problem))
            continue
        # With a single split it has none, and may be split in any way.
        split = row.split if len(used) > 1 else None
        items.add(Item(key_of(row), dataset.classes[row.label], row.bytes, row.locator, split))
    splits = dict.fromkeys(split for _, split, _ in dataset.shards if split in used)
    return Source(
        items=items,
        labels=dataset.classes,
        reader=TfdsReader(shards=tuple(one[0] for one in dataset.shards), image=dataset.image),
        splits=tuple(splits) if len(used) > 1 else (),
        rejected=tuple(sorted(rejected.entries, key=attrgetter("key"))),
        more_rejected=rejected.more,
    )


def _describe(builder: Any) -> _Dataset:
    """Return what TFDS knows of a prepared dataset; a SourceError without images."""
    from tensorflow_datasets import features as kinds

    info, directory = builder.info, os.fspath(builder.data_dir)
    form = info.file_format and info.file_format.value
    if form != "tfrecord":
        hint = "prepare it again with file_format='tfrecord'"
        what = "unsupported file format"
        raise SourceError(what, path=directory, expected="tfrecord", found=form, hint=hint)
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
    shards = [
        (os.fspath(path), str(split), int(records))
        for split, about in info.splits.items()
        for path, records in zip(about.filepaths, about.shard_lengths, strict=True)
    ]
    if not shards:
        expected = "a dataset_info.json that lists splits"
        raise SourceError("no records", path=directory, expected=expected)
    name = next((one for one in _NAMES if isinstance(features.get(one), kinds.Text)), "")
    classes = tuple(map(features[label].int2str, range(features[label].num_classes or 0)))
    for one in classes:
        if problem := label_problem(one):
            raise SourceError(f"class name '{printable(one)}' {problem}", path=directory)
    return _Dataset(directory, shards, image, label, name, classes)


def _naming(rows: SortedRows[_Row]) -> Callable[[_Row], str]:
    """Return what makes keys of rows: their names if these are unique, else those in the split.

    Where that doesn't do either, split and number.
    """
    unique, last = True, None
    for row in map(_Row._make, rows):
        if not row.name or row[:2] == last:
            width = max(6, *(len(str(row.number)) for row in map(_Row._make, rows)))
            return lambda row: f"{row.split}/{row.number:0{width}d}{row.suffix}"
        unique = unique and (last is None or row.name != last[0])
        last = row[:2]
    return (lambda row: row.name) if unique else (lambda row: f"{row.split}/{row.name}")


def _rows(dataset: _Dataset) -> Iterator[_Row]:
    """Read every record of a dataset; damage is a SourceError."""
    numbers = Counter[str]()
    for at, (path, split, expected) in enumerate(dataset.shards):
        count = 0
        with os_errors_as(SourceError, path), open_regular(path) as file:
            for record in read_records(file) if expected else ():
                where: dict[str, Any] = {"path": path, "offset": record.offset}
                if isinstance(record, Fault):
                    what, index = record.message, record.record
                    raise SourceError(what, record=index, hint=_AGAIN, **where)
                try:
                    features = decode_example(record.payload).features
                except ValueError as error:
                    raise SourceError(str(error), record=record.index, **where) from error
                locator = record.offset * len(dataset.shards) + at
                yield _row(dataset, features, split, numbers[split], locator)
                numbers[split] += 1
                count += 1
        if count != expected:
            what = "the number of records differs from dataset_info.json"
            raise SourceError(what, path=path, expected=expected, found=count, hint=_AGAIN)


def _row(
    dataset: _Dataset, features: Mapping[str, Feature], split: str, number: int, locator: int
) -> _Row:
    image, label, text = (
        _value(features, name) for name in (dataset.image, dataset.label, dataset.name)
    )
    name = (decode_text(text) if isinstance(text, bytes) else None) or ""
    encoded = image if isinstance(image, bytes) else b""
    kind, _, form = describe_bytes(encoded).partition("/")
    suffix = _SUFFIXES.get(form, f".{form}") if kind == "image" else ""
    problem = size_problem(len(encoded)) if encoded else "no image in the record"
    if not isinstance(label, int) or not 0 <= label < len(dataset.classes):
        reason = f"label {label} is not a class" if isinstance(label, int) else "no label"
        problem, label = problem or reason, 0
    name = name if name.isprintable() else ""
    return _Row(name, split, number, suffix, label, len(encoded), locator, problem)


def _value(features: Mapping[str, Feature], name: str) -> Value | None:
    feature = features.get(name)
    return feature.values[0] if feature is not None and len(feature.values) == 1 else None


def _prepared_builder(notation: str, starting: Starting) -> Any:
    """Return the builder of a dataset that is on disk, and prepare it first if it isn't."""
    require_tensorflow("tfds: sources")
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise SourceError(f"tensorflow_datasets can't be imported: {error}") from error
    hint = "set TFDS_DATA_DIR if it is prepared elsewhere"
    try:
        with _quiet(tfds):
            builder = tfds.builder(notation)
            if builder.is_prepared():
                return builder
    except Exception as error:  # builders are anyone's code
        if type(error).__name__ == "DatasetNotFoundError":  # whose text lists all there are
            raise SourceError(f"no TFDS dataset {notation!r}") from error
        raise SourceError(f"TFDS can't open {notation}: {_reason(error)}") from error
    if hosts := missing_hosts(builder):
        what = f"{notation} is not prepared here and can't be downloaded from {hosts}"
        raise SourceError(what, path=builder.data_dir, hint=hint)
    with starting():
        import tensorflow as tf

        tf.config.list_logical_devices()  # TFDS looks for them when it encodes the first image
    try:
        with _quiet(tfds):
            builder.download_and_prepare()
    except Exception as error:
        what = f"TFDS can't prepare {notation}: {_reason(error)}"
        raise SourceError(what, path=builder.data_dir, hint=hint) from error
    return builder


def _reason(error: Exception) -> str:
    """Return what an error of other people's code says, in a line."""
    text = printable((str(error).strip().splitlines() or [""])[0])
    if built := re.fullmatch(r"Failed to construct dataset .*?\}\": (.*)", text):
        return built[1][:_REASON_SHOWN]
    return f"{type(error).__name__}: {text[:_REASON_SHOWN]}"


def missing_hosts(builder: Any) -> str | None:
    """Return the hosts of a dataset's downloads, and why, if none of the first can be reached.

    Files that were downloaded before, or by hand, and proxies need no host.
    """
    if builder.MANUAL_DOWNLOAD_INSTRUCTIONS or getproxies():
        return None
    known = set[str]()
    for path in Path(builder.data_dir_root, "downloads").rglob("*.INFO"):
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
            known.update(map(str, json.loads(read_bounded(path)).get("urls", ())))
    reasons: dict[str, str] = {}
    for url in map(urlsplit, sorted(set(builder.url_infos or ()) - known)):
        if url.hostname and url.hostname not in reasons and len(reasons) < _MOST_HOSTS:
            port = url.port or (80 if url.scheme == "http" else 443)
            try:
                socket.create_connection((url.hostname, port), timeout=_PATIENCE).close()
            except (OSError, ValueError) as error:  # a ValueError: no name that can be looked up
                reasons[url.hostname] = str(getattr(error, "strerror", None) or error).lower()
            else:
                return None
    return ", ".join(f"{host} ({reason})" for host, reason in reasons.items()) or None


@contextlib.contextmanager
def _quiet(tfds: Any) -> Iterator[None]:
    """Let TFDS show its plan and progress on a terminal only, never on stdout.

    Elsewhere its bars and warnings would fill a log; what fails it raises.
    """
    if sys.stderr is not None and sys.stderr.isatty():
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    level = logging.root.manager.disable
    tfds.disable_progress_bar()
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        tfds.enable_progress_bar()
        logging.disable(level)
