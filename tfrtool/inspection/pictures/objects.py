"""One of a record's images, small, and what is drawn of the objects in it."""

import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from tfrtool.examples.example import Feature, PayloadKind, decode_example
from tfrtool.examples.objects.read_objects import ReadObject, RecordObjects, read_objects
from tfrtool.images.overlay import DrawnObject, color_of, colored, draw_marks, mask_of_mark
from tfrtool.images.pixels import Picture, decode_picture
from tfrtool.inspection.pictures.pictures import ImageRoles, pictures_of
from tfrtool.storage.limits import MAX_MASKS_DRAWN

_OBJECT_FEATURE = re.compile(r"(^|/)objects?/")
"""Names of features of objects, whose images are masks."""

MAX_OBJECTS = 1000
"""Objects that are shown of one image."""


def all_pictures(payload: bytes, roles: ImageRoles, box: int) -> Iterator[tuple[str, str, Picture]]:
    """Draw the images of all features of a record; see `pictures_of`.

    The index begins with the feature's name if there are several.
    """
    others = [name for name in roles.others if not _OBJECT_FEATURE.search(name)]
    if not others:
        yield from pictures_of(payload, roles, box)
        return
    for name in (roles.image, *others):
        array = roles.array if name == roles.image else None
        of_name = replace(roles, image=name, array=array)
        for label, where, picture in pictures_of(payload, of_name, box):
            if name == roles.image or picture.problem is None:
                yield label, f"{name}{where}", picture


def picture_of(payload: bytes, roles: ImageRoles, box: int, number: int = 0) -> Picture:
    """Return one of a record's images, at most ``box`` pixels wide and high."""
    found = islice(all_pictures(payload, roles, box), number, None)
    _, _, picture = next(found, ("", "", Picture(problem="no such image")))
    return picture


def thumbnail(payload: bytes, roles: ImageRoles, box: int) -> Picture:
    """Return a record's first image, at most ``box`` pixels wide and high, with its boxes."""
    picture = picture_of(payload, roles, box)
    if picture.image is None:
        return picture
    features = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE).features
    objects = read_objects(features, most=MAX_OBJECTS).objects
    marks = [DrawnObject(one.box, _kind(one)) for one in objects if one.can_be_drawn]
    return picture._replace(image=draw_marks(picture.image, marks)) if marks else picture


def masks_of(found: RecordObjects) -> list[tuple[ReadObject, bytes | str]]:
    """Return the objects with masks: encoded images, or else COCO's outlines as JSON."""
    texts = [one.more.get("segmentation", "") for one in found.objects]
    return [pair for pair in zip(found.objects, found.masks or texts, strict=False) if pair[1]]


def mask_of(payload: bytes, roles: ImageRoles, number: int, box: int) -> Picture:
    """Return one of a record's masks in its class's color, at most ``box`` wide and high."""
    features = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE).features
    found = read_objects(features, most=MAX_OBJECTS)
    masks = masks_of(found)
    if not 0 <= number < len(masks):
        return Picture(problem="no such mask")
    parsed, mask = masks[number]
    if isinstance(mask, bytes):
        picture = decode_picture(mask, box)
    else:
        _, _, picture = next(pictures_of(payload, roles, box))
        width, height = found.size or (picture.width, picture.height)
        mark = _with_outline(DrawnObject((0, 0, 0, 0)), mask, width, height)
        picture = picture._replace(image=picture.image and mask_of_mark(picture.image, mark))
    return picture._replace(image=picture.image and colored(picture.image, hue_of(parsed)))


def marks_of(
    features: Mapping[str, Feature], names: Mapping[int, str], picture: Picture, box: int
) -> list[DrawnObject]:
    """Return what is drawn of the objects of a record on its image.

    Args:
        features: of the record.
        names: of classes by their numbers, where the record doesn't name them.
        picture: its image.
        box: the longest side, in pixels, that masks are decoded at.
    """
    found = read_objects(features, names, MAX_OBJECTS)
    width, height = found.size or (picture.width, picture.height)
    masks = dict(enumerate(found.masks[:MAX_MASKS_DRAWN]))
    marks = []
    for at, parsed in enumerate(found.objects):
        if not parsed.can_be_drawn:
            continue
        mark = DrawnObject(parsed.box, _kind(parsed), parsed.title)
        if at in masks and (mask := decode_picture(masks[at], box).image) is not None:
            mark = mark._replace(mask=mask.convert("L"))
        elif (
            at < MAX_MASKS_DRAWN and (text := parsed.more.get("segmentation")) and width and height
        ):
            mark = _with_outline(mark, text, width, height)
        points = parsed.more.get("keypoints", ())
        threes = zip(points[::3], points[1::3], points[2::3], strict=True)
        marks.append(mark._replace(points=[(x, y) for x, y, seen in threes if seen]))
    return marks


def _with_outline(mark: DrawnObject, segmentation: str, width: int, height: int) -> DrawnObject:
    """Return a mark with COCO's polygons or run lengths, which may be anything."""
    from tfrtool.images.masks import mask_picture

    try:
        found = json.loads(segmentation)
        if isinstance(found, list):
            return mark._replace(outlines=[_shares(one, width, height) for one in found])
        return mark._replace(mask=mask_picture(found))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return mark


def _shares(outline: Any, width: int, height: int) -> Sequence[float]:
    shares = [
        float(v) / side for v, side in zip(outline, (width, height) * len(outline), strict=False)
    ]
    return shares if all(map(math.isfinite, shares)) else ()


def hue_of(parsed: ReadObject) -> str:
    """Return the color that an object has everywhere."""
    return color_of(_kind(parsed))


def _kind(parsed: ReadObject) -> int:
    """Return what gives an object its color."""
    return zlib.crc32(parsed.text.encode()) if parsed.label is None else parsed.label
