"""VIA, the VGG Image Annotator: JSON files of many images."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import msgspec

from tfrtool.errors import SourceError, printable, some_of
from tfrtool.sources.annotations.annotation_reader import ParsedImage, ParsedObject
from tfrtool.sources.annotations.image_files import ImageFilesReader
from tfrtool.sources.formats.json_lists import without_nan
from tfrtool.sources.items import LeftOut
from tfrtool.storage.limits import MAX_METADATA_BYTES, MAX_PATH_LENGTH

_CLASSES = ("class", "label", "name", "category", "type", "object", "species")
"""Attributes of regions that are classes, in the order in which they are looked for."""

_SHOWN = 5


class _ViaRegion(msgspec.Struct):
    shape_attributes: dict[str, Any]
    region_attributes: dict[str, Any] = {}


class _ViaImage(msgspec.Struct):
    filename: str
    regions: list[msgspec.Raw] | dict[str, msgspec.Raw] = []

    @property
    def raws(self) -> Collection[msgspec.Raw]:
        """The regions, which VIA 1 numbers."""
        return self.regions.values() if isinstance(self.regions, dict) else self.regions


_FILE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_IMAGE, _REGION = msgspec.json.Decoder(_ViaImage), msgspec.json.Decoder(_ViaRegion)
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ViaReader(ImageFilesReader):
    """Reads projects and annotations of VIA 1 and 2; see `ImageFilesReader`."""

    suffix = ".json"
    expected = "a project or annotations of VIA 2, as JSON"
    limit = MAX_METADATA_BYTES

    def parse(self, key: str, data: bytes) -> Iterator[ParsedImage]:
        """Yield the images of a file; none if the file is of another kind."""
        text = data
        try:
            try:
                members = _FILE.decode(text)
            except msgspec.DecodeError:
                text = without_nan(data)
                members = _FILE.decode(text)
            if "_via_img_metadata" in members:
                members = _FILE.decode(members["_via_img_metadata"])
            images = {name: _IMAGE.decode(raw) for name, raw in members.items()}
        except _ERRORS as error:
            if not isinstance(error, msgspec.ValidationError):
                what = f"not a file of VIA: {printable(str(error))[:200]}"
                path = self._folder.path(key)
                raise SourceError(what, path=path, expected=self.expected) from error
            self.ignored.add(LeftOut(key=key, reason="not a file of VIA"))
            return
        counts = Counter(
            name
            for image in images.values()
            for one in map(_parse, image.raws)  # again below: all at once may be too many
            if isinstance(one, _ViaRegion)
            for name, value in one.region_attributes.items()
            if _class_of(value)
        )
        known = {name.lower(): name for name in reversed(counts)}
        chosen = next((known[one] for one in _CLASSES if one in known), None)
        chosen = chosen or next((name for name, _ in counts.most_common(1)), "")
        if len(counts) > 1:
            others = some_of([printable(one[:40]) for one in counts if one != chosen], _SHOWN)
            what = f"classes come from the attribute {printable(chosen[:40])}, not {others}"
            self.notices.append(f"{key}: {what}")
        for image in images.values():
            self.check_count(key, len(image.raws))
            where = f"{key}, {printable(image.filename[:80])}"
            objects = [
                self._object(f"{where}, regions[{number}]", one, chosen)
                for number, one in enumerate(map(_parse, image.raws))
            ]
            name, folder = image.filename[-MAX_PATH_LENGTH:], key.rpartition("/")[0]
            near = self._folder.name(f"{folder}/{name}" if folder else name)
            yield ParsedImage(near, where, objects, other_name=name, upright=True)

    def _object(self, where: str, region: "_ViaRegion | str", chosen: str) -> ParsedObject:
        if isinstance(region, str):
            return self.parsed(where, "", None, region)
        others = dict(region.region_attributes)
        category = _class_of(others.pop(chosen, None))
        parsed = partial(self.parsed, where, category, attributes=others)
        get: Callable[..., Any] = region.shape_attributes.get
        kind = get("name")
        if kind in ("polygon", "polyline"):
            xs, ys = get("all_points_x"), get("all_points_y")
            if not (_are_numbers(xs) and _are_numbers(ys) and len(xs) == len(ys)):
                return parsed(None, "points are not two lists of numbers")
            if kind == "polygon":
                line = [side for point in zip(xs, ys, strict=True) for side in point]
                return self.outlined(where, category, [line], attributes=others)
        sides = [get(name) for name in ("x", "y", "width", "height")]
        if kind in ("circle", "ellipse"):
            rx, ry = (get(name, get("r")) for name in ("rx", "ry"))
            if _are_numbers(parts := [get("cx"), get("cy"), rx, ry]):
                cx, cy, rx, ry = parts
                turn = get("theta", 0) if _are_numbers([get("theta", 0)]) else 0
                wide = math.hypot(rx * math.cos(turn), ry * math.sin(turn))
                high = math.hypot(rx * math.sin(turn), ry * math.cos(turn))
                sides = [cx - wide, cy - high, 2 * wide, 2 * high]
                self._unread[f"{kind}s, written as boxes"] += 1
        elif kind != "rect":
            what = f"{printable(str(kind)[:20])} is not a box or an outline"
            return parsed(None, what)
        if not _are_numbers(sides):
            return parsed(None)
        x, y, width, height = sides
        return parsed((x, y, x + width, y + height))


def _parse(raw: msgspec.Raw) -> "_ViaRegion | str":
    try:
        return _REGION.decode(raw)
    except _ERRORS as error:
        return f"invalid region: {printable(str(error))[:200]}"


def _class_of(value: object) -> str:
    """Return the class in an attribute: a text, or the only box that is checked."""
    if isinstance(value, dict):
        checked = [one for one, is_checked in value.items() if is_checked]
        return checked[0] if len(checked) == 1 else ""
    return value if isinstance(value, str) else ""


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(
        type(one) in (int, float) and abs(one) < 1e9 for one in values
    )
