"""The colours of a picture."""

from __future__ import annotations

import io

from PIL import Image


def colours_of(data: bytes) -> set[tuple[int, ...]]:
    """Return all colours of an encoded image, as RGB."""
    with Image.open(io.BytesIO(data)) as image:
        colours = image.convert("RGB").getcolors(1 << 16)
    assert colours is not None
    return {colour for _, colour in colours if isinstance(colour, tuple)}
