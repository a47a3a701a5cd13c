"""Images that are made to cost a lot."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.photos import image_bytes


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG."""
    crc = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)


def png(width: int, height: int, *, before: bytes = b"", data: bytes = b"") -> bytes:
    """Return a PNG of 8-bit RGB with these chunks before its data."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + before + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def tiff(tags: list[tuple[int, int, int, int]], data: bytes = b"") -> bytes:
    """Return a TIFF of these tags (number, type, count, value), and data behind them."""
    entries = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries + bytes(4) + data


_ROW = zlib.compress(bytes(13))
_ZEROS = zlib.compress(bytes(40_000_000), 9)
_GREY = [(256, 3, 1, 8), (257, 3, 1, 8), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
_BASE = [*_GREY, (273, 4, 1, 100), (278, 3, 1, 8), (279, 4, 1, 64)]
_OVERLAPPING = [(tag, 1, 1_000_000, 240_000) for tag in range(1000, 20_000)]
_JPEG = image_bytes()
_FRAME = _JPEG.index(b"\xff\xc0")

HOSTILE = {
    "PNG of 65535 x 65535": png(65535, 65535),
    "JPEG of 65500 x 65500": _JPEG[: _FRAME + 5] + b"\xff\xdc" * 2 + _JPEG[_FRAME + 9 :],
    "JPEG of 9400 x 9400": _JPEG[: _FRAME + 5] + b"\x24\xb8" * 2 + _JPEG[_FRAME + 9 :],
    "PNG with a text of 40 MB": png(4, 1, before=chunk(b"zTXt", b"a\0\0" + _ZEROS), data=_ROW),
    "PNG with a profile of 40 MB": png(4, 1, before=chunk(b"iCCP", b"a\0\0" + _ZEROS), data=_ROW),
    "PNG with 40 MB behind its rows": png(4, 1, data=_ZEROS),
    "TIFF with overlapping tags": tiff(_BASE + _OVERLAPPING, bytes(1_100_000)),
    "JPEG of a million segments": b"\xff\xd8" + b"\xff\xfe\0\2" * 1_000_000,
}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux counts memory there")
def test_hostile_images_cost_little(tmp_path: Path) -> None:
    """What claims or unpacks to gigabytes is dealt with in some megabytes, and refused if huge."""
    for number, data in enumerate(HOSTILE.values()):
        (tmp_path / f"{number}").write_bytes(data)
    program = """
import re, sys
from pathlib import Path
from tfrtool.images.audit import audit_image
from tfrtool.images.decoder import quiet_pillow
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
with quiet_pillow():
    audit_image(b"\\x89PNG")
    for name in sys.argv[1:]:
        data = Path(name).read_bytes()
        before = peak()
        verdict = audit_image(data)
        print(peak() - before, verdict.problem)
"""
    names = [str(tmp_path / f"{number}") for number in range(len(HOSTILE))]
    command = [sys.executable, "-c", program, *names]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=300)
    results = dict(zip(HOSTILE, done.stdout.splitlines(), strict=True))
    assert [name for name, line in results.items() if int(line.partition(" ")[0]) > 64] == []
    results = {name: line.partition(" ")[2] for name, line in results.items()}
    assert results["PNG of 65535 x 65535"] == "claims more than 178,956,970 pixels"
    assert results["JPEG of 65500 x 65500"] == "65500 x 65500 pixels (limit 89,478,485 in total)"
    assert "ends before the last pixel" in results["JPEG of 9400 x 9400"]
    assert "too large" in results["PNG with a text of 40 MB"]
    assert "10,000 segments" in results["JPEG of a million segments"]
