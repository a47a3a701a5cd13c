"""Records decoded for a training loop: features, or images with their labels or objects."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

from google.protobuf.message import DecodeError

from tfrtool.errors import SchemaError, ShardError, UsageError
from tfrtool.examples.dataset_files import find_files
from tfrtool.examples.example import (
    DType,
    Example,
    Feature,
    PayloadKind,
    classify_payload,
    decode_example,
    feature_key,
    parse_message,
)
from tfrtool.examples.objects.label_map import object_names
from tfrtool.examples.objects.read_objects import read_objects
from tfrtool.examples.roles import FirstRecords, LabelNames
from tfrtool.examples.tfds_metadata import info_beside
from tfrtool.images.recipe import Resize
from tfrtool.inspection.extract.annotations import outline_of
from tfrtool.records.framing import Record
from tfrtool.records.random_access import Records
from tfrtool.storage.arguments import Paths, as_paths
from tfrtool.storage.limits import MAX_CLASSES
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tfrtool.features.record_arrays import FeatureArrays

Decode = Literal["features", "image", "objects", "example"]
_DECODES = ("features", "image", "objects", "example")
Size = int | tuple[int, int]


def decode_payload(payload: bytes) -> Example:
    """Decode an Example or a SequenceExample; `ValueError` if it is neither."""
    kind = classify_payload(payload)
    if kind not in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE, PayloadKind.EMPTY):
        raise ValueError("not a tf.train.Example or SequenceExample")
    return decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)


def _array(feature: Feature) -> Any:
    """Return all values as an array of one dimension; the dtype is that of the feature."""
    import numpy as np

    if feature.dtype is DType.STRING:
        strings = np.empty(len(feature.values), object)
        strings[:] = feature.values
        return strings
    dtype = np.int64 if feature.dtype is DType.INT64 else np.float32
    return np.array(feature.values, dtype)


def _number_or_array(feature: Feature) -> Any:
    """Return numbers as an array, of no dimension if it is one; bytes as they are."""
    values = feature.values
    if feature.dtype is DType.STRING:
        return values[0] if len(values) == 1 else list(values)
    array = _array(feature)
    return array.reshape(()) if len(values) == 1 else array


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadDecoder:
    """A function from a payload to what a loader takes, which can be pickled."""

    decode: Decode
    arrays: "FeatureArrays | None" = None
    others: bool = False
    image: str = ""
    label: str = ""
    resize: Resize | None = None
    transform: Callable[[Any], Any] | None = None
    class_names: tuple[str, ...] = ()

    def __call__(self, payload: bytes) -> Any:
        """Decode a payload; `ValueError` says why it can't be."""
        decoders: dict[Decode, Callable[[bytes], Any]] = {
            "features": self._feature_arrays,
            "image": self._labeled,
            "objects": self._annotated,
            "example": _features,
        }
        element = decoders[self.decode](payload)
        return element if self.transform is None else self.transform(element)

    def _feature_arrays(self, payload: bytes) -> dict[str, Any]:
        if self.arrays is None:
            return _flat_arrays(payload)
        typed = self.arrays(payload)
        return _flat_arrays(payload) | typed if self.others else typed

    def _labeled(self, payload: bytes) -> tuple[Any, int | None]:
        try:  # an Example is not taken apart in full: that takes as long as a tenth of the decoding
            features = parse_message(payload).context.feature
            found = {entry.key: entry.value for entry in features}
        except DecodeError:
            found = {}
        image, label = (found.get(feature_key(name)) for name in (self.image, self.label))
        images: Sequence[bytes] = image.bytes_list.value if image is not None else ()
        labels: Sequence[int] = label.int64_list.value if label is not None else ()
        if not self.label:
            return self._pixels(images)[0], None
        if len(labels) != 1:
            decode_payload(payload)
            raise ValueError(f"label {self.label!r} is not a single int64")
        return self._pixels(images)[0], labels[0]

    def _annotated(self, payload: bytes) -> tuple[Any, dict[str, Any]]:
        features = decode_payload(payload).features
        image = features.get(self.image)
        pixels, size = self._pixels(image.values if image else ())
        return pixels, _targets(features, size, (pixels.shape[1], pixels.shape[0]))

    def _pixels(self, values: Sequence[Any]) -> "tuple[npt.NDArray[np.uint8], tuple[int, int]]":
        """Return an image's pixels, and its stored width and height."""
        import numpy as np

        from tfrtool.images.audit import rgb_image

        data = values[0] if len(values) == 1 else None
        if not isinstance(data, bytes):
            raise ValueError(f"image {self.image!r} is not a single image")
        image, size = rgb_image(data, self.resize)
        return np.array(image), size


def _features(payload: bytes) -> dict[str, Any]:
    return _each_feature(decode_payload(payload), _number_or_array)


def _flat_arrays(payload: bytes) -> dict[str, Any]:
    """Return the features of a record of which nothing is declared."""
    return _each_feature(decode_payload(payload), _array)


def _each_feature(example: Example, convert: Callable[[Feature], Any]) -> dict[str, Any]:
    features = {name: convert(one) for name, one in example.features.items() if one.dtype}
    lists = example.feature_lists.items()
    return features | {name: [convert(step) for step in steps] for name, steps in lists}


def _targets(
    features: Mapping[str, Feature], size: tuple[int, int], target: tuple[int, int]
) -> dict[str, Any]:
    """Return a record's objects in an image of a size, scaled to another, as torchvision has it."""
    import numpy as np

    from tfrtool.images.masks import object_masks

    found = read_objects(features)
    if found.problems:
        raise ValueError(found.problems[0])
    usable = [number for number, one in enumerate(found.objects) if one.is_inside]
    objects = [found.objects[number] for number in usable]
    labels = [one.label for one in objects]
    if None in labels:
        raise ValueError(f"object {usable[labels.index(None)]} has no class number")
    boxes = np.array([one.box for one in objects], np.float32).reshape(-1, 4)
    targets: dict[str, Any] = {
        "boxes": boxes.clip(0, 1) * np.array((*target, *target), np.float32),
        "labels": np.array(labels, np.int64),
        "iscrowd": np.array([one.more.get("crowd", False) for one in objects], np.int64),
    }
    points = [one.more["keypoints"] for one in objects if "keypoints" in one.more]
    if points:
        flat = np.array(points, np.float32).reshape(len(points), -1, 3)
        targets["keypoints"] = flat * np.array((*target, 1), np.float32)
    masks = found.masks and [found.masks[number] for number in usable]
    outlines = [one.more.get("segmentation", "") for one in objects]
    for number, text in enumerate(outlines):
        if text and outline_of(text) is None:
            raise ValueError(f"object {usable[number]}: invalid outline")
    if masks or any(outlines) or not objects:
        targets["masks"] = object_masks(masks or outlines, size, target)
    return targets


def find_decoder(
    shards: Sequence[AnyPath],
    first: Callable[[], bytes | None],
    decode: Decode | None,
    *,
    label_feature: str | None = None,
    resize: Size | None = None,
    transform: Callable[[Any], Any] | None = None,
    types: Mapping[str, str] | None = None,
) -> PayloadDecoder | None:
    """Return the function that decodes the records of shards, whose first payload is called for.

    None if they are not decoded, or if there are none. The errors are those of `open_records`.
    """
    if decode not in (None, *_DECODES):
        expected = f"one of {', '.join(_DECODES)}"
        raise UsageError(f"invalid decode {repr(decode)[:100]}", expected=expected)
    if transform is not None and decode is None:
        raise UsageError("transform requires decode")
    if resize is not None and decode not in ("image", "objects"):
        raise UsageError("resize requires decode='image' or decode='objects'")
    if types and decode != "features":
        raise UsageError("types requires decode='features'")
    if decode is None:
        return None
    if decode == "example":
        return PayloadDecoder(decode=decode, transform=transform)
    if decode == "features":
        return _features_decoder(shards, transform, types)
    if (payload := first()) is None:
        return None
    folder, records = shards[0].parent, FirstRecords()
    try:
        records.add(decode_payload(payload), info_beside(folder))
    except ValueError as error:
        raise ShardError(str(error), path=shards[0], record=0) from error
    image, label = records.roles.image, label_feature or records.roles.label
    found = ", ".join(map(repr, list(records.features)[:10]))
    if decode == "objects" and (image is None or not records.has_boxes):
        what = "no image with boxes of objects among the features"
        raise ShardError(what, path=shards[0], record=0, found=found)
    is_unclear = label is None and records.roles.guess is not None and decode == "image"
    if image is None or is_unclear:
        what = "can't choose the image and the label among the features"
        hint = None if image is None else "pass label_feature=NAME to choose the label"
        raise ShardError(what, path=shards[0], record=0, found=found, hint=hint)
    if decode == "objects":
        numbered = {n: name for n, name in object_names(folder).items() if n <= MAX_CLASSES}
        names = tuple(numbered.get(n, "") for n in range(max(numbered, default=-1) + 1))
    else:
        names = LabelNames.read(folder, label).names
    return PayloadDecoder(
        decode=decode,
        image=image,
        label=label or "",
        resize=Resize.of(resize),
        transform=transform,
        class_names=names,
    )


def _features_decoder(
    shards: Sequence[AnyPath],
    transform: Callable[[Any], Any] | None,
    types: Mapping[str, str] | None,
) -> PayloadDecoder:
    """Return the function that decodes features as types or metadata next to shards say.

    If these don't describe all features, the others are arrays of one dimension.
    """
    from tfrtool.examples.fields import Kind, Struct, leaves_of
    from tfrtool.features.record_arrays import FeatureArrays
    from tfrtool.features.sources import declared_features

    declared = declared_features(shards, types)
    if declared.is_sequence and types:
        raise UsageError("types of arrays require tf.train.Examples")
    others = declared.is_partial and declared.root is None
    if declared.is_partial:
        declared = declared.inferred(declared.root or Struct({}))
    if declared.problem is not None:
        raise SchemaError(declared.problem, path=declared.path)
    if declared.root is None:
        return PayloadDecoder(decode="features", transform=transform)
    labels = [leaf for leaf in leaves_of(declared.root) if leaf.values.kind is Kind.LABEL]
    return PayloadDecoder(
        decode="features",
        arrays=FeatureArrays(declared.root),
        others=others,
        transform=transform,
        class_names=tuple(labels[0].values.info.get("names", ())) if len(labels) == 1 else (),
    )


def find_split(shards: Paths, split: str | None) -> dict[AnyPath, int | None]:
    """Return the shards of a split, and how many records the metadata says that each has.

    The errors are those of `open_records`.
    """
    paths: dict[AnyPath, int | None] = {}
    known: set[str] = set()
    for location in as_paths(shards):
        files = find_files(location).splits.items()
        splits = {name: some.shards for name, some in files if some.shards}
        names = {name or "shards of no split" for name in splits}
        if split is None and location.is_dir() and len(splits) > 1:
            raise UsageError(
                "has several splits",
                path=location,
                found=", ".join(sorted(names)),
                hint=f"pass one of them, such as split={min(filter(None, splits))!r}",
            )
        known |= names
        for name in [*splits] if split is None else [split]:
            paths |= splits.get(name, {})
    if split is not None and not paths:
        raise UsageError("no such split", expected=", ".join(sorted(known)), found=repr(split))
    return paths


@overload
def open_records(shards: Paths, *, split: str | None = None) -> Records[Record]: ...


@overload
def open_records(
    shards: Paths,
    *,
    split: str | None = None,
    decode: Literal["features", "example"],
    types: Mapping[str, str] | None = None,
) -> Records[dict[str, Any]]: ...


@overload
def open_records(
    shards: Paths,
    *,
    split: str | None = None,
    decode: Decode,
    label_feature: str | None = None,
    resize: Size | None = None,
    transform: Callable[[Any], Any] | None = None,
    types: Mapping[str, str] | None = None,
) -> Records[Any]: ...


def open_records(
    shards: Paths,
    *,
    split: str | None = None,
    decode: Decode | None = None,
    label_feature: str | None = None,
    resize: Size | None = None,
    transform: Callable[[Any], Any] | None = None,
    types: Mapping[str, str] | None = None,
) -> Records[Any]:
    """Open one or more uncompressed shards for random access.

    With ``decode``, the records are a map-style data source for PyTorch and Grain:

    - "features": a dictionary of the record's features, with the NumPy types of TFDS.
      Ranks and dtypes are those of the features.json next to the shards, and the same in every
      record: see [Features as arrays](#features-as-arrays). Without it, each feature is an array
      of one dimension.
    - "image": a pair of the image's pixels, uint8 [height, width, 3] in RGB, and its label, an int.
      The label is None if the first record has no label feature, as in a test set.
    - "objects": a pair of pixels and a dictionary of arrays for the n objects in the image:
      ``boxes`` (float32 [n, 4]: xmin, ymin, xmax, ymax in pixels), ``labels`` (int64 [n], as
      recorded), ``iscrowd`` (int64 [n]); and if the record has them, ``masks`` (uint8
      [n, height, width], of 0 and 1) and ``keypoints`` (float32 [n, points, 3]: x, y, visibility).
      Boxes are clipped to the image, and objects outside it are omitted. Without objects, there are
      ``masks`` of shape [0, height, width].
    - "example": deprecated, use "features". A single number has no dimension, several have one.

    Args:
        shards: path of a shard, a dataset directory or a glob pattern; or several, in order.
        split: split to open, according to the names of the shards or their directories.
        decode: "features", "image" or "objects"; None for `Record` objects.
        label_feature: the label feature, for "image". None uses the one in the metadata, or one
            with a common name.
        resize: size of all images in pixels: (width, height), or the length of the shorter side.
            Boxes, masks and key points are scaled, too.
        transform: function of each decoded element, whose result replaces it. A `ValueError` that
            it raises becomes a `ShardError` that names the record.
        types: types of features by name, for "features", such as
            ``{"image": "raw:uint8[@height,@width,3]"}``. They come before those of files.

    Raises:
        ShardError: a file does not exist, can't be read or is compressed; or no image, label or
            boxes were detected in its first record.
        CorruptShardError: the framing of a shard is damaged.
        SchemaError: the features.json can't be read, or most records are something else.
        UsageError: unknown split or value of ``decode``; or a directory has several splits and
            ``split`` is None.
    """
    records = Records(tuple(find_split(shards, split)))
    decoder = find_decoder(
        records.shards,
        lambda: records[0].payload if len(records) else None,
        decode,
        label_feature=label_feature,
        resize=resize,
        transform=transform,
        types=types,
    )
    return records if decoder is None else records.decoded_by(decoder, decoder.class_names)
