"""Images that would cost too much: refused before a decoder sees them, and nothing else is."""

from __future__ import annotations

import io
import json
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import MakeShard
from tests.datasets import image_payload, write_foreign
from tests.more import more
from tests.photos import image_bytes, many_scans, write_class_folders
from tfrtool.cli import main
from tfrtool.errors import SourceError
from tfrtool.images import decoder
from tfrtool.images.audit import audit_image, render_image
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.header import limit_problem
from tfrtool.images.pixels import decode_picture
from tfrtool.images.recipe import Check, ImageRecipe
from tfrtool.storage import limits
from tfrtool.storage.limits import (
    MAX_CHUNKS,
    MAX_EXIF_BYTES,
    MAX_FRAMES,
    MAX_METADATA_CHUNKS,
    MAX_SCANS,
    MAX_STRAY_BYTES,
    MAX_STRIPS,
    MAX_TAGS,
)

PNG = b"\x89PNG\r\n\x1a\n"


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    """Return a chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(before: bytes = b"", after: bytes = b"") -> bytes:
    """Return a PNG of 4 x 1 pixels with chunks before and behind them."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 1, 8, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(5)))
    return PNG + head + before + pixels + after + chunk(b"IEND")


def apng(frames: int) -> bytes:
    """Return a PNG that claims this number of frames."""
    control = struct.pack(">IIIIIHHBB", 0, 4, 1, 0, 0, 1, 1, 0, 0)
    return png(chunk(b"acTL", struct.pack(">II", frames, 0)) + chunk(b"fcTL", control))


def segment(marker: int, data: bytes) -> bytes:
    """Return a segment of a JPEG."""
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def jpeg(before: bytes) -> bytes:
    """Return a JPEG with something behind its first segment."""
    data = image_bytes()
    return data[:20] + before + data[20:]


def tiff(tags: list[tuple[int, int, int, int]], data: bytes = b"") -> bytes:
    """Return a TIFF of 8 x 8 grey pixels with more tags: number, type, count, value."""
    grey = [(256, 3, 1, 8), (257, 3, 1, 8), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    strip = [(273, 4, 1, 8), (278, 3, 1, 8), (279, 4, 1, 64)]
    if any(tag[0] == 324 for tag in tags):
        strip = []
    entries = sorted([*grey, *strip, *tags])
    packed = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    start = struct.pack("<I", 72 + len(data))
    return b"II*\0" + start + bytes(64) + data + struct.pack("<H", len(entries)) + packed + bytes(4)


def exif(tags: int, room: int = 0) -> bytes:
    """Return Exif data with this number of one-byte tags, and further bytes."""
    packed = b"".join(struct.pack("<HHII", 0xA000 + tag, 1, 1, 0) for tag in range(tags))
    return b"II*\0\x08\0\0\0" + struct.pack("<H", tags) + packed + bytes(4 + room)


def jpeg_with_exif(data: bytes) -> bytes:
    """Return a JPEG with this Exif data."""
    return jpeg(segment(0xE1, b"Exif\0\0" + data))


def webp_with_exif(data: bytes) -> bytes:
    """Return a WebP with this Exif data."""
    output = io.BytesIO()
    Image.new("RGB", (8, 8)).save(output, "WEBP", exif=data)
    return output.getvalue()


def gif(blocks: bytes = b"", frames: int = 1) -> bytes:
    """Return a GIF with blocks before its first frame, and this number of frames."""
    data = image_bytes("GIF", mode="P", size=(4, 4))
    first = data.index(b"\x2c\0\0\0\0")
    return data[:first] + blocks + data[first:-1] * frames + b";"


def tiles(side: int) -> bytes:
    """Return a TIFF of 8 x 8 pixels whose only tile is larger, deflated."""
    packed = zlib.compress(bytes(1000))
    sides = [(322, 4, 1, side), (323, 4, 1, side), (324, 4, 1, 72), (325, 4, 1, len(packed))]
    return tiff(sides, packed)


JPEG_EXIF = segment(0xE1, b"Exif\0\0" + exif(3, 60_000))
BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "JPEG scans": (lambda: many_scans(MAX_SCANS + 1), "501 or more of 256 x 256 pixels"),
    "JPEG segments": (lambda: jpeg(b"\xff\xfe\0\2" * 10_001), "more than 10,000 segments"),
    "JPEG Exif segments": (lambda: jpeg(JPEG_EXIF * 18), "bytes of EXIF data (limit 1,048,576)"),
    "JPEG stray bytes": (lambda: jpeg(bytes(MAX_STRAY_BYTES + 1)), "stray bytes (limit 65,536)"),
    "JPEG fill bytes": (lambda: jpeg(b"\xff" * MAX_STRAY_BYTES * 2), "stray bytes"),
    "JPEG Exif tags": (lambda: jpeg_with_exif(exif(1001)), "1,001 tags (limit 1,000)"),
    "WebP Exif tags": (lambda: webp_with_exif(exif(1001)), "1,001 tags"),
    "PNG Exif tags": (lambda: png(chunk(b"eXIf", exif(1001))), "1,001 tags"),
    "PNG Exif bytes": (lambda: png(chunk(b"eXIf", exif(1, MAX_EXIF_BYTES))), "bytes of EXIF data"),
    "PNG chunks": (lambda: png(after=chunk(b"IDAT") * MAX_CHUNKS), "more than 100,000 chunks"),
    "PNG texts": (
        lambda: png(chunk(b"tEXt", b"a\0b") * MAX_METADATA_CHUNKS),
        "more than 1,000 metadata chunks",
    ),
    "PNG frames": (lambda: apng(MAX_FRAMES + 1), "10,001 frames (limit 10,000)"),
    "PNG text of a gigabyte": (
        lambda: png(chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 24)))),
        "too large",
    ),
    "GIF frames": (lambda: gif(frames=MAX_FRAMES + 1), "more than 10,000 frames"),
    "GIF comments": (lambda: gif(b"\x21\xfe\1x\0" * MAX_CHUNKS), "metadata blocks"),
    "GIF stray bytes": (lambda: gif(bytes(MAX_STRAY_BYTES + 1)), "stray bytes"),
    "TIFF tags": (lambda: tiff([(1000 + n, 1, 1, 0) for n in range(MAX_TAGS)]), "1,008 tags"),
    "TIFF strips": (lambda: tiff([(324, 4, MAX_STRIPS + 1, 8)]), "100,001 strips or tiles"),
    "TIFF tile": (lambda: tiles(10_000), "tiles of 100,000,000 pixels"),
    "TIFF tags that overlap": (
        lambda: tiff([(1000 + n, 1, 1_000_000, 72) for n in range(80)], bytes(1_000_000)),
        "tags claim 80,000,0",
    ),
    "BigTIFF": (lambda: b"II+\0\x08\0\0\0" + bytes(80), "BigTIFF is not supported"),
    "PPM comment": (
        lambda: b"P6\n#" + b"x" * 9_000_000 + b"\n1 1\n255\nabc",
        "(limit 8,388,608)",
    ),
    "PPM in text": (lambda: b"P2\n4000 4000\n255\n" + b"1 " * 4_200_000, "(limit 8,388,608)"),
    "PPM of unusual depth": (
        lambda: b"P5 4000 4000 1000\n" + bytes(9_000_000),
        "(limit 8,388,608)",
    ),
    "BMP of runs": (
        lambda: b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, 9, 9, 1, 8, 1) + bytes(9_000_000),
        "run-length encoded BMP",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bomb_is_refused_on_every_path(name: str) -> None:
    """The audit, the picture and the conversion refuse an image over a limit, and say which."""
    data, reason = BOMBS[name][0](), BOMBS[name][1]
    with quiet_pillow():
        for check in (Check.DECODE, Check.HEADER):
            if name == "JPEG scans" and check is Check.HEADER:
                continue  # the header alone is read, and its scans by nobody
            verdict = audit_image(data, ImageRecipe(check=check))
            assert reason in str(verdict.problem)
        picture = decode_picture(data, 64)
        assert picture.image is None
        assert reason in str(picture.problem)
        with pytest.raises(SourceError) as raised:
            render_image(data)
        assert reason in str(raised.value)


GOOD: dict[str, Callable[[], bytes]] = {
    "JPEG Exif segments": lambda: jpeg(JPEG_EXIF * 10),
    "JPEG scans": lambda: many_scans(MAX_SCANS // 2),
    "JPEG with Exif that ends early": lambda: jpeg_with_exif(exif(1001)[:900]),
    "JPEG after some stray bytes": lambda: jpeg(bytes(1000)),
    "PNG chunks": lambda: png(after=chunk(b"IDAT") * 10_000),
    "PNG texts": lambda: png(chunk(b"tEXt", b"a\0b") * (MAX_METADATA_CHUNKS - 2)),
    "PNG frames": lambda: apng(MAX_FRAMES),
    "GIF frames": lambda: gif(frames=MAX_FRAMES),
    "GIF comment": lambda: gif(b"\x21\xfe" + (b"\xff" + b"x" * 255) * 100 + b"\0"),
    "TIFF tags": lambda: tiff([(1000 + n, 1, 1, 0) for n in range(900)]),
    "TIFF strips": lambda: image_bytes("TIFF", size=(40, 400)),
    "PPM": lambda: b"P6\n#" + b"x" * 1000 + b"\n1000 1000\n255\n" + bytes(3_000_000),
    "PPM in text": lambda: b"P2 100 100 255\n" + b"1 " * 10_000,
    "large PPM": lambda: b"P5\n3000 3000 255\n" + bytes(9_000_000),
    "PPM of 16 bits": lambda: b"P5\n3000 3000 65535\n" + bytes(18_000_000),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_keeps_to_the_limits_is_good(name: str) -> None:
    """Images below the limits are as good as they were."""
    with quiet_pillow():
        assert audit_image(GOOD[name]()).problem is None


def test_number_of_bytes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image in a record, or anywhere else, has no more bytes than a file may have."""
    monkeypatch.setattr(decoder, "MAX_IMAGE_BYTES", 400)
    for format_ in ("JPEG", "BMP"):
        data = image_bytes(format_)
        assert f"{len(data):,} bytes (limit 400)" in str(audit_image(data).problem)
        assert decode_picture(data, 64).image is None


@pytest.mark.tf
@pytest.mark.parametrize("name", ["JPEG scans", "JPEG Exif segments", "PNG chunks"])
def test_bomb_is_one_bad_image_to_every_command(
    name: str, make_shard: MakeShard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named with its reason, and the other images are processed."""
    data, reason = BOMBS[name][0](), BOMBS[name][1]
    shard = make_shard([image_payload(0), image_payload(1, data=data), image_payload(1)])
    assert main(["verify", "--images", str(shard), "--json"]) == 3
    (fault,) = json.loads(capsys.readouterr().out.splitlines()[0])["faults"]
    assert fault["record"] == 1
    assert reason in fault["message"]
    sheet = tmp_path / "sheet.png"
    assert main(["inspect", "images", str(shard), "--out", str(sheet), "--json"]) == 3
    result = json.loads(capsys.readouterr().out)
    assert (result["images"], [broken["record"] for broken in result["broken"]]) == (3, [1])
    assert reason in result["broken"][0]["reason"]
    photos = write_class_folders(tmp_path / "photos", count=2)
    (photos / "cat" / "bomb.jpg").write_bytes(data)
    assert main(["write", str(photos), str(tmp_path / "out"), "--json"]) == 3
    written = json.loads(capsys.readouterr().out)
    assert written["splits"]["train"]["records"] == 4
    (rejected,) = written["rejected"]
    assert rejected["key"] == "cat/bomb.jpg"
    assert reason in rejected["reason"]


@pytest.mark.tf
@pytest.mark.parametrize(
    ("name", "words"),
    [
        more("JPEG scans", "--cache memory"),
        ("JPEG scans", "--recipe naive"),
        more("JPEG Exif segments", "--cache none"),
    ],
)
def test_bomb_does_not_get_to_the_decoder_in_training(
    name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TensorFlow would decode it, for as long as that takes: the record is named instead."""
    data, reason = BOMBS[name][0](), BOMBS[name][1]
    records = [image_payload(n % 2, data=data if n == 5 else None) for n in range(8)]
    directory = write_foreign(tmp_path / "d", [records])
    model = ["--model", "cnn", "--image-size", "32", "--epochs", "1"]
    assert main(["train", str(directory), *model, *words.split()]) == 1
    errors = capsys.readouterr().err
    assert reason in errors
    assert "record 5" in errors


def webp(kind: bytes, size: bytes) -> bytes:
    """Return the start of a WebP."""
    return b"RIFF" + struct.pack("<I", 100) + b"WEBP" + kind + struct.pack("<I", 80) + size


LARGE = {
    "PNG": PNG + chunk(b"IHDR", struct.pack(">IIBBBBB", 13_000, 13_000, 1, 0, 0, 0, 0)),
    "GIF": b"GIF89a" + struct.pack("<HH", 13_000, 13_000) + bytes(60),
    "GIF, frames": gif()[:-1]
    + 9 * (b"\x2c" + struct.pack("<HHHHBBB", 0, 0, 9000, 9000, 0, 2, 0))
    + b";",
    "BMP": b"BM" + bytes(12) + struct.pack("<Iii", 40, 13_000, -13_000) + bytes(60),
    "WebP": webp(b"VP8X", bytes(4) + 2 * (12_999).to_bytes(3, "little")),
    "WebP, lossy": webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 13_000, 13_000)),
    "WebP, lossless": webp(b"VP8L", b"\x2f" + struct.pack("<I", 12_999 | 12_999 << 14)),
}
"""Images of 169 million pixels, or 729 in frames, which TensorFlow would make room for."""


@pytest.mark.parametrize("name", LARGE)
def test_the_size_in_a_header_is_limited(name: str) -> None:
    """In every format that TensorFlow decodes."""
    size = "13000 x 13000 pixels (limit 89,478,485"
    frames = "more than 715,827,880 pixels"
    assert (frames if name == "GIF, frames" else size) in str(limit_problem(LARGE[name]))


@pytest.mark.tf
@pytest.mark.more  # as above
def test_large_image_does_not_get_to_the_decoder_in_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training holds each image to the limits before it is decoded."""
    records = [image_payload(n % 2, data=LARGE["WebP"] if n == 5 else None) for n in range(8)]
    directory = write_foreign(tmp_path / "d", [records])
    words = ["--model", "cnn", "--image-size", "32", "--epochs", "1", "--cache", "none"]
    assert main(["train", str(directory), *words]) == 1
    errors = capsys.readouterr().err
    assert "record 5" in errors
    assert "13000 x 13000 pixels (limit 89,478,485" in errors


def test_limits_are_documented() -> None:
    """The documentation states the limits of images, and lists all others with their reasons."""
    page = (Path(__file__).parents[2] / "docs" / "limits.md").read_text("utf-8")
    for number in (
        limits.MAX_IMAGE_PIXELS,
        limits.MAX_SCANS,
        limits.MAX_SCAN_PIXELS,
        limits.MAX_FRAMES,
        limits.MAX_HELD_PIXELS,
    ):
        assert f"{number:,}" in page
    for size in (limits.MAX_IMAGE_BYTES, limits.MAX_SLOW_BYTES):
        assert f"| {size >> 20} MiB |" in page
    assert "\n::: tfrtool.storage.limits\n" in page
    lines = Path(str(limits.__file__)).read_text("utf-8").splitlines()
    constants = [number for number, line in enumerate(lines) if re.match(r"[A-Z][A-Z_]+ = ", line)]
    assert len(constants) > 50
    assert [lines[number] for number in constants if not lines[number + 1].startswith('"""')] == []
