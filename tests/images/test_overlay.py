"""Objects drawn on pictures, checked by their pixels, and from records whatever these hold."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from PIL import Image, ImageColor

from tests.conftest import MakeShard
from tests.examples.strategies import float32, string
from tests.more import more
from tests.objects_written import changed, name_classes, object_record
from tfrtool.cli import main
from tfrtool.examples.objects.record_features import Layout
from tfrtool.images.overlay import DrawnObject, color_of, draw_marks
from tfrtool.inspection.pictures.contact_sheet import SheetReport, contact_sheet

GREY = Image.new("RGB", (100, 80), (128, 128, 128))
LEFT = (0.1, 0.1, 0.6, 0.9)
ODD = ["", "[", "[[1]]", '["a"]', "{}", "[[NaN, 1, 2, 3]]", "[" * 9000, f"[[1e999, {'9' * 400}]]"]


def seen(image: Image.Image, color: int) -> set[tuple[int, int]]:
    """Return where a picture has the color of a kind of objects."""
    wanted = ImageColor.getrgb(color_of(color))
    wide, high = image.size
    return {(x, y) for x in range(wide) for y in range(high) if image.getpixel((x, y)) == wanted}


def test_boxes_names_and_points() -> None:
    """A box is a frame in its color; a name is in it; a point is a dot; the rest stays."""
    plain = seen(draw_marks(GREY, [DrawnObject(LEFT, 3)]), 3)
    assert {min(x for x, _ in plain), max(x for x, _ in plain)} == {11, 58}
    assert {min(y for _, y in plain), max(y for _, y in plain)} == {9, 70}
    assert (30, 40) not in plain
    assert len(seen(draw_marks(GREY, [DrawnObject(LEFT, 3, "dog")]), 3)) > len(plain) + 100
    assert seen(draw_marks(GREY, [DrawnObject((0.1, 0.1, 0.2, 0.2), 3, "dog")]), 3) < plain | {
        (x, y) for x in range(9, 22) for y in range(7, 18)
    }
    dotted = draw_marks(GREY, [DrawnObject(LEFT, 3, points=[(0.9, 0.5)])])
    assert {(x, y) for x, y in seen(dotted, 3) - plain} == {
        *((x, y) for x in (88, 89, 90) for y in (39, 40, 41))
    }
    assert draw_marks(GREY, []).tobytes() == GREY.tobytes()


def test_masks_are_translucent() -> None:
    """The pixels of a mask or in a polygon have a part of the color, and others none."""
    mask = Image.new("L", (10, 8))
    mask.paste(1, (0, 0, 5, 8))
    for mark in (
        DrawnObject((0, 0, 1, 1), 1, mask=mask),
        DrawnObject((0, 0, 1, 1), 1, outlines=[[0, 0, 0.5, 0, 0.5, 1, 0, 1]]),
    ):
        drawn = draw_marks(GREY, [mark])
        assert drawn.getpixel((70, 40)) == (128, 128, 128)
        assert drawn.getpixel((20, 40)) == (77, 157, 179)


def sheet_of(report: SheetReport) -> list[Image.Image]:
    """Return the tiles of a sheet."""
    sheet, found = Image.open(report.out), []
    for index in range(report.layout.images):
        left, top = report.layout.corner(index)
        side = report.layout.thumb
        found.append(sheet.crop((left, top, left + side, top + side)))
    return found


@pytest.mark.parametrize("layout", [Layout.TFOD, more(Layout.TFDS)])
def test_sheets_show_objects_where_asked(
    layout: Layout, make_shard: MakeShard, tmp_path: Path
) -> None:
    """Each box has the color of its class, and nothing is drawn without the option."""
    first = 1 if layout is Layout.TFOD else 0
    records = [
        object_record([(16, 24, 80, 72, 0), (88, 24, 152, 72, 2)], layout=layout),
        object_record([(16, 24, 80, 72, 2)], layout=layout),
        object_record([], layout=layout),
    ]
    path = make_shard(records)
    name_classes(tmp_path, layout)
    report = contact_sheet([path], tmp_path / "s.png", thumb=160, boxes=True)
    assert (report.objects, report.has_boxes) == (3, True)
    counts = [[len(seen(tile, first + kind)) for kind in (0, 1, 2)] for tile in sheet_of(report)]
    assert [[count > 200 for count in one] for one in counts] == [
        [True, False, True],
        [False, False, True],
        [False, False, False],
    ]
    plain = contact_sheet([path], tmp_path / "plain.png", thumb=160)
    assert plain.objects is None
    for tile in sheet_of(plain):
        assert not any(seen(tile, kind) for kind in range(4))


def test_the_page_says_that_there_are_objects(
    make_shard: MakeShard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sheet without boxes says how to have them, and shows a column of text as the label."""
    caption = {"caption": string(b"two at the lake")}
    path = make_shard([changed(object_record([(16, 24, 80, 72, 0)]), **caption)])
    words = ["inspect", "images", str(path), "--label", "caption", "--out"]
    assert main([*words, str(tmp_path / "a.png")]) == 0
    assert "--boxes" in capsys.readouterr().out
    assert main([*words, str(tmp_path / "b.png"), "--boxes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["objects"] == 1
    other = make_shard([changed(object_record([]), caption=string(b"one"))], name="b.tfrecord")
    one, two = (
        sheet_tail(contact_sheet([which], tmp_path / f"{n}.png", label="caption"))
        for n, which in enumerate((path, other))
    )
    assert one != two


def sheet_tail(report: SheetReport) -> bytes:
    """Return the pixels of the first line below a sheet's first picture."""
    left, top = report.layout.corner(0)
    top += report.layout.thumb + 5
    image = Image.open(report.out).crop((left, top, left + 128, top + report.layout.letters + 4))
    return image.tobytes()


@pytest.mark.parametrize("segmentation", ODD)
def test_odd_objects_are_drawn_as_far_as_they_go(
    segmentation: str, make_shard: MakeShard, tmp_path: Path
) -> None:
    """Nothing that a record may hold makes a sheet fail."""
    thing = (16, 24, 80, 72, 1)
    odd = object_record([thing], optional={"segmentation": segmentation}, masks=())
    far = changed(
        object_record([thing]),
        image__object__bbox__xmin=float32(float("nan")),
        image__object__mask=string(b"no mask"),
    )
    report = contact_sheet([make_shard([odd, far])], tmp_path / "s.png", boxes=True)
    assert report.objects == 1


def test_masks_of_records_are_drawn(make_shard: MakeShard, tmp_path: Path) -> None:
    """PNG masks, polygons and run lengths of the same pixels look alike."""
    mask, output = Image.new("L", (160, 120)), io.BytesIO()
    mask.paste(1, (80, 0, 160, 120))
    mask.save(output, "PNG")
    thing = [(80, 0, 160, 120, 0)]
    corners = [80, 0, 160, 0, 160, 120, 80, 120]
    runs = {"size": [120, 160], "counts": [80 * 120, 80 * 120]}
    path = make_shard(
        [
            object_record(thing, optional={"segmentation": ""}, masks=[output.getvalue()]),
            object_record(thing, optional={"segmentation": json.dumps([corners])}),
            object_record(thing, optional={"segmentation": json.dumps(runs)}),
        ]
    )
    report = contact_sheet([path], tmp_path / "s.png", boxes=True, thumb=160)
    for tile in sheet_of(report):
        assert tile.getpixel((120, 100)) == (0, 80, 102)  # the object is black below
        assert tile.getpixel((40, 100)) == (200, 200, 200)
