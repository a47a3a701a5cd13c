"""Auditing and converting images."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.photos import image_bytes
from tfrtool.images.audit import audit_image, quiet_pillow, to_jpeg


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_good_jpeg_is_kept(mode: str) -> None:
    """An upright JPEG that decodes has no problem and needs no conversion."""
    verdict = audit_image(image_bytes(mode=mode))
    assert (verdict.format, verdict.problem, verdict.conversion) == ("JPEG", None, None)
    assert (verdict.width, verdict.height) == (16, 12)


@pytest.mark.parametrize("format_", ["PNG", "GIF", "BMP", "WEBP", "TIFF"])
def test_other_formats_are_converted(format_: str) -> None:
    """What is no JPEG is usable, and its true format is the reason to convert it."""
    verdict = audit_image(image_bytes(format_))
    assert verdict.problem is None
    assert verdict.conversion == f"not a JPEG but {format_}"


@pytest.mark.parametrize("orientation", range(2, 9))
def test_turned_jpeg_is_converted_upright(orientation: int) -> None:
    """A JPEG with an EXIF orientation is turned as the tag says, and the tag is gone."""
    data = image_bytes(orientation=orientation)
    assert audit_image(data).conversion == f"EXIF orientation {orientation}"
    with Image.open(io.BytesIO(to_jpeg(data))) as image:
        assert image.size == ((12, 16) if orientation >= 5 else (16, 12))
        assert 0x0112 not in image.getexif()


@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
def test_cut_jpeg_is_a_problem(share: float) -> None:
    """A JPEG that ends early is refused, though its header is fine."""
    data = image_bytes(size=(64, 64))
    verdict = audit_image(data[: int(len(data) * share)])
    assert verdict.problem is not None


def test_no_image_is_a_problem() -> None:
    """Nothing, and bytes that are no image, are refused with different reasons."""
    assert audit_image(b"").problem == "the file is empty"
    assert audit_image(b"hello, I am text").problem == "not an image in a known format"


def test_bomb_is_refused_before_it_is_decoded() -> None:
    """A PNG of a few bytes that claims 65535 x 65535 pixels is refused by its header."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    header = struct.pack(">IIBBBBB", 65535, 65535, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    assert "pixels" in str(audit_image(data).problem)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_hostile_bytes_never_raise(noise: bytes, place: int) -> None:
    """Whatever the bytes, the answer is a verdict."""
    data = bytearray(image_bytes())
    data[place : place + len(noise)] = noise
    with quiet_pillow():
        audit_image(bytes(data))
        audit_image(noise)


@pytest.mark.parametrize(
    ("mode", "format_"),
    [("RGBA", "PNG"), ("P", "PNG"), ("1", "PNG"), ("I;16", "PNG"), ("L", "PNG"), ("LA", "PNG")],
)
def test_conversion_gives_what_tensorflow_reads(mode: str, format_: str, tf: Any) -> None:
    """A converted image of any mode is a JPEG that decodes to [height, width, 3]."""
    data = to_jpeg(image_bytes(format_, mode=mode))
    assert data.startswith(b"\xff\xd8\xff")
    assert tf.io.decode_jpeg(data, channels=3).shape == (12, 16, 3)


def test_transparent_becomes_white() -> None:
    """Where an image lets its background through, the JPEG is white."""
    output = io.BytesIO()
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(output, "PNG")
    with Image.open(io.BytesIO(to_jpeg(output.getvalue()))) as image:
        assert image.getpixel((4, 4)) == (255, 255, 255)


def test_sixteen_bits_keep_their_brightness() -> None:
    """A 16-bit grey of half the range becomes an 8-bit grey of half the range."""
    output = io.BytesIO()
    Image.new("I;16", (8, 8), 0x8000).save(output, "PNG")
    with Image.open(io.BytesIO(to_jpeg(output.getvalue()))) as image:
        assert image.getpixel((4, 4)) == 128


def test_real_awkward_images(shared_data: Path, tf: Any) -> None:
    """Of many difficult files, what is not refused is, or becomes, what TensorFlow reads."""
    refused = set()
    with quiet_pillow():
        for path in sorted((shared_data / "images_awkward").iterdir()):
            if path.suffix == ".txt":
                continue
            data = path.read_bytes()
            verdict = audit_image(data)
            if verdict.problem is not None:
                refused.add(path.name)
                continue
            kept = data if verdict.conversion is None else to_jpeg(data)
            assert tf.io.decode_jpeg(kept, channels=3).shape[2] == 3, path.name
    assert {"pillow__truncated_jpeg.jpg", "pillow__bmp_b_reallybig.bmp"} <= refused
    assert "renamed__png_named.jpg" not in refused
