"""Which features the record of an image has, how they are made, and how TFDS describes them."""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from tfrtool.examples.example import DType, Feature
from tfrtool.examples.objects.annotation import ExtraFeatures, ImageAnnotation, Skeleton
from tfrtool.examples.tfds_metadata import Json, connector, dimensions
from tfrtool.storage.arguments import parse_enum_fields

OBJECTS, TFDS_OBJECTS = "image/object/", "objects/"
"""Prefixes of the features of objects: in the TF Object Detection API, and in TFDS."""

SIDES = ("xmin", "ymin", "xmax", "ymax")
UNKNOWN = -1
"""The id or area of an object that has none, and TFDS' label of an image that has none."""


class ObjectField(NamedTuple):
    """A field of `ObjectAnnotation` that not all objects have."""

    tfod: str  # its name in the TF Object Detection API
    tfds: str  # in TFDS' datasets
    dtype: DType
    missing: int = 0  # the value of an object without it


FIELDS: Mapping[str, ObjectField] = {
    "id": ObjectField("id", "id", DType.INT64, UNKNOWN),
    "area": ObjectField("area", "area", DType.FLOAT32, UNKNOWN),
    "crowd": ObjectField("is_crowd", "is_crowd", DType.INT64),
    "difficult": ObjectField("difficult", "is_difficult", DType.INT64),
    "truncated": ObjectField("truncated", "is_truncated", DType.INT64),
    "pose": ObjectField("view", "pose", DType.STRING),
    "attributes": ObjectField("attributes", "attributes", DType.STRING),
}


class Layout(enum.Enum):
    """The names of features; the values are those of the CLI."""

    TFDS = "tfds"
    """``image``, ``image/filename``, ``label``; ``objects/bbox``, ``objects/label``."""
    TFOD = "tfod"
    """The TF Object Detection API's: ``image/encoded``, ``image/object/bbox/xmin``, ..."""


OWN_NAMES: Mapping[Layout, frozenset[str]] = {
    Layout.TFDS: frozenset(
        {"image", "image/filename", "label", "image/height", "image/width", "image/channels"}
    ),
    Layout.TFOD: frozenset(
        f"image/{name}"
        for name in (
            *("encoded", "filename", "format", "source_id", "height", "width"),
            *("class/label", "class/text"),
        )
    ),
}
"""Names of features that columns can't have."""


class LabelKind(enum.Enum):
    """What labels are."""

    NONE = "none"
    CLASS = "class"
    """One class, by its number."""
    CLASSES = "classes"
    """Any number of classes."""
    NUMBER = "number"
    """An integer that is kept as it is."""


class Masks(enum.Enum):
    """What becomes of outlines of objects; the values are those of the CLI."""

    POLYGONS = "polygons"
    """They are kept as COCO has them, as JSON: polygons, or run lengths."""
    PNG = "png"
    """They become images of one channel, as large as the image."""
    NONE = "none"


class ColumnKind(NamedTuple):
    """A feature that comes from a table's column."""

    name: str
    dtype: DType
    is_list: bool = False  # whether there may be any number of values; else there is exactly one


class WrittenImage(NamedTuple):
    """An image as it is written."""

    data: bytes
    format: str  # "jpeg", "png" or "raw"
    height: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFeatures:
    """The features of all records of a dataset of images.

    Attributes:
        layout: their names.
        label: what labels are.
        separator: what stands between the classes of one image, where there may be several.
        columns: further features.
        has_objects: whether there are objects.
        classes: the names of their classes, in the order of their numbers.
        optional: the fields of `ObjectAnnotation` that some of the objects have, in its order.
        keypoints: how many each object has; those without get as many of visibility 0.
        masks: what becomes of the objects' outlines.
        class_ids: the numbers of the classes in ``label_map.pbtxt``, rising and above 0, where
            they are not 1, 2, 3 ...; 0 is the background there.
        skeletons: names of key points and lines between them, by classes.
    """

    layout: Layout = Layout.TFDS
    label: LabelKind = LabelKind.CLASS
    separator: str = ""
    columns: tuple[ColumnKind, ...] = ()
    has_objects: bool = False
    classes: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    keypoints: int = 0
    masks: Masks = Masks.POLYGONS
    class_ids: tuple[int, ...] = ()
    skeletons: tuple[tuple[str, Skeleton], ...] = ()

    def __post_init__(self) -> None:
        parse_enum_fields(self, layout=Layout, label=LabelKind, masks=Masks)

    @property
    def label_feature(self) -> str:
        """The name of the feature that holds the labels of images, or of objects."""
        if self.layout is Layout.TFOD:
            return f"{OBJECTS}class/label" if self.has_objects else "image/class/label"
        return "objects/label" if self.has_objects else "label"

    def class_id(self, number: int) -> int:
        """Return the number that the label map has for a class."""
        return self.class_ids[number] if self.class_ids else number + 1

    def numbers(self, label: str, known: Mapping[str, int]) -> tuple[int, ...]:
        """Return the numbers of an image's labels, as the records hold them."""
        if self.label is LabelKind.NUMBER:
            return (int(label),)
        names = self.names(label)
        if self.layout is Layout.TFOD:
            return tuple(self.class_id(known[name]) for name in names)
        return tuple(known[name] for name in names)

    def names(self, label: str) -> Sequence[str]:
        """Return the names of an image's labels, given as its source has them."""
        if self.label is LabelKind.NONE or not label:
            return ()
        if self.label is LabelKind.CLASSES:
            return [*dict.fromkeys(part.strip() for part in label.split(self.separator))]
        return (label,)

    def values(
        self,
        image: WrittenImage,
        key: str,
        label: str,
        numbers: Mapping[str, int],
        extra: ExtraFeatures,
        masks: Sequence[bytes] = (),
    ) -> dict[str, Any]:
        """Return all features of a record.

        Args:
            image: as it is written.
            key: its path below the source.
            label: as the source has it.
            numbers: those of the classes, by their names.
            extra: the values of columns, and the objects in the image as it is written.
            masks: of the objects, where they are to be written as PNG.
        """
        labels, annotation = self.numbers(label, numbers), extra.annotation
        filename = key.encode("utf-8", "surrogateescape")
        sides: dict[str, Any] = {"image/height": image.height, "image/width": image.width}
        features: dict[str, Any]
        if self.layout is Layout.TFDS:
            features = {"image": image.data, "image/filename": filename}
            if self.label is not LabelKind.NONE:
                several = self.label is LabelKind.CLASSES
                features["label"] = _list(DType.INT64, labels) if several else [*labels, UNKNOWN][0]
            if image.format == "raw":
                features |= {**sides, "image/channels": 3}
        else:
            source_id = annotation.source_id.encode() if annotation else b""
            features = {
                "image/encoded": image.data,
                **sides,
                "image/filename": filename,
                "image/format": image.format.encode(),
                "image/source_id": source_id or filename,
            }
            if self.label is not LabelKind.NONE:
                features["image/class/label"] = _list(DType.INT64, labels)
                if self.label is not LabelKind.NUMBER:
                    features["image/class/text"] = _list(DType.STRING, self.names(label))
        for name, dtype, is_list in self.columns:
            column_values = extra.values.get(name, ())
            features[name] = Feature(
                dtype=dtype, values=column_values if is_list else column_values[:1]
            )
        if self.has_objects:
            annotation = annotation or ImageAnnotation(image.width, image.height)
            features |= self._objects(annotation, masks)
        return features

    def _objects(self, annotation: ImageAnnotation, masks: Sequence[bytes]) -> dict[str, Feature]:
        objects, tfod = annotation.objects, self.layout is Layout.TFOD
        wide, high = annotation.width, annotation.height
        boxes = [
            (one.xmin / wide, one.ymin / high, one.xmax / wide, one.ymax / high) for one in objects
        ]
        features: dict[str, Feature] = {}
        if tfod:
            for at, side in enumerate(SIDES):
                features[f"bbox/{side}"] = _list(DType.FLOAT32, (box[at] for box in boxes))
            ids = (self.class_id(one.label) for one in objects)
            features["class/label"] = _list(DType.INT64, ids)
            names = (self.classes[one.label] for one in objects)
            features["class/text"] = _list(DType.STRING, names)
        else:
            yxyx = chain.from_iterable((y0, x0, y1, x1) for x0, y0, x1, y1 in boxes)
            features["bbox"] = _list(DType.FLOAT32, yxyx)
            features["label"] = _list(DType.INT64, (one.label for one in objects))
        for name in (name for name in self.optional if name in FIELDS):
            field = FIELDS[name]
            values = (getattr(one, name) for one in objects)
            features[field.tfod if tfod else field.tfds] = _list(
                field.dtype, (field.missing if value is None else value for value in values)
            )
        if "segmentation" in self.optional and self.masks is Masks.POLYGONS:
            features["segmentation"] = _list(DType.STRING, (one.segmentation for one in objects))
        if "segmentation" in self.optional and self.masks is Masks.PNG:
            features["mask"] = Feature(dtype=DType.STRING, values=tuple(masks))
        if self.keypoints:
            size = 3 * self.keypoints
            points = [[*one.keypoints, *(0.0,) * size][:size] for one in objects]
            x = [v / wide for some in points for v in some[::3]]
            y = [v / high for some in points for v in some[1::3]]
            seen = [int(v) for some in points for v in some[2::3]]
            if tfod:
                counts = (sum(v > 0 for v in some[2::3]) for some in points)
                features["keypoint/x"] = _list(DType.FLOAT32, x)
                features["keypoint/y"] = _list(DType.FLOAT32, y)
                features["keypoint/visibility"] = _list(DType.INT64, seen)
                features["keypoint/num"] = _list(DType.INT64, counts)
            else:
                flat = chain.from_iterable(zip(x, y, seen, strict=True))
                features["keypoints"] = _list(DType.FLOAT32, flat)
        start = OBJECTS if tfod else TFDS_OBJECTS
        return {start + name: feature for name, feature in features.items()}

    def features_json(
        self,
        class_count: int,
        encoding: str = "jpeg",
        size: tuple[int, int] | None = None,
        dtype: str = "uint8",
    ) -> Json:
        """Return the contents of features.json.

        The encoding is "jpeg" or "png"; or "raw", for uint8 pixels, row by row, of three channels:
        then ``size`` is the height and width of all images, if they are alike. The ``dtype`` of
        encoded images is uint8 or uint16. Where sizes differ,
        TFDS can't give raw pixels a shape, and reads them as bytes.
        """
        text, number = connector("Text", text={}), connector("Tensor", "int64")
        kinds = {bytes: text, int: number, DType.STRING: text, DType.INT64: number}
        kinds[DType.FLOAT32] = connector("Tensor", "float32")
        classes = connector("ClassLabel", classLabel={"numClasses": str(class_count)})
        data = connector("Tensor", "string")
        image = connector("Tensor", "uint8", (*size, 3), "bytes") if size else data
        if encoding != "raw":
            content = {"dtype": dtype, "shape": dimensions(-1, -1, 3), "encodingFormat": encoding}
            image = connector("Image", image=content)
        special = {"image": image, "image/encoded": image, "objects/label": classes}
        if self.label is not LabelKind.NUMBER:
            special["label"] = classes
        for prefix in (OBJECTS, TFDS_OBJECTS):
            special |= {f"{prefix}mask": data, f"{prefix}segmentation": data}
        corners = {"shape": dimensions(4), "dtype": "float32", "bboxFormat": "REL_YXYX"}
        special["objects/bbox"] = connector("BBoxFeature", boundingBox=corners) | {
            "pythonClassName": "tensorflow_datasets.core.features.bounding_boxes.BBoxFeature"
        }
        special["objects/keypoints"] = connector("Tensor", "float32", (3 * self.keypoints,))
        label = "" if self.label is LabelKind.CLASSES else "0"
        sample = self.values(
            WrittenImage(b"", encoding, 1, 1), "", label, {"0": 0}, ExtraFeatures()
        )
        columns = {column.name: column.is_list for column in self.columns}
        features, objects = dict[str, Json](), dict[str, Json]()
        for name, value in sample.items():
            kind, is_list = kinds[getattr(value, "dtype", type(value))], isinstance(value, Feature)
            if name in columns:
                features[name] = sequence(kind) if columns[name] else kind
            elif name.startswith(TFDS_OBJECTS):
                objects[name.removeprefix(TFDS_OBJECTS)] = special.get(name, kind)
            else:
                item = special.get(name, kind)
                several = name.startswith(OBJECTS) or self.label is LabelKind.CLASSES
                features[name] = sequence(item) if is_list and several else item
        if objects:
            inner = connector("FeaturesDict", featuresDict={"features": objects})
            features["objects"] = sequence(inner)
        return connector("FeaturesDict", featuresDict={"features": features})


def sequence(item: Json) -> Json:
    """Return the description of any number of values in features.json."""
    return connector("Sequence", sequence={"feature": item, "length": "-1"})


def _list(dtype: DType, values: Iterable[Any]) -> Feature:
    return Feature(dtype=dtype, values=tuple(map(_AS[dtype], values)))


_AS: Mapping[DType, Callable[[Any], Any]] = {
    DType.FLOAT32: float,
    DType.INT64: int,
    DType.STRING: str.encode,
}
