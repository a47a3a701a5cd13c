"""What inspect dataset counts of objects: classes, numbers an image, sizes, places."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import MakeShard
from tests.examples.strategies import float32
from tests.objects_written import changed, name_classes, object_record
from tfrtool.cli import main
from tfrtool.examples.example import encode_example
from tfrtool.examples.objects.record_features import Layout
from tfrtool.inspection.dataset.dataset_summary import inspect_dataset

SIZE = (300, 300)
TRAIN = [
    [(0, 0, 30, 30, 0), (110, 110, 190, 190, 1), (100, 200, 300, 300, 1)],
    [],
    [(270, 0, 300, 30, 1)],
    [(0, 0, 30, 30, 0)] * 4,
]
TEST = [[(0, 0, 300, 300, 2)]]


def written(make_shard: MakeShard, layout: Layout) -> Path:
    """Write a dataset of two splits, and return its directory."""
    for split, images in (("train", TRAIN), ("test", TEST)):
        records = [object_record(things, layout=layout, size=SIZE) for things in images]
        path = make_shard(records, name=f"d/d-{split}.tfrecord-00000-of-00001")
    name_classes(path.parent, layout)
    return path.parent


@pytest.mark.parametrize("layout", Layout)
def test_objects_are_counted(layout: Layout, make_shard: MakeShard) -> None:
    """All numbers are those of the images that were made, on any number of workers."""
    folder = written(make_shard, layout)
    summary = inspect_dataset(folder, workers=1)
    train, test = (summary.splits[name].objects for name in ("train", "test"))
    assert train is not None
    assert test is not None
    assert train.object_classes == {"cat": 5, "dog": 3}
    assert test.object_classes == {"traffic light": 1}
    assert (train.objects, train.images_without_objects, train.objects_an_image) == (
        8,
        1,
        (0, 2, 4),
    )
    assert train.object_places == ((5, 0, 1), (0, 1, 0), (0, 0, 1))
    assert test.object_places == ((0, 0, 0), (0, 1, 0), (0, 0, 0))
    sizes = {"small": 6, "medium": 1, "large": 1}
    assert train.object_sizes == (
        sizes if layout is Layout.TFOD else {"small": 0, "medium": 0, "large": 0, "unknown": 8}
    )
    share = (6 * 900 + 6400 + 20_000) / 90_000 / 8
    assert train.object_share == pytest.approx(share, abs=1e-6)
    assert inspect_dataset(folder, workers=2) == summary
    assert inspect_dataset(folder, workers=2).splits["train"].objects == train


def test_areas_and_boxes_that_are_none(make_shard: MakeShard) -> None:
    """A recorded area says the size; what is no box has neither size nor place."""
    small = object_record([(0, 0, 300, 300, 0)], size=SIZE, optional={"area": 10.0})
    bad = changed(small, image__object__bbox__xmin=float32(float("nan")))
    path = make_shard([small, bad, b"no example", encode_example({"x": 1})])
    summary = inspect_dataset(path.parent)
    found = summary.splits["all"].objects
    assert found is not None
    assert (found.objects, found.unusable_boxes, found.images_without_objects) == (2, 1, 1)
    assert found.object_sizes == {"small": 1, "medium": 0, "large": 0}
    assert [fault.fault.record for fault in summary.faults] == [2]


def test_pages_and_json(make_shard: MakeShard, capsys: pytest.CaptureFixture[str]) -> None:
    """The page has a row a class and the numbers; JSON has them by split, where there are some."""
    folder = written(make_shard, Layout.TFOD)
    assert main(["inspect", "dataset", str(folder)]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "objects test train cat 0 (0.0%) 5 (62.5%) dog 0 (0.0%) 3 (37.5%)" in page
    assert "8; 0 to 4 per image, median 2 1 image without" in page
    assert "objects have classes" in page
    assert main(["inspect", "dataset", str(folder), "--json"]) == 0
    train = json.loads(capsys.readouterr().out)["splits"]["train"]
    assert (train["objects"], train["object_classes"]) == (8, {"cat": 5, "dog": 3})
    plain = make_shard([encode_example({"label": 1})], name="p/a.tfrecord")
    assert main(["inspect", "dataset", str(plain.parent), "--json"]) == 0
    assert "object" not in capsys.readouterr().out
