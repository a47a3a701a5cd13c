"""Re-encoding images."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageChops, ImageStat

from tests.photos import image_bytes
from tfrtool.errors import SourceError
from tfrtool.images.audit import RenderedImage, audit_image, render_image
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import Encode, ImageRecipe, Resize

RAW = ImageRecipe(encode=Encode.RAW)


def saved(image: Image.Image, format_: str = "PNG", **options: object) -> bytes:
    """Return an image as Pillow encodes it."""
    output = io.BytesIO()
    image.save(output, format_, **options)
    return output.getvalue()


def scene(width: int = 60, height: int = 40) -> Image.Image:
    """Return a red upper left, a green upper right, a blue lower left and a white rest."""
    image = Image.new("RGB", (width, height), "white")
    half, middle = width // 2, height // 2
    image.paste("red", (0, 0, half, middle))
    image.paste("lime", (half, 0, width, middle))
    image.paste("blue", (0, middle, half, height))
    return image


def turned(orientation: int, format_: str = "JPEG") -> bytes:
    """Return the scene as a camera stores it in this orientation."""
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = scene().transpose(undo[orientation]) if orientation in undo else scene()
    return saved(image, format_, exif=exif)


def opened(rendered: RenderedImage, recipe: ImageRecipe) -> Image.Image:
    """Return what was rendered, decoded."""
    size = (rendered.width, rendered.height)
    if recipe.encode is Encode.RAW:
        return Image.frombytes("RGB", size, rendered.data)
    image = Image.open(io.BytesIO(rendered.data))
    image.load()
    assert image.size == size
    assert len(image.getbands()) == rendered.channels
    return image


def difference(one: Image.Image, other: Image.Image) -> float:
    """Return how far apart two images are, of 255 on average."""
    means = ImageStat.Stat(ImageChops.difference(one.convert("RGB"), other.convert("RGB"))).mean
    return max(means)


@pytest.mark.parametrize("encode", list(Encode))
@pytest.mark.parametrize("resize", [None, Resize(shorter=20), Resize(width=30, height=50)])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_form_is_upright(encode: Encode, resize: Resize | None, orientation: int) -> None:
    """In every orientation, scaled or not, the colors are where they belong."""
    recipe = ImageRecipe(encode=encode, resize=resize)
    rendered = render_image(turned(orientation), recipe)
    expected = (60, 40) if resize is None else resize.fit(60, 40)
    assert (rendered.width, rendered.height) == expected
    image = opened(rendered, recipe)
    assert 0x0112 not in image.getexif()
    assert difference(image, scene().resize(expected)) < 12


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("encode", [Encode.JPEG, Encode.PNG])
def test_orientation_that_is_left(format_: str, encode: Encode) -> None:
    """Without turning, pixels stay as they are stored, and the new file keeps the orientation."""
    recipe = ImageRecipe(encode=encode, orient=False, resize=Resize(shorter=20))
    data = turned(6, format_)
    image = opened(render_image(data, recipe), recipe)
    assert image.size == (20, 30)
    assert image.getexif()[0x0112] == 6
    assert render_image(image_bytes(format_), recipe).data.find(b"Exif") < 0


def test_turned_tiff_is_turned_once() -> None:
    """Pillow turns a TIFF while it loads it, and nobody does so again."""
    data = saved(scene().transpose(Image.Transpose.ROTATE_90), "TIFF", tiffinfo={274: 6})
    assert opened(render_image(data, RAW), RAW).tobytes() == scene().tobytes()
    scaled = ImageRecipe(encode=Encode.RAW, resize=Resize(width=30, height=20))
    assert difference(opened(render_image(data, scaled), scaled), scene(30, 20)) < 12


def _can_load(data: bytes) -> bool:
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("mode", "format_", "channels"),
    [
        ("RGBA", "PNG", 3),
        ("P", "PNG", 3),
        ("1", "PNG", 1),
        ("I;16", "PNG", 1),
        ("L", "PNG", 1),
        ("LA", "PNG", 3),
        ("CMYK", "JPEG", 3),
        ("CMYK", "TIFF", 3),
        ("LAB", "TIFF", 3),
        ("YCbCr", "TIFF", 3),
        ("I", "TIFF", 1),
        ("I;16B", "TIFF", 1),
        ("P", "GIF", 3),
        ("RGBA", "WEBP", 3),
        ("RGB", "AVIF", 3),
    ],
)
@pytest.mark.parametrize("encode", list(Encode))
def test_any_mode_becomes_what_tensorflow_reads(
    mode: str, format_: str, channels: int, encode: Encode, tf: Any
) -> None:
    """An image of any mode becomes grey or RGB of 8 bits, or pixels of three channels."""
    data = saved(Image.new(mode, (16, 12)), format_)
    recipe = ImageRecipe(encode=encode)
    if mode == "YCbCr" and not _can_load(data):
        pytest.skip("Pillow before 13 can't read back this TIFF that it writes")
    assert audit_image(data, recipe).problem is None
    rendered = render_image(data, recipe)
    if encode is Encode.RAW:
        assert (rendered.channels, len(rendered.data)) == (3, 16 * 12 * 3)
        return
    assert rendered.channels == channels
    pixels = tf.io.decode_image(rendered.data, expand_animations=False)
    assert (pixels.shape, pixels.dtype) == ((12, 16, channels), tf.uint8)
    start = b"\x89PNG" if encode is Encode.PNG else b"\xff\xd8\xff"
    assert rendered.data.startswith(start)
    assert tf.io.decode_jpeg(rendered.data, channels=3).shape == (12, 16, 3)


def test_made_jpeg_is_baseline() -> None:
    """A progressive source becomes a baseline JPEG, and quality changes its size."""
    data = saved(scene(), "JPEG", progressive=True)
    high, low = render_image(data), render_image(data, ImageRecipe(quality=30))
    assert b"\xff\xc0" in high.data
    assert b"\xff\xc2" not in high.data
    assert len(low.data) < len(high.data)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_becomes_white(mode: str) -> None:
    """Where an image lets its background through, there is white."""
    clear = Image.new("RGBA", (8, 8), (0, 0, 0, 0)).convert(mode)
    data = saved(clear, transparency=0) if mode == "P" else saved(clear)
    assert set(render_image(data, RAW).data) == {255}


@pytest.mark.parametrize(("mode", "color"), [("RGB", (10, 20, 30)), ("L", 30)], ids=["RGB", "grey"])
def test_color_that_stands_for_transparent_becomes_white(mode: str, color: Any) -> None:
    """A PNG without alpha may name a color that is transparent; other colors stay."""
    image = Image.new(mode, (8, 8), color)
    image.paste(0, (0, 0, 4, 8))
    rendered = render_image(saved(image, transparency=color), RAW)
    assert rendered.data[:12] == bytes(12)
    assert rendered.data[12:24] == b"\xff" * 12


def test_sixteen_bits_keep_their_brightness() -> None:
    """A 16-bit grey of half the range becomes an 8-bit grey of half the range."""
    assert set(render_image(saved(Image.new("I;16", (8, 8), 0x8000)), RAW).data) == {128}


def test_nothing_but_pixels_is_carried_over() -> None:
    """Comments, profiles, positions and transparency of the source are not in what is made."""
    exif = Image.Exif()
    exif[0x010E] = "by me"
    data = saved(
        scene(),
        "JPEG",
        comment=b"by me",
        icc_profile=b"by me",
        xmp=b"by me",
        dpi=(99, 99),
        exif=exif,
    )
    for encode in (Encode.JPEG, Encode.PNG):
        recipe = ImageRecipe(encode=encode)
        rendered = render_image(data, recipe)
        assert b"by me" not in rendered.data
        assert "dpi" not in opened(rendered, recipe).info
        assert rendered == render_image(saved(scene(), "JPEG"), recipe)


def test_png_and_raw_lose_nothing() -> None:
    """What was stored without loss comes back as it was."""
    for recipe in (RAW, ImageRecipe(encode=Encode.PNG)):
        image = opened(render_image(saved(scene()), recipe), recipe)
        assert image.tobytes() == scene().tobytes()


sides = st.integers(1, 90)


@given(
    st.tuples(sides, sides),
    st.one_of(
        st.builds(Resize, shorter=st.integers(1, 60)),
        st.builds(Resize, width=st.integers(1, 60), height=st.integers(1, 60)),
    ),
    st.sampled_from(list(Encode)),
    st.integers(1, 8),
    st.sampled_from(["JPEG", "PNG"]),
)
def test_scaled_sizes(
    size: tuple[int, int], resize: Resize, encode: Encode, orientation: int, format_: str
) -> None:
    """Any image gets the size that was asked for, upright, and twice the same bytes."""
    recipe = ImageRecipe(resize=resize, encode=encode)
    data = image_bytes(format_, size=size, orientation=orientation)
    rendered = render_image(data, recipe)
    upright = size[::-1] if orientation >= 5 else size
    assert (rendered.width, rendered.height) == resize.fit(*upright)
    opened(rendered, recipe)
    assert render_image(data, recipe) == rendered


@pytest.mark.parametrize("shorter", [20, 224])
def test_shrunken_jpegs_are_right(shorter: int, shared_data: Path) -> None:
    """Decoding at a part of the size gives nearly what scaling all pixels gives."""
    folder = shared_data / "catsdogs_iitis"
    photographs = sorted(folder.rglob("*.jpg"), key=lambda path: path.stat().st_size)[-4:]
    recipe = ImageRecipe(encode=Encode.RAW, resize=Resize(shorter=shorter))
    for path in photographs:
        rendered = render_image(path.read_bytes(), recipe)
        with Image.open(path) as image:
            exact = image.convert("RGB").resize(
                (rendered.width, rendered.height), Image.Resampling.LANCZOS
            )
        assert difference(opened(rendered, recipe), exact) < 1.5


def test_what_does_not_decode_is_one_error() -> None:
    """A file that changed since it was audited is an error with the decoder's reason."""
    data = saved(scene(200, 200), "JPEG")
    for hurt in (data[:-200], b"no image", b"", data[:30]):
        with pytest.raises(SourceError, match="re-encoded"):
            render_image(hurt)


_SECOND_SCAN = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/4QAiRXhpZgAATU0AKgAAAAhhByJxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcY"
    "GRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWVwABARIAAwAAAAEABgAAAAAAAP/bAEMACAYGBwYFCAcHBwkJCAoM"
    "FA0MCwsMGRITDxQdGh8eHRocHCAkLicgIiwjHBwoNyksMDE0NDQfAAwAEAEnOT04MjwuMzQy/8AACwgADAAQAQER"
    "AP/EAB8AAAEFAQEBAQEBAAAAAAAAAAABAgMEBQYHCAkKC//EALUQAAIBAwMCBAMFBQQEAAABfQECAwAEEQUSITFB"
    "BhNRYQcicRQygZGhCCNCscEVUtHwJDNicoIJChYXGBkaJSYnKCkqNDU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVm"
    "Z2hpanN0dXZ3eHl6g4SFhomIipSHlZOSlpeYmZqio6Slpqeoqaqys7S1tre4ubrCw8TFxsfIycrS09TV1sPExcbH"
    "yMnK0tPU1dbX2Nna4eLj5OXm5+jp6vHy8/T19vf4+fr/2gAIAQEAAD8A8X0P/W/jXYa3/wAi19jZ2uHi4+Tl5ufo"
    "6erx8vP09fb3+Pn6/9oACAEBAAA/APF9D/1v412Gt/8AIl330j/9GLXH6H/rfxrsNb/5Er7/ke8A6MWv/9k="
)
"""A grey JPEG that has all its pixels in the first of two scans, and damage behind the second."""


def test_damage_behind_the_last_pixel_is_found_before_it_is_encoded() -> None:
    """What can't be encoded is a bad image for the audit, wherever its decoder has all pixels."""
    with quiet_pillow():
        verdict = audit_image(_SECOND_SCAN)
    assert verdict.problem == "can't be decoded: the image data is damaged"
