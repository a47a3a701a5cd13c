"""Auditing images: what is refused, what is kept, what is converted."""

from __future__ import annotations

import base64
import io
import random
import struct
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from tests.images.awkward import AWKWARD, KEPT
from tests.photos import image_bytes
from tfrtool.images.audit import audit_image, render_image
from tfrtool.images.decoder import open_image, orientation_of, quiet_pillow
from tfrtool.images.header import is_jpeg
from tfrtool.images.recipe import Check, Encode, ImageRecipe, Resize

HEADER = ImageRecipe(check=Check.HEADER)
TFDS = ImageRecipe(check=Check.TFDS)

ARITHMETIC = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABALDA4MChAODQ4SERATGCgaGBYWGDEjJR0oOjM9PDkzODdASFxOQERX"
    "RTc4UG1RV19iZ2hnPk1xeXBkeFxlZ2P/2wBDARESEhgVGC8aGi9jQjhCY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2Nj"
    "Y2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2P/yQARCAAQABADAREAAhEBAxEB/8wACgAQEAUBEBEF/9oADAMBAAIR"
    "AxEAPwD/AAleWCCPKnhGq+tuyP/Z"
)
"""What `cjpeg -arithmetic` makes of 16 x 16 grey pixels."""


def saved(image: Image.Image, format_: str = "JPEG", **options: object) -> bytes:
    """Return an image as Pillow encodes it."""
    output = io.BytesIO()
    image.save(output, format_, **options)
    return output.getvalue()


def gradient(mode: str = "RGB", size: tuple[int, int] = (48, 40)) -> Image.Image:
    """Return colors that run from edge to edge."""
    across = Image.linear_gradient("L").resize(size)
    down = Image.linear_gradient("L").rotate(90).resize(size)
    return Image.merge("RGB", (across, down, across.rotate(180))).convert(mode)


def without_adobe(data: bytes) -> bytes:
    """Return a JPEG without its Adobe marker."""
    place = data.index(b"\xff\xee")
    length = int.from_bytes(data[place + 2 : place + 4], "big")
    return data[:place] + data[place + 2 + length :]


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return an image that was cut, overwritten, shortened or lengthened somewhere."""
    hurt = bytearray(data)
    end = len(data) if chance.random() < 0.5 else min(len(data), 700)
    place = chance.randrange(3, end)
    kind = chance.randrange(7)
    if kind == 0:
        return data[: chance.choice([place, len(data) - chance.randrange(8)])]
    if kind == 1:
        hurt[place] ^= 1 << chance.randrange(8)
    elif kind == 2:
        hurt[place : place + chance.randrange(40)] = b""
    elif kind == 3:
        hurt[place:place] = chance.randbytes(chance.randrange(1, 40))
    elif kind == 4:
        hurt[place : place + 2] = bytes([0xFF, chance.randrange(0xC0, 0x100)])
    elif kind == 5:
        hurt[place : place + 200] = bytes(len(hurt[place : place + 200]))
    else:
        for _ in range(10):
            hurt[chance.randrange(3, end)] = chance.randrange(256)
    return bytes(hurt)


def loads(data: bytes) -> bool:
    """Whether Pillow decodes an image in full, and in its full size."""
    try:
        with open_image(data) as image:
            image.load()
    except Exception:  # noqa: BLE001 - decoders raise anything on hostile bytes
        return False
    return True


def pixels_read(tf: Any, data: bytes) -> Any:
    """Return what TensorFlow reads: int64 [height, width, 3]; None where it reads no such thing."""
    try:
        pixels = tf.io.decode_jpeg(data, channels=3).numpy().astype("int64")
    except tf.errors.InvalidArgumentError:
        return None
    return pixels if pixels.ndim == 3 else None


def pixels_meant(data: bytes) -> Image.Image:
    """Return what Pillow sees: upright, on white, in RGB."""
    with Image.open(io.BytesIO(data)) as stored:
        image = ImageOps.exif_transpose(stored)
    if image.mode.startswith("I"):
        grey = bytes(value >> 8 for value in array("i", image.convert("I").tobytes()))
        return Image.frombytes("L", image.size, grey).convert("RGB")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image.convert("RGB")


def mean_difference(tf: Any, found: bytes, meant: bytes) -> float:
    """Return how far TensorFlow's pixels are from those that were meant, of 255 on average.

    TensorFlow's inverse cosine transform is a fast one, off by one or two.
    """
    image, pixels = pixels_meant(meant), pixels_read(tf, found)
    assert pixels.shape == (image.height, image.width, 3)
    wanted = tf.io.decode_raw(image.tobytes(), tf.uint8).numpy().astype("int64")
    return float(abs(pixels.ravel() - wanted).mean())


JPEGS = {
    "color": saved(gradient()),
    "grey": saved(gradient("L")),
    "progressive": saved(gradient(), progressive=True),
    "restarts": saved(gradient(), restart_marker_rows=1),
    "quality 1": saved(gradient(), quality=1),
    "4:4:4": saved(gradient(), subsampling="4:4:4"),
    "4:2:2": saved(gradient(), subsampling="4:2:2"),
    "RGB": saved(gradient(), keep_rgb=True),
    "RGB by its component names": without_adobe(saved(gradient(), keep_rgb=True)),
    "CMYK": saved(gradient("CMYK")),
    "arithmetic": ARITHMETIC,
    "junk at the end": saved(gradient()) + b"\0" * 300,
    "two images": saved(gradient()) + saved(gradient("L")),
    "MPO": saved(gradient(), "MPO", save_all=True, append_images=[gradient("L")]),
    "profile": saved(gradient(), icc_profile=b"no profile at all"),
    "upright": image_bytes(orientation=1),
    "1 x 1": saved(gradient(size=(1, 1))),
}


@pytest.mark.parametrize("name", JPEGS)
@pytest.mark.parametrize("recipe", [ImageRecipe(), HEADER], ids=["decode", "header"])
def test_good_jpeg_is_kept(name: str, recipe: ImageRecipe, tf: Any) -> None:
    """A JPEG is kept where TensorFlow reads the pixels that Pillow reads."""
    verdict = audit_image(JPEGS[name], recipe)
    assert (verdict.problem, verdict.conversion) == (None, None)
    assert mean_difference(tf, JPEGS[name], JPEGS[name]) < 3


def test_inks_without_an_adobe_marker_are_converted(tf: Any) -> None:
    """TensorFlow reads such inks the other way round than Pillow, so that they become RGB."""
    data = without_adobe(saved(gradient("CMYK")))
    for recipe in (ImageRecipe(), HEADER):
        assert audit_image(data, recipe).conversion == "CMYK without an Adobe marker"
    assert mean_difference(tf, data, data) > 50
    assert mean_difference(tf, render_image(data).data, data) < 3


def test_missing_end_is_converted(tf: Any) -> None:
    """Pillow reads all rows of a JPEG without its end, TensorFlow refuses it."""
    data = saved(gradient(size=(64, 64)))[:-2] + bytes(300)
    assert loads(data)
    assert pixels_read(tf, data) is None
    assert audit_image(data).conversion == "no end-of-image marker"
    assert pixels_read(tf, render_image(data).data) is not None


@pytest.mark.parametrize("format_", ["PNG", "GIF", "BMP", "WEBP", "TIFF"])
@pytest.mark.parametrize("recipe", [ImageRecipe(), HEADER], ids=["decode", "header"])
def test_other_formats_are_converted(format_: str, recipe: ImageRecipe) -> None:
    """What is no JPEG is usable, and its true format is the reason to convert it."""
    data = image_bytes(format_)
    verdict = audit_image(data, recipe)
    assert verdict.problem is None
    assert verdict.conversion == f"not a JPEG but {format_}"
    cut = audit_image(data[: len(data) * 2 // 3], recipe)
    assert cut.problem is not None


@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize("check", list(Check))
def test_turned_jpeg_is_converted_if_asked_for(orientation: int, check: Check) -> None:
    """An EXIF orientation is a reason, unless it is to be left alone."""
    data = image_bytes(orientation=orientation)
    data = data[:2] + b"\xff\xfe\0\6JFIF" + data[2:]  # for TFDS' rule
    verdict = audit_image(data, ImageRecipe(check=check))
    assert verdict.conversion == f"EXIF orientation {orientation}"
    left = audit_image(data, ImageRecipe(check=check, orient=False))
    assert (left.problem, left.conversion) == (None, None)


def test_cut_jpeg_is_a_problem() -> None:
    """A JPEG that ends early is refused, in its header or behind it."""
    data = saved(gradient(size=(96, 96)))
    for size in (*range(2, 600, 7), *(int(len(data) * share) for share in (0.7, 0.95))):
        assert audit_image(data[:size]).problem is not None, size
    early = audit_image(data[:300], HEADER).problem
    assert early == "truncated before the image data"


def test_stray_bytes_between_segments() -> None:
    """Stray bytes are passed over as decoders do, and so is what follows the image."""
    data = saved(gradient(), comment=b"\xff\xd8\xff\xd9")
    place = data.index(b"\xff\xdb")
    for junk in (b"\0\0\0", b"\xff\xff\xff", b"\xff\0", b"abc\xff\xd0"):
        verdict = audit_image(data[:place] + junk + data[place:] + b"junk\xff\xd9")
        assert (verdict.problem, verdict.conversion) == (None, None), junk


def test_two_frame_headers_are_a_problem() -> None:
    """Decoders refuse a JPEG with two frame headers."""
    data = saved(gradient())
    frame = data.index(b"\xff\xc0")
    assert audit_image(data[:frame] + data[frame : frame + 19] + data[frame:]).problem is not None


def test_header_check_does_not_decode() -> None:
    """--check header sees no damage behind the header, unless the image is re-encoded."""
    data = saved(gradient(size=(256, 256)))
    for hurt in (data[:-300], data[:-300] + b"\xff\xd9", data[:-300] + b"\xff\xc4\0\1\xff\xd9"):
        assert audit_image(hurt).problem is not None
        verdict = audit_image(hurt, HEADER)
        assert (verdict.problem, verdict.conversion) == (None, None)
        again = ImageRecipe(check=Check.HEADER, resize=Resize(shorter=8))
        assert audit_image(hurt, again).problem is not None
    turned = image_bytes(orientation=6, size=(256, 256))[:-100]
    assert audit_image(turned, HEADER).problem is not None
    assert audit_image(turned, ImageRecipe(check=Check.HEADER, orient=False)).problem is None


def test_tfds_rule() -> None:
    """The rule of cats_vs_dogs asks for JFIF among the first 512 bytes, whatever follows."""
    data = saved(gradient())
    assert audit_image(data, TFDS).problem is None
    unmarked = data.replace(b"JFIF", b"XXXX", 1)
    assert audit_image(unmarked).problem is None
    assert "no JFIF" in str(audit_image(unmarked, TFDS).problem)
    for place in (508, 509):
        room = place - 8
        moved = data[:2] + b"\xff\xfe" + struct.pack(">H", room) + bytes(room - 2) + data[2:]
        assert moved.index(b"JFIF") == place
        assert (audit_image(moved, TFDS).problem is None) == (place == 508)
    assert audit_image(b"JFIF, but text", TFDS).problem == "not an image in a known format"


def test_no_image_is_a_problem() -> None:
    """Nothing, and bytes that are no image, are refused with different reasons."""
    for check in Check:
        assert audit_image(b"", ImageRecipe(check=check)).problem == "empty file"
    for check in (Check.DECODE, Check.HEADER):
        verdict = audit_image(b"hello, I am text", ImageRecipe(check=check))
        assert verdict.problem == "not an image in a known format"


def test_what_could_not_be_encoded_is_a_problem() -> None:
    """An image that would get too large by scaling, or too long for a JPEG, is refused."""
    thin = saved(Image.new("L", (70_000, 1)), "PNG")
    assert "65,500 per side" in str(audit_image(thin).problem)
    assert audit_image(thin, ImageRecipe(encode=Encode.PNG)).problem is None
    scaled = ImageRecipe(encode=Encode.PNG, resize=Resize(shorter=224))
    assert "15680000 x 224" in str(audit_image(thin, scaled).problem)
    fits = ImageRecipe(resize=Resize(width=8, height=8))
    assert audit_image(thin, fits).problem is None
    assert render_image(thin, fits).width == 8


def test_floating_point_pixels_are_a_problem() -> None:
    """A picture of measurements has no white, and so no 8 bits to become."""
    assert "floating" in str(audit_image(saved(Image.new("F", (4, 4)), "TIFF")).problem)


@pytest.mark.parametrize("name", ["color", "grey", "progressive", "restarts", "CMYK", "4:2:2"])
def test_small_decoding_fails_where_full_decoding_does(name: str, tf: Any) -> None:
    """Of damaged JPEGs those are refused that Pillow does not load, and that are cut or too long.

    And what is kept as it is, TensorFlow does not refuse.
    """
    chance = random.Random(name)
    kept = refused = 0
    with quiet_pillow():
        for _ in range(150):
            hurt = damaged(JPEGS[name], chance)
            verdict = audit_image(hurt)
            if is_jpeg(hurt):
                problem = str(verdict.problem)
                short_or_long = "data ends" in problem or "extra data" in problem
                assert short_or_long or (verdict.problem is None) == loads(hurt), (verdict, hurt)
            refused += verdict.problem is not None
            if verdict.problem is None and verdict.conversion is None:
                kept += 1
                assert pixels_read(tf, hurt) is not None, hurt
    assert kept > 20
    assert refused > 20


def test_colors_are_decoded_too() -> None:
    """What only the colors of a JPEG have wrong is found: here 2 of 3 samples, which can't be."""
    data = saved(gradient(), subsampling="4:4:4")
    frame = data.index(b"\xff\xc0")
    hurt = data[: frame + 11] + b"\x31\x00\x02\x21\x01\x03\x11" + data[frame + 18 :]
    assert not loads(hurt)
    assert audit_image(hurt).problem is not None


@given(st.sampled_from(list(JPEGS)), st.integers(0, 2**32), st.sampled_from(list(Check)))
def test_verdict_of_damaged_jpegs(name: str, seed: int, check: Check) -> None:
    """No damage raises; what has no problem can be re-encoded."""
    hurt = damaged(JPEGS[name], random.Random(seed))
    with quiet_pillow():
        verdict = audit_image(hurt, ImageRecipe(check=check))
        if verdict.problem is None and verdict.conversion is not None:
            assert loads(render_image(hurt).data)
        again = ImageRecipe(check=check, resize=Resize(shorter=5), encode=Encode.PNG)
        if audit_image(hurt, again).problem is None:
            assert loads(render_image(hurt, again).data)


_OTHERS = [
    *(image_bytes(format_) for format_ in ("TIFF", "BMP", "WEBP", "AVIF", "PPM", "GIF")),
    *(image_bytes("PNG", mode=mode) for mode in ("P", "RGBA", "I;16")),
]


@given(st.sampled_from(_OTHERS), st.integers(0, 2**32))
def test_verdict_of_other_damaged_formats(data: bytes, seed: int) -> None:
    """No damage raises; what has no problem becomes a JPEG."""
    hurt = damaged(data, random.Random(seed))
    with quiet_pillow():
        if audit_image(hurt).problem is None:
            assert is_jpeg(render_image(hurt).data)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_hostile_bytes_never_raise(noise: bytes, place: int) -> None:
    """Whatever the bytes, the answer is a verdict."""
    data = bytearray(image_bytes())
    data[place : place + len(noise)] = noise
    with quiet_pillow():
        for check in Check:
            audit_image(bytes(data), ImageRecipe(check=check))
            audit_image(noise, ImageRecipe(check=check))


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_images(name: str, shared_data: Path, tf: Any) -> None:
    """Each difficult file is kept, converted or refused as the table says.

    The check of headers keeps those that are cut behind theirs. What is written in the end,
    TensorFlow reads with the pixels that Pillow sees, upright.
    """
    expected, loaded, read = AWKWARD[name]
    data = (shared_data / "images_awkward" / name).read_bytes()
    with quiet_pillow():
        verdict = audit_image(data)
        assert (verdict.problem or verdict.conversion or KEPT) == expected
        assert (pixels_read(tf, data) is not None) == read
        loose = audit_image(data, HEADER)
        if name in ("pillow__truncated_jpeg.jpg", "pillow__ultrahdr.jpg"):
            assert (loose.problem, loose.conversion) == (None, None)
        else:
            assert loose == verdict
        if verdict.problem is not None:
            return
        assert loaded
        written = data if verdict.conversion is None else render_image(data).data
        # Conversion loses colors at sharp edges, which dithered palettes are full of.
        assert mean_difference(tf, written, data) < (3 if written is data else 12)
        raw = render_image(data, ImageRecipe(encode=Encode.RAW))
        assert raw.data == pixels_meant(data).tobytes()
        with open_image(written) as image:
            assert orientation_of(image) == 1


def test_the_table_has_all_awkward_images(shared_data: Path) -> None:
    """No difficult file is left out."""
    files = {path.name for path in (shared_data / "images_awkward").iterdir()}
    assert files - {"SOURCE.txt"} == set(AWKWARD)
