"""Finding out what is in a directory of shards, by its metadata or by its records."""

import contextlib
import math
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tfrtool.declare import takes
from tfrtool.errors import (
    DatasetError,
    TfrtoolError,
    UsageError,
    printable,
    reason_of,
    suggestion,
)
from tfrtool.examples.content import describe_bytes
from tfrtool.examples.dataset_files import SplitFiles
from tfrtool.examples.example import DType, Example, Feature, decode_example
from tfrtool.examples.fields import Field, Kind, ListOf, Struct, Values, class_count, field_at
from tfrtool.examples.roles import (
    HEIGHTS,
    LABELS,
    SAMPLE,
    WIDTHS,
    FirstRecords,
    has_boxes,
    of_objects,
    said_size,
)
from tfrtool.examples.tfds_metadata import (
    DATASET_INFO,
    FEATURES,
    DatasetInfo,
    read_class_names,
    read_dataset_info,
    read_written_shards,
)
from tfrtool.features.tfds_tree import tree_of_tfds
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.dataset_facts import ImageForm, Split, split_files
from tfrtool.loading.labels import LabelEncoding, LabelForm, find_flag_form, find_label_form
from tfrtool.loading.options import FeatureOptions, LoadOptions, OpenOptions
from tfrtool.records.compression import Compression
from tfrtool.records.count import as_error, count_shard
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.records.reader import read_shard
from tfrtool.records.shard_sets import check_dataset_name
from tfrtool.records.shards import Shard, find_folders, find_shards, is_pattern
from tfrtool.storage.arguments import Paths, as_path, as_paths
from tfrtool.storage.commit import unchanged_while_read
from tfrtool.storage.extras import require_tensorflow
from tfrtool.storage.json_values import read_json, reading_metadata
from tfrtool.storage.limits import MAX_CLASSES, MAX_IMAGE_PIXELS
from tfrtool.storage.remote.shard_cache import ShardCache
from tfrtool.storage.remote_path import AnyPath, RemotePath

_DECODED = ("image/jpeg", "image/png", "image/gif", "image/bmp", "image/webp")
"""What ``tf.io.decode_image`` takes."""

_IMAGE = "a JPEG, PNG, GIF, BMP or WebP file, or uint8 pixels with a height and width"
_SHOWN = 6


@takes(OpenOptions)
def open_dataset(path: Paths, options: OpenOptions) -> Dataset:
    """Open a directory of shards, or some shards, as a dataset for training.

    TFDS metadata is used if it exists, and compared with the files: a missing shard, or one with
    another number of records, is an error. Without metadata, splits are detected from file names,
    features and image format from the first records, and classes from all records. Every record
    header is checked, because a damaged length can crash TensorFlow.

    After ``on_error="skip"``, call `Dataset.drop_corrupt` before TensorFlow reads the dataset.

    A ``decode_function``, or its name such as ``FILE.py:FUNCTION``, maps a serialized record, a
    string tensor, to an image, uint8 [height, width, 3], and a label: a class number, int64 [], or
    float32 [classes] of 0 and 1. For regression, the label is float32 [] or float32 [targets]. It
    must consist of TensorFlow operations.

    Args:
        path: directory with the shards, with versions of the dataset, or with one directory per
            split; or a glob pattern of shards, or a list of their files.

    Raises:
        UsageError: a feature or function does not exist, or the function returns something else.
        DatasetError: the directory does not contain a dataset, does not match its metadata, is
            being replaced, or has nothing that an image classifier can be trained on.
        CorruptShardError: the framing of a shard is damaged.
    """
    return _open(path, options, skip=options.on_error == "skip")


def opened(dataset: Any, options: FeatureOptions) -> Dataset:
    """Return an open dataset as it is, or open the one in a directory."""
    if not isinstance(dataset, Dataset):
        return _open(dataset, options, skip=getattr(options, "on_error", "stop") == "skip")
    if options.shard_cache is not None:
        raise UsageError("an open dataset has its shard cache already")
    if options.image_feature or options.label_feature or options.decode_function:
        raise UsageError("an open dataset has its image and label features already")
    if getattr(options, "task", None) not in (None, dataset.task.option):
        raise UsageError(f"an open dataset has its task already: {dataset.task.value}")
    return dataset


def _open(path: Paths, options: FeatureOptions, *, skip: bool) -> Dataset:
    shard_cache, decode_function = options.shard_cache, options.decode_function
    (root, pattern), cache = _located(path), None
    if isinstance(root, RemotePath):
        written = {} if skip else read_written_shards(root)
        cache = ShardCache(shard_cache, {name: shard.sha256 for name, shard in written.items()})
    elif shard_cache is not None:
        raise UsageError("--shard-cache applies to object stores; this dataset is local", path=root)
    with unchanged_while_read(root, DATASET_INFO):
        info = read_dataset_info(root)
        if info is not None:
            check_dataset_name(info.name)
            if not info.splits:
                raise DatasetError("lists no shards", path=root / DATASET_INFO)
        counted = {
            name: _count(name, files, skip, cache)
            for name, files in split_files(pattern or root).items()
        }
        splits = {name: split for name, split in counted.items() if split is not None}
        if not splits:
            raise DatasetError("has no records", path=root)
        dataset = Dataset(
            directory=root,
            name=root.name if info is None else info.name,
            splits=splits,
            shard_cache=cache,
            empty_splits=tuple(counted.keys() - splits.keys()),
            pattern=pattern,
            decode=decode_function,
        )
        if decode_function is not None:
            return replace(dataset, label_form=_decoded_labels(dataset, info, options))
        return _with_features(dataset, info, options, skip)


def _located(path: Paths) -> tuple[AnyPath, AnyPath | tuple[AnyPath, ...] | None]:
    """Return the directory of a dataset, and the pattern or the files if these were passed."""
    pattern: AnyPath | tuple[AnyPath, ...]
    if isinstance(path, str | os.PathLike):
        if not is_pattern(path):
            return find_folders(path).root, None
        pattern = as_path(path)
        shards = find_shards(pattern)
    else:
        pattern = shards = find_shards(as_paths(path))
    if not shards:
        raise UsageError("no shards: the list of files is empty")
    folders = {shard.parent for shard in shards}
    if len(folders) == 1:
        return folders.pop(), pattern
    if any(isinstance(folder, RemotePath) for folder in folders):
        what = "the shards are in several folders of a store"
        raise DatasetError(what, path=shards[0], hint="use shards in one folder")
    return Path(os.path.commonpath(folders)), pattern


def _count(name: str, files: SplitFiles, skip: bool, cache: ShardCache | None) -> Split | None:
    """Count the records of a split; None if it has none.

    The metadata is trusted for remote shards until they are downloaded.
    """
    records, kinds = dict[AnyPath, int](), set[Compression]()
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
            records[path] = expected
            continue
        counted = count_shard(path if cache is None else cache.fetch(path))
        damage = [fault for fault in counted.faults if fault.kind is not FaultKind.EMPTY]
        if damage and not skip:
            # Inserted or missing bytes show in the next header; CRCs show where they really are.
            faulty = (item for item in read_shard(path) if isinstance(item, Fault))
            raise as_error(path, next(faulty, damage[0]), in_dataset=True)
        if not skip and expected not in (None, counted.records):
            raise DatasetError(
                f"the shard does not match {DATASET_INFO}",
                path=path,
                expected=f"{expected} records",
                found=counted.records,
            )
        if counted.records:
            records[path] = counted.records
            kinds.add(counted.compression)
    records = {path: count for path, count in records.items() if count}
    if not records:
        return None
    if not kinds:  # of remote shards, the others are checked once downloaded
        kinds.add(Shard.at(next(iter(records))).compression)
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


def _with_features(
    dataset: Dataset,
    info: DatasetInfo | None,
    options: FeatureOptions,
    skip: bool,
) -> Dataset:
    """Find image and label in the first record that has both, and how they are stored."""
    root, described = dataset.directory, _described(dataset.directory)
    wanted_image, wanted_label = options.image_feature, options.label_feature
    kind = _label_kind(options)
    if kind.needs_feature and wanted_label is None:
        raise UsageError("regression requires --label-feature")
    problem: TfrtoolError = DatasetError("the first records can't be parsed", path=root)
    first, usual = FirstRecords(), ((info and info.label_feature) or "", *LABELS)
    for number, example in enumerate(_first_examples(dataset, skip)):
        features = first.add(example, info)
        named = [] if wanted_label is None else _label_names(wanted_label, features)
        absent = [name for name in (wanted_image, *named) if name not in (None, *features)]
        if absent:  # perhaps only in the split of this record
            hint = suggestion(str(absent[0]), features, "features")
            problem = UsageError(f"no feature {absent[0]!r}", path=root, hint=hint)
            continue
        image = wanted_image or first.roles.image or ""
        others = (name for name in usual if name in features and name != image)
        labels = named or [first.roles.label or next(others, "")]
        field = field_at(described, image)
        form = _image_form(features, image, field) if image in features else None
        bad = [name for name in labels if name not in features or not kind.fits(features[name])]
        if form and not bad:
            break
        label = next(iter(bad), "")
        unclear = ("label", label, kind.expected) if form else ("image", image, _IMAGE)
        problem = problem if number else _unclear(root, features, *unclear)
    else:
        raise problem
    label = ",".join(labels)
    dataset = replace(
        dataset,
        image_feature=image,
        label_feature=label,
        image_form=form,
        objects=tuple(filter(of_objects, features)) if has_boxes(features) else (),
    )
    found = {name: features[name] for name in labels}
    label_form, unlabeled = kind.find_form(dataset, described, found, skip)
    return replace(dataset, label_form=label_form, unlabeled_splits=unlabeled)


def _local_shards(dataset: Dataset, split: str) -> Sequence[AnyPath]:
    return dataset.local_split(split).shards


def _label_names(wanted: str, features: Mapping[str, Feature]) -> list[str]:
    """Return the requested label features: one, or several separated by commas."""
    if wanted in features or "," not in wanted:
        return [wanted]
    names = [name.strip() for name in wanted.split(",")]
    if not all(names):
        raise UsageError(f"--label-feature {wanted} has an empty name")
    if len({*names}) < len(names):
        raise UsageError(f"--label-feature {wanted} names a feature twice")
    return names


def _described(root: AnyPath) -> Struct:
    """Return what features.json says of each feature; nothing if its layout isn't TFDS'."""
    with contextlib.suppress(FileNotFoundError), reading_metadata(root / FEATURES, "TFDS"):
        content = read_json(root / FEATURES)
        with contextlib.suppress(ValueError):
            return tree_of_tfds(content)[0]
    return Struct({})


def _first_examples(dataset: Dataset, skip: bool) -> Iterator[Example]:
    """Yield the first records of all splits in turn: those of one may have no labels."""
    splits = [chain.from_iterable(map(read_shard, one.shards)) for one in dataset.splits.values()]
    items = chain.from_iterable(zip_longest(*splits))
    for record in islice((item for item in items if isinstance(item, Record)), SAMPLE):
        try:
            yield decode_example(record.payload)
        except ValueError as error:
            if not skip:
                what = f"the first record can't be parsed: {error}"
                raise DatasetError(what, path=dataset.directory) from error


def _image_form(
    features: Mapping[str, Feature], name: str, field: Field | None
) -> ImageForm | None:
    """Return how images are stored; None if they need a function of the user's."""
    item = features[name]
    data = item.values[0] if len(item.values) == 1 else None
    if not isinstance(data, bytes):
        return None
    values = field if isinstance(field, Values) else None
    if values is not None and values.kind is Kind.IMAGE:
        if not str(values.info.get("dtype", "uint8")).startswith("uint"):
            return None  # floats that TFDS packs into an image file
    else:
        (height, heights), (width, widths) = (
            said_size(features, name, endings) for endings in (HEIGHTS, WIDTHS)
        )
        sizes: list[tuple[tuple[int | str, ...], list[int]]] = []
        if values is not None and values.shape:
            shape = [*(size or -1 for size in values.shape), 1][:3]
            sizes.append((tuple(shape[:2]), shape))
        if height is not None and width is not None:
            area = heights[0] * widths[0]
            sizes.append(((height, width), [*heights, *widths, len(data) // area]))
        for size, shape in sizes:
            fits = len(shape) == 3 and 1 <= shape[2] <= 4 and math.prod(shape) == len(data)
            if fits and 0 < shape[0] * shape[1] <= MAX_IMAGE_PIXELS:
                return ImageForm(size=size, channels=shape[2])
    return ImageForm() if describe_bytes(data) in _DECODED else None


def find_image(root: AnyPath, features: Mapping[str, Feature], image: str) -> ImageForm | None:
    """Return how a feature of a record in a directory stores an image; None if it has none."""
    return _image_form(features, image, field_at(_described(root), image))


def _unclear(
    root: AnyPath, features: Mapping[str, Feature], role: str, name: str, expected: str
) -> DatasetError:
    """Return an error that shows what features there are, or what the chosen one is."""
    what, shown = f"can't detect the {role} feature", features
    if name in features:
        what, shown = f"feature {printable(name)!r} can't be the {role}", {name: features[name]}
    elif role == "label" and has_boxes(features):
        what = "its records have boxes but no label for the whole image, which a classifier needs"
    found = []
    for one, item in shown.items():
        kind = item.dtype.value if item.dtype else "no type"
        content = ", ".join({describe_bytes(v) for v in item.values if isinstance(v, bytes)})
        count = f"{len(item.values)} value{'s' * (len(item.values) != 1)}"
        found.append(f"{printable(one)}: {kind}, {count}{content and f' of {content}'}")
    hint = (
        f"run tfrtool inspect shard {shlex.quote(str(root))} to show the features, and use "
        f"--{role}-feature NAME to choose one, or --decode-function FILE.py:FUNCTION"
    )
    return DatasetError(
        what, path=root, expected=expected, found=" / ".join(found[:_SHOWN]), hint=hint
    )


def _class_names(
    root: AnyPath, label: str, field: Field | None, example: Feature
) -> Sequence[str] | None:
    """Return the names of the classes in the metadata, or their numbers if it only counts them."""
    count = 0
    if isinstance(field, Values) and field.kind is Kind.LABEL:
        count = class_count(field)
    if count > MAX_CLASSES:
        many = f"{count:,} classes; the limit is {MAX_CLASSES:,}"
        raise DatasetError(f"label feature {label!r} has {many}", path=root / FEATURES)
    names = read_class_names(root, label)
    return names or ([*map(str, range(count))] if example.dtype is DType.INT64 else None)


def _decoded_labels(
    dataset: Dataset, info: DatasetInfo | None, options: FeatureOptions
) -> LabelForm:
    """Return the form of labels that a function of the user's decodes.

    Raises:
        UsageError: the function fails, or its image or label has the wrong type or shape.
    """
    require_tensorflow("functions that decode records")
    import tensorflow as tf

    names = read_class_names(dataset.directory, (info and info.label_feature) or LABELS[0])
    kind, function = _label_kind(options), dataset.decode_function
    name = getattr(dataset.decode, "__name__", dataset.decode)
    record = tf.TensorSpec([], tf.string)
    try:
        traced = tf.function(function, autograph=False).get_concrete_function(record)
        image, label = traced.structured_outputs
        types = f"{image.dtype.name} {image.shape} and {label.dtype.name} {label.shape}"
    except (Exception, SystemExit) as error:  # whatever the user's own code raises
        raise UsageError(f"--decode-function {name} fails: {reason_of(error)}") from error
    is_vector = label.dtype == tf.float32 and label.shape.rank == 1 and label.shape[0] is not None
    right = image.dtype == tf.uint8 and image.shape.rank == 3
    if not right or not (is_vector or kind.fits_decoded(label)):
        raise UsageError(
            f"--decode-function {name} returns the wrong types",
            expected=f"uint8 [height, width, 3] and {kind.decoded}",
            found=types,
        )
    width = label.shape[0] if is_vector else None
    return kind.find_decoded_form(dataset, names, width, lambda record: traced(record)[1])


class _ClassLabels:
    """One class or several."""

    needs_feature = False
    expected = "int64, text or a vector of 0 and 1, or float32 for --task regression"
    decoded = "int64 [] or float32 [classes]"

    def fits(self, item: Feature) -> bool:
        first = item.values[0] if item.values else b""
        if isinstance(first, bytes):
            return item.dtype is DType.STRING and describe_bytes(first) in ("text", "empty")
        vector = len(item.values) > 1 and {0, 1}.issuperset(item.values)
        return item.dtype is DType.INT64 or vector

    def fits_decoded(self, label: Any) -> bool:
        return label.dtype.name in ("int32", "int64") and label.shape.rank == 0

    def find_form(
        self, dataset: Dataset, described: Struct, labels: Mapping[str, Feature], skip: bool
    ) -> tuple[LabelForm, tuple[str, ...]]:
        """Return the form of labels, and the splits without any."""
        splits = {name: partial(_local_shards, dataset, name) for name in dataset.splits}
        if len(labels) > 1:
            return find_flag_form(labels, splits=splits, skip=skip)
        ((label, example),) = labels.items()
        about = field_at(described, label)
        listed = isinstance(about, ListOf)
        values = about.item if isinstance(about, ListOf) else about
        return find_label_form(
            label,
            example,
            names=_class_names(dataset.directory, label, values, example),
            listed=listed,
            splits=splits,
            skip=skip,
        )

    def find_decoded_form(
        self, dataset: Dataset, names: Sequence[str] | None, width: int | None, decode: Any
    ) -> LabelForm:
        """Return the classes of decoded labels; a vector of labels has a value for each class.

        Without names in the metadata, they are the numbers up to the highest label of all records.
        """
        from tfrtool.loading.decoding import split_records

        if width is not None:
            classes = names or [*map(str, range(width))]
            return LabelForm(names=tuple(classes), encoding=LabelEncoding.MULTI_HOT)
        if names is None:
            highest = 0
            for split in dataset.splits:
                records = split_records(dataset, LoadOptions(image_size=1, split=split))
                highest = max(highest, *map(int, records.map(decode)))
            names = [*map(str, range(highest + 1))]
        return LabelForm(names=tuple(names))


class _Targets:
    """Numbers to predict."""

    needs_feature = True
    expected = "int64 or float32, for --task regression"
    decoded = "float32 [] or [targets]"

    def fits(self, item: Feature) -> bool:
        return item.dtype in (DType.INT64, DType.FLOAT32) and 1 <= len(item.values) <= MAX_CLASSES

    def fits_decoded(self, label: Any) -> bool:
        return label.dtype.name == "float32" and not label.shape.rank

    def find_form(
        self, _dataset: Dataset, _described: Struct, labels: Mapping[str, Feature], _skip: bool
    ) -> tuple[LabelForm, tuple[str, ...]]:
        """Return how numbers are stored; the first record decides the length of vectors."""
        parts = []
        for name, item in labels.items():
            count, dtype = len(item.values), item.dtype or DType.INT64
            width = None if count == 1 else count
            parts.append((name, LabelForm(dtype=dtype, encoding=LabelEncoding.VALUE, width=width)))
        if len(parts) == 1:
            return parts[0][1], ()
        return LabelForm(encoding=LabelEncoding.VALUE, parts=tuple(parts)), ()

    def find_decoded_form(
        self, _dataset: Dataset, _names: Sequence[str] | None, width: int | None, _decode: Any
    ) -> LabelForm:
        return LabelForm(dtype=DType.FLOAT32, encoding=LabelEncoding.VALUE, width=width)


_LABEL_KINDS: Mapping[str, _ClassLabels | _Targets] = MappingProxyType(
    {"classification": _ClassLabels(), "regression": _Targets()}
)


def _label_kind(options: FeatureOptions) -> _ClassLabels | _Targets:
    return _LABEL_KINDS[getattr(options, "task", None) or "classification"]
