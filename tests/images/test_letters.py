"""Letters that Pillow's own font has not: drawn in a font that has them, or as escapes."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from tests.conftest import MakeShard
from tests.examples.strategies import string
from tests.photos import image_bytes
from tfrtool.cli import main
from tfrtool.examples.example import encode_example
from tfrtool.images import letters
from tfrtool.images.confusion_chart import draw_confusion, shortened_name
from tfrtool.images.letters import fitted, undrawn, write

CACHES = (letters._readable, letters._has, letters._font, letters._installed)


def font_with(mapping: dict[str, str], higher: int = 0) -> bytes:
    """Return Pillow's font with a character map of one's own: what is drawn for each letter.

    Its lines are ``higher`` above their base, in units of the font.
    """
    own = ImageFont.load_default(16)
    assert isinstance(own, ImageFont.FreeTypeFont)
    assert isinstance(own.path, io.BytesIO)
    data = own.path.getvalue()
    count = struct.unpack(">H", data[4:6])[0]
    places = {data[at : at + 4]: at for at in range(12, 12 + 16 * count, 16)}
    ascent = struct.unpack(">I", data[places[b"hhea"] + 8 :][:4])[0] + 4
    high = struct.unpack(">h", data[ascent : ascent + 2])[0] + higher
    data = data[:ascent] + struct.pack(">h", high) + data[ascent + 2 :]
    start, length = struct.unpack(">II", data[places[b"cmap"] + 8 :][:8])
    glyphs = glyph_numbers(data[start : start + length])
    groups = sorted((ord(letter), glyphs[ord(like)]) for letter, like in mapping.items())
    table = struct.pack(">HHHHI", 0, 1, 3, 10, 12)
    table += struct.pack(">HHIII", 12, 0, 16 + 12 * len(groups), 0, len(groups))
    table += b"".join(struct.pack(">III", code, code, glyph) for code, glyph in groups)
    at, end = places[b"cmap"], len(data) + -len(data) % 4
    entry = struct.pack(">II", end, len(table))
    return (data[: at + 8] + entry + data[at + 16 :]).ljust(end, b"\0") + table


def glyph_numbers(cmap: bytes) -> dict[int, int]:
    """Return the glyphs of a character map's table in format 4 (OpenType, "cmap")."""
    for record in range(struct.unpack(">H", cmap[2:4])[0]):
        offset = struct.unpack(">I", cmap[8 + 8 * record : 12 + 8 * record])[0]
        if cmap[offset : offset + 2] == b"\0\4":
            break
    segments = struct.unpack(">H", cmap[offset + 6 : offset + 8])[0] // 2
    column = [
        struct.unpack_from(f">{segments}H", cmap, offset + 14 + 2 * n * segments + 2 * (n > 0))
        for n in range(4)
    ]
    found = {}
    for n, (last, first, delta, away) in enumerate(zip(*column, strict=True)):
        base = offset + 16 + 6 * segments + 2 * n
        for code in range(first, min(last, 0xFFFE) + 1):
            glyph = code
            if away:
                glyph = struct.unpack_from(">H", cmap, base + away + 2 * (code - first))[0]
            found[code] = (glyph + delta) % 65_536
    return found


@pytest.fixture
def fonts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the only folder of system fonts."""
    folder = tmp_path / "fonts"
    folder.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path))
    for cached in CACHES:
        cached.cache_clear()
    yield folder
    for cached in CACHES:
        cached.cache_clear()


def drawn(text: str) -> tuple[int, ...]:
    """Return where the ink of a line of text is."""
    image = Image.new("L", (200, 24))
    write(ImageDraw.Draw(image), (2, 2), text, 14, "white")
    box = image.getbbox()
    assert box is not None
    return box


def test_a_font_is_taken_for_what_it_has(fonts: Path) -> None:
    """Of several fonts that is taken which has all letters, whatever the names say."""
    (fonts / "DejaVuSans.ttf").write_bytes(font_with({"Q": "Q"}))
    (fonts / "NotoSans-Regular.ttf").write_bytes(b"no font")
    (fonts / "Arial.ttf").write_bytes(font_with({"ζ": "z", " ": " "}, 400))
    (fonts / "more").mkdir()
    (fonts / "more" / "NotoSansCJK-Regular.ttc").write_bytes(
        font_with({"ζ": "z", "中": "Z", " ": " "})
    )
    assert undrawn(["plain", "ζ", "ζ 中", "\x1b"]) == ""
    assert [getattr(fitted(text, 12)[1], "path", None) for text in ("ζ", "ζ 中")] == [
        str(fonts / "Arial.ttf"),
        str(fonts / "more" / "NotoSansCJK-Regular.ttc"),
    ]
    assert fitted("ζ 中", 12)[0] == "ζ 中"
    for one, other in zip(drawn("ζ"), drawn("z"), strict=True):  # on the same base line
        assert abs(one - other) <= 1


def test_letters_without_a_font_are_escapes(fonts: Path) -> None:
    """What no font has is written as its escape and told; the rest is written as it is."""
    assert fitted("ab 中ß", 12)[0] == "ab \\u4e2d\\xdf"
    assert undrawn(["中", "ab 中ß", "ok"]) == "ß中"
    (fonts / "DejaVuSans.ttf").write_bytes(font_with({"中": "Z", "a": "a", "b": "b", " ": " "}))
    for cached in CACHES:
        cached.cache_clear()
    assert fitted("ab 中ß", 12)[0] == "ab 中\\xdf"
    assert undrawn(["中", "ab 中ß"]) == "ß"
    for text in ("中" * 100, "plain letters of a long name"):
        cut, font = fitted(text, 12, 60)
        assert cut.endswith("...")
        assert 40 < font.getlength(cut) <= 60


def test_confusion_matrices_have_all_letters(fonts: Path) -> None:
    """Names in another script are drawn as the letters of the font that has them."""
    (fonts / "DejaVuSans.ttf").write_bytes(font_with({"ж": "Z", "я": "i"}))
    wide, narrow, none = (
        Image.open(io.BytesIO(draw_confusion({(0, 1): 2}, [name, "dog"], "two"))).width
        for name in ("ж" * 24, "я" * 24, "犬" * 24)
    )
    assert narrow < wide < none


@pytest.mark.usefixtures("fonts")
def test_a_sheet_warns_of_letters_once(
    make_shard: MakeShard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which letters have no font is said once, with what to install; the sheet is made."""
    record = encode_example({"image": string(image_bytes()), "label": string("猫猫犬".encode())})
    path = make_shard([record, record])
    out = str(tmp_path / "sheet.png")
    assert main(["inspect", "images", str(path), "--out", out, "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["undrawn"] == "犬猫"
    assert said.err.count("font has 犬, 猫: drawn as escapes; install a font") == 1


def test_long_class_names_keep_their_ends() -> None:
    """They differ there more often than in the middle, and stay apart in a chart."""
    shown = [shortened_name(f"a rather long name of a class {n}", 24) for n in range(3)]
    assert shown == [f"a rather l...f a class {n}" for n in range(3)]
    assert max(map(len, shown)) <= 24
    assert shortened_name("short", 24) == "short"
