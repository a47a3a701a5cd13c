"""Images with colored rectangles at known places, and the annotation files that tell of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from PIL import Image, ImageDraw

__all__ = [
    "BACKGROUND",
    "COLORS",
    "SCENES",
    "Scene",
    "Thing",
    "scenes",
    "write_box_csv",
    "write_coco",
    "write_voc",
    "write_yolo",
]

COLORS: Mapping[str, tuple[int, int, int]] = {
    "cat": (220, 30, 30),
    "dog": (30, 180, 40),
    "traffic light": (40, 60, 230),
}
"""The colors of rectangles, by the class of the object that each is."""

BACKGROUND = (230, 230, 230)
_ORIENTATION = 0x0112
_SIDES = ("xmin", "ymin", "xmax", "ymax")


class Thing(NamedTuple):
    """A rectangle in an image, in pixels; the right and lower sides are the first outside."""

    category: str
    xmin: int
    ymin: int
    xmax: int
    ymax: int

    @property
    def polygon(self) -> list[int]:
        """Its corners: x, y, x, y ..."""
        x0, y0, x1, y1 = self[1:]
        return [x0, y0, x1, y0, x1, y1, x0, y1]

    @property
    def area(self) -> int:
        """In square pixels."""
        return (self.xmax - self.xmin) * (self.ymax - self.ymin)


class Scene(NamedTuple):
    """An image: its path below the folder of images, its size as it is stored, what is in it."""

    name: str
    width: int
    height: int
    things: tuple[Thing, ...] = ()


SCENES = (
    Scene("a.jpg", 160, 120, (Thing("cat", 16, 24, 80, 72),)),
    Scene(
        "b 50%.jpg",
        96,
        128,
        (
            Thing("dog", 0, 0, 48, 32),
            Thing("cat", 56, 40, 96, 80),
            Thing("traffic light", 8, 88, 24, 128),
        ),
    ),
    Scene("deep/c.png", 200, 80, (Thing("dog", 104, 8, 184, 72), Thing("dog", 8, 16, 72, 48))),
    Scene("deep/nothing.jpg", 64, 48),
    Scene("nothing.png", 48, 64),
    Scene("z.jpg", 128, 128, (Thing("traffic light", 32, 32, 64, 96),)),
)
"""Images in the order of their names, which are told apart by their last parts, too."""


def scenes(
    folder: Path, wanted: Sequence[Scene] = SCENES, orientation: int | None = None
) -> tuple[Scene, ...]:
    """Draw images below a folder, and return them.

    Sides of rectangles are best multiples of 8: JPEGs are then of the right colors up to them.
    An orientation is only said, by Exif data: the pixels lie as they are told.
    """
    for scene in wanted:
        image = Image.new("RGB", (scene.width, scene.height), BACKGROUND)
        draw = ImageDraw.Draw(image)
        for category, x0, y0, x1, y1 in scene.things:
            draw.rectangle((x0, y0, x1 - 1, y1 - 1), fill=COLORS[category])
        path = folder / scene.name
        path.parent.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        if orientation is not None:
            exif[_ORIENTATION] = orientation
        image.save(path, quality=95, subsampling=0, exif=exif)
    return tuple(wanted)


def write_coco(
    path: Path,
    wanted: Sequence[Scene] = SCENES,
    *,
    ids: Mapping[str, int] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Write COCO's instances of images as JSON, and return what is written.

    Args:
        path: the file.
        wanted: the images, which get the numbers 1, 2, ... as do the objects.
        ids: those of the categories, by their names; by default 1, 3, 7, in the order of `COLORS`.
        more: further members of the whole, or others instead of those that it has.
    """
    ids = ids or dict(zip(COLORS, (1, 3, 7), strict=True))
    whole: dict[str, Any] = {
        "info": {"description": "rectangles"},
        "images": [
            {"id": at, "file_name": one.name, "width": one.width, "height": one.height}
            for at, one in enumerate(wanted, 1)
        ],
        "annotations": [],
        "categories": [
            {"id": number, "name": name, "supercategory": "thing"} for name, number in ids.items()
        ],
    }
    for image, scene in enumerate(wanted, 1):
        for thing in scene.things:
            x, y = thing.xmin, thing.ymin
            whole["annotations"].append(
                {
                    "id": len(whole["annotations"]) + 1,
                    "image_id": image,
                    "category_id": ids[thing.category],
                    "bbox": [x, y, thing.xmax - x, thing.ymax - y],
                    "segmentation": [thing.polygon],
                    "area": thing.area,
                    "iscrowd": 0,
                }
            )
    whole |= more
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole), "utf-8")
    return whole


def write_voc(
    folder: Path,
    wanted: Sequence[Scene] = SCENES,
    splits: Mapping[str, Sequence[str]] | None = None,
) -> Path:
    """Write VOC's XML files into ``Annotations`` of a folder, and return the folder.

    ``splits`` are lists of what images are called there, without suffixes.
    """
    for scene in wanted:
        objects = "".join(
            f"<object><name>{escape(thing.category)}</name><pose>Left</pose><truncated>0</truncated>"
            f"<difficult>{at % 2}</difficult><bndbox>"
            + "".join(f"<{k}>{v}</{k}>" for k, v in zip(_SIDES, thing[1:], strict=True))
            + "</bndbox></object>"
            for at, thing in enumerate(scene.things)
        )
        path = (folder / "Annotations" / scene.name).with_suffix(".xml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"<annotation><filename>{escape(scene.name)}</filename><size><width>{scene.width}"
            f"</width><height>{scene.height}</height><depth>3</depth></size>{objects}</annotation>",
            "utf-8",
        )
    for split, names in (splits or {}).items():
        path = folder / "ImageSets" / "Main" / f"{split}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{name}\n" for name in names), "utf-8")
    return folder


def write_yolo(folder: Path, wanted: Sequence[Scene] = SCENES, *, polygons: bool = False) -> Path:
    """Write ``data.yaml`` and YOLO's labels of images in ``images/train``; return the folder."""
    classes = [*COLORS]
    for scene in wanted:
        lines = []
        for category, x0, y0, x1, y1 in scene.things:
            shares = [(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0]
            if polygons:
                shares = [x0, y0, x1, y0, x1, y1, x0, y1]
            sides = (scene.width, scene.height) * 4
            values = [share / side for share, side in zip(shares, sides, strict=False)]
            lines.append(f"{classes.index(category)} {' '.join(f'{one:.6f}' for one in values)}\n")
        path = (folder / "labels" / "train" / scene.name).with_suffix(".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(lines))
    (folder / "data.yaml").write_text(f"train: images/train\nval:\nnames: {json.dumps(classes)}\n")
    return folder


def write_box_csv(path: Path, wanted: Sequence[Scene] = SCENES) -> Path:
    """Write the boxes of images as ``generate_tfrecord.py`` wants them, and return the file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("filename", "width", "height", "class", *_SIDES))
        for scene in wanted:
            for thing in scene.things:
                rows.writerow((scene.name, scene.width, scene.height, *thing))
    return path
