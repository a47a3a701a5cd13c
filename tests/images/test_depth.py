"""Images with more than 8 bits per channel: kept as PNG, otherwise reported."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.photos import image_bytes
from tfrtool.images.audit import Depth, audit_image, render_image
from tfrtool.images.recipe import Encode, ImageRecipe, Resize

PNG = ImageRecipe(encode=Encode.PNG)
ROWS = np.arange(6 * 8, dtype=np.uint16).reshape(6, 8)


def grey(values: Any, format_: str = "PNG") -> bytes:
    """Return a grey image of 16 bits."""
    output = io.BytesIO()
    Image.fromarray(values).save(output, format_)
    return output.getvalue()


def rgb(values: Any) -> bytes:
    """Return a PNG of 16-bit colors, which Pillow can't write, with a comment."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    height, width, _ = values.shape
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    parts = ((b"IHDR", header), (b"tEXt", b"a\0b"), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def tiff_of_12_bits(values: Any) -> bytes:
    """Return a TIFF that declares 12 bits per sample, two samples in three bytes."""
    packed = bytearray()
    for left, right in values.reshape(-1, 2).tolist():
        packed += bytes((left >> 4, (left & 15) << 4 | right >> 8, right & 255))
    height, width = values.shape
    tags = ((256, width), (257, height), (258, 12), (259, 1), (262, 1), (273, 8), (277, 1),
            (278, height), (279, len(packed)))  # fmt: skip
    directory = struct.pack("<H", len(tags))
    directory += b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<I", 8 + len(packed)) + bytes(packed) + directory + bytes(4)


@pytest.mark.parametrize("format_", ["PNG", "TIFF", "PPM"])
def test_a_png_keeps_16_bits_of_grey(format_: str) -> None:
    """Every value of a grey image is in the PNG that is written."""
    values = ROWS * 1365
    data = grey(values, format_)
    assert audit_image(data, PNG).depth is Depth.KEPT
    with Image.open(io.BytesIO(render_image(data, PNG).data)) as found:
        assert np.array_equal(np.asarray(found), values)


def test_a_resized_png_keeps_16_bits_of_grey() -> None:
    """Scaling computes with all bits: a constant stays what it is."""
    data = grey(np.full((6, 8), 54321, np.uint16))
    recipe = ImageRecipe(encode=Encode.PNG, resize=Resize(shorter=3))
    with Image.open(io.BytesIO(render_image(data, recipe).data)) as found:
        assert np.unique(np.asarray(found)).tolist() == [54321]


@pytest.mark.tf
def test_a_png_keeps_16_bits_of_colors(tf: Any) -> None:
    """An RGB PNG keeps its pixels, and nothing else, unless it is scaled."""
    values = np.stack([ROWS * 1365, ROWS, 65535 - ROWS], axis=2)
    data = rgb(values)
    assert audit_image(data, PNG).depth is Depth.KEPT
    written = render_image(data, PNG).data
    assert b"tEXt" not in written
    assert np.array_equal(tf.io.decode_png(written, dtype=tf.uint16).numpy(), values)
    scaled = ImageRecipe(encode=Encode.PNG, resize=Resize(shorter=3))
    assert audit_image(data, scaled).depth is Depth.REDUCED
    assert render_image(data, scaled).height == 3


@pytest.mark.parametrize(
    ("data", "depth"),
    [
        (grey(ROWS * 1365), Depth.REDUCED),
        (grey(ROWS * 85), Depth.DARK),
        (grey(ROWS), Depth.DARK),
        (rgb(np.stack([ROWS] * 3, axis=2)), Depth.REDUCED),
        (tiff_of_12_bits(ROWS * 85), Depth.REDUCED),
        (image_bytes("PNG"), None),
        (image_bytes("TIFF", mode="L"), None),
        (image_bytes("TIFF", mode="RGB"), None),
        (image_bytes("PPM"), None),
        (image_bytes("PNG", mode="P"), None),
        (b"P6 2 1 65535 " + bytes(12), Depth.REDUCED),
    ],
)
def test_lost_bits_are_noticed(data: bytes, depth: Depth | None) -> None:
    """The result says whether bits are lost, and whether the image gets nearly black."""
    verdict = audit_image(data)
    assert (verdict.problem, verdict.depth) == (None, depth)


def test_declared_12_bits_become_8() -> None:
    """A TIFF of 12 bits becomes as bright as it is, not a sixteenth of it."""
    data = tiff_of_12_bits(ROWS * 85)
    raw = render_image(data, ImageRecipe(encode=Encode.RAW))
    found = np.frombuffer(raw.data, np.uint8).reshape(6, 8, 3)[:, :, 0]
    assert np.array_equal(found, ROWS * 85 >> 4)


def test_values_beyond_16_bits_are_refused() -> None:
    """Values that would be cut off make an image bad."""
    data = grey(np.full((2, 2), 70000, np.int32), "TIFF")
    assert audit_image(data).problem == (
        "pixels of 70,000 to 70,000, beyond the 16 bits that are supported"
    )


@pytest.mark.tf
def test_write_reports_lost_bits(tmp_path: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    """A note counts the images and names one; with --encode png the dataset has uint16 images."""
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "in" / "a" / "1.png").write_bytes(grey(ROWS * 1365))
    (tmp_path / "in" / "a" / "2.png").write_bytes(grey(ROWS * 85))
    (tmp_path / "in" / "a" / "3.png").write_bytes(grey(ROWS))
    (tmp_path / "in" / "a" / "4.jpg").write_bytes(image_bytes())
    words = ("--name", "deep", "--json")
    for more in (("--dry-run",), ()):
        code, output, _ = run("write", tmp_path / "in", tmp_path / "low", *words, *more)
        assert code == 0
        reduced, dark = json.loads(output)["notices"]
        assert "16 bits per channel became 8 in 1 image, such as a/1.png" in reduced
        assert "nearly black" in dark
        assert "in 2 images, such as a/2.png" in dark
    code, output, _ = run("write", tmp_path / "in", tmp_path / "deep", *words, "--encode", "png")
    assert (code, json.loads(output)["notices"]) == (0, [])
    for name, dtype in (("low", "uint8"), ("deep", "uint16")):
        features = json.loads((tmp_path / name / "features.json").read_text())
        image = features["featuresDict"]["features"]["image"]["image"]
        assert image["dtype"] == dtype
