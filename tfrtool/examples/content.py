"""What the bytes of a string feature hold, told from the bytes themselves."""

from __future__ import annotations

__all__ = ["describe_bytes"]

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


def describe_bytes(value: bytes) -> str:
    """Name the content of ``value``: a media type, "text" (UTF-8), "binary", or "empty"."""
    if not value:
        return "empty"
    head = value[:16]
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if head.startswith(b"RIFF") and head[8:12] in _RIFF:
        return _RIFF[head[8:12]]
    if head[4:12] in (b"ftypavif", b"ftypavis"):
        return "image/avif"
    # "BM" alone is too little: the size of the header that follows must be one of the known.
    if head.startswith(b"BM") and int.from_bytes(value[14:18], "little") in _BMP_HEADERS:
        return "image/bmp"
    return "binary" if decode_text(value) is None else "text"


def decode_text(value: bytes) -> str | None:
    """Return ``value`` as text, or None if it is no UTF-8 or holds control characters."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if text.isprintable() or all(c.isprintable() or c in "\t\n\r" for c in text):
        return text
    return None
