"""Label Studio's exports: regions as objects, choices as labels."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.sources.annotations.told import boxes, listed, lost, objects_of, open_annotated
from tfrtool.errors import SourceError
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions

SIZE = {"original_width": 200, "original_height": 100, "image_rotation": 0}


def _region(kind: str, key: str = "a", **value: Any) -> dict[str, Any]:
    return {"id": key, "type": kind, "from_name": "tag", "to_name": "image", "value": value, **SIZE}


def _task(number: int, *results: Any, **more: Any) -> dict[str, Any]:
    image = f"/data/upload/5/0123abcd-{number}.jpg"
    return {"id": number, "data": {"image": image}, "annotations": [{"result": results}], **more}


def _images(folder: Path, count: int = 1, prefix: str = "0123abcd-") -> Path:
    folder.mkdir()
    for number in range(1, count + 1):
        Image.new("RGB", (200, 100)).save(folder / f"{prefix}{number}.jpg")
    return folder


def _open(tmp_path: Path, *tasks: Any) -> Source:
    folder = _images(tmp_path / "images", len(tasks))
    (tmp_path / "project-1.json").write_text(json.dumps(tasks))
    return open_annotated(folder, f"labelstudio:{tmp_path / 'project-1.json'}", tmp_path)


def test_regions_of_all_shapes(tmp_path: Path) -> None:
    """Percent become pixels; a turned rectangle has an outline; what has no shape is listed."""
    source = _open(
        tmp_path,
        _task(
            1,
            _region("rectanglelabels", x=10, y=20, width=30, height=40, rectanglelabels=["cat"]),
            _region("ellipselabels", "b", x=50, y=50, radiusX=10, radiusY=20,
                    ellipselabels=["dog"]),
            _region("polygonlabels", "c", points=[[0, 0], [50, 0], [50, 50]],
                    polygonlabels=["dog", "wet"]),
            _region("rectanglelabels", "d", x=50, y=10, width=20, height=30, rotation=90,
                    rectanglelabels=["cat"]),
            _region("brushlabels", "e", rle=[1, 2], format="rle", brushlabels=["cat"]),
            _region("rectangle", "f", x=0, y=0, width=10, height=10),
            _region("labels", "f", x=0, y=0, width=10, height=10, labels=["bee"]),
            {"id": "f", "type": "choices", "from_name": "age",
             "value": {"x": 0, "y": 0, "width": 10, "height": 10, "choices": ["young"]}},
        ),
    )  # fmt: skip
    ((key, found),) = boxes(source).items()
    assert key == "0123abcd-1.jpg"
    assert sorted(found) == [
        ("bee", 0, 0, 20, 10),
        ("cat", 20, 20, 80, 60),
        ("cat", 70, 10, 100, 50),
        ("dog", 0, 0, 100, 50),
        ("dog", 80, 30, 120, 70),
    ]
    assert [reason for _, reason in lost(source)] == [
        "project-1.json, task 1, region e: brush strokes are not supported; export them as COCO"
    ]
    (annotation,) = objects_of(source).values()
    objects = annotation.objects
    outlines = [json.loads(one.segmentation)[0] for one in objects if one.segmentation]
    assert [100, 10, 100, 50, 70, 50, 70, 10] in [[round(x) for x in line] for line in outlines]
    assert any("young" in one.attributes for one in objects)
    assert any("wet" in one.attributes for one in objects)


def test_key_points(tmp_path: Path) -> None:
    """Key points belong to the region that is their parent, or make an object of their own."""
    nose = _region("keypointlabels", "n", x=20, y=30, width=1, keypointlabels=["nose"])
    tail = _region("keypointlabels", "t", x=30, y=50, width=1, keypointlabels=["tail"])
    box = _region("rectanglelabels", "r", x=10, y=20, width=30, height=40, rectanglelabels=["cat"])
    parented = [box, {**nose, "parentID": "r"}]
    source = _open(tmp_path, _task(1, *parented), _task(2, nose, tail), _task(3, nose, nose | {
        "id": "other"}))  # fmt: skip
    objects = objects_of(source)
    assert objects["0123abcd-1.jpg"].objects[0].keypoints[:3] == (40, 30, 2)
    assert objects["0123abcd-2.jpg"].objects[0].keypoints == (40, 30, 2, 60, 50, 2)
    assert {name: skeleton.points for name, skeleton in source.features.skeletons} == {
        "cat": ("nose", "tail"),
        "keypoints": ("nose", "tail"),
    }
    assert "label of another one" in lost(source)[0][1]


def test_tasks_without_use(tmp_path: Path) -> None:
    """Tasks without annotations, images or sense are listed, and older annotations counted."""
    box = _region("rectanglelabels", x=1, y=1, width=9, height=9, rectanglelabels=["cat"])
    old = {"result": [], "updated_at": "2024-01-01"}
    source = _open(
        tmp_path,
        _task(1, annotations=[{"result": [box], "updated_at": "2025-01-01"}, old]),
        _task(2, annotations=[]),
        _task(3, {**box, "image_rotation": 90}, {**box, "id": "b", "value": {"x": "1", "y": 2,
              "width": 3, "height": 4, "rectanglelabels": ["cat"]}}),
        {**_task(4, box), "data": {"text": "no image"}},
        _task(5, {"id": "c", "type": "choices", "from_name": "c", "value": {"choices": ["x"]}}),
    )  # fmt: skip
    assert len(objects_of(source)["0123abcd-1.jpg"].objects) == 1
    assert [one.reason for one in source.ignored if "task" in one.reason] == [
        "project-1.json, task 2 has no annotation"
    ]
    assert [text.partition(": ")[2] for _, text in lost(source)] == [
        "regions of rotated images are not supported",
        "coordinates are not numbers in percent",
    ]
    assert any("no path of an image" in reason for reason in listed(source).values())
    (notice,) = [one for one in source.notices if "not written" in one]
    assert "older annotations of images (1)" in notice
    assert "choices of images (1)" in notice


FULL = [
    _task(n, {"type": "choices", "from_name": "kind", "value": {"choices": [label]}})
    for n, label in ((1, "dog"), (2, "cat"))
]
SMALL = [
    {"image": f"s3://bucket/x/0123abcd-{n}.jpg", "id": n, "choice": label, "annotator": 1,
     "annotation_id": n, "lead_time": 1.5}
    for n, label in ((1, "dog"), (2, "cat"))
]  # fmt: skip
TABLE = "annotation_id,annotator,choice,id,image,lead_time\n" + "".join(
    f"{n},1,{label},{n},https://host/a/0123abcd-{n}.jpg?token=1,1.5\n"
    for n, label in ((1, "dog"), (2, "cat"))
)


@pytest.mark.parametrize("prefix", ["0123abcd-", ""])
@pytest.mark.parametrize(
    ("name", "content"),
    [("p.json", json.dumps(FULL)), ("min.json", json.dumps(SMALL)), ("p.csv", TABLE)],
)
@pytest.mark.parametrize("way", ["table", "annotations"])
def test_choices_are_labels(name: str, content: str, way: str, prefix: str, tmp_path: Path) -> None:
    """All exports give the class of each image, as a table or as annotations of a folder."""
    folder = _images(tmp_path / "images", 2, prefix)
    (tmp_path / name).write_text(content)
    if way == "table":
        source = open_source(str(tmp_path / name), LabelFrom.FOLDER, tmp_path, folder)
    else:
        options = SourceOptions(annotations=f"labelstudio:{tmp_path / name}")
        source = open_source(str(folder), LabelFrom.FOLDER, tmp_path, options=options)
    found = {item.key.rpartition("/")[2]: item.label for item in source.items}
    assert found == {f"{prefix}1.jpg": "dog", f"{prefix}2.jpg": "cat"}


def test_several_choices(tmp_path: Path) -> None:
    """Several choices of an image are several labels; of several controls one is named."""
    several = {"type": "choices", "from_name": "kind", "value": {"choices": ["dog", "wet"]}}
    other = {"type": "choices", "from_name": "mood", "value": {"choices": ["glad"]}}
    folder = _images(tmp_path / "images", 2)
    export = tmp_path / "p.json"
    export.write_text(json.dumps([_task(1, several, other), FULL[1]]))
    options = SourceOptions(label_column="kind")
    source = open_source(str(export), LabelFrom.FOLDER, tmp_path, folder, options=options)
    assert source.labels == ("cat", "dog", "wet")
    with pytest.raises(SourceError, match=r"several controls have choices.*'kind', 'mood'"):
        open_source(str(export), LabelFrom.FOLDER, tmp_path, folder)


def test_hints(tmp_path: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    """Boxes that are passed as a table, or lie in SOURCE, lead to the command that writes them."""
    box = _region("rectanglelabels", x=1, y=1, width=9, height=9, rectanglelabels=["cat"])
    folder = tmp_path / "set"
    folder.mkdir()
    _images(folder / "images")
    export = folder / "project-3-at-2025-03-27.json"
    export.write_text(json.dumps([_task(1, box)]))
    for source in (export, folder):
        code, _, error = run("write", source, tmp_path / "out")
        assert code == 1
        assert f"--annotations labelstudio:{export}" in error
