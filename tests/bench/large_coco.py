"""A file of annotations as large as COCO's instances_train2017: reading it, and listing images.

What JSON alone takes is measured by three ways to read it; what is read is counted each time.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Raw

from tests.photos import image_bytes
from tfrtool.examples.objects.record_features import Masks
from tfrtool.sources.annotations.annotation_reader import ParsedImage
from tfrtool.sources.annotations.coco import CocoReader
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.formats.json_lists import JsonFile
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions

__all__ = ["run", "write_large"]

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
            runs = [draw.randrange(1, 300) for _ in range(150)]
            runs.append(480 * 640 - sum(runs))
            outline = f'{{"counts": [{",".join(map(str, runs))}],"size": [480,640]}}'
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


def _whole(path: Path, _: Path) -> int:
    with path.open(encoding="utf-8") as file:
        return len(json.load(file)["annotations"])


def _ijson(path: Path, _: Path) -> int:
    import ijson

    count = 0
    for name in ("images", "annotations", "categories"):
        with path.open("rb") as file:
            some = ijson.items(file, f"{name}.item", use_float=True, buf_size=2**20)
            count += sum(1 for _ in some) * (name == "annotations")
    return count


def _elements(path: Path, _: Path) -> int:
    with path.open("rb") as file:
        parts = JsonFile(file, path).parts({"annotations"})
        return sum(len(part.decode(dict[str, Raw])) for _, part in parts if part is not None)


def _reader(path: Path, _: Path) -> int:
    images = CocoReader([path], path.parent, Masks.POLYGONS).images()
    return sum(len(image.objects) for image in images if isinstance(image, ParsedImage))


def _images_alone(_: Path, images: Path) -> int:
    source = open_source(str(images), LabelFrom.FOLDER, images.parent)
    return OBJECTS * (len(source.items) == IMAGES)


def _source(path: Path, images: Path) -> int:
    options = SourceOptions(annotations=f"coco:{path}")
    source = open_source(str(images), LabelFrom.FOLDER, path.parent, options=options)
    assert source.annotations is not None
    return source.annotations.read - len(source.annotations.rejected)


_WAYS = {
    "json.load": _whole,
    "ijson, three passes": _ijson,
    "msgspec, element by element": _elements,
    "read and checked": _reader,
    "listing images by class": _images_alone,
    "listing images with objects": _source,
}


def run(directory: Path) -> Iterator[str]:
    """Yield a line for each way, each in a process of its own."""
    path, images = directory / "instances.json", directory / "images"
    write_large(path)
    data = image_bytes(size=(8, 6))
    for at in range(1, IMAGES + 1):
        file = images / f"{at % 8}" / f"{at:012d}.jpg"
        if at <= 8:
            file.parent.mkdir(parents=True)
        file.write_bytes(data)
    yield f"{path.stat().st_size / 1e6:.0f} MB, {IMAGES:,} images, {OBJECTS:,} objects"
    for name in _WAYS:
        command = [sys.executable, "-m", "tests.bench.large_coco", name, str(path), str(images)]
        yield subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip()


if __name__ == "__main__":
    start = time.process_time()
    if _WAYS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3])) != OBJECTS:
        raise RuntimeError("not all objects were read")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  {sys.argv[1]:28} {time.process_time() - start:6.1f} s CPU, {peak:6.0f} MiB at most")
