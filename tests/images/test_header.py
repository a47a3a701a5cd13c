"""Reading the header of a JPEG without Pillow."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.photos import image_bytes
from tfrtool.images.decoder import open_image, orientation_of, quiet_pillow
from tfrtool.images.header import (
    JpegHeader,
    is_jpeg,
    read_jpeg_header,
    read_jpeg_scans,
)


def saved(mode: str = "RGB", size: tuple[int, int] = (40, 24), **options: Any) -> bytes:
    """Return a JPEG that Pillow saved with these options."""
    output = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert(mode).save(output, "JPEG", **options)
    return output.getvalue()


def patched(data: bytes, offset: int, values: bytes) -> bytes:
    """Return a JPEG with other bytes at an offset from its frame header."""
    frame = data.index(b"\xff\xc0") + offset
    return data[:frame] + values + data[frame + len(values) :]


def fields(header: JpegHeader) -> tuple[int, int, int, bool, bool, str | None]:
    """Return all but the place of the scan."""
    return (*header[:4], header.turned, header.problem)


@pytest.mark.parametrize(
    ("mode", "options", "components", "plain"),
    [
        ("RGB", {}, 3, True),
        ("L", {}, 1, True),
        ("CMYK", {}, 4, False),
        ("RGB", {"progressive": True}, 3, True),
        ("RGB", {"subsampling": 0, "restart_marker_rows": 1}, 3, True),
        ("RGB", {"keep_rgb": True}, 3, True),
        ("RGB", {"icc_profile": b"x" * 200_000, "comment": b"\xff\xda\xff\xd9"}, 3, True),
    ],
)
def test_facts_of_a_jpeg(mode: str, options: dict[str, Any], components: int, plain: bool) -> None:
    """Size, components and kind are read; the scan starts behind the last header."""
    data = saved(mode, **options)
    header = read_jpeg_header(data)
    assert fields(header) == (40, 24, components, plain, False, None)
    with Image.open(io.BytesIO(data)) as image:
        assert image.size == (header.width, header.height)
    assert data[: header.scan].endswith(b"\x3f\x00") or options.get("progressive")
    assert read_jpeg_scans(data, header)[1:] == (len(data) - 2, None)


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
    """What libjpeg can't decode is told by its header, with what is wrong."""
    offset, values, words = BROKEN[name]
    data = patched(saved(), offset, values)
    assert words in str(read_jpeg_header(data).problem)
    with pytest.raises((OSError, Image.DecompressionBombError)):
        Image.open(io.BytesIO(data)).load()


@pytest.mark.parametrize("length", range(2, 600, 7))
def test_cut_before_the_scan(length: int) -> None:
    """A JPEG without its scan header is broken, wherever it was cut."""
    data = saved()
    header = read_jpeg_header(data[:length])
    assert length < data.index(b"\xff\xda") + 4
    assert header.problem == "truncated before the image data"


@pytest.mark.parametrize("junk", [b"\0\0\0", b"\xff\xff\xff", b"\xff\0", b"abc\xff\xd0"])
def test_stray_bytes_between_segments(junk: bytes) -> None:
    """Stray bytes are passed over as decoders do; all but fill bytes make it less than plain."""
    data = saved()
    place = data.index(b"\xff\xdb")
    header = read_jpeg_header(data[:place] + junk + data[place:])
    assert fields(header) == (40, 24, 3, junk == b"\xff\xff\xff", False, None)
    assert header.scan == read_jpeg_header(data).scan + len(junk)


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


def test_second_frame_header_is_not_plain() -> None:
    """Decoders refuse a JPEG with two frame headers, so that it is not vouched for."""
    data = saved()
    frame = data.index(b"\xff\xc0")
    assert not read_jpeg_header(data[:frame] + data[frame : frame + 19] + data[frame:]).plain


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


def test_end_behind_the_scans() -> None:
    """The end is that of the image, not of a thumbnail before it or of junk behind it."""
    data = saved(progressive=True, comment=b"\xff\xd8\xff\xd9")
    header = read_jpeg_header(data)
    assert read_jpeg_scans(data, header)[1:] == (len(data) - 2, None)
    assert read_jpeg_scans(data + b"junk\xff\xd9", header)[1:] == (len(data) - 2, None)
    assert read_jpeg_scans(data[:-2], header)[1:] == (-1, None)
    assert read_jpeg_scans(data[:-2] + bytes(300), header)[1:] == (-1, None)
    assert read_jpeg_scans(data[:-1], header)[1:] == (-1, None)


def test_end_that_a_stray_segment_swallows() -> None:
    """A marker among the scan's data whose segment reaches beyond the end leaves no end."""
    data = saved()
    header = read_jpeg_header(data)
    hurt = data[: header.scan + 20] + b"\xff\xc4\xff\xff" + data[header.scan + 24 :]
    assert read_jpeg_scans(hurt, header)[1:] == (-1, None)


def test_scans_are_counted() -> None:
    """Thousands of scans of a large image are refused before they are decoded."""
    data = saved("L", (256, 256), progressive=True)
    last = data.rindex(b"\xff\xda")
    many = data[:-2] + data[last:-2] * 600 + data[-2:]
    assert "501 or more" in str(read_jpeg_scans(many, read_jpeg_header(many)).problem)
    frame = many.index(b"\xff\xc2")
    large = many[: frame + 5] + b"\x24\xb8\x24\xb8" + many[frame + 9 :]
    problem = read_jpeg_scans(large, read_jpeg_header(large)).problem
    assert "33 or more of 9400 x 9400" in str(problem)


@pytest.mark.parametrize("segment", [b"\xff\xfe\0\2", b"\xff\x01", b"\xff\xe0\0\0"])
def test_endless_segments_are_refused(segment: bytes) -> None:
    """A million empty segments cost no more than ten thousand."""
    data = saved()
    before = read_jpeg_header(b"\xff\xd8" + segment * 1_000_000 + data[2:])
    assert "10,000 segments" in str(before.problem)
    header = read_jpeg_header(data)
    behind = read_jpeg_scans(data[:-2] + segment * 1_000_000, header)
    assert "10,000 segments" in str(behind.problem)


def test_header_needs_no_pillow() -> None:
    """Reading headers loads neither Pillow nor numpy."""
    program = "import sys, tfrtool.images.header; print('PIL' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"False"
