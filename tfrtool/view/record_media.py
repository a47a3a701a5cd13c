"""The images, sounds and videos of one record, as its page shows them."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tfrtool.errors import printable
from tfrtool.examples.example import Feature, PayloadKind, decode_example
from tfrtool.examples.objects.read_objects import ReadObject, read_objects
from tfrtool.inspection.extract.media import media_of
from tfrtool.inspection.pictures.objects import MAX_OBJECTS, all_pictures, hue_of, masks_of
from tfrtool.inspection.table.record_query import Row
from tfrtool.view.live import Live
from tfrtool.view.page_address import picture_url
from tfrtool.view.pieces import short

LARGE, LARGEST = 2048, 8192
"""Longest side of the image of a record, in pixels, as the page opens and once it is zoomed."""

_MASKS, _PICTURES, _CLASSES = 50, 64, 30


def pictures_shown(live: Live, row: Row, payload: bytes) -> list[dict[str, Any]]:
    """Return what a page shows of the images of a record."""
    roles = live.found.roles(row.shard)
    objects = read_objects(_features_of(payload), roles.object_names, MAX_OBJECTS)
    shown = []
    for number, (label, where, picture) in enumerate(all_pictures(payload, roles, 1)):
        if number == _PICTURES:
            break
        boxes = [] if number else _boxes(objects.objects, picture.width, picture.height)
        masks = range(0 if number else min(len(masks_of(objects)), _MASKS))
        counts = Counter(box["text"] for box in boxes)
        colors = {box["text"]: box["color"] for box in boxes}
        classes = [
            {"text": text, "count": count, "color": colors[text]}
            for text, count in counts.most_common(_CLASSES)
        ]
        src = f"{picture_url(row, LARGE)}&image={number}"
        shown.append(
            {
                "picture": picture,
                "src": src,
                "full": src.replace(f"box={LARGE}", f"box={LARGEST}"),
                "is_reduced": max(picture.width, picture.height) > LARGE,
                "label": " ".join(map(printable, filter(None, (label, where, picture.size)))),
                "font": picture.width / (28 if picture.width < 256 else 48),
                "boxes": boxes,
                "classes": classes if len(boxes) > 1 else [],
                "masks": [f"/mask/{row.shard}/{row.offset}/{n}" for n in masks],
            }
        )
    return shown


def media_shown(live: Live, row: Row, payload: bytes) -> list[dict[str, Any]]:
    """Return the names and addresses of the sounds and videos of a record."""
    return [
        {
            "name": short(one.name),
            "kind": one.kind,
            "is_video": one.kind.startswith("video/"),
            "src": f"/media/{row.shard}/{row.offset}/{number}",
        }
        for number, one in enumerate(media_of(payload, live.found.root))
    ]


def _features_of(payload: bytes) -> Mapping[str, Feature]:
    with suppress(ValueError):  # of another kind
        return decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE).features
    return {}


def _boxes(objects: tuple[ReadObject, ...], width: int, height: int) -> list[dict[str, Any]]:
    """Return the boxes of objects, in pixels."""
    return [
        {"x": x0 * width, "y": y0 * height, "width": (x1 - x0) * width, "color": hue_of(one),
         "height": (y1 - y0) * height, "text": printable(one.title) or str(number)}
        for number, one in enumerate(objects, 1)
        if one.can_be_drawn
        for x0, y0, x1, y1 in [one.box]
        if x0 < x1 and y0 < y1
    ]  # fmt: skip
