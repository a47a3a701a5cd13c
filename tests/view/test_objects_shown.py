"""Objects in pictures, on the page and in the report: where they are, their colours and counts."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageColor, ImageDraw

import tfrtool
from tests.conftest import MakeShard
from tests.examples.strategies import float32, int64, string
from tests.objects_written import CLASSES, name_classes, object_record
from tests.view.test_report import Page
from tfrtool.examples.example import encode_example
from tfrtool.examples.objects.record_features import SIDES, Layout
from tfrtool.view.live import Live

TRAIN = [[(20, 20, 80, 80, 0), (90, 20, 150, 80, 1)], [], [(20, 20, 80, 80, 1)]]
TEST = [[(20, 20, 80, 80, 1)] * 2]


@pytest.fixture
def folder(make_shard: MakeShard) -> Path:
    """Return a dataset of two splits with objects, without labels of images."""
    for split, images in (("train", TRAIN), ("test", TEST)):
        path = make_shard(
            list(map(object_record, images)), name=f"d/d-{split}.tfrecord-00000-of-00001"
        )
    name_classes(path.parent, Layout.TFOD)
    return path.parent


@pytest.fixture
def live(folder: Path) -> Iterator[Live]:
    """Return a viewer of them that is done."""
    made = Live(folder, workers=1)
    made.found.fill(workers=1)
    yield made
    made.close()


def test_the_report_counts_objects(folder: Path, tmp_path: Path) -> None:
    """By split and class, as ``inspect dataset`` does; below pictures stand their classes."""
    tfrtool.report(folder, tmp_path / "r.html")
    page = Page(tmp_path / "r.html")
    said = page.sections["objects"]
    row = '<th scope="row">train</th><td class="n">3</td><td class="n">0 to 2, median 1</td>'
    assert f'{row}<td class="n">1</td><td class="n">0 small, 3 medium, 0 large</td>' in page.text
    assert "2 classes: the largest has 4 objects, the smallest 1." in said
    assert "1 train" in said
    assert "dog, train: 2" in page.text
    assert [name in said.partition("colours:")[2] for name in CLASSES] == [True] * 3
    assert {"dog", "cat, dog"} <= {
        " ".join(x.split()[2:]) for x in page.sections["examples"].split("#")
    }


def test_words_are_found_in_lists(live: Live) -> None:
    """A record is found by the name of one of its objects' classes, which it is shown with."""
    asked: dict[str, Any] = {
        "where": None,
        "text": "CAT",
        "equal": {},
        "sort": None,
        "descending": False,
    }
    found = live.rows(asked, 0, 9)
    assert [one["label"] for one in found["rows"]] == ["cat, dog"]


def test_boxes_masks_and_pictures_have_the_same_colours(live: Live) -> None:
    """A class has one colour, whichever object of a record it is."""
    told = [live.record(row, 0)["boxes"] for row in range(4)]
    (row,) = (row for row in range(4) if {one["text"] for one in told[row]} == {"cat", "dog"})
    (alone,) = (one for one in told if len(one) == 1)
    boxes = told[row]
    assert boxes[0]["colour"] != boxes[1]["colour"] == alone[0]["colour"]
    shown = Image.open(io.BytesIO(live.picture(row) or b"")).convert("RGB")
    for box in boxes:  # the inner line of its left side, of a thumbnail of 128 pixels
        place = round(box["xmin"] * 127) + 1, 40
        pixel, colour = shown.getpixel(place), ImageColor.getrgb(box["colour"])
        assert pixel == pytest.approx(colour, abs=100)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("said", ["stored", "turned", None])
def test_pictures_are_in_the_frame_of_their_boxes(
    orientation: int, said: str | None, make_shard: MakeShard
) -> None:
    """They are turned upright only where the record's width and height are those of that."""
    kept, image, exif = io.BytesIO(), Image.new("RGB", (120, 60), "black"), Image.Exif()
    ImageDraw.Draw(image).rectangle((0, 0, 39, 19), fill="white")
    exif[0x112] = orientation
    image.save(kept, "JPEG", exif=exif, quality=95)
    turned = said == "turned" and orientation > 4
    width, height = (60, 120) if turned else (120, 60)
    sides = {"image/width": int64(width), "image/height": int64(height)} if said else {}
    box = (0.0, 0.0, 1 / 3, 1 / 3)
    if turned:
        box = (2 / 3, 0, 1, 1 / 3) if orientation == 6 else (0, 2 / 3, 1 / 3, 1)
    boxes = {f"image/object/bbox/{n}": float32(v) for n, v in zip(SIDES, box, strict=True)}
    shard = make_shard(
        [encode_example({"image/encoded": string(kept.getvalue()), **sides, **boxes})]
    )
    live = Live(shard)
    shown = Image.open(io.BytesIO(live.picture(0, full=True) or b"")).convert("L")
    told = live.record(0, 0)
    live.close()
    assert shown.size == (width, height)
    middle = round((box[0] + box[2]) / 2 * width), round((box[1] + box[3]) / 2 * height)
    assert [shown.getpixel(middle), shown.getpixel((width // 2, height // 2))] == pytest.approx(
        [255, 0], abs=20
    )
    (picture,) = told["pictures"]
    assert picture["size"] == f"{width} x {height}"
    assert picture["orientation"] == (1 if turned else orientation)
