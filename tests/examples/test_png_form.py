"""What headers of PNGs say, judged by Pillow."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tfrtool.examples.content import png_form

MODES = {"L": (1, 8), "RGB": (3, 8), "RGBA": (4, 8), "LA": (2, 8), "P": (3, 8), "1": (1, 8),
         "I;16": (1, 16)}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_png(mode: str) -> None:
    """The channels and bits of a PNG are those of its mode."""
    buffer = io.BytesIO()
    Image.new(mode, (3, 2)).save(buffer, "png")
    assert png_form(buffer.getvalue()) == MODES[mode]


@given(value=st.binary(max_size=60))
def test_any_bytes(value: bytes) -> None:
    """Whatever follows the magic, nothing fails."""
    for magic in (b"", b"\x89PNG\r\n\x1a\n"):
        form = png_form(magic + value)
        assert form is None or len(form) == 2
