"""Reading the header of a JPEG without Pillow."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.photos import image_bytes
from tfrtool.images.decoder import open_image, orientation_of, quiet_pillow
from tfrtool.images.header import is_jpeg, read_jpeg_header, read_jpeg_scans


def saved(mode: str = "RGB", size: tuple[int, int] = (40, 24), **options: Any) -> bytes:
    """Return a JPEG that Pillow saved with these options."""
    output = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert(mode).save(output, "JPEG", **options)
    return output.getvalue()


def patched(data: bytes, offset: int, values: bytes) -> bytes:
    """Return a JPEG with other bytes at an offset from its frame header."""
    frame = data.index(b"\xff\xc0") + offset
    return data[:frame] + values + data[frame + len(values) :]


BROKEN = {
    "bits": (4, b"\x0c", "components of 12 bits"),
    "components": (9, b"\x02", "2 components"),
    "no height": (5, b"\x00\x00", "40 x 0 pixels"),
    "no width": (7, b"\x00\x00", "0 x 24 pixels"),
    "long side": (7, b"\xff\xff", "65535 x 24 pixels (limit 65,500 per side)"),
    "bomb": (5, b"\xff\xdc\xff\xdc", "65500 x 65500 pixels (limit 89,478,485"),
    "hierarchical": (1, b"\xc5", "SOF5"),
    "no frame": (1, b"\xfe", "no frame header"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_header_that_no_decoder_reads(name: str) -> None:
    """A header that libjpeg can't decode is a problem that is named."""
    offset, values, words = BROKEN[name]
    data = patched(saved(), offset, values)
    assert words in str(read_jpeg_header(data).problem)
    with pytest.raises((OSError, Image.DecompressionBombError)):
        Image.open(io.BytesIO(data)).load()


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(0, 10))
def test_orientation_is_suspected(order: str, orientation: int) -> None:
    """Only a JPEG whose EXIF says nothing but upright is known to be so, in both byte orders."""
    exif = Image.Exif()
    exif.endian = order
    exif[0x0112] = orientation
    exif[0x010E] = "a photograph"
    assert read_jpeg_header(saved(exif=exif)).turned == (orientation != 1)


@pytest.mark.parametrize("value", range(1, 9))
def test_orientation_in_xmp(value: int) -> None:
    """Pillow also believes XMP, so that it is looked at."""
    turned = value != 1
    data = saved(xmp=f'<x tiff:Orientation="{value}"/>'.encode())
    assert read_jpeg_header(data).turned == turned
    with Image.open(io.BytesIO(data)) as image:
        assert (orientation_of(image) != 1) == turned


def test_exif_in_two_segments() -> None:
    """Pillow joins segments of EXIF, and so finds an orientation that no single one has.

    Here the second one alone looks like EXIF with no entries.
    """
    entries = struct.pack("<4sII", b"II*\0", 8, 0) + struct.pack("<HHII", 0x0112, 3, 1, 6)
    exif = b"II*\0\x08\0\0\0\x02\0" + entries + bytes(4)
    segments = b"".join(
        b"\xff\xe1" + struct.pack(">H", len(part) + 8) + b"Exif\0\0" + part
        for part in (exif[:10], exif[10:])
    )
    data = saved()
    data = data[:2] + segments + data[2:]
    with Image.open(io.BytesIO(data)) as image:
        assert orientation_of(image) == 6
    assert read_jpeg_header(data).turned


@given(st.integers(2, 140), st.binary(min_size=1, max_size=12), st.integers(1, 8))
def test_no_orientation_is_missed(place: int, noise: bytes, orientation: int) -> None:
    """Where Pillow sees an orientation in damaged EXIF, the header is not called upright."""
    data = image_bytes(orientation=orientation)
    data = data[:place] + noise + data[place + len(noise) :]
    if is_jpeg(data):
        with quiet_pillow():
            try:
                with open_image(data) as image:
                    seen = orientation_of(image)
            except Exception:  # noqa: BLE001 - decoders raise anything on hostile bytes
                return
        assert read_jpeg_header(data).turned or seen == 1


@given(st.integers(2, 640), st.binary(min_size=1, max_size=8), st.integers(0, 8))
def test_header_is_never_stricter_than_pillow(place: int, noise: bytes, removed: int) -> None:
    """What the header refuses, Pillow does not decode; no bytes make it raise."""
    data = saved()
    data = data[:place] + noise + data[place + removed :]
    header = read_jpeg_header(data)
    if header.problem is None:
        read_jpeg_scans(data, header)
    elif is_jpeg(data):
        with quiet_pillow(), pytest.raises((OSError, Image.DecompressionBombError)):
            Image.open(io.BytesIO(data), formats=("JPEG",)).load()


@given(st.binary(max_size=300))
def test_noise_never_raises(noise: bytes) -> None:
    """Whatever stands behind the first three bytes, the answer is a header."""
    header = read_jpeg_header(b"\xff\xd8\xff" + noise)
    assert header.problem is not None or header.scan > 0
