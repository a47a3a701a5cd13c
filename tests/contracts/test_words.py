"""Enumerations of the public classes: a field takes a member's value, and no other string."""

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

RESULTS = {"Dataset", "Fault", "Features", "Shard", "Split"}
"""Public dataclasses that tfrtool returns, and users don't create."""

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


def _user_made() -> set[Any]:
    """Return the public dataclasses that users create, and those of their fields."""
    public = [getattr(tfrtool, name) for name in tfrtool.__all__ if name not in RESULTS]
    found: set[Any] = {one for one in public if dataclasses.is_dataclass(one)}
    # Functions create these from their arguments.
    found |= {Feature, ImageRecipe, LoadOptions, TrainOptions}
    for options in list(found):
        if options.__name__.endswith("Options"):
            for hint in typing.get_type_hints(options).values():
                found |= _dataclasses(hint)
    return found


def _choices() -> list[Any]:
    """Return each dataclass, field and enumeration for which a string can be passed."""
    found = []
    for kind in sorted(_user_made(), key=lambda one: str(one.__qualname__)):
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if typing.get_origin(hints[field.name]) in (None, typing.Union, type(int | None)):
                for choices in _enums(hints[field.name]):
                    choice = pytest.param(
                        kind, field.name, choices, id=f"{kind.__name__}.{field.name}"
                    )
                    found.append(choice)
    return found


def _created(kind: Any, **changes: Any) -> Any:
    """Return a new instance of the dataclass, or the text of its error."""
    try:
        return kind(**{**NEEDED.get(kind.__name__, {}), **changes})
    except UsageError as error:
        return str(error)


def test_choices_are_found() -> None:
    """The search finds public options and those nested in others."""
    names = {choice.id for choice in _choices()}
    assert "ImageRecipe.encode" in names
    assert len(names) >= 4


@pytest.mark.parametrize(("kind", "name", "choices"), _choices())
def test_values_stand_for_members(kind: Any, name: str, choices: type[enum.Enum]) -> None:
    """A member's value means the member, in every field of every public dataclass."""
    for member in choices:
        from_value = _created(kind, **{name: member.value})
        assert from_value == _created(kind, **{name: member})
        assert isinstance(from_value, str) or getattr(from_value, name) is member


@pytest.mark.parametrize(("kind", "name", "choices"), _choices())
def test_unknown_values_are_errors(kind: Any, name: str, choices: type[enum.Enum]) -> None:
    """An unknown value is an error that lists the known ones."""
    for word in ("nonsense", "", 7, b"none", ["none"]):
        with pytest.raises(UsageError) as caught:
            kind(**{**NEEDED.get(kind.__name__, {}), name: word})
        assert all(str(member.value) in str(caught.value.expected) for member in choices)
        assert caught.value.what.endswith(f" {word!r}")


@pytest.mark.parametrize("name", ["cache", "recipe"])
def test_none_is_an_error_where_it_has_no_meaning(name: str) -> None:
    """None is an error for a field in which it has no meaning."""
    with pytest.raises(UsageError):
        LoadOptions(image_size=64, **{name: None})  # type: ignore[arg-type]


def test_functions_take_values_as_well(tmp_path: Path) -> None:
    """An argument of a function takes a member's value, and rejects other strings."""
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


def test_cache_none_caches_nothing(tmp_path: Path) -> None:
    """`cache="none"` reads the shards again in every epoch."""
    directory = write_pets(tmp_path)
    batches = tfrtool.dataset(directory).load(image_size=8, cache="none", training=False)
    assert sum(len(labels) for _, labels in batches) == 14
    for shard in directory.glob("*-train.tfrecord*"):
        shard.unlink()
    with pytest.raises(Exception, match="No such file"):  # it has to be read again
        list(batches)
