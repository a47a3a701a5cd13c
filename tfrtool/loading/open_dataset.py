"""Finding out what is in a directory of shards, by its metadata or by its records."""

import contextlib
import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tfrtool.errors import DatasetError, UsageError, printable, reason_of, suggestion
from tfrtool.examples.content import describe_bytes
from tfrtool.examples.dataset_files import SplitFiles
from tfrtool.examples.example import DType, Feature, decode_example
from tfrtool.examples.objects.read_objects import has_boxes
from tfrtool.examples.roles import (
    HEIGHTS,
    IMAGES,
    LABELS,
    SAMPLE,
    WIDTHS,
    find_roles,
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
from tfrtool.loading.dataset import Dataset, ImageForm, Split, split_files
from tfrtool.loading.labels import LabelEncoding, LabelForm, find_label_form
from tfrtool.records.count import as_error, count_shard
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.records.reader import read_shard
from tfrtool.records.shard_sets import check_dataset_name
from tfrtool.records.shards import Shard, find_folders
from tfrtool.storage.arguments import OnError, as_member
from tfrtool.storage.commit import unchanged_while_read
from tfrtool.storage.json_files import read_json, reading_metadata
from tfrtool.storage.limits import MAX_CLASSES, MAX_IMAGE_PIXELS
from tfrtool.storage.remote.shard_cache import ShardCache
from tfrtool.storage.remote_path import RemotePath

_DECODED = ("image/jpeg", "image/png", "image/gif", "image/bmp", "image/webp")
"""What ``tf.io.decode_image`` takes."""

_SHOWN = 6


def open_dataset(
    path: str | os.PathLike[str],
    on_error: str | OnError = "stop",
    *,
    image_feature: str | None = None,
    label_feature: str | None = None,
    decode_function: str | Callable[[Any], Any] | None = None,
    shard_cache: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Open a directory of shards as a dataset for training.

    TFDS metadata is used if it exists, and compared with the files: a missing shard, or one with
    another number of records, is an error. Without metadata, splits are detected from file names,
    features and image format from the first records, and classes from all records. Every record
    header is checked, because a damaged length can crash TensorFlow.

    Args:
        path: directory with the shards, with versions of the dataset, or with one directory per
            split.
        on_error: "stop" raises an error for damaged and missing shards; "skip" accepts them. After
            "skip", call `Dataset.drop_corrupt` before TensorFlow reads the dataset.
        image_feature: feature that contains the images: encoded files, or uint8 pixels with a
            height and width in each record or in the metadata. None detects it.
        label_feature: feature that contains the labels: a number or name, a list of these, or a
            vector of 0 and 1. None detects it.
        decode_function: function that decodes records of any other form, or its name, such as
            ``FILE.py:FUNCTION``. It maps a serialized record, a string tensor, to an image, uint8
            [height, width, 3], and a label: a class number, int64 [], or float32 [classes] of 0 and
            1. It must consist of TensorFlow operations.
        shard_cache: local directory in which to cache remote shards. None uses the user's cache
            directory.

    Raises:
        UsageError: a feature or function does not exist, or the function returns something else.
        DatasetError: the directory does not contain a dataset, does not match its metadata, is
            being replaced, or has nothing that an image classifier can be trained on.
        CorruptShardError: the framing of a shard is damaged.
    """
    skip = as_member(OnError, on_error, "on_error") is OnError.SKIP
    if decode_function is not None and (image_feature or label_feature):
        raise UsageError("--decode-function excludes --image-feature and --label-feature")
    root, cache = find_folders(path).root, None
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
            name: _count(name, files, skip, cache) for name, files in split_files(root).items()
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
            decode=decode_function,
        )
        if decode_function is not None:
            return replace(dataset, label_form=_decoded_labels(dataset, info))
        return _with_features(dataset, info, image_feature, label_feature, skip)


def _count(name: str, files: SplitFiles, skip: bool, cache: ShardCache | None) -> Split | None:
    """Count the records of a split; None if it has none.

    The metadata is trusted for remote shards until they are downloaded.
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
            records[path] = expected
            continue
        count, faults, _ = count_shard(path if cache is None else cache.fetch(path))
        damage = [fault for fault in faults if fault.kind is not FaultKind.EMPTY]
        if damage and not skip:
            # Inserted or missing bytes show in the next header; CRCs show where they really are.
            faulty = (item for item in read_shard(path) if isinstance(item, Fault))
            raise as_error(path, next(faulty, damage[0]), in_dataset=True)
        if not skip and expected not in (None, count):
            raise DatasetError(
                f"the shard does not match {DATASET_INFO}",
                path=path,
                expected=f"{expected} records",
                found=count,
            )
        records[path] = count
    records = {path: count for path, count in records.items() if count}
    if not records:
        return None
    # Of remote shards only the first is read here; the others are checked once downloaded.
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


def _with_features(
    dataset: Dataset,
    info: DatasetInfo | None,
    wanted_image: str | None,
    wanted_label: str | None,
    skip: bool,
) -> Dataset:
    """Find image and label in the first record that has both, and how they are stored."""
    root, described = dataset.directory, _described(dataset.directory)
    problem: DatasetError | None = None
    for features in _first_features(dataset, skip):
        for wanted in (wanted_image, wanted_label):
            if wanted is not None and wanted not in features:
                hint = suggestion(wanted, features, "features")
                raise UsageError(f"no feature {wanted!r}", path=root, hint=hint)
        image = wanted_image or _find_image(features, info, described)
        form = _image_form(features, image, described.get(image, {})) if image else ""
        label = wanted_label or _find_label(features, image, info)
        if isinstance(form, ImageForm) and image and label and not _no_label(features[label]):
            break
        role, name = ("image", image) if not isinstance(form, ImageForm) else ("label", label)
        lacks = {}
        for one, item in features.items():
            kind = _image_form(features, one, described.get(one, {}))
            lack = "" if isinstance(kind, ImageForm) else kind
            lacks[one] = _no_label(item) if role == "label" else lack
        problem = problem or _unclear(root, lacks, role, name)
    else:
        raise problem or DatasetError("the first records can't be parsed", path=root)
    listed = described.get(label, {}).get("sequence", {}).get("feature")
    names = _class_names(root, label, listed or described.get(label, {}), features[label])
    dataset = replace(
        dataset,
        image_feature=image,
        label_feature=label,
        image_form=form,
        objects=tuple(filter(of_objects, features)) if has_boxes(features) else (),
    )
    shards = chain.from_iterable(dataset.local_split(name).shards for name in dataset.splits)
    label_form = find_label_form(
        label, features[label], names=names, listed=bool(listed), shards=shards, skip=skip
    )
    return replace(dataset, label_form=label_form)


def _described(root: Path) -> Mapping[str, Any]:
    """Return what features.json says of each feature; nothing if its layout isn't TFDS'."""
    with contextlib.suppress(FileNotFoundError), reading_metadata(root / FEATURES, "TFDS"):
        content = read_json(root / FEATURES)
        with contextlib.suppress(KeyError, TypeError):
            features = content["featuresDict"]["features"]
            return {name: held for name, held in features.items() if isinstance(held, dict)}
    return {}


def _first_features(dataset: Dataset, skip: bool) -> Iterator[Mapping[str, Feature]]:
    """Yield the features of the first records; one that can't be parsed is an error or skipped."""
    shards = [shard for split in dataset.splits.values() for shard in split.shards]
    items = chain.from_iterable(map(read_shard, shards))
    for record in islice((item for item in items if isinstance(item, Record)), SAMPLE):
        try:
            yield decode_example(record.payload).features
        except ValueError as error:
            if not skip:
                what = f"the first record can't be parsed: {error}"
                raise DatasetError(what, path=dataset.directory) from error


def _find_image(
    features: Mapping[str, Feature], info: DatasetInfo | None, described: Mapping[str, Any]
) -> str | None:
    """Return the image feature: by the metadata, by a usual name, or the only one that can be."""
    usable = [
        name
        for name in features
        if not of_objects(name)
        and isinstance(_image_form(features, name, described.get(name, {})), ImageForm)
    ]
    usual = (info.image_feature if info else None, find_roles(features, info).image, *IMAGES)
    only = usable[0] if len(usable) == 1 else None
    return next((name for name in usual if name in usable), only)


def _find_label(
    features: Mapping[str, Feature], image: str | None, info: DatasetInfo | None
) -> str | None:
    """Return the label feature: by the metadata, or by a usual name. It is never guessed."""
    usual = (find_roles(features, info).label, info.label_feature if info else None, *LABELS)
    usable = [name for name in features if name != image and not _no_label(features[name])]
    return next((name for name in usual if name in usable), None)


def _image_form(
    features: Mapping[str, Feature], name: str, described: Mapping[str, Any]
) -> ImageForm | str:
    """Return the form of an image feature, or why it can't be trained on without a function."""
    item = features[name]
    (data,) = item.values if len(item.values) == 1 else (None,)
    if not isinstance(data, bytes):
        return f"{_summary(item)}; needs one string"
    is_file = str(described.get("pythonClassName", "")).endswith(".Image")
    pixels = described.get("image") or described.get("tensor") or {}
    dtype = pixels.get("dtype", "uint8") if isinstance(pixels, dict) else "uint8"
    if is_file and not str(dtype).startswith("uint"):
        return f"{dtype} pixels that TFDS packs into an image file"
    if not is_file:
        height, heights = said_size(features, name, HEIGHTS)
        width, widths = said_size(features, name, WIDTHS)
        sides: list[tuple[Any, Sequence[int]]] = []
        with contextlib.suppress(KeyError, TypeError, ValueError):
            shape = [int(size) for size in pixels["shape"]["dimensions"]]
            sides.append((tuple(shape[:2]), shape if len(shape) == 3 else (*shape, 1)))
        if height is not None and width is not None:
            area = heights[0] * widths[0]
            sides.append(((height, width), (*heights, *widths, len(data) // area)))
        for size, sizes in sides:
            shape = [*sizes]
            fits = len(shape) == 3 and min(shape) > 0 and math.prod(shape) == len(data)
            if fits and shape[2] <= 4 and shape[0] * shape[1] <= MAX_IMAGE_PIXELS:
                return ImageForm(size=size, channels=shape[2])
    content = describe_bytes(data)
    if content in _DECODED:
        return ImageForm()
    return (
        f"{len(data)} bytes of {content} data; needs a JPEG, PNG, GIF, BMP or WebP file, or uint8 "
        "pixels with a height and width in each record or in features.json"
    )


def _no_label(item: Feature) -> str:
    """Return why a feature can't be the label; nothing if it can."""
    values, vector = item.values, len(item.values) > 1
    text = all(isinstance(value, bytes) and describe_bytes(value) == "text" for value in values[:1])
    if item.dtype is DType.INT64 or (item.dtype is DType.STRING and text):
        return ""
    if item.dtype is DType.FLOAT32 and vector and {0, 1}.issuperset(values):
        return ""
    return f"{_summary(item)}; needs int64, text, or a vector of 0 and 1"


def _summary(item: Feature) -> str:
    count = len(item.values)
    return f"{item.dtype.value if item.dtype else 'no type'}, {count:,} value{'s' * (count != 1)}"


def _unclear(root: Path, lacks: Mapping[str, str], role: str, name: str | None) -> DatasetError:
    """Return an error that says why a feature, or each of them, can't be the image or the label."""
    what, shown = f"can't detect the {role} feature", lacks
    if name is not None:
        what, shown = f"feature {printable(name)!r} can't be the {role}", {name: lacks[name]}
    elif role == "label" and has_boxes(lacks):
        what = "its records have boxes but no label for the whole image, which a classifier needs"
    found = [f"{printable(one)}: {lack or 'possible'}" for one, lack in shown.items()]
    hint = (
        f"run tfrtool inspect shard {shlex.quote(str(root))} to show the features, and use "
        f"--{role}-feature NAME to choose one, or --decode-function FILE.py:FUNCTION"
    )
    return DatasetError(what, path=root, found=" / ".join(found[:_SHOWN]), hint=hint)


def _class_names(
    root: Path, label: str, described: Mapping[str, Any], example: Feature
) -> Sequence[str] | None:
    """Return the names of the classes in the metadata, or their numbers if it only counts them."""
    count = 0
    with contextlib.suppress(KeyError, TypeError, ValueError):
        count = int(described["classLabel"]["numClasses"])
    if count > MAX_CLASSES:
        many = f"{count:,} classes; the limit is {MAX_CLASSES:,}"
        raise DatasetError(f"label feature {label!r} has {many}", path=root / FEATURES)
    names = read_class_names(root, label)
    return names or ([*map(str, range(count))] if example.dtype is DType.INT64 else None)


def _decoded_labels(dataset: Dataset, info: DatasetInfo | None) -> LabelForm:
    """Return the classes of labels that a function of the user's decodes.

    A vector has a class for each value. Otherwise they are those in the metadata, or else the
    numbers up to the highest label of all records.

    Raises:
        UsageError: the function fails, or its image or label has the wrong type or shape.
    """
    import tensorflow as tf

    from tfrtool.loading.options import LoadOptions
    from tfrtool.loading.pipeline import split_records

    names: Sequence[str] | None = read_class_names(
        dataset.directory, (info and info.label_feature) or LABELS[0]
    )
    function, name = dataset.decode_function, getattr(dataset.decode, "__name__", dataset.decode)
    record = tf.TensorSpec([], tf.string)
    try:
        traced = tf.function(function, autograph=False).get_concrete_function(record)
        image, label = traced.structured_outputs
        types = f"{image.dtype.name} {image.shape} and {label.dtype.name} {label.shape}"
    except Exception as error:  # whatever the user's own code raises
        raise UsageError(f"--decode-function {name} fails: {reason_of(error)}") from error
    several = label.dtype == tf.float32 and label.shape.rank == 1 and label.shape[0] is not None
    single = label.dtype in (tf.int32, tf.int64) and label.shape.rank == 0
    if image.dtype != tf.uint8 or image.shape.rank != 3 or not (several or single):
        raise UsageError(
            f"--decode-function {name} returns the wrong types",
            expected="uint8 [height, width, 3] and int64 [] or float32 [classes]",
            found=types,
        )
    if several:
        classes = names or [*map(str, range(label.shape[0]))]
        return LabelForm(names=tuple(classes), encoding=LabelEncoding.MULTI_HOT)
    if names is None:
        highest = 0
        for split in dataset.splits:
            records = split_records(dataset, LoadOptions(image_size=1, split=split))
            labels = records.map(lambda record: traced(record)[1])
            highest = max(highest, *(int(label) for label in labels))
        names = [*map(str, range(highest + 1))]
    return LabelForm(names=tuple(names))
