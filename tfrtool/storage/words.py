"""What users give for a choice or a size: a member of an enumeration, or words."""

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from tfrtool.errors import UsageError, suggestion

_Made = TypeVar("_Made")
_Member = TypeVar("_Member", bound=enum.Enum)

_SIZE = re.compile(
    r"(?P<number>\d{1,15}(?:\.\d{1,9})?)\s*(?P<prefix>[kmgt]?)(?P<binary>i?)b?", re.IGNORECASE
)
_LEAST_BARE = 1024
"""Bytes: a smaller shard size without a unit was likely meant in another one."""

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

_OTHER_NAMES = {
    "cache_directory": "--cache-dir",
    "dataset": "DATASET",
    **{
        name: name
        for name in ("batched_parse", "dtype", "existing", "first_epoch", "first_step", "label")
    },
}
"""Arguments that are spelled otherwise on the command line, or don't exist there."""


class OnError(enum.Enum):
    """What to do about a bad image or a damaged record; the values are those of the CLI."""

    SKIP = "skip"
    """Skip it, go on, and report it."""
    STOP = "stop"
    """Stop with an error that names it."""


def as_size(size: int | str, option: str = "size") -> int:
    """Return a number of bytes: 1000, "64KB" (a thousand each), "128MiB" (1024 each).

    Raises:
        UsageError: it is not a size, or less than a byte.
    """
    number = size
    if not isinstance(number, int):
        match = _SIZE.fullmatch(str(size).strip())
        if match is None or (match["binary"] and not match["prefix"]):
            raise UsageError(
                f"invalid {option} {size!r}: expected bytes, or a size such as 128MiB or 100MB"
            )
        base = 1024 if match["binary"] else 1000
        number = int(float(match["number"]) * base ** _POWERS[match["prefix"].lower()])
    if number < 1:
        raise UsageError(f"{option} must be at least 1 byte, got {size}")
    return number


def as_shard_size(size: int | str) -> int:
    """Return the bytes of a shard; a number without a unit must be large enough to be meant."""
    number = as_size(size, "--shard-size")
    if number < _LEAST_BARE and str(size).strip() == str(number):
        raise UsageError(
            f"--shard-size {number} has no unit, so it means {number} bytes",
            hint=f"add the unit, such as {number}MiB, or {number}B for bytes",
        )
    return number


def option_name(argument: str) -> str:
    """Return an argument as the command line spells it: "--early-stopping".

    What has no option there, or is a phrase, stays as it is.
    """
    plain = argument if " " in argument else f"--{argument.replace('_', '-')}"
    return _OTHER_NAMES.get(argument, plain)


def as_member(kind: type[_Member], choice: object, argument: str) -> _Member:
    """Return the member of an enumeration that a caller named, or gave.

    Raises:
        UsageError: there is no such member; lists the words.
    """
    try:
        return kind(choice)
    except ValueError:
        known = ", ".join(str(member.value) for member in kind)
        what = f"invalid {option_name(argument)} {repr(choice)[:100]}"
        raise UsageError(what, expected=f"one of {known}") from None


def take_words(options: Any, **kinds: type[enum.Enum]) -> None:
    """Make members of the words in a frozen dataclass; for its ``__post_init__``.

    Each field has its enumeration; None stays where it is the field's default.
    """
    defaults = {field.name: field.default for field in fields(options)}
    for name, kind in kinds.items():
        choice = getattr(options, name)
        if choice is not None or defaults[name] is not None:
            object.__setattr__(options, name, as_member(kind, choice, name))


def make_options(kind: Callable[..., _Made], **options: Any) -> _Made:
    """Make a dataclass of the keyword arguments that a caller gave.

    Raises:
        UsageError: one of them is not a field of it; suggests one that is.
    """
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in options:
        if name not in known:
            raise UsageError(f"no option {name!r}", hint=suggestion(name, known, "options"))
    return kind(**options)


def check_least(numbers: Mapping[str, float | None], least: Mapping[str, int]) -> None:
    """Check arguments that are numbers, or None.

    Raises:
        UsageError: one is below the least that makes sense, or above what a TensorFlow int32 holds.
    """
    for name, bound in least.items():
        number = numbers[name]
        if number is not None and not bound <= number < 2**31:
            wanted = f"at least {bound}" if number < bound else f"at most {2**31 - 1}"
            raise UsageError(f"{option_name(name)} must be {wanted}, got {number}")
