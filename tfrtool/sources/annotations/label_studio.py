"""Label Studio's exports of regions: boxes, polygons and key points."""

import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from tfrtool.errors import SourceError
from tfrtool.examples.objects.annotation import Skeleton
from tfrtool.sources.annotations.annotation_reader import (
    AnnotationReader,
    AnnotationRequest,
    ParsedImage,
    ParsedObject,
)
from tfrtool.sources.annotations.image_files import ImageFilesReader
from tfrtool.sources.annotations.label_studio_tasks import (
    LabelStudioRegion,
    LabelStudioTask,
    image_names,
    read_tasks,
)
from tfrtool.sources.items import LeftOut
from tfrtool.storage.limits import MAX_METADATA_BYTES, MAX_PATH_LENGTH
from tfrtool.storage.remote_path import AnyPath

_POINTS_CLASS = "keypoints"
"""The class of key points that belong to no region."""

_MOST_POINT_NAMES = 1000


class LabelStudioReader(ImageFilesReader):
    """Reads exports in JSON, JSON-MIN and CSV; see `ImageFilesReader`."""

    suffix = ".json"
    expected = "an export of Label Studio in JSON, JSON-MIN or CSV"
    limit: ClassVar[int] = MAX_METADATA_BYTES

    @classmethod
    def open(cls, request: AnnotationRequest) -> Mapping[AnyPath, AnnotationReader]:
        """Return a reader for each folder or file."""
        folders = request.folders([".json", ".csv"])
        return {path: cls(folder, name, request.scratch) for path, folder, name in folders}

    def parse(self, key: str, data: bytes) -> Iterator[ParsedImage]:
        """Yield the images of a file; none if the file is of another kind."""
        path, counts = self._folder.path(key), Counter[str]()
        names = dict[str, None]()
        for task in read_tasks(io.BytesIO(data), path):
            for region in task.regions.values():
                if _is_point(region):
                    names.update(dict.fromkeys(region.labels[:1]))
        if len(names) > _MOST_POINT_NAMES:
            raise SourceError(f"more than {_MOST_POINT_NAMES:,} names of key points", path=path)
        is_export = False
        for task in read_tasks(io.BytesIO(data), path):
            is_export = True
            where = f"{key}, {task.where}"
            self.check_count(key, len(task.regions))
            counts["older annotations of images"] += max(task.annotations - 1, 0)
            counts["choices of images"] += len(task.choices)
            self._unread.update(task.others)
            if task.problem is not None or not task.image:
                problem = task.problem or "no path of an image"
                yield ParsedImage(task.image or where, where, problem=problem)
            elif not task.annotations:
                reason = f"{where} has no annotation"
                self.ignored.add(LeftOut(key=task.image[-MAX_PATH_LENGTH:], reason=reason))
            else:
                yield self._image(key, where, task, [*names])
        if not is_export:
            self.ignored.add(LeftOut(key=key, reason="not an export of Label Studio"))
        self._unread = +(self._unread + counts)

    def _image(
        self, key: str, where: str, task: LabelStudioTask, names: Sequence[str]
    ) -> ParsedImage:
        name, before_upload = image_names(task.image[-MAX_PATH_LENGTH:])
        folder = key.rpartition("/")[0]
        near = self._folder.name(f"{folder}/{name}" if folder else name)
        sizes = {size for region in task.regions.values() if (size := _size_of(region.values))}
        width, height = sizes.pop() if len(sizes) == 1 else (None, None)
        points = {at: one for at, one in task.regions.items() if _is_point(one)}
        objects = [
            self._object(f"{where}, region {at[:40]}", at, region, points, names)
            for at, region in task.regions.items()
            if not _is_point(region)
        ]
        parents = {*task.regions} - {*points}
        free = {at: one for at, one in points.items() if one.parent not in parents}
        if free:
            objects.append(self._of_points(f"{where}, key points", _POINTS_CLASS, free, names))
        return ParsedImage(
            near, where, objects, width, height, other_name=before_upload, upright=True
        )

    def _object(
        self,
        where: str,
        key: str,
        region: LabelStudioRegion,
        points: Mapping[str, LabelStudioRegion],
        names: Sequence[str],
    ) -> ParsedObject:
        label, *others = region.labels or [""]
        attributes = region.attributes | ({"labels": others} if others else {})
        mine = {at: one for at, one in points.items() if one.parent == key}
        fields: dict[str, Any] = {"attributes": attributes}
        if mine:
            found = self._of_points(where, label, mine, names)
            if found.problem:
                return found
            fields["keypoints"] = _keypoints(mine, names)
        parsed = partial(self.parsed, where, label)
        if region.values.get("image_rotation") not in (None, 0):
            return parsed(None, "regions of rotated images are not supported")
        if "rle" in region.values:
            return parsed(None, "brush strokes are not supported; export them as COCO")
        try:
            corners = _outline(region.values)
        except ValueError as error:
            return parsed(None, str(error))
        xs, ys = corners[::2], corners[1::2]
        if "points" in region.values or region.values.get("rotation"):
            outlined = self.outlined(where, label, [corners], **fields)
            return outlined._replace(is_relative=outlined.problem is None)
        if "radiusX" in region.values:
            self._unread["ellipses, written as boxes"] += 1
        box = min(xs), min(ys), max(xs), max(ys)
        return parsed(box, **fields)._replace(is_relative=True)

    def _of_points(
        self,
        where: str,
        label: str,
        points: Mapping[str, LabelStudioRegion],
        names: Sequence[str],
    ) -> ParsedObject:
        """Return an object of key points, and the box around them."""
        labels = [region.labels[0] if region.labels else "" for region in points.values()]
        if "" in labels or len({*labels}) < len(labels):
            what = "a key point has no label, or the label of another one"
            return self.parsed(where, label, None, what)
        try:
            values = _keypoints(points, names)
        except ValueError as error:
            return self.parsed(where, label, None, str(error))
        if label not in self.skeletons and (found := Skeleton.parse({"keypoints": [*names]})):
            self.skeletons[label] = found
        seen = [(values[at], values[at + 1]) for at in range(0, len(values), 3) if values[at + 2]]
        (x0, y0), (x1, y1) = map(min, zip(*seen, strict=True)), map(max, zip(*seen, strict=True))
        found_object = self.parsed(where, label, (x0, y0, x1, y1), keypoints=values)
        return found_object._replace(is_relative=True)


def _is_point(region: LabelStudioRegion) -> bool:
    return {"x", "y"} <= region.values.keys() and not (
        {"height", "points", "radiusX", "rle"} & region.values.keys()
    )


def _size_of(values: Mapping[str, Any]) -> tuple[int, int] | None:
    sides = values.get("original_width"), values.get("original_height")
    width, height = (side if type(side) is int and 0 < side < 10**9 else 0 for side in sides)
    return (width, height) if width and height else None


def _percent(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < 1e9:
        raise ValueError("coordinates are not numbers in percent")
    return float(value) / 100


def _keypoints(points: Mapping[str, LabelStudioRegion], names: Sequence[str]) -> tuple[float, ...]:
    """Return the position and the visibility of each name; 0, 0, 0 for those that lack."""
    found = [0.0] * (3 * len(names))
    for region in points.values():
        at = 3 * names.index(region.labels[0])
        values = region.values
        found[at : at + 3] = _percent(values["x"]), _percent(values["y"]), 2.0
    return tuple(found)


def _outline(values: Mapping[str, Any]) -> list[float]:
    """Return the corners of a region in shares of the image's sides: x, y, x, y ...

    A rectangle or an ellipse may be turned, clockwise in degrees around its position.
    """
    if "points" in values:
        points = values["points"]
        if not isinstance(points, list) or not all(
            isinstance(point, list) and len(point) == 2 for point in points
        ):
            raise ValueError("points are not pairs of numbers")
        return [_percent(side) for point in points for side in point]
    x, y, turn = _percent(values.get("x")), _percent(values.get("y")), values.get("rotation") or 0
    if "radiusX" in values:
        right, lower = _percent(values["radiusX"]), _percent(values.get("radiusY"))
        left, upper = -right, -lower
    else:
        right, lower = _percent(values.get("width")), _percent(values.get("height"))
        left = upper = 0.0
    corners = [(left, upper), (right, upper), (right, lower), (left, lower)]
    if turn:
        corners = _turned(corners, turn, values)
    return [side for dx, dy in corners for side in (x + dx, y + dy)]


def _turned(
    corners: Sequence[tuple[float, float]], turn: object, values: Mapping[str, Any]
) -> list[tuple[float, float]]:
    """Return corners that are turned by degrees, on an image that may not be a square."""
    size = _size_of(values)
    if size is None:
        raise ValueError("a rotated region without original_width and original_height")
    angle, ratio = math.radians(100 * _percent(turn)), size[1] / size[0]
    sine, cosine = math.sin(angle), math.cos(angle)
    return [
        (dx * cosine - dy * ratio * sine, dx / ratio * sine + dy * cosine) for dx, dy in corners
    ]
