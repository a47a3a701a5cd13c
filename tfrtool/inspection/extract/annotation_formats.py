"""Annotation files as COCO, Pascal VOC and YOLO have them."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count, islice
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tfrtool.errors import printable
from tfrtool.examples.objects.annotation import SIDEWAYS
from tfrtool.examples.objects.record_features import SIDES
from tfrtool.inspection.extract.annotated_images import (
    MAX_ID,
    AnnotatedImage,
    AnnotatedImages,
    AnnotationFormat,
    outline_of,
)
from tfrtool.inspection.extract.extract_files import NewFiles
from tfrtool.inspection.extract.safe_names import safe_part
from tfrtool.inspection.summary.summary_json import shortest_float

_SHORT = {"": "train", "validation": "val", "valid": "val"}
"""How VOC and YOLO call splits."""

_NUMBER = re.compile("0|[1-9][0-9]{0,15}")
_TOGETHER = 10_000
"""Entries of a JSON file that are written at once."""


def unique_numbers(wanted: Sequence[int | None]) -> list[int]:
    """Return each wanted number where it is free, and new ones, above all of these, elsewhere."""
    free, taken = [], set[int]()
    for number in wanted:
        free.append(number is not None and 0 <= number < MAX_ID and number not in taken)
        if free[-1] and number is not None:
            taken.add(number)
    new = count(max(taken, default=0) + 1)
    return [n if ok and n is not None else next(new) for n, ok in zip(wanted, free, strict=True)]


class _CocoJson:
    """The COCO file of a split, written at the end, when all ids that records have are known."""

    def __init__(self, files: NewFiles, name: str) -> None:
        self.images: list[tuple[int | None, str]] = []  # wanted id, and the rest as JSON
        self.objects: list[tuple[int | None, int, str]] = []  # also the place of the image
        self.renumbered = 0
        self._files, self.file = files, files.add((name,), b"")

    def end(self, categories: Sequence[Mapping[str, Any]]) -> str:
        images = unique_numbers([wanted for wanted, _ in self.images])
        objects = unique_numbers([wanted for wanted, *_ in self.objects])
        pairs = chain(
            zip((wanted for wanted, _ in self.images), images, strict=True),
            zip((wanted for wanted, *_ in self.objects), objects, strict=True),
        )
        self.renumbered = sum(wanted not in (None, number) for wanted, number in pairs)
        lines = (
            f'{{"id": {n}, {text[1:]}' for n, (_, text) in zip(images, self.images, strict=True)
        )
        self._write('{"images": [', lines)
        lines = (
            f'{{"id": {number}, "image_id": {images[image]}, {text[1:]}'
            for number, (_, image, text) in zip(objects, self.objects, strict=True)
        )
        self._write('],\n"annotations": [', lines)
        self._write('],\n"categories": [', map(json.dumps, categories))
        self._files.append(self.file, b"]}\n")
        return self.file

    def _write(self, head: str, lines: Iterable[str]) -> None:
        self._files.append(self.file, head.encode())
        separator = "\n"
        for part in iter(lambda: list(islice(lines, _TOGETHER)), []):
            self._files.append(self.file, (separator + ",\n".join(part)).encode())
            separator = ",\n"


class CocoFiles(AnnotatedImages):
    """COCO's instances: a JSON file per split, which names images by their paths."""

    form = AnnotationFormat.COCO
    holds = frozenset(("id", "area", "crowd", "segmentation", "keypoints"))

    def __init__(self, files: NewFiles, shards: Sequence[Path]) -> None:
        """Begin the file of each split."""
        super().__init__(files, shards)
        names = {split: f"instances_{safe_part(split) or 'other'}.json" for split in self.splits}
        alone = {split: "annotations.json" for split in self.splits if len(names) == 1}
        self._jsons = {split: _CocoJson(files, name) for split, name in (names | alone).items()}

    def write(self, image: AnnotatedImage) -> list[str]:
        """Write an image, and what is known of the objects in it."""
        file, parsed = self.files.add(image.parts, image.data), image.parsed
        wanted = int(parsed.source_id) if _NUMBER.fullmatch(parsed.source_id) else None
        target = self._jsons[image.split]
        place = len(target.images)
        sides = {"width": parsed.width, "height": parsed.height}
        target.images.append((wanted, json.dumps({"file_name": file, **sides})))
        for one, name, outline in zip(parsed.objects, image.classes, image.outlines, strict=True):
            wide, high = round(one.xmax - one.xmin, 6), round(one.ymax - one.ymin, 6)
            entry: dict[str, Any] = {
                "category_id": self.classes[name][1],
                "bbox": [*map(_short, (one.xmin, one.ymin, wide, high))],
                "area": _short(wide * high if one.area is None else shortest_float(one.area)),
                "iscrowd": int(one.crowd),
            }
            if one.keypoints:
                entry["keypoints"] = [*map(_short, one.keypoints)]
                entry["num_keypoints"] = sum(v > 0 for v in one.keypoints[2::3])
            if outline is not None:
                entry["segmentation"] = outline
            target.objects.append((one.id, place, json.dumps(entry)))
        return [file]

    def end(self) -> list[str]:
        """Write the objects, and then the classes."""
        categories = list[dict[str, Any]]()
        for name, (_, number) in self.classes.items():
            skeleton = self.skeletons.get(name)
            more = skeleton.to_json() if skeleton else {}
            categories.append({"id": number, "name": name} | more)
        files = [target.end(categories) for target in self._jsons.values()]
        self.renumbered = sum(target.renumbered for target in self._jsons.values())
        return files


class VocFiles(AnnotatedImages):
    """Pascal VOC: an XML file of each image, and a list of the images of each split."""

    form = AnnotationFormat.VOC
    holds = frozenset(("difficult", "truncated", "pose"))

    def __init__(self, files: NewFiles, shards: Sequence[Path]) -> None:
        """Begin the list of each split."""
        super().__init__(files, shards)
        shorts = {_SHORT.get(split, safe_part(split)) for split in self.splits}
        lists = ((short, ("ImageSets", "Main", f"{short}.txt")) for short in sorted(shorts))
        self._lists = {short: files.add(parts, b"") for short, parts in lists}

    def write(self, image: AnnotatedImage) -> list[str]:
        """Write an image, and its XML."""
        file, beside = self.write_pair(image, ("JPEGImages",), ("Annotations",), ".xml")
        parsed, stem = image.parsed, beside.rpartition("/")[2][: -len(".xml")]
        short = _SHORT.get(image.split, safe_part(image.split))
        depth = f"<depth>{image.depth}</depth>" if image.depth else ""
        self.files.append(self._lists[short], f"{stem}\n".encode())
        lines = [
            "<annotation>",
            "\t<folder>JPEGImages</folder>",
            f"\t<filename>{_xml(file.rpartition('/')[2])}</filename>",
            f"\t<size><width>{parsed.width}</width><height>{parsed.height}</height>{depth}</size>",
        ]
        for one, name in zip(parsed.objects, image.classes, strict=True):
            sides = zip(SIDES, map(_short, one[:4]), strict=True)
            lines += [
                "\t<object>",
                f"\t\t<name>{_xml(name)}</name>",
                f"\t\t<pose>{_xml(one.pose) or 'Unspecified'}</pose>",
                f"\t\t<truncated>{one.truncated:d}</truncated>",
                f"\t\t<difficult>{one.difficult:d}</difficult>",
                f"\t\t<bndbox>{''.join(f'<{side}>{v}</{side}>' for side, v in sides)}</bndbox>",
                "\t</object>",
            ]
        self.files.append(beside, "\n".join((*lines, "</annotation>\n")).encode())
        return [file, beside]

    def end(self) -> list[str]:
        """Return the lists, which are written."""
        return [*self._lists.values()]


class YoloFiles(AnnotatedImages):
    """YOLO: a text file of labels for each image, in shares of its sides, and ``data.yaml``.

    A line is a polygon where any object of the image has one: those without get the corners of
    their boxes. Key points are written, if the first record with objects has some, and no outlines.
    """

    form = AnnotationFormat.YOLO
    holds = frozenset(("segmentation", "keypoints"))

    def __init__(self, files: NewFiles, shards: Sequence[Path]) -> None:
        """Start without key points."""
        super().__init__(files, shards)
        self._points: int | None = None  # of each object; None before any object
        self._used: dict[str, None] = {}

    def write(self, image: AnnotatedImage) -> list[str]:
        """Write an image, and the labels of its objects."""
        short = _SHORT.get(image.split, safe_part(image.split))
        self._used[short] = None
        file, beside = self.write_pair(image, ("images", short), ("labels", short), ".txt")
        width, height = image.parsed[:2]
        if image.orientation >= SIDEWAYS:
            width, height = height, width
        objects = image.parsed.moved(image.orientation, width, height).objects  # as readers turn it
        outlines = [outline_of(one.segmentation) if one.segmentation else None for one in objects]
        if self._points is None and objects:
            self._points = 0 if any(outlines) else len(objects[0].keypoints) // 3
        polygons = not self._points and any(isinstance(one, list) for one in outlines)
        lines = []
        for one, outline, name in zip(objects, outlines, image.classes, strict=True):
            if outline and not (polygons and isinstance(outline, list)):
                self.lost["outlines"] += 1
            points = list(one.keypoints)
            if points and len(points) != 3 * (self._points or 0):
                self.lost["key points"] += 1
                points = []
            x0, y0, x1, y1 = one[:4]
            if polygons:
                parts = outline if isinstance(outline, list) and outline else None
                line = _joined(parts or [[x0, y0, x1, y0, x1, y1, x0, y1]])
                sides = (width, height) * (len(line) // 2)
                numbers = [
                    min(max(v / side, 0.0), 1.0) for v, side in zip(line, sides, strict=True)
                ]
            else:
                numbers = [(x0 + x1) / 2 / width, (y0 + y1) / 2 / height]
                numbers += [(x1 - x0) / width, (y1 - y0) / height]
                threes = (width, height, 1) * (len(points) // 3)
                numbers += [v / side for v, side in zip(points, threes, strict=True)]
            lines.append(" ".join((str(self.classes[name][0]), *map(_share, numbers))) + "\n")
        self.files.append(beside, "".join(lines).encode())
        return [file, beside]

    def end(self) -> list[str]:
        """Write ``data.yaml``, which names the folders of images and the classes."""
        lines = [f"{short}: images/{short}" for short in self._used]
        lines += [f"kpt_shape: [{self._points}, 3]"] if self._points else []
        lines += ["names:"]
        lines += [f"  {place}: {_yaml(name)}" for name, (place, _) in self.classes.items()]
        return [self.files.add(("data.yaml",), "\n".join((*lines, "")).encode())]


FORMATS: Mapping[AnnotationFormat, type[AnnotatedImages]] = {
    one.form: one for one in (CocoFiles, VocFiles, YoloFiles)
}
"""What writes each format."""


def _joined(parts: Sequence[Sequence[float]]) -> list[float]:
    """Return one polygon of the same area as several: lines to their first points and back."""
    first = parts[0][:2]
    rest = chain.from_iterable((*part, *part[:2], *first) for part in parts[1:])
    return [*parts[0], *(first if parts[1:] else ()), *rest]


def _short(value: float) -> float:
    return int(value) if value == int(value) else value


def _share(value: float) -> str:
    return f"{value:.7f}".rstrip("0").rstrip(".")


def _xml(text: str) -> str:
    return escape(printable(text))


def _yaml(text: str) -> str:
    signs = (c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08X}" for c in text)
    return f'"{"".join(signs)}"'
