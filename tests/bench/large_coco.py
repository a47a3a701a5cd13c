"""A file of annotations as large as COCO's instances_train2017: read, and planned."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

IMAGES, OBJECTS, CATEGORIES = 118_287, 860_001, 80
"""Of instances_train2017.json, which has 448 MB."""

_CROWDS = 85  # every so many objects is a crowd, whose mask is run lengths


def write_large(path: Path, images: int = IMAGES, objects: int = OBJECTS, first: str = "") -> None:
    """Write a file of that shape; ``first`` names the array that comes first, if another."""
    parts = {
        "info": lambda: iter(['{"description": "made", "year": 2017}']),
        "licenses": lambda: iter(['[{"url": "http://example.org", "id": 1, "name": "By"}]']),
        "images": lambda: _array(_images(images)),
        "annotations": lambda: _array(_objects(images, objects)),
        "categories": lambda: _array(
            json.dumps({"supercategory": "thing", "id": at, "name": f"class {at}"})
            for at in range(1, CATEGORIES + 1)
        ),
    }
    order = sorted(parts, key=lambda name: name != first)
    with path.open("w", encoding="utf-8") as file:
        for at, name in enumerate(order):
            file.write(f'{", " if at else "{"}"{name}": ')
            file.writelines(parts[name]())
        file.write("}")


def _array(parts: Iterator[str]) -> Iterator[str]:
    yield "["
    for at, part in enumerate(parts):
        yield f", {part}" if at else part
    yield "]"


def _images(count: int) -> Iterator[str]:
    for at in range(1, count + 1):
        name = f"{at:012d}.jpg"
        yield (
            f'{{"license": 1,"file_name": "{name}","coco_url": "http://images.cocodataset.org/'
            f'train2017/{name}","height": 480,"width": 640,"date_captured": "2013-11-14 11:18:45",'
            f'"flickr_url": "http://farm9.staticflickr.com/8186/{at:010d}_z.jpg","id": {at}}}'
        )


def _objects(images: int, count: int) -> Iterator[str]:
    draw = random.Random(0)
    shapes = [_outline(draw) for _ in range(2_000)]
    for at in range(1, count + 1):
        outline, box, area = shapes[draw.randrange(len(shapes))]
        crowd = at % _CROWDS == 0
        if crowd:
            runs = ",".join(str(draw.randrange(1, 300)) for _ in range(150))
            outline = f'{{"counts": [{runs}],"size": [480,640]}}'
        yield (
            f'{{"segmentation": {outline},"area": {area},"iscrowd": {int(crowd)},'
            f'"image_id": {draw.randint(1, images)},"bbox": {box},'
            f'"category_id": {draw.randint(1, CATEGORIES)},"id": {at}}}'
        )


def _outline(draw: random.Random) -> tuple[str, str, float]:
    wide, high = draw.uniform(8, 400), draw.uniform(8, 300)
    x, y = draw.uniform(0, 639 - wide), draw.uniform(0, 479 - high)
    points = [
        round(start + draw.random() * length, 2)
        for _ in range(draw.randint(6, 46))
        for start, length in ((x, wide), (y, high))
    ]
    text = ",".join(map(str, points))
    box = ",".join(f"{side:.2f}" for side in (x, y, wide, high))
    return f"[[{text}]]", f"[{box}]", round(wide * high * 0.6, 4)
