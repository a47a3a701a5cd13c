"""Images that are not read: of unsupported formats, or with names that don't show an image."""

import os
from collections.abc import Callable

from tfrtool.sources.folders.listing import FolderReader
from tfrtool.sources.items import Item, ItemReader
from tfrtool.storage.image_brand import BRAND_BYTES, image_brand
from tfrtool.storage.opening import open_descriptor
from tfrtool.storage.remote_path import is_url, remote_path

_UNSUPPORTED = {
    **dict.fromkeys(("jp2", "j2k", "j2c", "jpf", "jpx", "jpm"), "JPEG 2000"),
    "jxl": "JPEG XL",
    **dict.fromkeys(
        ("dng", "raw", "cr2", "cr3", "crw", "nef", "nrw", "arw", "srf", "sr2", "orf", "rw2"),
        "camera raw",
    ),
    **dict.fromkeys(("raf", "pef", "srw", "x3f", "3fr", "erf", "kdc", "dcr"), "camera raw"),
    **dict.fromkeys(("psd", "psb"), "Photoshop"),
    **dict.fromkeys(("svg", "svgz"), "SVG"),
    **dict.fromkeys(("pbm", "pnm", "pam"), "PNM"),
    **{"tga": "TGA", "ico": "icon", "exr": "OpenEXR", "hdr": "Radiance HDR", "dcm": "DICOM"},
    **{"eps": "EPS", "xcf": "GIMP", "dds": "DDS", "qoi": "QOI", "apng": "APNG", "mpo": "MPO"},
}
"""Formats of images by the endings of their names."""

_NO_IMAGES = frozenset(
    ("txt", "csv", "tsv", "json", "jsonl", "xml", "yaml", "yml", "md", "html", "pdf", "log", "py")
)
"""Endings of files that often lie next to images, which are not opened."""

_SIGNATURES = (
    (b"\xff\xd8\xff", 0, "JPEG"),
    (b"\x89PNG\r\n\x1a\n", 0, "PNG"),
    (b"GIF87a", 0, "GIF"),
    (b"GIF89a", 0, "GIF"),
    (b"WEBP", 8, "WebP"),
    (b"II*\0", 0, "TIFF"),
    (b"MM\0*", 0, "TIFF"),
    (b"\0\0\0\x0cJXL ", 0, "JPEG XL"),
    (b"\0\0\0\x0cjP  ", 0, "JPEG 2000"),
    (b"8BPS", 0, "Photoshop"),
)
"""First bytes of images, where they begin, and the format, from the formats' specifications."""


def why_unread(key: str, reader: ItemReader) -> str | None:
    """Return why a file that looks like an image is not read; None if it doesn't look like one.

    It looks like one by its name, or else by its first bytes. Archives look at those of their
    members when they list them.

    Args:
        key: path of the file below its source, which `is_image_name` doesn't accept.
        reader: reads the files of the source.
    """

    def read_head() -> bytes:
        if not isinstance(reader, FolderReader):
            return b""
        return _head_of(reader.describe(Item(key=key, label="-", bytes=0)))

    return why_unread_by_head(key, read_head)


def why_unread_by_head(key: str, read_head: Callable[[], bytes]) -> str | None:
    """Return the same of a file whose first bytes, `BRAND_BYTES`, a function reads if needed."""
    _, dot, ending = key.rpartition(".")
    ending = ending.lower() if dot and "/" not in ending else ""
    if kind := _UNSUPPORTED.get(ending):
        return f"{kind} images are not supported"
    if ending in _NO_IMAGES:
        return None
    head = read_head()
    known = (kind for magic, at, kind in _SIGNATURES if head.startswith(magic, at))
    kind = next(known, None) or image_brand(head)
    return kind and f"a {kind} image by its content, without a file name extension of images"


def _head_of(path: str) -> bytes:
    try:
        if is_url(path):
            remote = remote_path(path)
            return remote.store.read_range(remote.key, 0, BRAND_BYTES)
        descriptor = open_descriptor(path)
        try:
            return os.read(descriptor, BRAND_BYTES)
        finally:
            os.close(descriptor)
    except OSError:
        return b""  # nothing shows that it is an image
