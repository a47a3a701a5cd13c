"""Choices of the public face: words are taken, and unknown ones are refused."""

from __future__ import annotations

import dataclasses
import enum
import typing
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import write_pets
from tfrtool import UsageError
from tfrtool.examples.example import DType, Feature, PayloadKind, decode_example
from tfrtool.images.recipe import ImageRecipe
from tfrtool.loading.options import LoadOptions
from tfrtool.training.train_options import TrainOptions

pytestmark = pytest.mark.tf

RESULTS = {"Dataset", "Fault", "Shard", "Split"}
"""What tfrtool itself makes, and nobody gives it."""

NEEDED: dict[str, dict[str, Any]] = {
    "Feature": {"values": ()},
    "FeatureSpec": {"name": "x"},
    "LoadOptions": {"image_size": 64},
    "TrainOptions": {"dataset": Path("d")},
}
"""Arguments without a default."""


def _enums(hint: Any) -> set[type[enum.Enum]]:
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {hint}
    return {kind for part in typing.get_args(hint) for kind in _enums(part)}


def _dataclasses(hint: Any) -> set[Any]:
    if dataclasses.is_dataclass(hint):
        return {hint}
    return {kind for part in typing.get_args(hint) for kind in _dataclasses(part)}


def _given() -> set[Any]:
    """Return the public dataclasses that users make, and those that are parts of them."""
    public = [getattr(tfrtool, name) for name in tfrtool.__all__ if name not in RESULTS]
    found: set[Any] = {one for one in public if dataclasses.is_dataclass(one)}
    # What verbs make of their arguments.
    found |= {Feature, ImageRecipe, LoadOptions, TrainOptions}
    for options in list(found):
        if options.__name__.endswith("Options"):
            for hint in typing.get_type_hints(options).values():
                found |= _dataclasses(hint)
    return found


def _choices() -> list[Any]:
    """Return each dataclass, field and enumeration that a word can be given for."""
    found = []
    for kind in sorted(_given(), key=lambda one: str(one.__qualname__)):
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if typing.get_origin(hints[field.name]) in (None, typing.Union, type(int | None)):
                for choices in _enums(hints[field.name]):
                    choice = pytest.param(
                        kind, field.name, choices, id=f"{kind.__name__}.{field.name}"
                    )
                    found.append(choice)
    return found


def _made(kind: Any, **changes: Any) -> Any:
    """Return what comes of making a dataclass: itself, or the error's text."""
    try:
        return kind(**{**NEEDED.get(kind.__name__, {}), **changes})
    except UsageError as error:
        return str(error)


def test_the_choices_that_there_are() -> None:
    """The search finds the options that everyone knows, and those inside of others."""
    names = {choice.id for choice in _choices()}
    assert "ImageRecipe.encode" in names
    assert len(names) >= 4


@pytest.mark.parametrize(("kind", "name", "choices"), _choices())
def test_words_stand_for_members(kind: Any, name: str, choices: type[enum.Enum]) -> None:
    """A word does what its member does, in every field of every public dataclass."""
    for member in choices:
        by_word = _made(kind, **{name: member.value})
        assert by_word == _made(kind, **{name: member})
        assert isinstance(by_word, str) or getattr(by_word, name) is member


@pytest.mark.parametrize(("kind", "name", "choices"), _choices())
def test_unknown_words_are_refused(kind: Any, name: str, choices: type[enum.Enum]) -> None:
    """An unknown word is an error that lists the known ones."""
    for word in ("nonsense", "", 7, b"none", ["none"]):
        with pytest.raises(UsageError) as caught:
            kind(**{**NEEDED.get(kind.__name__, {}), name: word})
        assert all(str(member.value) in str(caught.value.expected) for member in choices)
        assert caught.value.what.endswith(f" {word!r}")


@pytest.mark.parametrize("name", ["cache", "recipe"])
def test_none_is_no_choice_where_it_is_no_default(name: str) -> None:
    """None is refused where it does not mean anything."""
    with pytest.raises(UsageError):
        LoadOptions(image_size=64, **{name: None})  # type: ignore[arg-type]


def test_functions_take_words_as_well(tmp_path: Path) -> None:
    """So do the arguments of functions."""
    directory = write_pets(tmp_path)
    with pytest.raises(UsageError):
        tfrtool.dataset(directory, on_error="stopp")  # type: ignore[arg-type]
    payload = tfrtool.encode_example(
        {"x": Feature(dtype="int64", values=(1,))}  # type: ignore[arg-type]
    )
    decoded = decode_example(payload, "example")  # type: ignore[arg-type]
    assert decoded == decode_example(payload, PayloadKind.EXAMPLE)
    assert decoded.features["x"].dtype is DType.INT64
    with pytest.raises(UsageError):
        decode_example(payload, "exampel")  # type: ignore[arg-type]


def test_a_cache_that_is_named_none_is_none(tmp_path: Path) -> None:
    """`cache="none"` decodes again in every epoch, and keeps nothing in memory."""
    directory = write_pets(tmp_path)
    batches = tfrtool.dataset(directory).load(image_size=8, cache="none", training=False)
    assert sum(len(labels) for _, labels in batches) == 14
    for shard in directory.glob("*-train.tfrecord*"):
        shard.unlink()
    with pytest.raises(Exception, match="No such file"):  # it has to be read again
        list(batches)
