"""HEIC, HEIF and AVIF images, distinguished by the first bytes of their files."""

_HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs")
_BRANDS = {
    **dict.fromkeys(_HEIC, "HEIC"),
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
    **dict.fromkeys((b"mif1", b"msf1"), "HEIF"),  # any codec; other brands say which
}
BRAND_BYTES = 64
"""First bytes of a file that are looked at."""


def image_brand(head: bytes) -> str | None:
    """Return "HEIC", "HEIF" or "AVIF" by the brands of an ISO base media file; None without one.

    Args:
        head: the first `BRAND_BYTES` of a file, or more.
    """
    if head[4:8] != b"ftyp" or (main := _BRANDS.get(head[8:12])) is None:
        return None
    end = min(int.from_bytes(head[:4], "big"), BRAND_BYTES)
    others = (_BRANDS.get(head[start : start + 4]) for start in range(16, end, 4))
    return next((kind for kind in (main, *others) if kind not in (None, "HEIF")), "HEIF")
