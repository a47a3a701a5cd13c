"""Images and objects as COCO's JSON has them, and what is wrong with them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from typing import Annotated, Any

import msgspec

from tfrtool.errors import SourceError, printable
from tfrtool.examples.objects.annotation import NOT_FINITE, attributes_text
from tfrtool.examples.objects.record_features import Masks
from tfrtool.images.masks import outline_points, run_lengths
from tfrtool.sources.annotations.annotation_reader import NO_BOX, Box, known_flags
from tfrtool.sources.formats.json_lists import JsonWindow
from tfrtool.storage.limits import MAX_KEYPOINTS, MAX_OUTLINE_POINTS, MAX_PATH_LENGTH

_LONGEST_ID, _ID_LIMIT = 64, 10**18
_FLAGS = frozenset({None, 0, 1})
_NULL = msgspec.Raw(b"null")

_Float = Annotated[float, msgspec.Meta(gt=-1e9, lt=1e9)]
_Number = Annotated[int, msgspec.Meta(gt=-(10**9), lt=10**9)] | _Float
Id = int | float | str | None
"""The id of an image, an object or a category in JSON."""


class CocoImage(msgspec.Struct, gc=False):
    """An image; none of its values is checked."""

    id: Any = None
    file_name: Any = None
    coco_url: Any = None
    width: Any = None
    height: Any = None


class CocoObject(msgspec.Struct, gc=False):
    """An object."""

    id: Id = None
    image_id: Id = None
    category_id: Id = None
    bbox: tuple[_Float, _Float, _Float, _Float] | None = None
    segmentation: msgspec.Raw = _NULL
    area: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] | None = None
    iscrowd: Annotated[float, msgspec.Meta(ge=0, le=1)] | bool | None = None
    keypoints: Annotated[list[_Float], msgspec.Meta(max_length=3 * MAX_KEYPOINTS)] | None = None


class _Standard(CocoObject, gc=False, forbid_unknown_fields=True):
    """An annotation without other members, as nearly all are."""

    num_keypoints: msgspec.Raw = _NULL


class _Invalid(CocoObject, gc=False):
    """An annotation with the members that are valid, and what is wrong with the others."""

    problem: str | None = None


_PROBLEMS = {
    "bbox": "bbox is not four numbers",
    "area": "area is not a positive number",
    "iscrowd": "iscrowd is not 0 or 1",
    "keypoints": "keypoints are not (x, y, visibility) with a visibility of 0, 1 or 2",
}
_ANYTHING = msgspec.json.Decoder()
_ZEROS, _TEN_DIGITS = bytes.maketrans(b"123456789", b"0" * 9), b"0" * 10
_ONE_POLYGON = frozenset(b"[[%b]]" % (b"," * (2 * points - 1)) for points in range(3, 256))
"""What is between the numbers of an outline in one part."""

_OBJECT = msgspec.json.Decoder(CocoObject)
_POLYGONS, _POLYGON = msgspec.json.Decoder(list[list[_Number]]), msgspec.json.Decoder(list[_Number])
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_VISIBLE = frozenset((0, 1, 2))
_NO_OUTLINES = (b"null", b"[]", b"")


@dataclass
class CocoAccount:
    """What the objects of a file have, and what of them is not written.

    Attributes:
        optional: the fields of `ObjectAnnotation` that some of them have, except the id.
        counts: numbers of objects, by what of them is not written.
    """

    optional: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)


CheckedObject = tuple[Id, Box, tuple[Any, ...], str | None, tuple[int, int] | None]
"""The category, the box, the fields of `ObjectAnnotation` from its id on, why the object can't be
used, and the width and height of a mask."""


def decode_images(part: JsonWindow) -> list[CocoImage]:
    """Return the images of a window."""
    return part.decode(CocoImage, _loose_image)


def decode_members(part: JsonWindow) -> list[dict[str, Any]]:
    """Return the members of the objects of a window."""
    return part.decode(dict[str, Any], _loose_members)


def checked_objects(
    part: JsonWindow, masks: Masks, account: CocoAccount
) -> Iterator[tuple[Id, CheckedObject]]:
    """Yield the objects of a window, each after the id of its image.

    Nearly all have a box, polygons and nothing else.
    """
    attributes: Iterable[Mapping[str, Any]] = repeat({})
    try:
        entries: Sequence[CocoObject] = part.decode(_Standard)
    except SourceError:
        entries = part.decode(CocoObject, _loose_object)
        attributes = (_attributes(one, account) for one in part.decode(dict[str, msgspec.Raw]))
    if any(one.area is not None for one in entries):
        account.optional.add("area")
    if any(one.iscrowd is not None for one in entries):
        account.optional.add("crowd")
    outlines = b"\0".join([one.segmentation for one in entries])
    texts, are_polygons = outlines.split(b"\0"), _are_polygons(outlines)
    for entry, more, text, is_polygons in zip(
        entries, attributes, texts, are_polygons, strict=False
    ):
        id_ = entry.id if type(entry.id) is int and 0 <= entry.id < _ID_LIMIT else None
        if id_ is None and entry.id is not None:
            account.counts["ids that are not numbers not written"] += 1
        has_outline = text not in _NO_OUTLINES
        if (
            entry.bbox is None
            or entry.iscrowd
            or entry.keypoints
            or more
            or masks is Masks.PNG
            or type(entry) is _Invalid
            or (has_outline and not is_polygons)
        ):
            yield entry.image_id, _check_rest(entry, id_, more, masks, account)
            continue
        outline = ""
        if has_outline and masks is not Masks.NONE:
            account.optional.add("segmentation")
            outline = text.decode()
        x, y, width, height = entry.bbox
        fields = id_, entry.area, False, False, False, "", outline, (), ""
        yield (
            entry.image_id,
            (entry.category_id, (x, y, x + width, y + height), fields, None, None),
        )


def _check_rest(
    entry: CocoObject,
    id_: int | None,
    attributes: Mapping[str, Any],
    masks: Masks,
    account: CocoAccount,
) -> CheckedObject:
    """Return the same of an object with key points, attributes, a mask or a problem."""
    problem = entry.problem if isinstance(entry, _Invalid) else None
    points, attributes_json, flags = tuple(entry.keypoints or ()), "", known_flags(attributes)
    if attributes:
        account.optional.update(flags, ("attributes",))
        try:
            attributes_json = attributes_text(attributes)
        except ValueError as error:
            problem = problem or str(error)
    if entry.iscrowd not in _FLAGS:
        problem = problem or _PROBLEMS["iscrowd"]
    if points:
        account.optional.add("keypoints")
        if len(points) % 3 or not _VISIBLE.issuperset(points[2::3]):
            problem = problem or _PROBLEMS["keypoints"]
    box, outline, mask_size = NO_BOX, "", None
    try:
        polygons, outline, mask_size = _outline(bytes(entry.segmentation), masks, account.counts)
        box = _box(entry, polygons)
    except ValueError as error:
        problem = problem or str(error)
    if outline:
        account.optional.add("segmentation")
    flag_values = bool(entry.iscrowd), flags.get("difficult", False), flags.get("truncated", False)
    fields = id_, entry.area, *flag_values, "", outline, points, attributes_json
    return entry.category_id, box, fields, problem, mask_size


def _box(entry: CocoObject, polygons: Sequence[Sequence[float]]) -> Box:
    """Return the box of an object, or that around its polygons."""
    if entry.bbox is not None:
        x, y, width, height = entry.bbox
        return x, y, x + width, y + height
    if not polygons:
        raise ValueError("no bbox")
    xs, ys = ([v for line in polygons for v in line[start::2]] for start in (0, 1))
    return float(min(xs)), float(min(ys)), float(max(xs)), float(max(ys))


def _attributes(members: Mapping[str, msgspec.Raw], account: CocoAccount) -> dict[str, Any]:
    """Return the ``attributes`` of an object, and its members that COCO doesn't have."""
    others = members.keys() - _Standard.__struct_fields__
    values = {name: _any(members[name]) for name in sorted(others)}
    inner = values.pop("attributes") if isinstance(values.get("attributes"), dict) else {}
    if clashes := len(inner.keys() & values):
        account.counts["members with the name of an attribute not written"] += clashes
    return values | inner


def _outline(
    text: bytes, masks: Masks, counts: Counter[str]
) -> tuple[Sequence[Sequence[float]], str, tuple[int, int] | None]:
    """Return the polygons of an outline, what is kept of it, and the size of its mask."""
    if not text.startswith(b"["):
        return _mask(text, masks)
    try:
        polygons = _POLYGONS.decode(text)
    except _ERRORS:
        try:
            polygons = [_POLYGON.decode(text)]
        except _ERRORS as error:
            what = "segmentation is not a list of polygons, or has numbers out of range"
            raise ValueError(what) from error
        text = msgspec.json.encode(polygons)
    lines = [line for line in polygons if len(line) >= 6 and len(line) % 2 == 0]
    if len(lines) < len(polygons):
        counts["outlines of fewer than three points not written"] += 1
        text = msgspec.json.encode(lines)
    if masks is Masks.PNG and sum(map(outline_points, lines)) > MAX_OUTLINE_POINTS:
        raise ValueError(f"outline has more than {MAX_OUTLINE_POINTS:,} points")
    return lines, text.decode() if lines and masks is not Masks.NONE else "", None


def _mask(
    text: bytes, masks: Masks
) -> tuple[Sequence[Sequence[float]], str, tuple[int, int] | None]:
    """Return the same of a mask of run lengths."""
    try:
        mask: Any = _ANYTHING.decode(text)
    except _ERRORS as error:
        raise ValueError("mask has no run lengths") from error
    if not mask:
        return (), "", None
    if not isinstance(mask, dict):
        raise ValueError("segmentation is neither polygons nor run lengths")
    _, width, height = run_lengths(mask)
    mask = {"size": mask["size"], "counts": mask["counts"]}
    outline = "" if masks is Masks.NONE else msgspec.json.encode(mask).decode()
    return (), outline, (width, height)


def _are_polygons(outlines: bytes) -> list[bool]:
    """Return which JSON is plainly polygons, as nearly all is: a fraction of the time to read it.

    Outlines are separated by a zero. Numbers of ten digits may be out of range.
    """
    if _TEN_DIGITS in (zeros := outlines.translate(_ZEROS)):
        outlines = zeros.replace(_TEN_DIGITS, b"x")
    marks = outlines.translate(None, b"0123456789. -\n\r\t").split(b"\0")
    return [one in _ONE_POLYGON or _are_several(one) for one in marks]


def _are_several(marks: bytes) -> bool:
    parts = marks[2:-2].split(b"],[")
    return marks.startswith(b"[[") and all(
        len(one) % 2 and len(one) >= 5 and not one.strip(b",") for one in parts
    )


def id_text(value: object) -> str | None:
    """Return the id of an image or a category, a number or a short text; None for others."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int and not isinstance(value, str):
        return None
    return key if len(key := str(value)) <= _LONGEST_ID and key.isprintable() else None


def _any(text: msgspec.Raw) -> Any:
    """Return a value, or what stands for one that can't be one."""
    try:
        return msgspec.json.decode(text)
    except _ERRORS:
        return float(NOT_FINITE)


def _loose_members(text: bytes) -> dict[str, Any]:
    """Return the members of an object that are valid."""
    found = dict[str, Any]()
    for name, value in msgspec.json.decode(text, type=dict[str, msgspec.Raw]).items():
        with suppress(*_ERRORS):
            found[name] = msgspec.json.decode(value)
    return found


def _loose_image(text: bytes) -> CocoImage:
    found = _loose_members(text)
    return CocoImage(*map(found.get, CocoImage.__struct_fields__))


def parse_image(key: str, at: int, found: CocoImage) -> tuple[Any, ...]:
    """Return the name, what messages call it, the sides, the id and the problem of an image."""
    name = found.file_name if found.file_name is not None else found.coco_url
    where = f"image {printable(key)}" if key else f"images[{at}]"
    problem = None if key else "id is not a number or a short string"
    if not isinstance(name, str) or not 0 < len(name) <= MAX_PATH_LENGTH:
        name, problem = where, "no file_name"
    sides: list[Any] = [found.width, found.height]
    for number, value in enumerate(sides):
        is_number = type(value) in (int, float) and -1e9 < value < 1e9
        if is_number and value == int(value):
            sides[number] = int(value)
        elif value is not None:
            sides, problem = [None, None], problem or "width and height are not whole numbers"
            break
    width, height = sides
    return name, where, width, height, key, problem


def _loose_object(text: bytes) -> CocoObject:
    """Return what is valid of an object in JSON, and what is wrong with it."""
    with suppress(*_ERRORS):
        return _OBJECT.decode(text)
    found = _Invalid()
    for name, value in msgspec.json.decode(text, type=dict[str, msgspec.Raw]).items():
        if name in CocoObject.__struct_fields__:
            try:
                part = _OBJECT.decode(msgspec.json.encode({name: value}))
                setattr(found, name, getattr(part, name))
            except _ERRORS:
                found.problem = found.problem or _PROBLEMS.get(name)
                if name == "id":
                    found.id = ""  # which isn't a number either
    return found
