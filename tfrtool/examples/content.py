"""What the bytes of a string feature hold, told from the bytes themselves."""

from __future__ import annotations

from codecs import getincrementaldecoder

from tfrtool.examples.nested import describe_message

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\x93NUMPY", "application/x-npy"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/avi"}
_BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)

# Most values start with none of these bytes, and need no more than this one look. The box that
# an AVIF file starts with is smaller than 16 MiB, so that its length starts with a zero.
_FIRST_BYTES = frozenset([magic[0] for magic, _ in _MAGIC] + [*b"RB\0"])

_PRINTABLE_ASCII = bytes([*range(0x20, 0x7F), *b"\t\n\r"])
_LONG = 256
"""From here on, deleting what is printable costs less than decoding and asking; measured."""

_PIECE = 1024 * 1024
"""Bytes of a long text that are looked at a time."""


def describe_bytes(value: bytes) -> str:
    """Name the content of ``value``.

    Returns:
        a media type; "text" (UTF-8); the name of a serialized message (`describe_message`);
        "binary"; or "empty".
    """
    if not value:
        return "empty"
    if value[0] in _FIRST_BYTES:
        name = _describe_magic(value[:18])
        if name is not None:
            return name
    if is_text(value):
        return "text"
    return describe_message(value) or "binary"


def _describe_magic(head: bytes) -> str | None:
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if head.startswith(b"RIFF"):
        return _RIFF.get(head[8:12])
    if head[4:12] in (b"ftypavif", b"ftypavis"):
        return "image/avif"
    # "BM" alone is too little: the size of the header that follows must be one of the known.
    if head.startswith(b"BM") and int.from_bytes(head[14:18], "little") in _BMP_HEADERS:
        return "image/bmp"
    return None


def is_text(value: bytes) -> bool:
    """Return whether `decode_text` finds a text, sooner than it does, and without a copy of it."""
    if len(value) < _LONG:
        return decode_text(value) is not None
    pieces = (value[start : start + _PIECE] for start in range(0, len(value), _PIECE))
    if value.isascii():
        return not any(piece.translate(None, _PRINTABLE_ASCII) for piece in pieces)
    decoder = getincrementaldecoder("utf-8")()
    try:
        return all(_is_printable(decoder.decode(piece)) for piece in pieces) and not decoder.decode(
            b"", final=True
        )
    except UnicodeDecodeError:
        return False


def decode_text(value: bytes) -> str | None:
    """Return ``value`` as text, or None if it is no UTF-8 or holds control characters."""
    if len(value) > _PIECE and not is_text(value):
        return None  # the error below would hold a copy
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if _is_printable(text) else None


def _is_printable(text: str) -> bool:
    return text.isprintable() or all(c.isprintable() or c in "\t\n\r" for c in text)


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
