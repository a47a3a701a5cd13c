"""What other tools save: every object is written as its maker meant it, or listed."""

from __future__ import annotations

import base64
import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tfrtool
from tests.annotated_sets import SCENES, scenes
from tests.more import more
from tests.photos import image_bytes
from tests.sources.annotations.makers import MAKERS, Maker
from tests.sources.annotations.told import boxes, listed, lost, objects_of, open_annotated
from tfrtool.errors import SourceError, TfrtoolError
from tfrtool.examples.example import decode_example
from tfrtool.images.masks import mask_bitmap
from tfrtool.sources.annotations.annotation_kinds import KINDS
from tfrtool.sources.items import Source

_via = MAKERS["via"][1]
BY_NAME = {maker.__name__.strip("_"): maker for makers in MAKERS.values() for maker in makers}


@pytest.fixture(params=BY_NAME)
def maker(request: pytest.FixtureRequest) -> Maker:
    """Return each maker."""
    return BY_NAME[request.param]


def test_every_kind_has_makers() -> None:
    """The tests of this file know all formats; new ones are added to `MAKERS`."""
    assert MAKERS.keys() == KINDS.keys()


def _names(things: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return things with classes of one word, as some formats have them, in any order."""
    return sorted((str(name).replace("_", " ").split()[-1], *box) for name, *box in things)


def test_every_object_is_written(maker: Maker, tmp_path: Path) -> None:
    """Boxes are those of the scenes, whatever the file says besides."""
    source = open_annotated(tmp_path, maker(tmp_path), tmp_path)
    found = boxes(source)
    expected = {scene.name: _names([tuple(thing) for thing in scene.things]) for scene in SCENES}
    assert lost(source) == []
    assert listed(source) == {}
    assert not [one for one in source.ignored if one.key.endswith(".png")]
    short = {next(name for name in expected if key.endswith(name)): key for key in found}
    assert len(short) == len(found) >= 4
    for name, key in short.items():
        assert _names(found[key]) == expected[name]


def test_source_may_be_the_folder_of_images(maker: Maker, tmp_path: Path) -> None:
    """Images are found from the folder that has only them, too."""
    meant = maker(tmp_path)
    folder = next(p for p in tmp_path.rglob("*") if p.is_dir() and (p / "a.jpg").is_file())
    source = open_annotated(folder, meant, tmp_path)
    assert len(objects_of(source)) >= 4
    assert lost(source) == []


@pytest.mark.parametrize(
    ("name", "reader"), [("labelme", "from_labelme"), ("cvat_task", "from_cvat")]
)
def test_globox_reads_the_same(name: str, reader: str, tmp_path: Path) -> None:
    """The reference reader has the same boxes."""
    globox = pytest.importorskip("globox")
    meant = BY_NAME[name](tmp_path)
    read = getattr(globox.AnnotationSet, reader)
    place = Path(meant.partition(":")[2])
    told = read(place, recursive=True) if place.is_dir() else read(place)
    theirs = sorted(
        (one.label, *map(float, (one.xmin, one.ymin, one.xmax, one.ymax)))
        for image in told
        for one in image.boxes
    )
    source = open_annotated(tmp_path / "images", meant, tmp_path)
    ours = sorted(thing for things in boxes(source).values() for thing in things)
    assert ours == [pytest.approx(one) for one in theirs]


def _bytes_of(image: Image.Image) -> bytes:
    output = io.BytesIO()
    image.save(output, "PNG")
    return output.getvalue()


def _labelme(folder: Path, *shapes: dict[str, Any], **more: Any) -> Source:
    """Open an image of 160 x 120 pixels with shapes of LabelMe."""
    scenes(folder, SCENES[:1])
    whole = {"shapes": shapes, "imagePath": "a.jpg", "imageWidth": 160, "imageHeight": 120} | more
    (folder / "a.json").write_text(json.dumps(whole))
    return open_annotated(folder, f"labelme:{folder}", folder.parent)


def test_shapes_of_labelme(tmp_path: Path) -> None:
    """Polygons of a group are one object; masks, circles and other shapes are themselves."""
    mask = np.zeros((10, 20), np.uint8)
    mask[2:5, 3:9] = 1
    text = base64.b64encode(_bytes_of(Image.fromarray(mask))).decode()
    triangle = [[0, 0], [10, 0], [0, 10]]
    far = [[50, 50], [60, 50], [50, 60]]
    source = _labelme(
        tmp_path / "s",
        {"label": "a", "points": triangle, "group_id": 1, "shape_type": "polygon"},
        {"label": "a", "points": far, "group_id": 1, "shape_type": "polygon"},
        {"label": "b", "points": [[30, 40], [50, 50]], "shape_type": "mask", "mask": text},
        {"label": "c", "points": [[80, 60], [80, 70]], "shape_type": "circle"},
        {"label": "d", "points": [[2, 3], *triangle], "shape_type": "rotation", "direction": 1.5},
        {"label": "c", "points": [[1, 1], [9, 9]], "shape_type": "line"},
        {"label": "c", "points": [[1, float("nan")], [9, 9]], "shape_type": "rectangle"},
        {"label": " ", "points": [[1, 2], [9, 9]], "shape_type": "rectangle"},
        {"points": []},
    )
    assert boxes(source)["a.jpg"] == [
        ("b", 30, 40, 50, 50),
        ("c", 70, 50, 90, 70),
        ("d", 0, 0, 10, 10),
        ("a", 0, 0, 60, 60),
    ]
    masked, _, turned, joined = objects_of(source)["a.jpg"].objects
    assert len(json.loads(joined.segmentation)) == 2
    assert json.loads(turned.segmentation) == [[2, 3, 0, 0, 10, 0, 0, 10]]
    whole = mask_bitmap(masked.segmentation, 160, 120)
    assert whole.sum() == mask.sum()
    assert np.array_equal(whole[40:50, 30:50], mask)
    reasons = [why.partition(": ")[2] for _, why in lost(source)]
    assert [why.split(" - ")[0][:25] for why in reasons] == [
        "line of 2 points is not a",
        "invalid shape: Expected `",
        "no class",
        "invalid shape: Object mis",
    ]


@pytest.mark.parametrize(
    ("element", "box", "points"),
    [
        (
            '<box label="cat" xtl="40" ytl="50" xbr="80" ybr="60" rotation="90"/>',
            (55, 35, 65, 75),
            [65, 35, 65, 75, 55, 75, 55, 35],
        ),
        ('<ellipse label="cat" cx="50" cy="60" rx="10" ry="20"/>', (40, 40, 60, 80), None),
        (
            '<ellipse label="cat" cx="50" cy="60" rx="10" ry="20" rotation="90"/>',
            (30, 50, 70, 70),
            None,
        ),
    ],
)
def test_shapes_of_cvat(
    tmp_path: Path, element: str, box: tuple[float, ...], points: list[float] | None
) -> None:
    """A turned box is an outline; an ellipse is the box around it."""
    source = _cvat(tmp_path / "s", element)
    (one,) = objects_of(source)["a.jpg"].objects
    assert one[:4] == pytest.approx(box)
    if points:
        assert json.loads(one.segmentation) == [pytest.approx(points)]


def _cvat(
    folder: Path, elements: str, meta: str = "", width: int = 160, height: int = 120
) -> Source:
    scenes(folder, SCENES[:1])
    labels = f"<labels><label><name>cat</name></label>{meta}</labels>"
    image = f'<image id="0" name="a.jpg" width="{width}" height="{height}">{elements}</image>'
    text = f"<annotations><meta><job>{labels}</job></meta>{image}</annotations>"
    (folder / "annotations.xml").write_text(text)
    return open_annotated(folder, f"cvat:{folder}", folder.parent)


@pytest.mark.parametrize("kind", ["labelme", "cvat"])
def test_masks_are_counted_before_they_are_read(tmp_path: Path, kind: str) -> None:
    """An image with too many masks is skipped as such, though all of them are broken, too."""
    mask = {"label": "a", "points": [[0, 0], [9, 9]], "shape_type": "mask", "mask": ""}
    element = '<mask label="cat" rle="7" left="0" top="0" width="9" height="9"/>'
    opening: dict[str, Callable[[Path], Source]] = {
        "labelme": lambda path: _labelme(path, *[mask] * 200, imageWidth=9000, imageHeight=9000),
        "cvat": lambda path: _cvat(path, element * 200, width=9000, height=9000),
    }
    with pytest.raises(SourceError, match=r"a\.jpg: .*: masks have more than 8,589,934,592 pixels"):
        opening[kind](tmp_path / "s")


def test_skeletons_of_cvat(tmp_path: Path) -> None:
    """Key points have the names and lines of their skeleton, and come out again."""
    circle = '&lt;circle r="1" data-node-id="{}" data-label-name="{}"&gt;&lt;/circle&gt;'
    svg = '&lt;line data-node-from="4" stroke="black" data-node-to="9"&gt;&lt;/line&gt;'
    svg += "".join(circle.format(*one) for one in ((9, "ear"), (4, "tail"), (2, "nose")))
    meta = f"<label><name>pose</name><type>skeleton</type><svg>{svg}</svg></label>"
    for name in ("nose", "tail", "ear"):
        meta += f"<label><name>{name}</name><type>points</type><parent>pose</parent></label>"
    point = '<points label="{}" outside="{}" occluded="{}" points="{}"/>'
    points = [("tail", 0, 1, "80.00,70.00"), ("nose", 0, 0, "10.00,20.00"), ("ear", 1, 0, "1,1")]
    inner = "".join(point.format(*one) for one in points)
    folder = tmp_path / "s"
    source = _cvat(folder, f'<skeleton label="pose">{inner}</skeleton>', meta)
    (one,) = objects_of(source)["a.jpg"].objects
    assert one.keypoints == (10, 20, 2, 80, 70, 1, 0, 0, 0)
    tfrtool.write(folder, tmp_path / "ds", annotations=f"cvat:{folder}")
    tfrtool.extract(tmp_path / "ds", tmp_path / "out", annotations="coco")
    whole = json.loads((tmp_path / "out" / "annotations.json").read_text())
    category = next(one for one in whole["categories"] if one["name"] == "pose")
    assert category["keypoints"] == ["nose", "tail", "ear"]
    assert category["skeleton"] == [[2, 3]]
    assert whole["annotations"][0]["keypoints"] == pytest.approx([*one.keypoints], abs=0.01)


_LABELMES = {"description": "a\tb", "group_id": 3, "flags": {"ok": True, "no": False},
             "attributes": {"state": "old"}, "difficult": True, "score": None}  # fmt: skip
_VIAS = {"state": "", "parts": {"tail": True, "ear": False}, "n": [1, 2.5]}
_COCOS = {
    "attributes": {"occluded": True, "Truncated": 1, "far": 9e9},
    "track": [1, {"a": None}],
    "e": "é",
}
_KITTIS = "cat 0.34 2 -1.57 10 10 40 40 1.5 1.6 3.6 -0.6 1.7 46.7 -1.5 0.9\n"


@pytest.mark.parametrize(
    ("kind", "text", "attributes", "flags"),
    [
        (
            "labelme:a.json",
            {"imagePath": "a.jpg", "shapes": [{"label": "cat", "points": [[10, 10], [40, 40]],
                                               "shape_type": "rectangle", **_LABELMES}]},
            {"description": "a\tb", "group_id": 3, "ok": True, "no": False, "state": "old",
             "difficult": True},
            ["difficult"],
        ),
        (
            "via:v.json",
            {"a": {"filename": "a.jpg", "regions": [
                {"region_attributes": {"class": "cat", **_VIAS},
                 "shape_attributes": {"name": "rect", "x": 10, "y": 10,
                                      "width": 30, "height": 30}}]}},
            _VIAS,
            [],
        ),
        (
            "cvat:a.xml",
            '<annotations><image name="a.jpg" width="160" height="120"><box label="cat" xtl="10" '
            'ytl="10" xbr="40" ybr="40" occluded="1" z_order="2" source="auto" group_id="7">'
            '<attribute name="State"> &lt;a\nb</attribute><attribute name="truncated">true'
            "</attribute></box></image></annotations>",
            {"occluded": True, "z_order": 2, "group_id": 7, "source": "auto", "State": " <a\nb",
             "truncated": "true"},
            ["truncated"],
        ),
        (
            "voc:.",
            "<annotation><filename>a.jpg</filename><object><name>cat</name><bndbox><xmin>10</xmin>"
            "<ymin>10</ymin><xmax>40</xmax><ymax>40</ymax></bndbox><occluded>1</occluded>"
            "<attributes><attribute><name>a b</name><value>c</value></attribute></attributes>"
            "<score>0.5</score></object></annotation>",
            {"occluded": True, "score": "0.5", "a b": "c"},
            [],
        ),
        (
            "kitti:.",
            _KITTIS,
            {"truncated": 0.34, "occluded": 2.0, "alpha": -1.57, "dimensions": [1.5, 1.6, 3.6],
             "location": [-0.6, 1.7, 46.7], "rotation_y": -1.5, "score": 0.9},
            ["truncated"],
        ),
        (
            "coco:c.json",
            {"images": [{"id": 1, "file_name": "a.jpg"}], "categories": [{"id": 1, "name": "cat"}],
             "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 30, 30],
                              **_COCOS}]},
            {"occluded": True, "Truncated": 1, "far": 9e9, "track": [1, {"a": None}], "e": "é"},
            ["truncated"],
        ),
    ],
    ids=["labelme", "via", "cvat", "voc", "kitti", "coco"],
)  # fmt: skip
def test_attributes_are_kept_and_given_back(
    kind: str, text: Any, attributes: dict[str, Any], flags: list[str], tmp_path: Path
) -> None:
    """Whatever a file says of an object is in its record, and in COCO's file of it."""
    scenes(tmp_path / "s", SCENES[:1])
    form, _, name = kind.partition(":")
    suffix = {"voc": ".xml", "kitti": ".txt"}.get(form, Path(name).suffix)
    text = text if isinstance(text, str) else json.dumps(text)
    (tmp_path / "s" / f"a{suffix}").write_text(text)
    meant = f"{form}:{tmp_path / 's'}" + (
        "" if suffix != ".json" or form == "labelme" else "/a.json"
    )
    layout: Any = "tfds" if form in ("voc", "coco") else "tfod"
    report = tfrtool.write(
        tmp_path / "s", tmp_path / "ds", annotations=meant, layout=layout, workers=1
    )
    assert not [note for note in report.notices if "not written" in note]
    (shard,) = (tmp_path / "ds").glob("*.tfrecord*")
    (features,) = (decode_example(one.payload).features for one in tfrtool.read_records(shard))
    start = "image/object/" if layout == "tfod" else "objects/"
    (kept,) = features[f"{start}attributes"].values
    assert isinstance(kept, bytes)
    assert json.loads(kept) == attributes
    for flag in flags:
        flag = flag if layout == "tfod" else f"is_{flag}"
        assert features[start + flag].values == (1,)
    tfrtool.extract(tmp_path / "ds", tmp_path / "out", annotations="coco")
    (one,) = json.loads((tmp_path / "out" / "annotations.json").read_text())["annotations"]
    assert attributes.items() <= one["attributes"].items()
    lost = tfrtool.extract(tmp_path / "ds", tmp_path / "yolo", annotations="yolo").annotations
    assert lost is not None
    assert lost.lost["attributes"] == 1


@pytest.mark.parametrize("value", ['"' + "x" * 65_600 + '"', "NaN", "[1, -Infinity]", "1e999"])
def test_attributes_that_cannot_be_kept_are_listed(value: str, tmp_path: Path) -> None:
    """No value is changed: the object is listed."""
    scenes(tmp_path / "s", SCENES[:1])
    one = '{"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 30, 30]'
    images = '"images": [{"id": 1, "file_name": "a.jpg"}], "categories": [{"id": 1, "name": "cat"}]'
    (tmp_path / "c.json").write_text(
        f'{{{images}, "annotations": [{one}, "attributes": {{"a": {value}}}}}, {one}}}]}}'
    )
    source = open_annotated(tmp_path / "s", f"coco:{tmp_path / 'c.json'}")
    assert boxes(source) == {"a.jpg": [("cat", 10, 10, 40, 40)]}
    ((_, why),) = lost(source)
    assert why.startswith("annotations[0]: a" if "9" in why else "annotation 1: a")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("<annotations><track/></annotations>", "is CVAT for video"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><annotations>&b;</annotations>', "XML entities"),
        ("<annotations><image", "invalid XML"),
        (  # hours, if each start of an edge or circle looked for its end in all of the text
            "<annotations><meta><label><name>a</name><type>skeleton</type><svg>"
            + '&lt;circle data-node-from="1"' * 200_000
            + "</svg></label><label><name>p</name><parent>a</parent></label></meta>",
            "invalid XML",
        ),
        more("<annotations>" + "<a>" * 1_000_001, "more than 1,000,000 elements"),
        (
            '<annotations><image name="a.jpg" subset="train"/><image name="b"/></annotations>',
            "b has no subset",
        ),
    ],
)
def test_files_of_cvat_that_are_refused(tmp_path: Path, text: str, what: str) -> None:
    """The error names the file."""
    scenes(tmp_path / "s", SCENES[:1])
    (tmp_path / "annotations.xml").write_text(text)
    with pytest.raises(SourceError, match=what) as caught:
        open_annotated(tmp_path / "s", f"cvat:{tmp_path / 'annotations.xml'}")
    assert str(caught.value.path).endswith("annotations.xml")


def test_labels_that_are_not_text_are_listed(tmp_path: Path) -> None:
    """No class gets another name because its bytes are not UTF-8."""
    (tmp_path / "image_2").mkdir()
    (tmp_path / "label_2").mkdir()
    for name in ("a", "b"):
        (tmp_path / "image_2" / f"{name}.jpg").write_bytes(image_bytes(size=(160, 120)))
    line = b"cat 0 0 0 10 10 40 40 0 0 0 0 0 0 0\n"
    (tmp_path / "label_2" / "a.txt").write_bytes(line)
    (tmp_path / "label_2" / "b.txt").write_bytes(line.replace(b"cat", b"c\xe4t"))
    source = open_annotated(tmp_path / "image_2", f"kitti:{tmp_path}")
    assert source.labels == ("cat",)
    assert [(one.key, one.reason) for one in source.rejected] == [
        ("b.jpg", "label_2/b.txt: not valid UTF-8")
    ]


_HUGE = [
    '<mask label="cat" rle="0, 999999999" left="0" top="0" width="99999" height="99999"/>',
    '<mask label="cat" rle="0, 1" left="159" top="0" width="2" height="1"/>',
    '<mask label="cat" rle="1, -1, 2" left="0" top="0" width="2" height="1"/>',
    '<box label="cat" xtl="nan" ytl="0" xbr="1" ybr="1"/>',
    '<box label="cat" xtl="0" ytl="0" xbr="1e300" ybr="1"/>',
    '<box label="cat" xtl="0" ytl="0" xbr="9" ybr="9" rotation="inf"/>',
    '<box label="bird" xtl="0" ytl="0" xbr="9"/>',
    '<polygon label="cat" points="1,1;2"/>',
    '<polygon label="cat" points="0,0;9e8,0;0,9e8"/>',
    '<skeleton label="cat"><points label="x" points="1,1"/></skeleton>',
    '<cuboid label="cat"/>',
]


@pytest.mark.parametrize("element", _HUGE)
def test_impossible_shapes_are_listed(tmp_path: Path, element: str) -> None:
    """Nothing of such numbers is computed, and the object is listed."""
    source = _cvat(tmp_path / "s", element)
    assert boxes(source) == {"a.jpg": []}
    assert len(lost(source)) == 1


def test_values_of_masks(tmp_path: Path) -> None:
    """Each value is an object with its exact pixels; 255 is left out next to others."""
    scenes(tmp_path / "images", SCENES[:1])
    values = np.zeros((120, 160), np.uint8)
    values[10:20, 30:50] = 7
    values[15, 100] = 7
    values[0, 0] = 255
    (tmp_path / "masks").mkdir()
    Image.fromarray(values).save(tmp_path / "masks" / "a.png")
    source = open_annotated(tmp_path / "images", f"masks:{tmp_path / 'masks'}", masks="png")
    assert source.labels == ("7",)
    (one,) = objects_of(source)["a.jpg"].objects
    assert (one[:4], one.area) == ((30, 10, 101, 20), 201)
    assert np.array_equal(mask_bitmap(one.segmentation, 160, 120), values == 7)
    assert source.notices == ("fields of objects not written: regions of value 255 (1)",)
    values[values != 255] = 0
    Image.fromarray(values).save(tmp_path / "masks" / "a.png")
    source = open_annotated(tmp_path / "images", f"masks:{tmp_path / 'masks'}")
    assert boxes(source) == {"a.jpg": [("255", 0, 0, 1, 1)]}


def test_masks_of_other_sizes_and_colors_are_listed(tmp_path: Path) -> None:
    """A mask must have the size of its image, and its colors names."""
    scenes(tmp_path / "images", SCENES[:2])
    (tmp_path / "masks").mkdir()
    Image.new("RGB", (160, 120), (1, 2, 3)).save(tmp_path / "masks" / "a.png")
    Image.new("RGB", (9, 9), (9, 9, 9)).save(tmp_path / "masks" / "b 50%.png")
    (tmp_path / "masks" / "labelmap.txt").write_text("cat:9,9,9::\n")
    (tmp_path / "masks" / "c.png").write_bytes(b"no image")
    source = open_annotated(tmp_path / "images", f"masks:{tmp_path / 'masks'}", masks="png")
    assert ("a.jpg", "a.png: color (1, 2, 3) has no class") in lost(source)
    assert "mask can't be used" in listed(source)["c"]
    (tmp_path / "masks" / "labelmap.txt").unlink()
    source = open_annotated(tmp_path / "images", f"masks:{tmp_path / 'masks'}", masks="png")
    assert "mask has colors; their classes must be in a labelmap.txt" in listed(source)["a.jpg"]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        *(
            ("labelmap.txt", line)
            for line in ("cat", "cat:::", "cat:9,9", "cat:9,9,256", "cat:a,b")
        ),
        *(("label_colors.txt", line) for line in ("cat", "1 2 cat", "1 2 999 cat")),
    ],
)
def test_colors_that_are_refused(name: str, line: str, tmp_path: Path) -> None:
    """The error has the line, and says where names without colors belong."""
    scenes(tmp_path / "images", SCENES[:1])
    (tmp_path / "masks").mkdir()
    Image.new("RGB", (160, 120), (1, 2, 3)).save(tmp_path / "masks" / "a.png")
    (tmp_path / "masks" / name).write_text(f"# map\n{line}\n")
    form = "r g b name" if "colors" in name else "name:r,g,b"
    with pytest.raises(SourceError, match=f"line 2 is not {form}: {line}") as caught:
        open_annotated(tmp_path / "images", f"masks:{tmp_path / 'masks'}")
    assert "into classes.txt" in str(caught.value)


def test_masks_of_camvid(tmp_path: Path) -> None:
    """Colors are in label_colors.txt, and masks end in _L."""
    scenes(tmp_path / "images", SCENES[:1])
    (tmp_path / "LabeledApproved_full").mkdir()
    mask = Image.new("RGB", (160, 120))
    mask.paste((64, 192, 0), (10, 20, 30, 50))
    mask.save(tmp_path / "LabeledApproved_full" / "a_L.png")
    lines = "64 128 64\tAnimal\r\n64 192 0\t\tTraffic Light \r\n0 0 0 Void\r\n"
    (tmp_path / "LabeledApproved_full" / "label_colors.txt").write_text(lines)
    source = open_annotated(tmp_path / "images", f"masks:{tmp_path / 'LabeledApproved_full'}")
    assert source.labels == ("Animal", "Traffic Light")
    assert boxes(source) == {"a.jpg": [("Traffic Light", 10, 20, 30, 50)]}


def test_masks_of_roboflow(tmp_path: Path) -> None:
    """The classes of values are in _classes.csv; a list of labels of images has the same name."""
    scenes(tmp_path / "train", SCENES[:1])
    values = np.zeros((120, 160), np.uint8)
    values[20:50, 10:30] = 5
    Image.fromarray(values).save(tmp_path / "train" / "a_mask.png")
    names = tmp_path / "train" / "_classes.csv"
    names.write_text("Pixel Value, Class\n0, background\n5, traffic, light\n 2, sky\n")
    source = open_annotated(tmp_path, f"masks:{tmp_path}")
    assert source.labels == ("traffic, light", "sky")
    assert boxes(source) == {"train/a.jpg": [("traffic, light", 10, 20, 30, 50)]}
    names.write_text("Pixel Value, Class\n0, background\nsky, 2\n")
    with pytest.raises(SourceError, match="line 3 is not a pixel value and a class: sky, 2"):
        open_annotated(tmp_path, f"masks:{tmp_path}")
    names.write_text("filename, cat, dog\na.jpg, 0, 1\n")
    assert open_annotated(tmp_path, f"masks:{tmp_path}").labels == ("5",)


def test_masks_of_instances_are_not_read(tmp_path: Path) -> None:
    """Next to classes, as in exports of CVAT, they are listed as ignored."""
    scenes(tmp_path / "JPEGImages", SCENES[:1])
    for name in ("SegmentationClass", "SegmentationObject"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (160, 120), (9, 9, len(name))).save(tmp_path / name / "a.png")
    (tmp_path / "labelmap.txt").write_text("cat:9,9,17::\n")
    source = open_annotated(tmp_path, f"masks:{tmp_path}")
    assert boxes(source) == {"JPEGImages/a.jpg": [("cat", 0, 0, 160, 120)]}
    assert lost(source) == []
    assert [one.key for one in source.ignored] == ["SegmentationObject/a.png"]


def test_folder_of_masks_whose_name_starts_with_dots(tmp_path: Path) -> None:
    """It is in the folder of images, which therefore takes none of its masks for an image."""
    scenes(tmp_path / "s", SCENES[:1])
    (tmp_path / "s" / "..masks").mkdir()
    Image.new("L", (160, 120), 1).save(tmp_path / "s" / "..masks" / "a.png")
    source = open_annotated(tmp_path / "s", f"masks:{tmp_path / 's' / '..masks'}")
    assert [*objects_of(source)] == ["a.jpg"]
    assert not source.ignored


@pytest.mark.parametrize("kind", ["labelme", "via"])
def test_too_many_objects_are_refused(kind: str, tmp_path: Path) -> None:
    """They are counted before they are read."""
    scenes(tmp_path / "s", SCENES[:1])
    many = "[" + ",".join(["{}"] * 100_001) + "]"
    text = {"labelme": '{"shapes": %s}', "via": '{"a": {"filename": "a.jpg", "regions": %s}}'}
    (tmp_path / "s" / "a.json").write_text(text[kind] % many)
    with pytest.raises(SourceError, match=r"a\.json: image has more than 100,000 objects"):
        open_annotated(tmp_path / "s", f"{kind}:{tmp_path / 's'}")


def test_a_cut_file_of_via_is_an_error(tmp_path: Path) -> None:
    """JSON of another kind is listed; JSON that is cut is not passed over."""
    meant = _via(tmp_path)
    (tmp_path / "images" / "other.json").write_text("[1]")
    source = open_annotated(tmp_path / "images", meant, tmp_path)
    assert ("other.json", "not a file of VIA") in {(e.key, e.reason) for e in source.ignored}
    path = tmp_path / "images" / "via_region_data.json"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SourceError, match=r"via_region_data\.json: not a file of VIA"):
        open_annotated(tmp_path / "images", meant, tmp_path)


@pytest.mark.parametrize(
    ("place", "text", "what"),
    [
        ("labelme:{}", '{"a": 1}', "a LabelMe file"),
        ("via:{}/a.json", '{"a": 1}', "a file of VIA"),
        ("cvat:{}/a.xml", "<annotation/>", "a file of CVAT for images"),
        ("voc:{}", "<annotations/>", "a Pascal VOC annotation"),
    ],
)
def test_files_of_another_kind_alone_are_an_error(
    place: str, text: str, what: str, tmp_path: Path
) -> None:
    """The error names the file, and not the images, which have no annotations then."""
    scenes(tmp_path / "s", SCENES[:1])
    name = "a.json" if "{" in text else "a.xml"
    (tmp_path / "s" / name).write_text(text)
    with pytest.raises(SourceError, match=f"{name}: not {what}"):
        open_annotated(tmp_path / "s", place.format(tmp_path / "s"))


_DEEP = b'{"shapes": ' + b"[" * 100_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b"16", b"1e999"),
        lambda data: data.replace(b"16", b"NaN"),
        lambda data: data.replace(b"a.jpg", b"../../etc/passwd"),
        lambda data: data.replace(b"cat", b"\xff\xfe\x00"),
        lambda _: _DEEP,
        lambda _: b"",
    ],
)
def test_damage_loses_nothing(kind: str, damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """A damaged file is refused or listed, and each object that is read is kept or listed."""
    meant = MAKERS[kind][0](tmp_path)
    place = Path(meant.partition(":")[2])
    files = [place] if place.is_file() else sorted(place.rglob("*.*"))
    suffix = getattr(resolve_name(KINDS[kind].reader), "suffix", "")
    for path in [one for one in files if one.is_file() and one.suffix.endswith(suffix)][:3]:
        path.write_bytes(damage(path.read_bytes()))
    with contextlib.suppress(TfrtoolError):  # it checks that each object is accounted for
        source = open_annotated(tmp_path, meant, tmp_path)
        assert not any("passwd" in key for key in boxes(source))


def test_photos_are_not_masks(tmp_path: Path) -> None:
    """A PNG in a folder that holds images and masks alike is no mask of itself."""
    for folder in ("image_2", "semantic"):
        (tmp_path / "s" / folder).mkdir(parents=True)
        (tmp_path / "s" / folder / "a.png").write_bytes(_bytes_of(Image.new("L", (9, 9), 7)))
    with pytest.raises(SourceError, match=r"is read as a mask"):
        open_annotated(tmp_path / "s", f"masks:{tmp_path / 's'}")
    source = open_annotated(tmp_path / "s" / "image_2", f"masks:{tmp_path / 's' / 'semantic'}")
    assert boxes(source) == {"a.png": [("7", 0, 0, 9, 9)]}
