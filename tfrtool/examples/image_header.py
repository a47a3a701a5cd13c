"""What the header of a PNG or JPEG file says of its pixels, for naming a type of image feature."""

from __future__ import annotations

PixelForm = tuple[int, int]
"""Channels of a pixel (1, 2, 3 or 4), and bits of a channel."""

# PNG specification, 11.2.2: the colour types; a palette stands for RGB.
_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
# ITU-T T.81, table B.1: start of frame of any process; C4, C8 and CC are something else.
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_SEGMENTS = 64
"""Markers to look at before the frame; photographs have about ten."""


def pixel_form(value: bytes) -> PixelForm | None:
    """Return the form of an encoded image's pixels; None where the header doesn't say."""
    if value.startswith(b"\xff\xd8\xff"):
        return _jpeg_form(value)
    if len(value) < 26 or not value.startswith(b"\x89PNG\r\n\x1a\n"):
        return None
    channels = _PNG_CHANNELS.get(value[25])
    return None if channels is None else (channels, 16 if value[24] == 16 else 8)


def _jpeg_form(value: bytes) -> PixelForm | None:
    position = 2
    for _ in range(_SEGMENTS):
        while value[position : position + 2] == b"\xff\xff":  # fill bytes
            position += 1
        if position + 10 > len(value) or value[position] != 0xFF:
            return None
        if value[position + 1] in _FRAMES:
            return value[position + 9], value[position + 4]
        position += 2 + int.from_bytes(value[position + 2 : position + 4], "big")
    return None
