"""Scenes as annotation tools save them, in the ways of two makers for each format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np
from PIL import Image

from tests.annotated_sets import (
    COLORS,
    SCENES,
    Scene,
    Thing,
    scenes,
    write_box_csv,
    write_coco,
    write_voc,
)

__all__ = ["MAKERS", "Maker"]

Maker = Callable[[Path], str]
"""Writes images below a folder, and returns what ``--annotations`` takes."""


def _json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), "utf-8")


def _text(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def _pairs(thing: Thing) -> list[list[float]]:
    line = thing.polygon
    return [[line[at], line[at + 1]] for at in range(0, 8, 2)]


def _labelme(folder: Path) -> str:
    """Two corners in any order, with the image in the file."""
    for scene in scenes(folder / "images"):
        shapes: list[dict[str, Any]] = [
            {"label": t.category, "points": [[t.xmax, t.ymin], [t.xmin, t.ymax]],
             "group_id": None, "shape_type": "rectangle", "flags": {}}
            for t in scene.things
        ]  # fmt: skip
        _json(
            (folder / "json" / scene.name).with_suffix(".json"),
            {"version": "5.2.1", "flags": {}, "shapes": shapes, "imageData": "A" * 100,
             "imagePath": f"..\\images\\{scene.name.rpartition('/')[2]}",
             "imageHeight": scene.height, "imageWidth": scene.width},
        )  # fmt: skip
    return f"labelme:{folder / 'json'}"


def _anylabeling(folder: Path) -> str:
    """Rectangles of four corners and polygons, next to the images, without sizes."""
    for scene in scenes(folder / "images"):
        shapes: list[dict[str, Any]] = [
            {"label": t.category, "points": _pairs(t), "group_id": None, "description": "",
             "shape_type": ("rectangle", "polygon")[at % 2], "attributes": {}, "difficult": False}
            for at, t in enumerate(scene.things)
        ]  # fmt: skip
        path = (folder / "images" / scene.name).with_suffix(".json")
        _json(path, {"version": "2.3", "shapes": shapes, "imagePath": Path(scene.name).name})
    return f"labelme:{folder / 'images'}"


def _via_project(folder: Path) -> str:
    """Rectangles in a project, whose classes are chosen from a list."""
    images = {}
    for scene in scenes(folder / "images"):
        regions = [
            {"shape_attributes": {"name": "rect", "x": t.xmin, "y": t.ymin,
                                  "width": t.xmax - t.xmin, "height": t.ymax - t.ymin},
             "region_attributes": {"type": t.category, "image_quality": {"good": True}}}
            for t in scene.things
        ]  # fmt: skip
        images[f"{scene.name}123"] = {
            "filename": scene.name, "size": 123, "regions": regions, "file_attributes": {}
        }  # fmt: skip
    project = {"_via_settings": {"ui": {}}, "_via_img_metadata": images, "_via_attributes": {}}
    _json(folder / "via_project.json", project)
    return f"via:{folder / 'via_project.json'}"


def _via_regions(folder: Path) -> str:
    """Polygons of VIA 1, numbered, in a file next to the images; classes are checked boxes."""
    images = {}
    for scene in scenes(folder / "images"):
        regions = {
            str(at): {
                "shape_attributes": {"name": "polygon", "all_points_x": t.polygon[::2],
                                     "all_points_y": t.polygon[1::2]},
                "region_attributes": {"kind": {t.category: True, "other": False}},
            }
            for at, t in enumerate(scene.things)
        }  # fmt: skip
        images[scene.name] = {"fileref": "", "filename": scene.name, "regions": regions}
    _json(folder / "images" / "via_region_data.json", images)
    return f"via:{folder / 'images'}"


def _percent(scene: Scene, *sides: int) -> list[float]:
    return [100 * side / (scene.height if at % 2 else scene.width) for at, side in enumerate(sides)]


def _label_studio(folder: Path) -> str:
    """Rectangles of JSON, and images in local storage; another annotation was cancelled."""
    tasks = []
    for number, scene in enumerate(scenes(folder / "images"), start=1):
        results = []
        for at, t in enumerate(scene.things):
            x, y, x1, y1 = _percent(scene, t.xmin, t.ymin, t.xmax, t.ymax)
            value = {"x": x, "y": y, "width": x1 - x, "height": y1 - y, "rotation": 0,
                     "rectanglelabels": [t.category]}  # fmt: skip
            results.append(
                {"id": f"r{at}", "type": "rectanglelabels", "from_name": "label", "value": value,
                 "original_width": scene.width, "original_height": scene.height}
            )  # fmt: skip
        annotations = [{"id": 1, "was_cancelled": True, "result": []}, {"id": 2, "result": results}]
        image = f"/data/local-files/?d={quote(f'sets/pets/images/{scene.name}')}"
        tasks.append({"id": number, "data": {"image": image}, "annotations": annotations})
    _json(folder / "project-1.json", tasks)
    return f"labelstudio:{folder / 'project-1.json'}"


def _label_studio_table(folder: Path) -> str:
    """Polygons of a CSV export, next to the images as they were before they were uploaded."""
    lines = ["annotation_id,annotator,created_at,id,image,label,lead_time,updated_at"]
    for number, scene in enumerate(scenes(folder / "images")):
        regions = [
            {"points": [*zip(*[iter(_percent(scene, *t.polygon))] * 2, strict=True)],
             "closed": True, "polygonlabels": [t.category],
             "original_width": scene.width, "original_height": scene.height}
            for t in scene.things
        ]  # fmt: skip
        cell = json.dumps(regions).replace('"', '""') if regions else ""
        image = f"/data/upload/5/0123abcd-{scene.name.rpartition('/')[2]}"
        lines.append(f'{number},1,2025-03-27,{number},"{image}","{cell}",1.5,2025-03-27')
    _text(folder / "images" / "project-5.csv", lines)
    return f"labelstudio:{folder / 'images' / 'project-5.csv'}"


def _cvat(folder: Path, shape: Callable[[Thing], str], attributes: str = "") -> str:
    labels = "".join(f"<label><name>{name}</name></label>" for name in COLORS)
    lines = ['<?xml version="1.0" encoding="utf-8"?>', "<annotations><version>1.1</version>"]
    lines += [f"<meta><task><id>7</id><labels>{labels}</labels></task></meta>"]
    for at, scene in enumerate(scenes(folder / "images")):
        name = quoteattr(scene.name)
        size = f'width="{scene.width}" height="{scene.height}"'
        lines += [f'<image id="{at}" name={name} {size} {attributes}>']
        lines += [*map(shape, scene.things), "</image>"]
    _text(folder / "annotations.xml", [*lines, "</annotations>"])
    return f"cvat:{folder / 'annotations.xml'}"


def _cvat_task(folder: Path) -> str:
    """Boxes of a task."""

    def box(t: Thing) -> str:
        sides = f'xtl="{t.xmin:.2f}" ytl="{t.ymin:.2f}" xbr="{t.xmax:.2f}" ybr="{t.ymax:.2f}"'
        text = '<attribute name="truncated">false</attribute>'
        return f'<box label="{t.category}" source="manual" occluded="0" {sides}>{text}</box>'

    return _cvat(folder, box)


def _cvat_project(folder: Path) -> str:
    """Masks and polygons of a project, whose images are all in one subset."""

    def shape(t: Thing) -> str:
        wide, high = t.xmax - t.xmin, t.ymax - t.ymin
        if t.category == "dog":
            place = f'left="{t.xmin}" top="{t.ymin}" width="{wide}" height="{high}"'
            return f'<mask label="dog" rle="0, {wide * high}" {place}/>'
        points = ";".join(f"{x},{y}" for x, y in _pairs(t))
        return f'<polygon label="{t.category}" points="{points}"/>'

    return _cvat(folder, shape, 'subset="Train" task_id="3"')


def _kitti(folder: Path) -> str:
    """The object benchmark, with regions that don't count."""
    for scene in scenes(folder / "training" / "image_2"):
        lines = [
            f"{t.category.replace(' ', '_')} 0.00 0 -1.57 {t.xmin:.2f} {t.ymin:.2f} {t.xmax:.2f} "
            f"{t.ymax:.2f} 1.65 1.67 3.64 -0.65 1.71 46.70 -1.59"
            for t in scene.things
        ]
        lines += ["DontCare -1 -1 -10 0.00 0.00 9.00 9.00 -1 -1 -1 -1000 -1000 -1000 -10"]
        _text((folder / "training" / "label_2" / scene.name).with_suffix(".txt"), lines)
        calib = (folder / "training" / "calib" / scene.name).with_suffix(".txt")
        _text(calib, ["P0: 7.2e+02 0 6.1e+02"])
    return f"kitti:{folder}"


def _kitti_tracker(folder: Path) -> str:
    """Scores at the end, in folders called labels and images, as DIGITS wants them."""
    for scene in scenes(folder / "train" / "images"):
        lines = [
            f"{t.category} 1 2 0 {t.xmin} {t.ymin} {t.xmax} {t.ymax} 0 0 0 0 0 0 0 0.9"
            for t in scene.things
        ]
        _text((folder / "train" / "labels" / scene.name).with_suffix(".txt"), lines)
    return f"kitti:{folder}"


def _dota(folder: Path) -> str:
    """Lines about the image, and difficulties."""
    for scene in scenes(folder / "images"):
        lines = ["imagesource:GoogleEarth", "gsd:0.146"] + [
            f"{' '.join(f'{side:.1f}' for side in t.polygon)} {t.category} {at % 2}"
            for at, t in enumerate(scene.things)
        ]
        _text((folder / "labelTxt-v1.0" / scene.name).with_suffix(".txt"), lines)
    return f"dota:{folder}"


def _dota_plain(folder: Path) -> str:
    """Nothing but corners and classes, in a folder of a split."""
    for scene in scenes(folder / "train" / "images"):
        lines = [f"{' '.join(map(str, t.polygon))} {t.category.split()[-1]}" for t in scene.things]
        _text((folder / "train" / "labelTxt" / scene.name).with_suffix(".txt"), lines)
    return f"dota:{folder}"


def _values(scene: Scene) -> Any:
    values = np.zeros((scene.height, scene.width), np.uint8)
    for t in scene.things:
        values[t.ymin : t.ymax, t.xmin : t.xmax] = [*COLORS].index(t.category) + 1
    return values


def _one_per_class() -> list[Scene]:
    return [
        scene for scene in SCENES if len({t.category for t in scene.things}) == len(scene.things)
    ]


def _masks(folder: Path) -> str:
    """CVAT's palette, with the names of colors."""
    palette = [0, 0, 0, *(side for color in COLORS.values() for side in color)]
    for scene in scenes(folder / "JPEGImages", _one_per_class()):
        image = Image.fromarray(_values(scene)).convert("P")
        image.putpalette(palette)
        path = (folder / "SegmentationClass" / scene.name).with_suffix(".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
    names = [f"{name}:{','.join(map(str, color))}::" for name, color in COLORS.items()]
    _text(
        folder / "labelmap.txt", ["# label:color_rgb:parts:actions", "background:0,0,0::", *names]
    )
    return f"masks:{folder}"


def _grey_masks(folder: Path) -> str:
    """Values, with their names by number, and 255 around objects."""
    for scene in scenes(folder / "images", _one_per_class()):
        values = _values(scene)
        values[-3:, -3:] = np.where(values[-3:, -3:], values[-3:, -3:], 255)
        path = folder / "masks" / f"{scene.name.rpartition('.')[0]}_mask.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(values).save(path)
    _text(folder / "masks" / "classes.txt", ["background", *COLORS])
    return f"masks:{folder / 'masks'}"


def _lvis(folder: Path) -> str:
    """COCO without names of files, and with categories that were looked for."""
    whole = write_coco(folder / "lvis_v1_train.json", scenes(folder / "images" / "train2017"))
    for image in whole["images"]:
        name = image.pop("file_name")
        image |= {"coco_url": f"http://images.cocodataset.org/train2017/{name}",
                  "neg_category_ids": [1], "not_exhaustive_category_ids": []}  # fmt: skip
    for one in whole["annotations"]:
        del one["iscrowd"]
    _json(folder / "lvis_v1_train.json", whole)
    return f"coco:{folder / 'lvis_v1_train.json'}"


def _lvis_old(folder: Path) -> str:
    """Version 0.5, which has names of files."""
    whole = write_coco(folder / "lvis.json", scenes(folder / "images"))
    for one in whole["categories"]:
        one |= {"synset": "cat.n.01", "synonyms": ["cat"], "frequency": "f"}
    _json(folder / "lvis.json", whole)
    return f"coco:{folder / 'lvis.json'}"


def _yolo_obb(folder: Path, *, image_folder: str = "images/train", data: bool = True) -> str:
    for scene in scenes(folder / image_folder):
        sides = (scene.width, scene.height) * 4
        lines = [
            f"{[*COLORS].index(t.category)} "
            + " ".join(f"{v / side:.7f}" for v, side in zip(t.polygon, sides, strict=True))
            for t in scene.things
        ]
        place = folder / image_folder.replace("images", "labels") / scene.name
        _text(place.with_suffix(".txt"), lines)
    if data:
        _text(folder / "data.yaml", [f"train: {image_folder}", f"names: {json.dumps([*COLORS])}"])
    else:
        _text(folder / "classes.txt", [*COLORS])
    return f"yolo:{folder}"


def _roboflow_obb(folder: Path) -> str:
    """Roboflow's folders of splits."""
    return _yolo_obb(folder, image_folder="train/images")


def _label_studio_obb(folder: Path) -> str:
    """Label Studio's, without data.yaml."""
    return _yolo_obb(folder, image_folder="images", data=False)


def _voc(folder: Path) -> str:
    """LabelImg's folder, without lists of splits."""
    scenes(folder / "JPEGImages")
    return f"voc:{write_voc(folder)}"


def _csv(folder: Path) -> str:
    """A table with pixels, as ``generate_tfrecord.py`` reads it."""
    images = scenes(folder / "images", [scene for scene in SCENES if scene.things])
    return f"csv:{write_box_csv(folder / 'boxes.csv', images)}"


MAKERS: Mapping[str, Sequence[Maker]] = {
    "labelme": (_labelme, _anylabeling),
    "via": (_via_project, _via_regions),
    "cvat": (_cvat_task, _cvat_project),
    "labelstudio": (_label_studio, _label_studio_table),
    "kitti": (_kitti, _kitti_tracker),
    "dota": (_dota, _dota_plain),
    "masks": (_masks, _grey_masks),
    "coco": (_lvis, _lvis_old),
    "yolo": (_roboflow_obb, _label_studio_obb),
    "voc": (_voc,),
    "csv": (_csv,),
}
"""By kind: two makers, if no other test file has the format's variants."""
