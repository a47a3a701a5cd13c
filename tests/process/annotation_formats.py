"""Every kind of annotations of real photographs, to TFRecords and back.

``python -m tests.process.annotation_formats PHOTOS [MODELS]``: draws rectangles on small copies of
photographs, tells of them in COCO, VOC, YOLO, a table of boxes, and a table of columns and labels,
and runs each set through write, inspect, verify, a sheet, TFDS and extract; then once more from
what came out. All numbers are held against those that were drawn. MODELS is a folder with the
package tf-models-official, whose decoder of the TF Object Detection API's records then reads them,
too. One line is printed for each set, and the first difference ends the work.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import random
import shutil
import sys
import tempfile
import types
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image, ImageDraw, ImageOps

from tfrtool.cli import main

_CLASSES = {"cat": 1, "dog": 3, "traffic light": 7}
_COLOURS = {"cat": "red", "dog": "lime", "traffic light": "blue"}
_PHOTOS, _SIDE = 24, 480
_CROWD = 2  # the place in its image of a rectangle that is a crowd
_FEW = 0.01  # pixels

Box = tuple[str, float, float, float, float]


class Drawn(NamedTuple):
    """A photograph with rectangles on it, in pixels with two digits."""

    name: str
    width: int
    height: int
    boxes: tuple[Box, ...]


def _draw(photos: Path, folder: Path) -> list[Drawn]:
    """Draw on copies of some photographs; the first has nothing on it."""
    found = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    draws, made = random.Random(7), list[Drawn]()
    for path in found:
        try:
            with Image.open(path) as opened:
                image = ImageOps.exif_transpose(opened).convert("RGB")
        except OSError:
            continue
        image.thumbnail((_SIDE, _SIDE))
        wide, high = image.size
        pen, boxes = ImageDraw.Draw(image), list[Box]()
        for _ in range(min(len(made), draws.randint(1, 4))):
            x = sorted(draws.uniform(0, wide) for _ in range(2))
            y = sorted(draws.uniform(0, high) for _ in range(2))
            name = draws.choice([*_CLASSES])
            x0, y0, x1, y1 = (round(side, 2) for side in (x[0], y[0], x[1], y[1]))
            if x1 - x0 > 1 and y1 - y0 > 1:
                boxes.append((name, x0, y0, x1, y1))
                pen.rectangle((x0, y0, x1, y1), outline=_COLOURS[name], width=3)
        name = f"{len(made):03d} {path.stem}.jpg"
        image.save(folder / name, quality=92)
        made.append(Drawn(name, wide, high, tuple(boxes)))
        if len(made) == _PHOTOS:
            break
    return made


def _coco(folder: Path, drawn: Sequence[Drawn]) -> dict[str, Any]:
    """Write COCO's instances: polygons, crowds as run lengths, and key points."""
    whole: dict[str, Any] = {"images": [], "annotations": []}
    whole["categories"] = [{"id": n, "name": name} for name, n in _CLASSES.items()]
    for number, one in enumerate(drawn):
        told = {"id": 139 + 17 * number, "file_name": one.name}
        whole["images"].append(told | {"width": one.width, "height": one.height})
        for at, (name, x0, y0, x1, y1) in enumerate(one.boxes):
            crowd, size = at == _CROWD, one.width * one.height
            runs = {"size": [one.height, one.width], "counts": [10, 50, size - 60]}
            outline = [x0, y0, x1, y0, x1, y1, x0, y1]
            points = [round(x0 + 0.5, 2), round(y0 + 0.5, 2), 2, 0, 0, 0]
            entry = {
                "id": 900100000000 + 7 * len(whole["annotations"]),
                "image_id": told["id"],
                "category_id": _CLASSES[name],
                "bbox": [x0, y0, round(x1 - x0, 2), round(y1 - y0, 2)],
                "area": round((x1 - x0) * (y1 - y0), 3),
                "iscrowd": int(crowd),
                "segmentation": runs if crowd else [outline],
                "keypoints": points,
                "num_keypoints": 1,
            }
            whole["annotations"].append(entry)
    (folder / "annotations.json").write_text(json.dumps(whole))
    return whole


def _voc(folder: Path, drawn: Sequence[Drawn]) -> None:
    (folder / "Annotations").mkdir()
    for one in drawn:
        root = ET.Element("annotation")
        ET.SubElement(root, "filename").text = one.name
        size = ET.SubElement(root, "size")
        ET.SubElement(size, "width").text, ET.SubElement(size, "height").text = map(str, one[1:3])
        for name, *sides in one.boxes:
            thing = ET.SubElement(root, "object")
            ET.SubElement(thing, "name").text = name
            box = ET.SubElement(thing, "bndbox")
            for side, value in zip(("xmin", "ymin", "xmax", "ymax"), sides, strict=True):
                ET.SubElement(box, side).text = str(value)
        ET.ElementTree(root).write(folder / "Annotations" / f"{Path(one.name).stem}.xml")


def _yolo(folder: Path, drawn: Sequence[Drawn], *, polygons: bool) -> None:
    (folder / "labels").mkdir()
    for one in drawn:
        lines = []
        for name, x0, y0, x1, y1 in one.boxes:
            values = [(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0]
            if polygons:
                values = [x0, y0, x1, y0, x1, y1, x0, y1]
            sides = (one.width, one.height) * 4
            shares = (value / side for value, side in zip(values, sides, strict=False))
            lines.append(f"{[*_CLASSES].index(name)} {' '.join(f'{v:.6f}' for v in shares)}\n")
        (folder / "labels" / f"{Path(one.name).stem}.txt").write_text("".join(lines))
    (folder / "data.yaml").write_text(f"train: images\nval:\nnames: {json.dumps([*_CLASSES])}\n")


def _table(path: Path, drawn: Sequence[Drawn]) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"))
        rows.writerows((*one[:3], *box) for one in drawn for box in one.boxes)


def _run(*words: object) -> str:
    """Run a command that must end with exit code 0, and return what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as told:
        code = main([str(word) for word in words])
    if code:
        raise SystemExit(f"tfrtool {' '.join(map(str, words))}: {code}\n{told.getvalue()}")
    return out.getvalue()


def _same(found: Sequence[float], expected: Sequence[float], what: object) -> int:
    if len(found) != len(expected) or np.abs(np.subtract(found, expected)).max(initial=0) > _FEW:
        raise SystemExit(f"{what}: expected {expected}, found {found}")
    return len(found)


def _boxes_in(coco: Path) -> dict[str, list[Box]]:
    """Return the boxes of COCO's file by the last parts of names."""
    whole = json.loads(coco.read_text())
    names = {one["id"]: one["name"] for one in whole["categories"]}
    images = {one["id"]: one["file_name"].rpartition("/")[2] for one in whole["images"]}
    boxes: dict[str, list[Box]] = {name: [] for name in images.values()}
    for one in whole["annotations"]:
        x, y, wide, high = one["bbox"]
        boxes[images[one["image_id"]]].append((names[one["category_id"]], x, y, x + wide, y + high))
    return boxes


def _compare(found: Mapping[str, Sequence[Box]], drawn: Sequence[Drawn], what: str) -> int:
    """Hold boxes against those that were drawn; return how many numbers were the same."""
    numbers = 0
    for one in drawn:
        if one.name in found or one.boxes:
            made = found[one.name]
            if [box[0] for box in made] != [box[0] for box in one.boxes]:
                raise SystemExit(f"{what}: {one.name}: {made}")
            sides = [*chain.from_iterable(box[1:] for box in made)]
            drawn_sides = [*chain.from_iterable(box[1:] for box in one.boxes)]
            numbers += _same(sides, drawn_sides, f"{what}: {one.name}")
    return numbers


def _by_tfds(dataset: Path, drawn: Mapping[str, Drawn]) -> int:
    """Read a dataset as TFDS does, and hold boxes against those that were drawn."""
    read = tfds.builder_from_directory(dataset).as_dataset(split="train")
    numbers = 0
    for one in read.as_numpy_iterator():
        name = one["image/filename"].decode().rpartition("/")[2]
        scene = drawn[name]
        if "objects" in one:
            sides = one["objects"]["bbox"][:, [1, 0, 3, 2]]
        elif "image/object/bbox/xmin" in one:
            columns = [one[f"image/object/bbox/{s}"] for s in ("xmin", "ymin", "xmax", "ymax")]
            sides = np.stack(columns, -1)
        else:
            numbers += 1
            continue
        sides = sides * np.array([scene.width, scene.height] * 2)
        flat = [*chain.from_iterable(box[1:] for box in scene.boxes)]
        numbers += _same(sides.ravel().tolist(), flat, f"TFDS: {name}")
    return numbers


def _decoder(models: Path) -> Any:
    """Return the decoder of tf-models-official, without what else the package would import."""
    names = ("official", "official.vision", "official.vision.dataloaders", "tf_keras")
    for name in names:
        module = types.ModuleType(name)
        module.__path__ = [str(models.joinpath(*name.split(".")))]
        sys.modules[name] = module
    from importlib import import_module

    return import_module("official.vision.dataloaders.tf_example_decoder").TfExampleDecoder


def _by_tfod(decoder: Any, shards: Path, drawn: Mapping[str, Drawn], *, masks: bool) -> int:
    """Read records as the TF Object Detection API's successor does."""
    numbers = 0
    for record in tf.data.TFRecordDataset(sorted(map(str, shards.glob("*.tfrecord*")))):
        example = tf.train.Example.FromString(record.numpy())
        name = example.features.feature["image/filename"].bytes_list.value[0].decode()
        scene = drawn[name.rpartition("/")[2]]
        told = decoder(include_mask=masks).decode(record)
        boxes = told["groundtruth_boxes"].numpy()[:, [1, 0, 3, 2]]
        sides = boxes * np.array([scene.width, scene.height] * 2)
        flat = [*chain.from_iterable(box[1:] for box in scene.boxes)]
        numbers += _same(sides.ravel().tolist(), flat, f"decoder: {name}")
        if tuple(told["image"].shape) != (scene.height, scene.width, 3):
            raise SystemExit(f"decoder: {name}: {told['image'].shape}")
        for at, box in enumerate(scene.boxes if masks else ()):
            mask = told["groundtruth_instance_masks"][at].numpy()
            places = [np.flatnonzero(mask.any(axis)) for axis in (0, 1)]
            around = [places[0][0], places[1][0], places[0][-1] + 1, places[1][-1] + 1]
            if at != _CROWD and np.abs(np.subtract(around, box[1:])).max() > 1:
                raise SystemExit(f"decoder: {name}: {box}, and its mask is in {around}")
    return numbers


def _lines(directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the other features of each image that was taken out."""
    for line in directory.with_name(f"{directory.name}.jsonl").read_text().splitlines():
        told = json.loads(line)
        if told["record"] is not None:
            yield told["features"]["image/filename"].rpartition("/")[2], told["features"]


def _through(
    photos: Path,
    words: Sequence[object],
    form: str,
    work: Path,
    drawn: Sequence[Drawn],
    decoder: Any,
) -> str:
    """Run a set of objects through everything, and return how many numbers were the same."""
    dataset, out = work / "pets" / "1.0.0", work / "out"
    _run("write", photos, dataset, *words)
    _run("inspect", "dataset", dataset)
    _run("verify", dataset, "--images")
    _run("inspect", "images", dataset, "--boxes", "--out", work / "sheet.png")
    scenes = {scene.name: scene for scene in drawn}
    told = [f"TFDS {_by_tfds(dataset, scenes):,}"]
    if decoder is not None and "tfds" not in words:
        count = _by_tfod(decoder, dataset, scenes, masks="png" in words)
        told.append(f"the API's decoder {count:,}")
    _run("extract", dataset, out, "--annotations", form)
    place = out / "annotations.json" if form == "coco" else out
    _run("write", out, work / "back" / "1.0.0", "--annotations", f"{form}:{place}")
    _run("extract", work / "back" / "1.0.0", work / "two", "--annotations", "coco")
    boxes = _boxes_in(work / "two" / "annotations.json")
    return ", ".join((*told, f"out and back {_compare(boxes, drawn, form):,}"))


def _all_of_coco(original: Mapping[str, Any], out: Path) -> int:
    """Hold every number of COCO's file against what came out."""
    whole, numbers = json.loads(out.read_text()), 0
    for key in ("images", "annotations", "categories"):
        found = {one["id"]: one for one in whole[key]}
        for one in original[key]:
            made = found.pop(one["id"])
            for name, value in one.items():
                if name == "bbox":
                    numbers += _same(made[name], value, f"{key} {one['id']}")
                elif name == "area":
                    numbers += bool(np.float32(made[name]) == np.float32(value)) or sys.exit("area")
                elif made[name] != value:
                    raise SystemExit(f"{key} {one['id']}: {name}: {value} is {made[name]}")
                else:
                    numbers += len(value) if isinstance(value, list) else 1
        if found:
            raise SystemExit(f"{key}: {len(found)} too many")
    return numbers


def _columns(photos: Path, work: Path, drawn: Sequence[Drawn]) -> str:
    """A table with a caption, a number, and with several labels."""
    table = work / "table.csv"
    rows = {
        one.name: (f"{len(one.boxes)} things, höchstens", one.width / 7, len(one.boxes))
        for one in drawn
    }
    several = {one.name: sorted({box[0] for box in one.boxes}) for one in drawn}
    with table.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(("path", "label", "caption", "price", "count"))
        for name, told in rows.items():
            lines.writerow((photos / name, ";".join(several[name]), *told))
    dataset = work / "pets" / "1.0.0"
    words = ("--root", photos, "--column", "caption", "--column", "price", "--column", "count")
    _run("write", table, dataset, "--multi-label", ";", *words)
    _run("inspect", "dataset", dataset)
    _run("verify", dataset, "--images")
    _run("inspect", "images", dataset, "--out", work / "sheet.png")
    count = _by_tfds(dataset, {one.name: one for one in drawn})
    _run("extract", dataset, work / "out")
    classes, numbers = (dataset / "label.labels.txt").read_text().splitlines(), 0
    for name, found in _lines(work / "out"):
        caption, price, things = rows[name]
        if (found["caption"], found["count"]) != (caption, things):
            raise SystemExit(f"columns: {name}: {found}")
        numbers += 2 + _same([found["price"]], [price], name)
        labels = found["label"] if isinstance(found["label"], list) else [found["label"]]
        if sorted(classes[n] for n in labels) != several[name]:
            raise SystemExit(f"labels: {name}: {found['label']}")
        numbers += len(labels)
    return f"TFDS {count:,}, out {numbers:,}"


def run(photos: Path, models: Path | None) -> None:
    """Run all sets."""
    decoder = None if models is None else _decoder(models)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        images = root / "images"
        images.mkdir()
        drawn = _draw(photos, images)
        count = sum(len(one.boxes) for one in drawn)
        sys.stdout.write(f"{len(drawn)} photographs, {count} rectangles\n")
        original = _coco(root, drawn)
        _voc(root, drawn)
        _table(root / "boxes.csv", drawn)
        for name in ("yolo", "polygons"):
            shutil.copytree(images, root / name / "images")
            _yolo(root / name, drawn, polygons=name == "polygons")
        coco = ("--annotations", f"coco:{root / 'annotations.json'}")
        told_of = [scene for scene in drawn if scene.boxes]  # a table of boxes has no others
        yolo, polygons = root / "yolo", root / "polygons"
        sets = [
            ("COCO", images, coco, "coco", drawn),
            ("COCO, --masks png", images, (*coco, "--masks", "png"), "coco", drawn),
            ("COCO, --layout tfds", images, (*coco, "--layout", "tfds"), "coco", drawn),
            ("VOC", images, ("--annotations", f"voc:{root / 'Annotations'}"), "voc", drawn),
            ("YOLO, boxes", yolo, ("--annotations", f"yolo:{yolo}"), "yolo", drawn),
            ("YOLO, polygons", polygons, ("--annotations", f"yolo:{polygons}"), "yolo", drawn),
            ("boxes", images, ("--annotations", f"csv:{root / 'boxes.csv'}"), "voc", told_of),
        ]
        for number, (name, source, words, form, scenes) in enumerate(sets):
            work = root / f"work{number}"
            work.mkdir()
            told = _through(source, words, form, work, scenes, decoder)
            if name == "COCO":
                told += f", every number {_all_of_coco(original, work / 'out/annotations.json'):,}"
            sys.stdout.write(f"{name}: the same numbers: {told}\n")
            sys.stdout.flush()
        work = root / "columns"
        work.mkdir()
        sys.stdout.write(f"columns and labels: the same numbers: {_columns(images, work, drawn)}\n")


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
