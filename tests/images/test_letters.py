"""Characters that Pillow's own font lacks: drawn in another font, or as escapes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageFont

from tests.conftest import MakeShard
from tests.examples.strategies import string
from tests.photos import image_bytes
from tfrtool.cli import main
from tfrtool.examples.example import encode_example
from tfrtool.images import letters
from tfrtool.images.charts import draw_confusion, shortened_name
from tfrtool.images.letters import fitted, undrawn


@pytest.fixture(autouse=True)
def fonts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the only folder of system fonts."""
    folder = tmp_path / "fonts"
    folder.mkdir()
    for name in ("XDG_DATA_HOME", "XDG_DATA_DIRS"):
        monkeypatch.setenv(name, str(tmp_path))
    letters._installed.cache_clear()
    yield folder
    letters._installed.cache_clear()


def test_a_system_font_is_used_beyond_ascii(fonts: Path) -> None:
    """A file that is not a font is passed over."""
    own = ImageFont.load_default(16)
    assert isinstance(own, ImageFont.FreeTypeFont)
    assert isinstance(own.path, io.BytesIO)
    (fonts / "DejaVuSans.ttf").write_bytes(b"not a font")
    (fonts / "Arial.ttf").write_bytes(own.path.getvalue())
    assert fitted("ζ a", 12)[0] == "ζ a"
    assert undrawn(["ζ"]) == ""


def test_characters_without_a_font_are_escapes() -> None:
    """They are reported; the rest is written as it is, and cut to the room."""
    assert fitted("ab 中ß", 12)[0] == "ab \\u4e2d\\xdf"
    assert undrawn(["中", "ab 中ß", "ok"]) == "ß中"
    for text in ("中" * 100, "plain letters of a long name"):
        cut, font = fitted(text, 12, 60)
        assert cut.endswith("...")
        assert 40 < font.getlength(cut) <= 60
    drawn = draw_confusion({(0, 1): 2}, ["犬" * 24, "dog"], "two")
    assert Image.open(io.BytesIO(drawn)).width > 200


def test_a_sheet_warns_of_letters_once(
    make_shard: MakeShard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A warning names the letters without a font once, and what to install."""
    record = encode_example({"image": string(image_bytes()), "label": string("猫猫犬".encode())})
    path = make_shard([record, record])
    out = str(tmp_path / "sheet.png")
    assert main(["inspect", "images", str(path), "--out", out, "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["undrawn"] == "犬猫"
    assert printed.err.count("font has 犬, 猫: drawn as escapes; install a font") == 1


def test_long_class_names_keep_their_ends() -> None:
    """They differ there more often than in the middle, and stay apart in a chart."""
    shown = [shortened_name(f"a rather long name of a class {n}", 24) for n in range(3)]
    assert shown == [f"a rather l...f a class {n}" for n in range(3)]
    assert max(map(len, shown)) <= 24
    assert shortened_name("short", 24) == "short"
