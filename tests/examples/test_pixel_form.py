"""What headers of images say, judged by Pillow."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tfrtool.examples.content import pixel_form

MODES = {"L": 1, "RGB": 3, "RGBA": 4, "LA": 2, "P": 3, "CMYK": 4, "1": 1}


def encoded(mode: str, form: str) -> bytes:
    """Return an image of 3 x 2 pixels as a file."""
    buffer = io.BytesIO()
    Image.new(mode, (3, 2)).save(buffer, form)
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "P", "1"])
def test_png(mode: str) -> None:
    """The channels of a PNG are those of its mode."""
    assert pixel_form(encoded(mode, "png")) == (MODES[mode], 8)


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpeg(mode: str) -> None:
    """The channels of a JPEG are those of its frame."""
    assert pixel_form(encoded(mode, "jpeg")) == (MODES[mode], 8)


def test_deep_png() -> None:
    """16 bits are seen."""
    assert pixel_form(encoded("I;16", "png")) == (1, 16)


def test_real_jpegs(shared_data: Path) -> None:
    """Real photographs: what is found is what Pillow finds."""
    found = 0
    for path in (shared_data / "images_awkward").glob("pillow__*.jpg"):
        form = pixel_form(path.read_bytes())
        if form is not None and "mpo" not in path.name:  # Pillow warns of that one
            with Image.open(path) as image:
                assert form == (MODES[image.mode], 8), path.name
            found += 1
    assert found >= 27


@given(value=st.binary(max_size=60))
def test_any_bytes(value: bytes) -> None:
    """Whatever follows the magic, nothing fails."""
    for magic in (b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"):
        form = pixel_form(magic + value)
        assert form is None or len(form) == 2
