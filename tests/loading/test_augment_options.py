"""The list of augmentations, as it is given on the command line."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tfrtool.errors import UsageError
from tfrtool.loading.options import Augment, parse_augment

EVERYTHING = (
    "flip,flip-vertical,rotate=40,crop=4,cutout=8,brightness=0.1,contrast=0.2,saturation=0.3,hue"
)


def _parts(most: float) -> st.SearchStrategy[float]:
    return st.just(0.0) | st.floats(0, most, exclude_min=True, allow_subnormal=False)


@st.composite
def augments(draw: st.DrawFn) -> Augment:
    """Return any valid value."""
    values: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {
                "flip": st.booleans(),
                "flip_vertical": st.booleans(),
                "crop": st.integers(0, 16_384),
                "rotate": _parts(180) | st.integers(0, 180),
                "brightness": _parts(1),
                "contrast": _parts(1),
                "saturation": _parts(1),
                "hue": _parts(0.5),
                "cutout": st.integers(0, 16_384),
            }
        )
    )
    assume(any(values.values()))
    return Augment(**values)


@given(augments())
def test_text_is_the_inverse(augment: Augment) -> None:
    """What str() writes, parse_augment reads back."""
    assert parse_augment(str(augment)) == augment


def test_everything_at_once() -> None:
    """Each name sets its own field, in any order and with spaces; a bare name has its default."""
    expected = Augment(
        flip=True,
        flip_vertical=True,
        rotate=40.0,
        crop=4,
        cutout=8,
        brightness=0.1,
        contrast=0.2,
        saturation=0.3,
        hue=0.2,
    )
    assert parse_augment(EVERYTHING) == expected
    assert str(expected) == EVERYTHING
    assert parse_augment(" , ".join(reversed(EVERYTHING.split(",")))) == expected


def test_default_amounts() -> None:
    """Brightness, contrast, saturation and hue need no number."""
    augment = parse_augment("brightness,contrast,saturation,hue")
    assert augment == Augment(brightness=0.125, contrast=0.5, saturation=0.5, hue=0.2)
    assert str(augment) == "brightness,contrast,saturation,hue"


@pytest.mark.parametrize(
    "text",
    [
        *["", ",", "flip,", "flop", "Flip", "none", "flip;hue", "=3"],
        *["flip,flip", "hue,hue=0.1", "rotate=3,rotate=3"],
        *["flip=1", "flip=", "flip-vertical=yes"],
        *["rotate", "crop", "cutout", "rotate=", "hue="],
        *["rotate=0", "rotate=-5", "rotate=180.1", "rotate=nan", "rotate=inf", "rotate=x"],
        *["crop=0", "crop=-1", "crop=2.5", "cutout=0", "cutout=1e3", "crop=99999999999"],
        *["brightness=0", "brightness=1.1", "contrast=2", "saturation=-0.1", "hue=0.6"],
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    """What is unknown, given twice, missing or impossible is a usage error."""
    with pytest.raises(UsageError):
        parse_augment(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("flop", ["flip, flip-vertical, rotate=DEGREES", "hue[=AMOUNT]", "'flop'"]),
        ("rotate", ["rotate=DEGREES", "up to 180"]),
        ("crop=2.5", ["whole number", "'crop=2.5'"]),
        ("hue=0.6", ["above 0 and up to 0.5", "'hue=0.6'"]),
    ],
)
def test_errors_say_what_is_possible(text: str, says: list[str]) -> None:
    """The message has what was given, and what could have been."""
    with pytest.raises(UsageError) as caught:
        parse_augment(text)
    message = str(caught.value)
    assert [part for part in says if part not in message] == []


def test_parsing_does_not_start_tensorflow() -> None:
    """The command line reads its options in milliseconds."""
    code = (
        "import sys; from tfrtool.loading.options import parse_augment;"
        "parse_augment('flip'); print({'tensorflow', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
