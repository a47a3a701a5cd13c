"""CVAT: an XML file of many images."""

import io
import math
import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Any

import numpy as np

from tfrtool.errors import SourceError, printable
from tfrtool.examples.objects.annotation import Skeleton
from tfrtool.images.masks import pasted_mask
from tfrtool.records.shard_sets import SPLIT_NAMES
from tfrtool.sources.annotations.annotation_reader import (
    ParsedImage,
    ParsedObject,
    masks_problem,
    numbers_of,
    pixels_of,
)
from tfrtool.sources.annotations.image_files import ImageFilesReader
from tfrtool.sources.items import LeftOut, label_problem
from tfrtool.storage.limits import (
    MAX_IMAGE_OBJECTS,
    MAX_IMAGE_PIXELS,
    MAX_METADATA_BYTES,
)

_SHAPES = ("box", "polygon", "mask", "ellipse", "skeleton", "polyline", "points", "cuboid")

_USUAL: Mapping[str, Any] = {
    "occluded": False, "z_order": 0, "group_id": 0, "source": "manual"
}  # fmt: skip
"""What all shapes have, and its usual values."""

_MOST_ELEMENTS = 10 * MAX_IMAGE_OBJECTS
"""Elements between two images, or of one."""

_NUMBER = re.compile("-?[0-9]{1,9}")
_EDGE = re.compile(r'data-node-from="(\d{1,4})"[^>]{0,99}?data-node-to="(\d{1,4})"')

_CIRCLE = re.compile(r"<circle\b[^>]*")


class CvatReader(ImageFilesReader):
    """Reads "CVAT for images" files; see `ImageFilesReader`."""

    suffix = ".xml"
    expected = "annotations.xml of CVAT for images 1.1"
    limit = 4 * MAX_METADATA_BYTES

    def parse(self, key: str, data: bytes) -> Iterator[ParsedImage]:
        """Yield the images of a file; none if the file is of another kind."""
        from defusedxml import ElementTree, common

        path, count, open_image = self._folder.path(key), 0, False
        subsets = dict[str | None, str]()
        root = None
        try:
            for event, element in ElementTree.iterparse(io.BytesIO(data), ("start", "end")):
                root, tag = element if root is None else root, element.tag
                if root.tag != "annotations":
                    self.ignored.add(LeftOut(key=key, reason="not a file of CVAT for images"))
                    return
                if event == "start":
                    count += 1
                    open_image |= tag == "image"
                    if tag == "track":
                        hint = "export the task as CVAT for images"
                        raise SourceError("is CVAT for video", path=path, hint=hint)
                    if count > _MOST_ELEMENTS:
                        what = f"more than {_MOST_ELEMENTS:,} elements in one image"
                        raise SourceError(what, path=path)
                elif tag == "image" or (tag == "meta" and not open_image):
                    if tag == "image":
                        image = self._image(key, element)
                        subsets.setdefault(image.split, image.name)
                        yield image
                    else:
                        self._take_labels(element)
                    root.clear()
                    count, open_image = 0, False
        except common.DefusedXmlException as error:
            what = "declares XML entities, which are not allowed"
            raise SourceError(what, path=path) from error
        except (SyntaxError, ValueError, LookupError) as error:
            raise SourceError(f"invalid XML: {printable(str(error))[:200]}", path=path) from error
        if None in subsets and len(subsets) > 1:
            what = f"{printable(subsets[None])} has no subset, although other images have one"
            raise SourceError(what, path=path, expected="a subset such as train for all images")

    def _take_labels(self, meta: Any) -> None:
        """Take the skeletons, and which key points they have."""
        points = dict[str, list[str]]()
        for label in meta.iter("label"):
            name = (label.findtext("name") or "").strip()
            if parent := (label.findtext("parent") or "").strip():
                points.setdefault(parent, []).append(name)
            elif not label_problem(name):
                self._classes.add(name)
        for label in meta.iter("label"):
            name = (label.findtext("name") or "").strip()
            if name in points and label.findtext("type") == "skeleton":
                svg, nodes = label.findtext("svg") or "", points[name]
                # Lines are between nodes, whose numbers have gaps once points were deleted.
                order = {node: at for at, node in enumerate(nodes, start=1)}
                places = {str(at): at for at in order.values()}
                circles = [match[0] for match in _CIRCLE.finditer(svg)]
                labels = [unescape(_attribute(one, "label-name")) for one in circles]
                if len(labels) == len(order) and {*labels} == {*order}:
                    ids = [_attribute(one, "node-id") for one in circles]
                    places = {id_: order[one] for id_, one in zip(ids, labels, strict=True)}
                edges = _EDGE.findall(svg)
                lines = [[places.get(end, 0) for end in edge] for edge in edges]
                found = Skeleton.parse({"keypoints": nodes, "skeleton": lines})
                if found := found or Skeleton.parse({"keypoints": points[name]}):
                    self.skeletons[name] = found

    def _image(self, key: str, image: Any) -> ParsedImage:
        name, subset = image.get("name", ""), image.get("subset", "").strip().lower()
        width, height, problem = pixels_of(image.get("width", ""), image.get("height", ""))
        where = f"{key}, image {printable(image.get('id', name)[:40])}"
        shapes = [one for one in image if one.tag in _SHAPES]
        masks = sum(one.tag == "mask" for one in shapes)
        if width and height and (problem := problem or masks_problem(masks, width, height)):
            shapes = []
        objects = [
            self._object(f"{where}, {one.tag} {number}", one, width, height)
            for number, one in enumerate(shapes, start=1)
        ]
        self._unread.update(one.tag[:40] for one in image if one.tag not in _SHAPES)
        folder = key.rpartition("/")[0]
        return ParsedImage(
            self._folder.name(f"{folder}/{name}" if folder else name),
            where,
            objects,
            width,
            height,
            other_name=self._folder.name(f"{folder}/images/{name}" if folder else f"images/{name}"),
            split=SPLIT_NAMES.get(subset),
            problem=problem or (None if name else "no name"),
            upright=True,
        )

    def _object(
        self, where: str, element: Any, width: int | None, height: int | None
    ) -> ParsedObject:
        label, kind = element.get("label", ""), element.tag
        flags = {name: _cvat_value(element.get(name), usual) for name, usual in _USUAL.items()}
        flags = {name: value for name, value in flags.items() if value != _USUAL[name]}
        named = ({each.get("name", ""): each.text or ""} for each in element.findall("attribute"))
        more: dict[str, Any] = {"attributes": self.united(flags, *named)}
        try:
            if kind == "box":
                x0, y0, x1, y1 = _numbers(element, "xtl", "ytl", "xbr", "ybr")
                if turn := float(element.get("rotation", 0)):
                    corners = _turned((x0, y0, x1, y1), turn)
                    return self.outlined(where, label, [corners], **more)
                return self.parsed(where, label, (x0, y0, x1, y1), **more)
            if kind == "ellipse":
                cx, cy, rx, ry = _numbers(element, "cx", "cy", "rx", "ry")
                turn = math.radians(float(element.get("rotation", 0)))
                wide = math.hypot(rx * math.cos(turn), ry * math.sin(turn))
                high = math.hypot(rx * math.sin(turn), ry * math.cos(turn))
                self._unread["ellipses, written as boxes"] += 1
                box = cx - wide, cy - high, cx + wide, cy + high
                return self.parsed(where, label, box, **more)
            if kind == "polygon":
                line = numbers_of(element.get("points", "").replace(";", ",").split(","))
                return self.outlined(where, label, [line or ()], **more)
            if kind == "mask" and width and height:
                left, top, wide, high = map(
                    int, _numbers(element, "left", "top", "width", "height")
                )
                if wide > width or high > height:
                    raise ValueError("mask reaches out of the image")
                text = pasted_mask(
                    _bitmap(element.get("rle", ""), wide, high), left, top, width, height
                )
                box, size = (left, top, left + wide, top + high), (width, height)
                return self.parsed(where, label, box, segmentation=text, mask_size=size, **more)
            if kind == "skeleton":
                return self._skeleton(where, label, element, more)
        except (ValueError, OverflowError) as error:
            return self.parsed(where, label, None, str(error), **more)
        return self.parsed(where, label, None, f"{kind} is not a box or an outline", **more)

    def _skeleton(self, where: str, label: str, element: Any, more: dict[str, Any]) -> ParsedObject:
        names = self.skeletons[label].points if label in self.skeletons else ()
        points, seen = [0.0] * 3 * len(names), list[tuple[float, float]]()
        for point in element.iter("points"):
            if point.get("label") not in names:
                raise ValueError(f"unknown key point {printable(point.get('label', '')[:40])!r}")
            if point.get("outside") == "1":
                continue
            x, y = numbers_of(point.get("points", "").split(",")) or (math.nan, math.nan)
            at = 3 * names.index(point.get("label"))
            self._unread["attributes of key points"] += len(point)
            points[at : at + 3] = x, y, 1.0 if point.get("occluded") == "1" else 2.0
            seen.append((x, y))
        if not seen or math.isnan(sum(map(sum, seen))):
            raise ValueError("skeleton has no visible points" if not seen else "invalid key point")
        (x0, y0), (x1, y1) = map(min, zip(*seen, strict=True)), map(max, zip(*seen, strict=True))
        return self.parsed(where, label, (x0, y0, x1, y1), keypoints=tuple(points), **more)


def _attribute(element: str, name: str) -> str:
    match = re.search(f' data-{name}="([^"]*)"', element)
    return match[1] if match else ""


def _cvat_value(text: str | None, usual: Any) -> Any:
    """Return a value of the type of the usual one, where that is possible."""
    if text is None:
        return usual
    if isinstance(usual, bool):
        return text == "1"
    return int(text) if isinstance(usual, int) and _NUMBER.fullmatch(text) else text


def _numbers(element: Any, *names: str) -> tuple[float, ...]:
    found = numbers_of(element.get(name, "") for name in names)
    if found is None:
        raise ValueError(f"{', '.join(names)} are not numbers")
    return found


def _turned(box: tuple[float, float, float, float], degrees: float) -> list[float]:
    """Return the corners of a box that is turned around its center, clockwise."""
    x0, y0, x1, y1 = box
    x, y, turn = (x0 + x1) / 2, (y0 + y1) / 2, math.radians(degrees)
    cos, sin = math.cos(turn), math.sin(turn)
    return [
        side
        for a, b in ((x0 - x, y0 - y), (x1 - x, y0 - y), (x1 - x, y1 - y), (x0 - x, y1 - y))
        for side in (x + a * cos - b * sin, y + a * sin + b * cos)
    ]


def _bitmap(text: str, width: int, height: int) -> Any:
    """Return a mask of run lengths, row by row, which starts outside of the object."""
    if not (width > 0 < height and width * height <= MAX_IMAGE_PIXELS):
        raise ValueError(f"invalid mask size {width} x {height}")
    runs = [int(run) if len(run) < 10 else -1 for run in text.split(",")]
    if min(runs) < 0 or sum(runs) != width * height:
        raise ValueError(f"run lengths of the mask don't fill {width} x {height} pixels")
    is_inside = (np.arange(len(runs)) % 2).astype(np.uint8)
    return np.repeat(is_inside, runs).reshape((height, width))
