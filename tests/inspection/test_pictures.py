"""Records as pictures: the right feature, the right size, the right label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeShard
from tests.examples.strategies import UNSET, float32, int64, string, tf_sequence
from tests.photos import image_bytes
from tfrtool.examples.example import Feature, encode_example
from tfrtool.images.pixels import Picture
from tfrtool.inspection.pictures.pictures import image_roles, pictures_of
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_records

Drawn = tuple[str, str, Picture]
"""A label, a place among several, and the picture."""

PHOTO = image_bytes(size=(40, 30))
RAW = bytes(index % 251 for index in range(6 * 9 * 3))


def records_of(path: Path) -> list[Record]:
    """Return the records of a shard."""
    with path.open("rb") as file:
        return [item for item in read_records(file) if isinstance(item, Record)]


def drawn(path: Path, image: str | None = None, label: str | None = None) -> list[Drawn]:
    """Return the pictures of all records of a shard."""
    roles = image_roles(path, image, label)
    return [
        picture
        for record in records_of(path)
        for picture in pictures_of(record.payload, roles, box=128)
    ]


@pytest.mark.parametrize(
    "features",
    [
        {"image": string(PHOTO)},
        {"image/encoded": string(PHOTO), "image/format": string(b"jpeg")},
        {"photo": string(PHOTO), "other": string(b"\x00\x01\x02")},
        {"photos": string(PHOTO, PHOTO)},
        {"image": string(b"not an image"), "photo": string(PHOTO)},
    ],
)
def test_the_encoded_image_is_found(features: dict[str, Feature], make_shard: MakeShard) -> None:
    """An encoded image is found by its name or by its bytes."""
    for _, _, picture in drawn(make_shard([encode_example(features)])):
        assert (picture.width, picture.height) == (40, 30)


@pytest.mark.parametrize(
    "features",
    [
        {"height": int64(6), "width": int64(9)},
        {"image_height": int64(6), "image_width": int64(9), "image_channels": int64(3)},
        {"image/height": int64(6), "image/width": int64(9), "mask/height": int64(2)},
        {"crop/width": int64(1), "crop/height": int64(1), "image/height": int64(6),
         "image/width": int64(9)},
        {"Height": int64(6), "Width": int64(9), "depth": int64(3)},
        {"rows": int64(6), "cols": int64(9)},
        {"shape": int64(6, 9, 3)},
        {"image/shape": int64(6, 9)},
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["image", "image_raw", "image/pixels"])
def test_dimensions_have_many_names(
    name: str, features: dict[str, Feature], make_shard: MakeShard
) -> None:
    """Height and width are found under the names in use, those of the image before others."""
    ((_, _, picture),) = drawn(make_shard([encode_example({name: string(RAW), **features})]))
    assert picture.size == "9 x 6"


@pytest.mark.parametrize(
    "bad", [int64(-6), int64(2**62), int64(), int64(6, 6), string(b"6"), float32(6.0), UNSET]
)
def test_hostile_dimensions(bad: Feature, make_shard: MakeShard) -> None:
    """A height that makes no sense is a broken image, with a reason."""
    features = {"image": string(RAW), "height": bad, "width": int64(9)}
    ((_, _, picture),) = drawn(make_shard([encode_example(features)]))
    assert picture.problem


@pytest.mark.parametrize("dtype", ["int64", "float"])
def test_numbers_as_pixels(dtype: str, make_shard: MakeShard) -> None:
    """A list of 784 numbers is a square image, and its size is said to be a guess."""
    values = [index % 256 for index in range(784)]
    image = int64(*values) if dtype == "int64" else float32(*(value / 255 for value in values))
    ((label, _, picture),) = drawn(
        make_shard([encode_example({"image": image, "label": int64(7)})])
    )
    assert (picture.size, label) == ("28 x 28?", "7")


def test_labels_have_their_class_names(make_shard: MakeShard, tmp_path: Path) -> None:
    """A label is shown by its name where one is known, else by its value."""
    (tmp_path / "label.labels.txt").write_text("cat\ndog\n")
    payloads = [
        encode_example({"image": string(PHOTO), "label": int64(value)}) for value in (1, 0, 9)
    ]
    assert [label for label, _, _ in drawn(make_shard(payloads))] == ["dog", "cat", "9"]


def test_features_can_be_named(make_shard: MakeShard) -> None:
    """The image and the label are those that are asked for."""
    features = {
        "image": string(PHOTO),
        "image/mask": string(image_bytes("PNG", size=(8, 9))),
        "label": int64(1),
        "tags": string(b"a", b"b", b"c", b"d"),
    }
    path = make_shard([encode_example(features)])
    ((label, _, picture),) = drawn(path, image="image/mask", label="tags")
    assert (picture.size, label) == ("8 x 9", "a, b, c, ...")


def test_the_name_stands_in_for_a_label(make_shard: MakeShard) -> None:
    """Without a label the file's name is shown."""
    features = {"image": string(PHOTO), "image/filename": string(b"cat/1.jpg")}
    assert drawn(make_shard([encode_example(features)]))[0][0] == "cat/1.jpg"


def test_records_without_their_image_are_told(make_shard: MakeShard) -> None:
    """A record that lacks what the others have is broken, not left out."""
    payloads = [
        encode_example({"label": int64(1)}),
        encode_example({"image": string(PHOTO), "label": int64(1)}),
        encode_example({"image": UNSET, "label": int64(1)}),
        encode_example({"image": string(b""), "label": int64(1)}),
        b"\xff\xff no message",
    ]
    found = drawn(make_shard(payloads))
    shown = [picture.problem is None for _, _, picture in found]
    assert shown == [False, True, False, False, False]
    assert [label for label, _, _ in found[:4]] == ["1"] * 4


def test_frames_of_a_sequence(tf: Any, make_shard: MakeShard) -> None:
    """Of a list of images each is shown, with its place."""
    frames = [string(image_bytes(size=(40, 30 + step))) for step in range(5)]
    message = tf_sequence(tf, {"label": int64(3)}, {"frames": frames})
    found = drawn(make_shard([message.SerializeToString()]))
    assert [(label, place, picture.size) for label, place, picture in found] == [
        ("3", f"[{step}]", f"40 x {30 + step}") for step in range(5)
    ]


def test_frames_of_numbers(tf: Any, make_shard: MakeShard) -> None:
    """A list of lists of numbers is a picture for each step."""
    frames = [float32(*[step / 4] * 64) for step in range(3)]
    message = tf_sequence(tf, {}, {"image": frames})
    found = drawn(make_shard([message.SerializeToString()]))
    assert [(place, picture.size) for _, place, picture in found] == [
        (f"[{step}]", "8 x 8?") for step in range(3)
    ]


def test_no_image_at_all(make_shard: MakeShard) -> None:
    """Records without an image give no roles, and the names that they have."""
    path = make_shard([encode_example({"age": int64(3), "name": string(b"Ada")})])
    roles = image_roles(path)
    assert roles.image is None
    assert set(roles.features) == {"age", "name"}
