"""The colors of a picture."""

from __future__ import annotations

import io

from PIL import Image


def colors_of(data: bytes) -> set[tuple[int, ...]]:
    """Return all colors of an encoded image, as RGB."""
    with Image.open(io.BytesIO(data)) as image:
        colors = image.convert("RGB").getcolors(1 << 16)
    assert colors is not None
    return {color for _, color in colors if isinstance(color, tuple)}
