"""A value as a small picture, whatever holds its pixels."""

from __future__ import annotations

import base64
import io
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms

from tests.photos import image_bytes
from tfrtool.images.audit import audit_image
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.pixels import (
    Picture,
    decode_numbers,
    decode_picture,
    raw_shape,
    read_tensor,
)

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)
QUARTERS = bytes([*RED, *GREEN, *BLUE, *WHITE])
"""Four RGB pixels: two above two."""


def corners(picture: Picture) -> list[tuple[int, ...]]:
    """Return the colors at the corners: left and right above, left and right below."""
    image = picture.image
    assert image is not None
    assert image.mode == "RGB"
    right, bottom = image.width - 1, image.height - 1
    found = [image.getpixel(at) for at in ((0, 0), (right, 0), (0, bottom), (right, bottom))]
    return [color for color in found if isinstance(color, tuple)]


def saved(image: Image.Image, format_: str = "PNG", **options: Any) -> bytes:
    """Return an image as a file."""
    output = io.BytesIO()
    image.save(output, format_, **options)
    return output.getvalue()


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM"])
def test_every_format_is_drawn(format_: str) -> None:
    """An encoded image fits the box, in proportion, and its true size is known."""
    picture = decode_picture(image_bytes(format_, size=(300, 150)), 100)
    assert picture.image is not None
    assert picture.image.size == (100, 50)
    assert (picture.width, picture.height) == (300, 150)
    assert picture.problem is None
    assert not picture.guessed


@pytest.mark.parametrize(
    ("mode", "format_"),
    [
        ("RGB", "JPEG"), ("L", "JPEG"), ("CMYK", "JPEG"),
        ("RGBA", "PNG"), ("P", "PNG"), ("1", "PNG"), ("I;16", "PNG"), ("L", "PNG"), ("LA", "PNG"),
        ("F", "TIFF"), ("CMYK", "TIFF"), ("P", "GIF"), ("RGBA", "WEBP"),
    ],
)  # fmt: skip
def test_every_mode_is_drawn(mode: str, format_: str) -> None:
    """Any mode becomes RGB, dark at the left and light at the right as it was."""
    grey = Image.linear_gradient("L").transpose(Image.Transpose.ROTATE_90).resize((120, 60))
    if mode == "I;16":
        image = grey.convert("I").point(lambda value: value * 256).convert("I;16")
    else:
        image = grey.convert(mode)
    left, right, *_ = corners(decode_picture(saved(image, format_), 32))
    assert max(left) < 20
    assert min(right) > 235


@pytest.mark.parametrize("orientation", range(2, 9))
def test_exif_orientation_is_applied(orientation: int) -> None:
    """The picture stands as the EXIF tag says, and its size is that of the upright image."""
    data = image_bytes(size=(160, 120), orientation=orientation)
    picture = decode_picture(data, 64)
    assert picture.image is not None
    upright = (120, 160) if orientation >= 5 else (160, 120)
    assert (picture.width, picture.height) == upright
    from PIL import ImageOps

    with Image.open(io.BytesIO(data)) as image:
        wanted = ImageOps.exif_transpose(image).resize(picture.image.size).convert("L")
    shown = picture.image.convert("L").tobytes()
    off = [abs(a - b) for a, b in zip(shown, wanted.tobytes(), strict=True)]
    assert sum(off) / len(off) < 6


@pytest.mark.parametrize("mode", ["RGBA", "P"])
def test_what_is_transparent_is_white(mode: str) -> None:
    """As in a dataset that is written of it; a palette with a transparent entry too."""
    image = Image.new("RGBA", (40, 40), (255, 0, 0, 255))
    image.paste((0, 0, 0, 0), (20, 0, 40, 40))
    data = saved(image)
    if mode == "P":
        image = Image.new("P", (40, 40), 0)
        image.putpalette([255, 0, 0, 0, 255, 0])
        image.paste(1, (20, 0, 40, 40))
        data = saved(image, transparency=1)
    for box in (40, 20):
        assert corners(decode_picture(data, box)) == [RED, WHITE, RED, WHITE]


@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
def test_a_cut_image_is_a_problem(share: float) -> None:
    """An image that ends early is not drawn, and its size is known from its header."""
    data = saved(Image.effect_noise((200, 200), 90), "JPEG")
    picture = decode_picture(data[: int(len(data) * share)], 64)
    assert picture.image is None
    assert "can't be decoded" in str(picture.problem)
    assert (picture.width, picture.height) == (200, 200)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_raw_pixels_with_dimensions(channels: int) -> None:
    """Pixels of 8 bits are drawn by their height and width, which are not mistaken."""
    picture = decode_picture(bytes(range(5 * 7 * channels)), 64, (5, 7))
    assert (picture.width, picture.height) == (7, 5)
    assert picture.image is not None
    assert picture.image.size == (7, 5)
    assert not picture.guessed


def test_raw_pixels_keep_their_places() -> None:
    """Rows go from above, pixels from the left."""
    picture = decode_picture(QUARTERS, 64, (2, 2))
    assert corners(picture) == [RED, GREEN, BLUE, WHITE]


@pytest.mark.parametrize(
    ("height", "width"),
    [(-2, -2), (0, 4), (2**62, 2**62), (5, 2), (4, 4), (12, -1)],
)
def test_false_dimensions_are_a_problem(height: int, width: int) -> None:
    """Sizes that the bytes don't have are not believed, and no memory is spent on them."""
    picture = decode_picture(QUARTERS, 64, (height, width))
    assert picture.image is None
    assert picture.problem


def test_a_raw_shape_is_bounded() -> None:
    """More pixels than are ever decoded are not drawn, even if they are there."""
    assert raw_shape(10**6, (1000, 1000)) is not None
    assert raw_shape(10**8, (10_000, 10_000)) is None


@pytest.mark.parametrize("alphabet", [b"+/", b"-_"])
@pytest.mark.parametrize("padded", [True, False])
def test_base64_of_pixels(alphabet: bytes, padded: bool) -> None:
    """Base64 of RGB is not taken for RGBA, though it is as long."""
    pixels = bytes([*RED, *GREEN, *BLUE, 251, 255, 191]) * 6
    text = base64.b64encode(pixels, alphabet)
    text = text if padded else text.rstrip(b"=")
    assert corners(decode_picture(text, 64, (12, 2)))[:2] == [RED, GREEN]


def test_base64_of_an_encoded_image() -> None:
    """A JPEG as base64 text is drawn too."""
    picture = decode_picture(base64.b64encode(image_bytes(size=(30, 20))), 64)
    assert (picture.width, picture.height) == (30, 20)


@pytest.mark.parametrize(("length", "size"), [(784, (28, 28)), (3 * 32 * 32, (32, 32))])
def test_a_square_is_a_guess(length: int, size: tuple[int, int]) -> None:
    """Bytes that make a square are drawn, and marked as a guess."""
    picture = decode_picture(bytes(index % 251 for index in range(length)), 64)
    assert (picture.width, picture.height) == size
    assert picture.guessed


@pytest.mark.parametrize("dtype", ["uint8", "float32", "int32", "uint16", "bool", "float16"])
def test_a_serialized_tensor(tf: Any, dtype: str) -> None:
    """What tf.io.serialize_tensor wrote is drawn, whatever the numbers' type."""
    ramp = tf.reshape(tf.linspace(0.0, 1.0, 12 * 20), [12, 20, 1])
    scale = {"uint8": 255, "int32": 255, "uint16": 65535}.get(dtype, 1)
    image = tf.cast(tf.tile(ramp * scale, [1, 1, 3]), dtype)
    picture = decode_picture(tf.io.serialize_tensor(image).numpy(), 64)
    assert (picture.width, picture.height) == (20, 12)
    assert corners(picture)[0] == (0, 0, 0)
    assert corners(picture)[3] == WHITE


def test_a_tensor_that_is_no_image(tf: Any) -> None:
    """A tensor of another shape says what it is."""
    picture = decode_picture(tf.io.serialize_tensor(tf.zeros([2, 3, 4, 5, 6])).numpy(), 64)
    assert "[2, 3, 4, 5, 6]" in str(picture.problem)


@pytest.mark.parametrize(
    "values", [(0, 64, 128, 255), (0.0, 0.25, 0.5, 1.0), (-1.0, -0.5, 0.0, 1.0)]
)
def test_numbers_are_pixels(values: tuple[float, ...]) -> None:
    """Lists of 0 to 255, of 0 to 1 and of -1 to 1 show the same greys."""
    picture = decode_numbers(values, 64, (2, 2))
    for shown, wanted in zip(corners(picture), (0, 64, 128, 255), strict=True):
        assert abs(shown[0] - wanted) <= 1


@given(st.lists(st.floats(width=32) | st.integers(-(2**63), 2**63), min_size=1, max_size=200))
def test_any_numbers_are_drawn_or_not(values: list[float]) -> None:
    """NaN, infinities and huge numbers never raise."""
    decode_numbers(values, 16, (1, len(values)))
    decode_numbers(values, 16)


@given(st.binary(max_size=400), st.integers(0, 500), st.integers(-1, 30), st.integers(-1, 30))
def test_hostile_bytes_never_raise(noise: bytes, place: int, height: int, width: int) -> None:
    """Whatever the bytes and the dimensions, the answer is a picture or a reason."""
    data = bytearray(image_bytes())
    data[place : place + len(noise)] = noise
    size = (height, width)
    for value in (bytes(data), noise, base64.b64encode(noise)):
        picture = decode_picture(value, 32, size)
        assert (picture.image is None) is (picture.problem is not None)
        assert picture.image is None or max(picture.image.size) <= 32


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([7, 64, 96]), st.booleans())
@settings(max_examples=30)
def test_pictures_of_photographs_are_thumbnails(
    width: int, height: int, box: int, grey: bool
) -> None:
    """A JPEG of any size is drawn exactly as Pillow makes thumbnails of it."""
    noise = Image.effect_noise((width, height), 60).convert("L" if grey else "RGB")
    data = saved(noise, "JPEG")
    with Image.open(io.BytesIO(data)) as expected:
        gap = 1.01 if box <= 64 else 2.0
        expected.thumbnail((box, box), Image.Resampling.LANCZOS, reducing_gap=gap)
        drawn = decode_picture(data, box)
        assert (drawn.width, drawn.height) == (width, height)
        assert drawn.image is not None
        assert drawn.image.size == expected.size
        assert drawn.image.tobytes() == expected.convert("RGB").tobytes()


def test_a_color_profile_is_no_hindrance() -> None:
    """An image in the Lab color space, which Pillow can't convert by itself, does not raise."""
    image = Image.new("LAB", (10, 10), (128, 128, 128))
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    picture = decode_picture(saved(image, "TIFF", icc_profile=profile), 32)
    assert picture.image is not None or picture.problem is not None


def test_real_awkward_images(shared_data: Path) -> None:
    """Of many difficult files, exactly those are drawn that the audit has no problem with."""
    seen = set()
    with quiet_pillow():
        for path in sorted((shared_data / "images_awkward").iterdir()):
            if path.suffix != ".txt":
                data = path.read_bytes()
                sound = audit_image(data).problem is None
                assert (decode_picture(data, 64).problem is None) is sound, path.name
                seen.add(sound)
    assert seen == {True, False}


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "int16", "uint16", "int32", "int64", "float16", "float32", "float64"]
)
@pytest.mark.parametrize("shape", [[], [6], [2, 3], [1, 2, 3]])
def test_what_tensorflow_writes_is_read(tf: Any, dtype: str, shape: list[int]) -> None:
    """Shape and values come back as they went in."""
    size = 6 if shape else 1
    values = tf.reshape(tf.cast(tf.range(1, size + 1), dtype), shape)
    tensor = read_tensor(tf.io.serialize_tensor(values).numpy())
    assert tensor is not None
    assert list(tensor[0]) == shape
    assert list(tensor[1]) == list(range(1, size + 1))


def test_a_shape_must_be_filled(tf: Any) -> None:
    """A message whose content is too short for its shape is not taken."""
    data = tf.io.serialize_tensor(tf.zeros([4, 4], tf.uint8)).numpy()
    assert read_tensor(data) is not None
    assert read_tensor(data.replace(b"\x22\x10" + bytes(16), b"\x22\x0f" + bytes(15))) is None


def test_many_small_fields_cost_no_memory() -> None:
    """A message of a million fields is not a tensor, and isn't taken apart to find out."""
    data = b"\x08\x04" * 1_000_000
    tracemalloc.start()
    try:
        assert read_tensor(data) is None
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
