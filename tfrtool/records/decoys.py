"""Names for what is met in place of a TFRecord file."""

from __future__ import annotations

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs.github.com/spec/", "a git-lfs pointer (fetch it: git lfs pull)"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"GIF8", "a GIF image"),
    (b"PK\x03\x04", "a zip archive (unpack it)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data (unpack it)"),
    (b"\xfd7zXZ\x00", "xz data (unpack it)"),
    (b"\x28\xb5\x2f\xfd", "zstd data (unpack it)"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"\x93NUMPY", "a NumPy array file"),
    (b"SQLite format 3", "an SQLite database"),
    (b"%PDF", "a PDF document"),
    (b"\x7fELF", "a program"),
    (b"BAM\x01", "a BAM file"),
)
"""First bytes and what they mean, from the formats' own specifications."""


def describe_content(head: bytes) -> str:
    """Say what a file that is no TFRecord holds, from its first bytes: "an HTML page"."""
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if head[257:262] == b"ustar":
        return "a tar archive (unpack it)"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head")):
        return "an HTML page (an error page, saved in place of the file?)"
    if text.startswith(b"<?xml"):
        return "an XML document"
    if not head.strip(b"\0"):
        return "only zero bytes"
    if is_text(head):
        return "JSON text" if text.startswith((b"{", b"[")) else "plain text"
    return "other binary data"


def is_text(head: bytes) -> bool:
    """Return whether the first bytes of a file read as UTF-8 text."""
    try:
        decoded = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character may be cut where the first bytes end.
        if error.start < len(head) - 3 or error.start == 0:
            return False
        decoded = head[: error.start].decode("utf-8")
    return all(c.isprintable() or c in "\t\n\r\f\v" for c in decoded)
