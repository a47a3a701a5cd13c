"""Types of features as a user names them: ``NAME:TYPE``, or a dictionary in Python."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tfrtool.errors import UsageError

if TYPE_CHECKING:
    from tfrtool.examples.fields import Values

_EXPECTED = "NAME:TYPE, such as image:raw:uint8[@height,@width,3] or steps/action:float32[7]"

_MOST_COLONS = 20
"""Colons of ``NAME:TYPE`` at which the name may end."""


def parse_type_options(texts: Iterable[str]) -> dict[str, str]:
    """Return the types of ``NAME:TYPE``, by name; names may have colons."""
    types = dict[str, str]()
    for text in texts:
        cuts = [match.start() for match in re.finditer(":", text)][:_MOST_COLONS]
        name, word = text.partition(":")[::2]
        for cut in cuts:
            if _is_type(text[cut + 1 :]):
                name, word = text[:cut], text[cut + 1 :]
                break
        if not name or not word:
            raise UsageError(f"invalid --type {text[:100]!r}", expected=_EXPECTED)
        _parsed(word)
        if types.setdefault(name, word) != word:
            raise UsageError(f"two types of {name[:100]!r}: {types[name]} and {word}"[:300])
    return types


def _is_type(word: str) -> bool:
    try:
        _parsed(word)
    except UsageError:
        return False
    return True


def _parsed(word: str) -> "Values":
    from tfrtool.examples.fields import Values  # with protobuf, for types alone

    return Values.parse(word)


def parse_types(types: Mapping[str, str] | None) -> "dict[str, Values]":
    """Return the types of features by name; `UsageError` for one that doesn't exist."""
    parsed: dict[str, Values] = {}
    for name, word in (types or {}).items():
        if not isinstance(name, str) or not isinstance(word, str):
            raise UsageError("types must be texts by the names of features")
        parsed[name] = _parsed(word)
    return parsed


def check_types(types: Mapping[str, str] | None, *, as_stored: bool = False) -> None:
    """Check types before anything is read; `UsageError` if they can't be used."""
    if types and as_stored:
        raise UsageError("--type and --as-stored can't be used together")
    parse_types(types)
