"""Annotation files as COCO, Pascal VOC and YOLO have them."""

import json
import re
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any
from xml.sax.saxutils import escape

from tfrtool.errors import WriteError, os_errors_as, printable
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
_PROVISIONAL = re.compile(rb'"(id|image_id)": (-[0-9]+)')
_PAGE = 2**11
_COPIED = 2**20


class UniqueNumbers:
    """Assigns each number once; new ones follow all that were wanted, wherever these come.

    Memory is a bit per number where they are consecutive.
    """

    def __init__(self) -> None:
        """Start without any."""
        self._pages: dict[int, bytearray] = {}
        self._last = self._new = self.refused = 0

    def take(self, wanted: int | None) -> int:
        """Return the wanted number if it is free, or else one below 0 for `settle`."""
        if wanted is not None and 0 <= wanted < MAX_ID and self._mark(wanted):
            self._last = max(self._last, wanted)
            return wanted
        self.refused += wanted is not None
        self._new += 1
        return -self._new

    def settle(self, number: int) -> int:
        """Return the final number, once all were taken."""
        return number if number >= 0 else self._last - number

    def _mark(self, number: int) -> bool:
        """Mark a number as taken, and return whether it was free."""
        page = self._pages.setdefault(number // _PAGE, bytearray(_PAGE // 8))
        at, bit = number % _PAGE // 8, 1 << number % 8
        free = not page[at] & bit
        page[at] |= bit
        return free


class _CocoJson:
    """COCO's file of a split, written at the end, when all ids that records have are known."""

    def __init__(self, files: NewFiles, name: str) -> None:
        self._files = files
        self._images, self._objects = _temporary_file(self), _temporary_file(self)
        self.image_ids, self.object_ids = UniqueNumbers(), UniqueNumbers()
        self.file = files.add((name,), b"")

    def add_image(self, image: Mapping[str, Any]) -> None:
        _append(self._images, image)

    def add_object(self, entry: Mapping[str, Any]) -> None:
        _append(self._objects, entry)

    def end(self, categories: Sequence[Mapping[str, Any]]) -> str:
        self._files.append(self.file, b'{"images": [')
        self._copy(self._images, {"id": self.image_ids})
        self._files.append(self.file, b'],\n"annotations": [')
        self._copy(self._objects, {"id": self.object_ids, "image_id": self.image_ids})
        text = ",\n".join(map(json.dumps, categories))
        self._files.append(self.file, f'],\n"categories": [\n{text}]}}\n'.encode())
        return self.file

    def _copy(self, entries: IO[bytes], numbers: Mapping[str, UniqueNumbers]) -> None:
        """Append entries to the file, their provisional ids replaced by final ones."""

        def settled(match: re.Match[bytes]) -> bytes:
            number = numbers[match[1].decode()].settle(int(match[2]))
            return b'"%s": %d' % (match[1], number)

        separator = b"\n"
        with entries:
            entries.seek(0)
            while lines := b"".join(entries.readlines(_COPIED)).removesuffix(b"\n"):
                text = _PROVISIONAL.sub(settled, lines).replace(b"\n", b",\n")
                self._files.append(self.file, separator + text)
                separator = b",\n"


def _temporary_file(owner: object) -> IO[bytes]:
    file = tempfile.SpooledTemporaryFile(_COPIED)  # noqa: SIM115
    weakref.finalize(owner, file.close)
    return file


def _append(file: IO[bytes], entry: Mapping[str, Any]) -> None:
    with os_errors_as(WriteError, tempfile.gettempdir(), "temporary files can't be written"):
        file.write(f"{json.dumps(entry)}\n".encode())


class CocoFiles(AnnotatedImages):
    """COCO's instances: a JSON file of each split, which names images by their paths."""

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
        file, told = self.files.add(image.parts, image.data), image.told
        wanted = int(told.source_id) if _NUMBER.fullmatch(told.source_id) else None
        whole = self._jsons[image.split]
        number = whole.image_ids.take(wanted)
        sides = {"width": told.width, "height": told.height}
        whole.add_image({"id": number, "file_name": file, **sides})
        for one, name, outline in zip(told.objects, image.classes, image.outlines, strict=True):
            wide, high = round(one.xmax - one.xmin, 6), round(one.ymax - one.ymin, 6)
            entry: dict[str, Any] = {
                "id": whole.object_ids.take(one.id),
                "image_id": number,
                "category_id": self.classes[name][1],
                "bbox": [*map(_plain, (one.xmin, one.ymin, wide, high))],
                "area": _plain(wide * high if one.area is None else shortest_float(one.area)),
                "iscrowd": int(one.crowd),
            }
            if one.keypoints:
                entry["keypoints"] = [*map(_plain, one.keypoints)]
                entry["num_keypoints"] = sum(v > 0 for v in one.keypoints[2::3])
            if outline is not None:
                entry["segmentation"] = outline
            whole.add_object(entry)
        return [file]

    def end(self) -> list[str]:
        """Write the objects behind the images, and then the classes."""
        whole = self._jsons.values()
        self.renumbered = sum(one.image_ids.refused + one.object_ids.refused for one in whole)
        told = list[dict[str, Any]]()
        for name, (_, number) in self.classes.items():
            skeleton = self.skeletons.get(name)
            told.append({"id": number, "name": name} | (skeleton.to_json() if skeleton else {}))
        return [one.end(told) for one in whole]


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
        told, stem = image.told, beside.rpartition("/")[2][: -len(".xml")]
        short = _SHORT.get(image.split, safe_part(image.split))
        depth = f"<depth>{image.depth}</depth>" if image.depth else ""
        self.files.append(self._lists[short], f"{stem}\n".encode())
        lines = [
            "<annotation>",
            "\t<folder>JPEGImages</folder>",
            f"\t<filename>{_xml(file.rpartition('/')[2])}</filename>",
            f"\t<size><width>{told.width}</width><height>{told.height}</height>{depth}</size>",
        ]
        for one, name in zip(told.objects, image.classes, strict=True):
            sides = zip(SIDES, map(_plain, one[:4]), strict=True)
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
        width, height = image.told[:2]
        if image.orientation >= SIDEWAYS:
            width, height = height, width
        objects = image.told.moved(image.orientation, width, height).objects  # as readers turn it
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


def _plain(value: float) -> float:
    return int(value) if value == int(value) else value


def _share(value: float) -> str:
    return f"{value:.7f}".rstrip("0").rstrip(".")


def _xml(text: str) -> str:
    return escape(printable(text))


def _yaml(text: str) -> str:
    signs = (c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08X}" for c in text)
    return f'"{"".join(signs)}"'
