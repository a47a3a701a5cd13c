"""What users give for a choice: a member of an enumeration, or the word that is its value."""

from __future__ import annotations

import enum
from dataclasses import fields
from typing import Any, TypeVar

from tfrtool.errors import UsageError

_Member = TypeVar("_Member", bound=enum.Enum)


def as_member(kind: type[_Member], choice: object, what: str) -> _Member:
    """Return the member that a caller named.

    Args:
        kind: the enumeration; its values are the words.
        choice: a member, or a word.
        what: what is chosen, for the message.

    Raises:
        UsageError: it is none of them; the error lists them.
    """
    try:
        return kind(choice)
    except ValueError:
        known = ", ".join(str(member.value) for member in kind)
        raise UsageError(
            f"no such {what.replace('_', ' ')}",
            expected=f"one of {known}",
            found=repr(choice)[:100],
        ) from None


def take_words(options: Any, **kinds: type[enum.Enum]) -> None:
    """Make members of the words in a frozen dataclass; for its ``__post_init__``.

    Args:
        options: the dataclass.
        **kinds: the enumeration of each field. None stays where it is the field's default.

    Raises:
        UsageError: a field is no member and no word.
    """
    defaults = {field.name: field.default for field in fields(options)}
    for name, kind in kinds.items():
        choice = getattr(options, name)
        if choice is not None or defaults[name] is not None:
            object.__setattr__(options, name, as_member(kind, choice, name))
