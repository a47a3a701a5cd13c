"""The kind of sound and video files, detected from their first bytes."""

from tfrtool.storage.image_brand import image_brand

_MATROSKA = {b"webm": "video/webm", b"matroska": "video/x-matroska"}
_BRANDS = {b"M4A ": "audio/mp4", b"M4B ": "audio/mp4", b"qt  ": "video/quicktime"}
_VIDEO_BRANDS = (b"iso", b"mp4", b"mp7", b"avc", b"M4V", b"3gp", b"3g2", b"dash", b"f4v", b"MSNV")
"""What the brands of ISO base media files with video begin with."""

_BITRATES = (
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
)
_RATES = (44_100, 48_000, 32_000)
"""Kilobits a second of MPEG-2 and MPEG-1 Layer III, and samples a second of MPEG-1."""


def describe_media(head: bytes) -> str | None:
    """Return the media type of a file with sound or video by its first 64 bytes, or None."""
    if head.startswith(b"fLaC"):
        return "audio/flac"
    if head.startswith(b"OggS"):
        return "video/ogg" if head[28:35] == b"\x80theora" else "audio/ogg"
    if head.startswith(b"\x1aE\xdf\xa3"):
        return next((kind for name, kind in _MATROSKA.items() if name in head), None)
    if head[4:8] == b"ftyp" and image_brand(head) is None:
        brand = head[8:12]
        return _BRANDS.get(brand, "video/mp4" if brand.startswith(_VIDEO_BRANDS) else None)
    return "audio/mpeg" if _is_id3(head) else None


def _is_id3(head: bytes) -> bool:
    """Return whether bytes begin with the tags of an MP3 file, in version 2.2 to 2.4."""
    is_tag = head.startswith(b"ID3") and len(head) >= 10 and head[3] in (2, 3, 4)
    return is_tag and head[4] == 0 and head[5] & 0x0F == 0 and max(head[6:10]) < 0x80


def is_mp3(value: bytes) -> bool:
    """Return whether a value begins with two frames of an MP3 file, or is a single one."""
    length = _frame_length(value[:4])
    if length is None or len(value) < length:
        return False
    return len(value) == length or _frame_length(value[length : length + 4]) is not None


def _frame_length(header: bytes) -> int | None:
    """Return the bytes of a frame of MPEG Layer III; None if these four bytes begin none."""
    if len(header) < 4 or header[0] != 0xFF or header[1] & 0xE6 != 0xE2:
        return None
    version, bitrate, rate = header[1] >> 3 & 3, header[2] >> 4, header[2] >> 2 & 3
    if version == 1 or bitrate in (0, 15) or rate == 3:
        return None
    is_first = version == 3
    hertz = _RATES[rate] >> {3: 0, 2: 1, 0: 2}[version]
    kilobits, padding = _BITRATES[is_first][bitrate], header[2] >> 1 & 1
    return (144_000 if is_first else 72_000) * kilobits // hertz + padding
