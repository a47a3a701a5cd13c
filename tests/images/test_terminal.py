"""Escape sequences: what a terminal would make of them is the picture."""

from __future__ import annotations

import base64
import io
import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tfrtool.images.terminal import Protocol, escape_sequence

Pixel = tuple[int, int, int]

_STEPS = (0, 51, 102, 153, 204, 255)  # whole percentages, which sixel colours are


def _picture(size: tuple[int, int], values: bytes) -> Image.Image:
    steps = bytes(_STEPS[value % 6] for value in values)
    return Image.frombytes("RGB", size, steps[: 3 * size[0] * size[1]])


pictures = st.tuples(st.integers(1, 20), st.integers(1, 20)).flatmap(
    lambda size: st.binary(min_size=3 * size[0] * size[1], max_size=3 * size[0] * size[1]).map(
        lambda values: _picture(size, values)
    )
)


def pixels_of(image: Image.Image) -> dict[tuple[int, int], Pixel]:
    """Return an image's pixels by place."""
    data = image.convert("RGB").tobytes()
    return {
        (x, y): (data[at], data[at + 1], data[at + 2])
        for y in range(image.height)
        for x in range(image.width)
        for at in [3 * (y * image.width + x)]
    }


def decode_sixel(text: str) -> tuple[tuple[int, int], dict[tuple[int, int], Pixel]]:
    """Paint sixels as a terminal does; return the size that is announced, and the pixels."""
    match = re.fullmatch(r'\x1bP[\d;]*q"1;1;(\d+);(\d+)(.*)\x1b\\', text, re.DOTALL)
    assert match is not None
    registers: dict[int, Pixel] = {}
    painted: dict[tuple[int, int], Pixel] = {}
    x, top, colour = 0, 0, -1
    for token in re.findall(r"#\d+(?:;\d+){4}|#\d+|!\d+[?-~]|[?-~$-]|.", match[3], re.DOTALL):
        if token == "$":
            x = 0
        elif token == "-":
            x, top = 0, top + 6
        elif token[0] == "#":
            number, *rest = (int(part) for part in token[1:].split(";"))
            colour = number
            if rest:
                assert rest[0] == 2
                red, green, blue = (round(percent * 255 / 100) for percent in rest[1:])
                registers[number] = (red, green, blue)
        else:
            assert re.fullmatch(r"(!\d+)?[?-~]", token), token
            run = int(token[1:-1]) if token[0] == "!" else 1
            for column, bit in product(range(x, x + run), range(6)):
                if (ord(token[-1]) - 0x3F) >> bit & 1:
                    assert (column, top + bit) not in painted
                    painted[column, top + bit] = registers[colour]
            x += run
    return (int(match[1]), int(match[2])), painted


@settings(max_examples=40)
@given(pictures)
def test_sixels_are_the_picture(image: Image.Image) -> None:
    """Of a picture with few colours, every pixel is painted once and with its own colour."""
    size, painted = decode_sixel(escape_sequence(image, Protocol.SIXEL))
    assert size == image.size
    if len(set(pixels_of(image).values())) <= 200:
        assert painted == pixels_of(image)
    else:
        assert painted.keys() == pixels_of(image).keys()


def test_sixels_of_many_colours_are_near() -> None:
    """A photograph-like picture keeps its colours, but for what 256 of them can't tell apart."""
    red = Image.linear_gradient("L").resize((90, 61))
    image = Image.merge("RGB", (red, red.rotate(180), red.resize((61, 90)).resize((90, 61))))
    size, painted = decode_sixel(escape_sequence(image, Protocol.SIXEL))
    assert size == (90, 61)
    wanted = pixels_of(image)
    assert painted.keys() == wanted.keys()
    off = [abs(a - b) for at in wanted for a, b in zip(wanted[at], painted[at], strict=True)]
    assert max(off) <= 24
    assert sum(off) / len(off) < 3


def test_sixel_runs_are_short() -> None:
    """A picture of one colour is a few bytes a band."""
    text = escape_sequence(Image.new("RGB", (192, 192), (0, 51, 255)), Protocol.SIXEL)
    assert len(text) < 600


@settings(max_examples=20)
@given(pictures)
def test_kitty_chunks_are_the_picture(image: Image.Image) -> None:
    """The chunks of the kitty protocol, put together, are a PNG of the picture."""
    _check_kitty(image)


def test_kitty_chunks_of_a_large_picture() -> None:
    """A payload of many chunks says so in each but the last."""
    assert _check_kitty(Image.effect_noise((120, 120), 80).convert("RGB")) > 3


def _check_kitty(image: Image.Image) -> int:
    text = escape_sequence(image, Protocol.KITTY)
    chunks = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", text)
    assert "".join(f"\x1b_G{keys};{data}\x1b\\" for keys, data in chunks) == text
    keys = [dict(pair.split("=") for pair in found.split(",")) for found, _ in chunks]
    assert keys[0]["a"] == "T"
    assert keys[0]["f"] == "100"
    assert [found["m"] for found in keys] == ["1"] * (len(chunks) - 1) + ["0"]
    assert all(len(data) <= 4096 and len(data) % 4 == 0 for _, data in chunks)
    with Image.open(io.BytesIO(base64.b64decode("".join(data for _, data in chunks)))) as shown:
        assert shown.format == "PNG"
        assert pixels_of(shown) == pixels_of(image)
    return len(chunks)


@settings(max_examples=20)
@given(pictures)
def test_iterm2_file_is_the_picture(image: Image.Image) -> None:
    """The inline file is a PNG of the picture, with its true size in bytes."""
    text = escape_sequence(image, Protocol.ITERM2)
    match = re.fullmatch(r"\x1b\]1337;File=([^:]*):([A-Za-z0-9+/=]*)\x07", text)
    assert match is not None
    keys = dict(pair.split("=") for pair in match[1].split(";"))
    data = base64.b64decode(match[2])
    assert keys["inline"] == "1"
    assert int(keys["size"]) == len(data)
    assert (keys["width"], keys["height"]) == (f"{image.width}px", f"{image.height}px")
    with Image.open(io.BytesIO(data)) as shown:
        assert pixels_of(shown) == pixels_of(image)


@pytest.mark.parametrize("protocol", Protocol)
def test_nothing_but_ascii(protocol: Protocol) -> None:
    """Any encoding of stdout can carry the text, and no line break is in it."""
    text = escape_sequence(Image.new("RGB", (7, 9), "red"), protocol)
    assert text.isascii()
    assert "\n" not in text
