"""Masks: polygons and run lengths mean what pycocotools takes them for, moved with their image."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pycocotools import mask as oracle

from tfrtool.errors import SourceError
from tfrtool.images.masks import (
    Bitmap,
    mask_bitmap,
    mask_png,
    mask_text,
    moved_mask,
    run_lengths,
)

_SIDES = st.integers(1, 50)


@st.composite
def _polygons(draw: st.DrawFn) -> tuple[int, int, list[list[float]]]:
    width, height = draw(_SIDES), draw(_SIDES)
    place = st.one_of(st.floats(-9, 60, allow_nan=False), st.integers(-3, 55).map(float))
    lines = st.lists(place, min_size=3, max_size=12).map(lambda some: [*some, *some[::-1]])
    return width, height, draw(st.lists(lines, min_size=1, max_size=3))


@given(_polygons())
def test_polygons_are_filled_as_by_pycocotools(case: tuple[int, int, list[list[float]]]) -> None:
    """Every pixel of a polygon is in it for us where it is for pycocotools."""
    width, height, lines = case
    found = oracle.decode(oracle.merge(oracle.frPyObjects(lines, height, width)))
    assert (mask_bitmap(json.dumps(lines), width, height) == found).all()


@given(_SIDES, _SIDES, st.integers(0, 2**32), st.floats(0, 1))
def test_run_lengths_are_those_of_pycocotools(
    width: int, height: int, seed: int, share: float
) -> None:
    """Run lengths are written and read as by pycocotools, as text and as numbers."""
    bitmap = _noise(width, height, seed, share)
    found = json.loads(mask_text(bitmap))
    there = oracle.encode(np.asfortranarray(bitmap))
    assert (found["counts"], found["size"]) == (there["counts"].decode(), there["size"])
    assert (mask_bitmap(json.dumps(found), width, height) == bitmap).all()
    plain = {"size": found["size"], "counts": run_lengths(found)[0].tolist()}
    assert (mask_bitmap(json.dumps(plain), width, height) == bitmap).all()


def _noise(width: int, height: int, seed: int, share: float = 0.5) -> Bitmap:
    return (np.random.default_rng(seed).random((height, width)) < share).astype(np.uint8)


_UPRIGHT: dict[int, Any] = {
    1: lambda b: b,
    2: np.fliplr,
    3: lambda b: np.rot90(b, 2),
    4: np.flipud,
    5: np.transpose,
    6: lambda b: np.rot90(b, -1),
    7: lambda b: np.rot90(np.transpose(b), 2),
    8: np.rot90,
}


@pytest.mark.parametrize("turn", range(1, 9))
def test_masks_are_turned_and_scaled(turn: int) -> None:
    """Run lengths are turned as the image is, back again, and scaled to the nearest pixel."""
    bitmap = _noise(7, 5, turn)
    upright = _UPRIGHT[turn](bitmap)
    high, wide = upright.shape
    moved = moved_mask(mask_text(bitmap), turn, 2 * wide, 2 * high)
    assert moved == mask_text(upright.repeat(2, axis=0).repeat(2, axis=1))
    assert moved_mask(moved, {6: 8, 8: 6}.get(turn, turn), 7, 5) == mask_text(bitmap)


def test_a_mask_is_a_png_of_one_channel() -> None:
    """As the TF Object Detection API has it: 1 in the object, 0 elsewhere."""
    with Image.open(io.BytesIO(mask_png(_noise(9, 4, 0)))) as image:
        assert (image.format, image.mode, image.size) == ("PNG", "L", (9, 4))
        assert (np.asarray(image) == _noise(9, 4, 0)).all()
    assert not mask_bitmap("", 9, 4).any()


@pytest.mark.parametrize(
    "mask",
    [
        {},
        {"size": [2, 2]},
        {"size": [2], "counts": [4]},
        {"size": [2, -2], "counts": [4]},
        {"size": [2, 2.0], "counts": [4]},
        {"size": [2, True], "counts": [2]},
        {"size": [2, 2], "counts": [5]},
        {"size": [2, 2], "counts": [3]},
        {"size": [2, 2], "counts": [-1, 5]},
        {"size": [2, 2], "counts": [2**63, 4]},
        {"size": [2, 2], "counts": [-(10**19), 4]},
        {"size": [2, 2], "counts": [4.0]},
        {"size": [2, 2], "counts": []},
        {"size": [2, 2], "counts": ""},
        {"size": [2, 2], "counts": "\0"},
        {"size": [2, 2], "counts": "é"},
        {"size": [2, 2], "counts": "oooooooo0"},
        {"size": [2, 2], "counts": "o"},
        {"size": [10**5, 10**5], "counts": [10**10]},
    ],
)
def test_impossible_run_lengths_are_refused(mask: dict[str, Any]) -> None:
    """Nothing is made of run lengths that don't fill their image exactly."""
    with pytest.raises(ValueError, match="mask"):
        run_lengths(mask)


def test_random_texts_are_run_lengths_or_refused() -> None:
    """Whatever the text, it fills the image, or is refused."""
    draw, good = random.Random(0), 0
    for _ in range(3000):
        text = "".join(chr(draw.randint(48, 111)) for _ in range(draw.randint(1, 4)))
        try:
            runs, *_ = run_lengths({"size": [2, 3], "counts": text})
        except ValueError:
            continue
        good += 1
        assert runs.sum() == 6
    assert good


def test_an_endless_outline_is_refused() -> None:
    """An outline that leads far away is not followed."""
    with pytest.raises(SourceError, match="more than"):
        mask_bitmap("[[0, 0, 1e9, 0, 0, 1e9]]", 10, 10)
