"""The options of what is done to one image."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.errors import UsageError
from tfrtool.images.recipe import Encode, ImageRecipe, Resize

sides = st.integers(1, 70_000)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"width": 5},
        {"height": 5},
        {"shorter": 0},
        {"shorter": 16_385},
        {"width": 0, "height": 5},
    ],
)
def test_impossible_sizes(options: dict[str, int]) -> None:
    """A size is of the shorter side or exact, and of at least one pixel."""
    with pytest.raises(UsageError):
        Resize(**options)


@pytest.mark.parametrize("quality", [0, 101])
def test_impossible_quality(quality: int) -> None:
    """The quality of a JPEG runs from 1 to 100."""
    with pytest.raises(UsageError, match="1 to 100"):
        ImageRecipe(quality=quality)


def test_what_is_re_encoded() -> None:
    """Only keeping without scaling leaves bytes as they are."""
    assert not ImageRecipe().always
    assert ImageRecipe(resize=Resize(shorter=8)).always
    assert all(ImageRecipe(encode=encode).always for encode in Encode if encode is not Encode.KEEP)


@given(sides, sides, st.integers(1, 4000))
def test_shorter_side_keeps_the_aspect_ratio(width: int, height: int, shorter: int) -> None:
    """The shorter side gets its length, the longer one is as near as whole pixels can be."""
    fitted = Resize(shorter=shorter).fit(width, height)
    assert min(fitted) == shorter
    wanted = max(width, height) * shorter / min(width, height)
    assert abs(max(fitted) - wanted) <= 0.5
    assert (fitted[0] >= fitted[1]) == (width >= height) or fitted[0] == fitted[1]
    assert Resize(shorter=shorter).fit(height, width) == fitted[::-1]


@given(sides, sides)
def test_exact_size_stretches(width: int, height: int) -> None:
    """An exact size is the same for every image."""
    assert Resize(width=7, height=9).fit(width, height) == (7, 9)
