"""Which features are the image, the label and the name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfrtool.examples.example import DType, Feature, Value
from tfrtool.examples.roles import LabelNames, Roles, find_roles
from tfrtool.examples.tfds_metadata import DatasetInfo

JPEG = b"\xff\xd8\xff\xe0rest"


def _features(**values: Value) -> dict[str, Feature]:
    dtypes = {bytes: DType.STRING, int: DType.INT64, float: DType.FLOAT32}
    return {
        name.replace("__", "/"): Feature(dtype=dtypes[type(value)], values=(value,))
        for name, value in values.items()
    }


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (
            {"image": JPEG, "image__filename": b"a.jpg", "label": 1},
            ("image", "label", "image/filename"),
        ),
        ({"x": JPEG, "n": 3}, ("x", None, None, "n")),
        ({"x": JPEG, "image_id": 3, "n": 4}, ("x", None, None, "n")),
        ({"class": b"cat", "n": 4}, (None, "class", None)),
        ({"x": JPEG, "id": 3, "image/width": 4}, ("x", None, None)),
        (
            {"image_raw": b"\0\1\2", "height": 1, "width": 1, "depth": 3, "label": 0},
            ("image_raw", "label", None),
        ),
        (
            {"image__encoded": JPEG, "image__class__text": b"cat"},
            ("image/encoded", "image/class/text", None),
        ),
        ({"left": JPEG, "right": JPEG, "one": 1, "two": 2}, (None, None, None)),
        ({"text": b"words"}, (None, None, None)),
    ],
)
def test_roles_are_told_from_a_record(
    features: dict[str, Value], expected: tuple[str | None, ...]
) -> None:
    """Content and common names decide, and what is in doubt stays open."""
    found = find_roles(_features(**features))
    assert found == Roles(*expected)


def test_metadata_comes_first() -> None:
    """Of two images the one counts that the dataset's supervised keys name."""
    info = DatasetInfo(
        name="d", version="1.0.0", splits=(), image_feature="right", label_feature="two"
    )
    found = find_roles(_features(left=JPEG, right=JPEG, label=1, two=2), info)
    assert (found.image, found.label) == ("right", "two")


def test_label_names(tmp_path: Path) -> None:
    """A number has the name on its line; numbers beyond and texts stand for themselves."""
    (tmp_path / "label.labels.txt").write_text("cat\ndog\n")
    names = LabelNames.read(tmp_path, "label")
    assert [names.text((value,)) for value in (0, 1, 2, -1, b"emu")] == [
        "cat",
        "dog",
        "2",
        "-1",
        "emu",
    ]
    assert names.text(()) is None
    assert LabelNames.read(tmp_path / "none", "label").text((1,)) == "1"


def test_label_maps_name_classes(tmp_path: Path) -> None:
    """A label map names the numbers of TF-OD's features, with holes; TFDS' files come first."""
    items = ("item { id: 1 name: 'cat' }", "item { id: 3 name: 'dog' }")
    (tmp_path / "label_map.pbtxt").write_text("\n".join(items))
    for feature in ("image/object/class/label", "image/class/label"):
        names = LabelNames.read(tmp_path, feature)
        assert [names.text([n]) for n in (0, 1, 2, 3, 4)] == ["0", "cat", "2", "dog", "4"]
    assert LabelNames.read(tmp_path, "label").names == ()
    (tmp_path / "label_map.pbtxt").write_text("item { id: 4000000000 name: 'far' }")
    assert LabelNames.read(tmp_path, "image/class/label").names == ()
    (tmp_path / "objects-label.labels.txt").write_text("emu\nyak\n")
    assert LabelNames.read(tmp_path, "objects/label").text([1]) == "yak"


def test_features_of_objects_are_no_role() -> None:
    """A record with one object has still no label, and its mask is not its image."""
    held: dict[str, bytes | int] = {"image/encoded": JPEG, "image/object/class/label": 2}
    roles = find_roles(_features(**held, **{"image/object/mask": JPEG}))
    assert (roles.image, roles.label) == ("image/encoded", None)
    assert find_roles(_features(image=JPEG, **{"objects/label": 2})).label is None
