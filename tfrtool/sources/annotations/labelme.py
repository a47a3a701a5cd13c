"""LabelMe: a JSON file per image."""

import binascii
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import msgspec

from tfrtool.errors import printable
from tfrtool.sources.annotations.annotation_reader import ParsedImage, ParsedObject, masks_problem
from tfrtool.sources.annotations.image_files import ImageFilesReader
from tfrtool.sources.formats.json_lists import without_nan
from tfrtool.sources.items import LeftOut
from tfrtool.storage.limits import MAX_METADATA_BYTES, MAX_PATH_LENGTH

_Number = Annotated[float, msgspec.Meta(gt=-1e9, lt=1e9)]
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _LabelmeShape(msgspec.Struct):
    label: str
    points: list[tuple[_Number, _Number]]
    shape_type: str | None = None
    group_id: int | str | None = None
    flags: dict[str, Any] | None = None
    attributes: dict[str, Any] | None = None
    mask: str | None = None


class _LabelmeKind(msgspec.Struct):
    shape_type: Any = None


class _LabelmeFile(msgspec.Struct, rename="camel"):  # the image itself in it is skipped
    shapes: list[msgspec.Raw]
    image_path: str | None = None
    image_width: int | None = None
    image_height: int | None = None


_FILE, _MEMBERS = msgspec.json.Decoder(_LabelmeFile), msgspec.json.Decoder(dict[str, Any])
_KIND = msgspec.json.Decoder(_LabelmeKind)
_READ = {*_LabelmeShape.__struct_fields__} - {"group_id"}
_OUTLINES = ("polygon", "rotation", "quadrilateral")  # the last two are of X-AnyLabeling
_EMPTY: tuple[Any, ...] = (None, "", [], {})


class LabelmeReader(ImageFilesReader):
    """Reads LabelMe's JSON files; see `ImageFilesReader`."""

    suffix = ".json"
    expected = "a JSON file for each image (XML files of LabelMe's web version are not read)"
    limit = MAX_METADATA_BYTES

    def parse(self, key: str, data: bytes) -> Iterator[ParsedImage]:
        """Yield the image of a file; none if the file is of another kind."""
        try:
            try:
                file = _FILE.decode(data)
            except msgspec.ValidationError:
                self.ignored.add(LeftOut(key=key, reason="not a LabelMe file"))
                return
            except msgspec.DecodeError:
                file = _FILE.decode(without_nan(data))
        except _ERRORS as error:
            name = self._folder.name(self.image_stem(key))
            yield ParsedImage(name, key, problem=f"invalid JSON: {printable(str(error))[:200]}")
            return
        width, height = file.image_width, file.image_height
        path = (file.image_path or "")[-MAX_PATH_LENGTH:]
        image = self.named_image(key, path) if path else ParsedImage(self.image_stem(key), key)
        if width and height:
            image = image._replace(width=width, height=height)
        self.check_count(key, len(file.shapes))
        if problem := masks_problem(_mask_count(file.shapes), width or 0, height or 0):
            yield image._replace(problem=problem)
            return
        objects, groups = list[ParsedObject](), dict[tuple[str, str], list[list[float]]]()
        wheres, shared = dict[tuple[str, str], str](), dict[tuple[str, str], dict[str, Any]]()
        for number, raw in enumerate(file.shapes):
            where = f"{key}, shapes[{number}]"
            try:
                members = _MEMBERS.decode(raw)
                shape = msgspec.convert(members, _LabelmeShape)
            except _ERRORS as error:
                reason = f"invalid shape: {printable(str(error))[:200]}"
                objects.append(self.parsed(where, "", None, reason))
                continue
            others = {k: v for k, v in members.items() if k not in _READ and v not in _EMPTY}
            attributes = self.united(others, shape.flags or {}, shape.attributes or {})
            if shape.group_id is not None and shape.shape_type in (None, "polygon"):
                group = shape.label, str(shape.group_id)
                wheres.setdefault(group, where)
                groups.setdefault(group, []).append([v for point in shape.points for v in point])
                shared[group] = self.united(shared.get(group, {}), attributes)
            else:
                objects.append(self._object(where, shape, attributes, width, height))
        for group, lines in groups.items():
            outlined = self.outlined(wheres[group], group[0], lines, attributes=shared[group])
            objects.append(outlined)
            self._unread["polygons joined by group_id"] += len(lines) - 1
        self._unread = +self._unread
        yield image._replace(objects=objects)

    def _object(
        self,
        where: str,
        shape: _LabelmeShape,
        attributes: Mapping[str, Any],
        width: int | None,
        height: int | None,
    ) -> ParsedObject:
        points, kind = shape.points, shape.shape_type or "polygon"
        parsed = partial(self.parsed, where, shape.label, attributes=attributes)
        flat = [side for point in points for side in point]
        if kind in _OUTLINES or (kind.endswith("rectangle") and len(points) == 4):
            return self.outlined(where, shape.label, [flat], attributes=attributes)
        if len(points) != 2 or kind not in ("rectangle", "circle", "mask"):
            what = f"{printable(kind[:20])} of {len(points)} points is not a box or an outline"
            return parsed(None, what)
        (x0, y0), (x1, y1) = points
        if kind == "circle":
            radius = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
            self._unread["circles, written as boxes"] += 1
            sides = x0 - radius, y0 - radius, x0 + radius, y0 + radius
            return parsed(sides)
        box = min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)
        if kind == "rectangle":
            return parsed(box)
        from tfrtool.images.masks import mask_size, pasted_mask, read_bitmap

        try:
            if width is None or height is None:
                raise ValueError("mask without imageWidth and imageHeight")
            data = binascii.a2b_base64(shape.mask or "")
            wide, high = mask_size(data)
            if wide > width or high > height:
                raise ValueError("mask reaches out of the image")
            bitmap = read_bitmap(data)
            text = pasted_mask(bitmap, round(box[0]), round(box[1]), width, height)
        except ValueError as error:
            return parsed(None, str(error))
        box = box[0], box[1], box[0] + wide, box[1] + high
        size = width, height
        return parsed(box, segmentation=text, mask_size=size)


def _mask_count(shapes: Sequence[msgspec.Raw]) -> int:
    """Return how many shapes are masks, without decoding these; invalid shapes are none."""
    count = 0
    for raw in shapes:
        with suppress(*_ERRORS):
            count += _KIND.decode(raw).shape_type == "mask"
    return count
