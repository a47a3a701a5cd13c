"""Which features the record of an image has, how they are made, and what TFDS is told of them."""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from tfrtool.examples.example import DType, Feature
from tfrtool.examples.objects.annotation import (
    ExtraFeatures,
    ImageAnnotation,
    ObjectAnnotation,
    Skeleton,
)
from tfrtool.examples.tfds_metadata import Json, connector, dimensions
from tfrtool.storage.arguments import parse_enum_fields

OBJECTS = "image/object/"
"""What the TF Object Detection API's features of objects start with."""

SIDES = ("xmin", "ymin", "xmax", "ymax")
UNKNOWN = -1
"""What stands for an id or an area where other objects of the dataset have one."""


FIELDS: Mapping[str, tuple[str, DType, int]] = {
    "id": ("id", DType.INT64, UNKNOWN),
    "area": ("area", DType.FLOAT32, UNKNOWN),
    "crowd": ("is_crowd", DType.INT64, 0),
    "difficult": ("difficult", DType.INT64, 0),
    "truncated": ("truncated", DType.INT64, 0),
    "pose": ("view", DType.STRING, 0),
}
"""Fields of `ObjectAnnotation` that not all objects have: how the TF Object Detection API calls
them, of what type they are, and what stands where one is missing."""

TFDS_NAMES = {"difficult": "is_difficult", "truncated": "is_truncated", "view": "pose"}
"""What TFDS' datasets call those of the API's features that they name otherwise."""


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
    """There are none."""
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
        made: dict[str, Any] = {}
        for name, dtype, is_list in self.columns:
            some = extra.values.get(name, ())
            made[name] = Feature(dtype=dtype, values=some if is_list else some[:1])
        filename = key.encode("utf-8", "surrogateescape")
        if self.layout is Layout.TFDS:
            made |= {"image": image.data, "image/filename": filename}
            if self.label in (LabelKind.CLASS, LabelKind.NUMBER):
                made["label"] = labels[0]
            elif self.label is LabelKind.CLASSES:
                made["label"] = Feature(dtype=DType.INT64, values=labels)
            if image.format == "raw":
                made |= _sides(image) | {"image/channels": 3}
        else:
            source_id = annotation.source_id.encode() if annotation else b""
            made |= {
                "image/encoded": image.data,
                "image/filename": filename,
                "image/format": image.format.encode(),
                "image/source_id": source_id or filename,
            } | _sides(image)
            if self.label is not LabelKind.NONE:
                texts = tuple(name.encode() for name in self.names(label))
                made["image/class/label"] = Feature(dtype=DType.INT64, values=labels)
                if self.label is not LabelKind.NUMBER:
                    made["image/class/text"] = Feature(dtype=DType.STRING, values=texts)
        if self.has_objects:
            found = annotation or ImageAnnotation(image.width, image.height)
            made |= self._objects(found, masks)
        return made

    def _objects(self, annotation: ImageAnnotation, masks: Sequence[bytes]) -> dict[str, Feature]:
        objects, tfod = annotation.objects, self.layout is Layout.TFOD
        wide, high = annotation.width, annotation.height
        sides = [[one.xmin / wide for one in objects], [one.ymin / high for one in objects]]
        sides += [[one.xmax / wide for one in objects], [one.ymax / high for one in objects]]
        numbers = [self.class_id(one.label) if tfod else one.label for one in objects]
        made: dict[str, Feature] = {}
        if tfod:
            for side, some in zip(SIDES, sides, strict=True):
                made[f"{OBJECTS}bbox/{side}"] = _list(DType.FLOAT32, some)
            names = (self.classes[one.label] for one in objects)
            made[f"{OBJECTS}class/label"] = _list(DType.INT64, numbers)
            made[f"{OBJECTS}class/text"] = _list(DType.STRING, names)
        else:
            boxes = zip(sides[1], sides[0], sides[3], sides[2], strict=True)
            made["objects/bbox"] = _list(DType.FLOAT32, chain.from_iterable(boxes))
            made["objects/label"] = _list(DType.INT64, numbers)
        for field in (field for field in self.optional if field in FIELDS):
            name, dtype, missing = FIELDS[field]
            some = [getattr(one, field) for one in objects]
            made[self._name(name)] = _list(dtype, (missing if v is None else v for v in some))
        if "segmentation" in self.optional and self.masks is Masks.POLYGONS:
            outlines = (one.segmentation for one in objects)
            made[self._name("segmentation")] = _list(DType.STRING, outlines)
        if "segmentation" in self.optional and self.masks is Masks.PNG:
            made[self._name("mask")] = Feature(dtype=DType.STRING, values=tuple(masks))
        if self.keypoints:
            made |= self._points(objects, wide, high)
        return made

    def _points(self, objects: Sequence[ObjectAnnotation], wide: int, high: int) -> Any:
        nothing = (0.0,) * (3 * self.keypoints)
        padded = ((*one.keypoints, *nothing[len(one.keypoints) :]) for one in objects)
        flat = [*chain.from_iterable(padded)]
        x, y = [v / wide for v in flat[::3]], [v / high for v in flat[1::3]]
        seen = [int(v) for v in flat[2::3]]
        if self.layout is Layout.TFDS:
            points = chain.from_iterable(zip(x, y, seen, strict=True))
            return {"objects/keypoints": _list(DType.FLOAT32, points)}
        each = [seen[at : at + self.keypoints] for at in range(0, len(seen), self.keypoints)]
        start = f"{OBJECTS}keypoint/"
        return {
            f"{start}x": _list(DType.FLOAT32, x),
            f"{start}y": _list(DType.FLOAT32, y),
            f"{start}visibility": _list(DType.INT64, seen),
            f"{start}num": _list(DType.INT64, (sum(v > 0 for v in some) for some in each)),
        }

    def _name(self, name: str) -> str:
        if self.layout is Layout.TFOD:
            return OBJECTS + name
        return f"objects/{TFDS_NAMES.get(name, name)}"

    def features_json(
        self, class_count: int, encoding: str = "jpeg", size: tuple[int, int] | None = None
    ) -> Json:
        """Return the contents of features.json.

        The encoding is "jpeg" or "png"; or "raw", for uint8 pixels, row by row, of three channels:
        then ``size`` is the height and width of all images, if they are alike. Where they differ,
        TFDS can't give raw pixels a shape, and reads them as bytes.
        """
        classes = connector("ClassLabel", classLabel={"numClasses": str(class_count)})
        if encoding == "raw":
            pixels = connector("Tensor", "uint8", (*size, 3), "bytes") if size else None
            image = pixels or connector("Tensor", "string")
        else:
            content = {"dtype": "uint8", "shape": dimensions(-1, -1, 3), "encodingFormat": encoding}
            image = connector("Image", image=content)
        text, number = connector("Text", text={}), connector("Tensor", "int64")
        features: Json = {}
        if self.layout is Layout.TFDS:
            features["image"] = image
            if encoding == "raw":
                sides = ("height", "width", "channels")
                features |= {f"image/{side}": number for side in sides}
            features["image/filename"] = text
            if self.label is LabelKind.CLASSES:
                features["label"] = sequence(classes)
            elif self.label is not LabelKind.NONE:
                features["label"] = classes if self.label is LabelKind.CLASS else number
        else:
            features |= {"image/encoded": image, "image/height": number, "image/width": number}
            features |= {f"image/{name}": text for name in ("filename", "format", "source_id")}
            several = self.label is LabelKind.CLASSES
            if self.label is not LabelKind.NONE:
                features["image/class/label"] = sequence(number) if several else number
            if self.label in (LabelKind.CLASS, LabelKind.CLASSES):
                features["image/class/text"] = sequence(text) if several else text
        for name, dtype, is_list in self.columns:
            one = text if dtype is DType.STRING else connector("Tensor", dtype.value)
            features[name] = sequence(one) if is_list else one
        if self.has_objects:
            features |= self._objects_json(classes)
        return connector("FeaturesDict", featuresDict={"features": features})

    def _objects_json(self, classes: Json) -> Json:
        kinds = {
            DType.FLOAT32: connector("Tensor", "float32"),
            DType.INT64: connector("Tensor", "int64"),
            DType.STRING: connector("Text", text={}),
        }
        made = self._objects(ImageAnnotation(1, 1), ())
        told = {name: kinds[feature.dtype] for name, feature in made.items() if feature.dtype}
        for name in map(self._name, ("mask", "segmentation")):
            if name in told:
                told[name] = connector("Tensor", "string")
        if self.layout is Layout.TFOD:
            return {name: sequence(kind) for name, kind in told.items()}
        corners = {"shape": dimensions(4), "dtype": "float32", "bboxFormat": "REL_YXYX"}
        box = connector("BBoxFeature", boundingBox=corners)
        box["pythonClassName"] = "tensorflow_datasets.core.features.bounding_boxes.BBoxFeature"
        told |= {"objects/bbox": box, "objects/label": classes}
        if self.keypoints:
            told["objects/keypoints"] = connector("Tensor", "float32", (3 * self.keypoints,))
        inner = {name.removeprefix("objects/"): kind for name, kind in told.items()}
        return {"objects": sequence(connector("FeaturesDict", featuresDict={"features": inner}))}


def sequence(item: Json) -> Json:
    """Return the description of any number of values in features.json."""
    return connector("Sequence", sequence={"feature": item, "length": "-1"})


def _sides(image: WrittenImage) -> dict[str, Any]:
    return {"image/height": image.height, "image/width": image.width}


def _list(dtype: DType, values: Iterable[Any]) -> Feature:
    return Feature(dtype=dtype, values=tuple(map(_AS[dtype], values)))


_AS: Mapping[DType, Callable[[Any], Any]] = {
    DType.FLOAT32: float,
    DType.INT64: int,
    DType.STRING: str.encode,
}
