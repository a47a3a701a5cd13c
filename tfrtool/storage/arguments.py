"""Arguments of callers: choices, sizes, options and paths."""

import enum
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from tfrtool.errors import UsageError
from tfrtool.storage.remote_path import AnyPath, RemotePath, is_url, remote_path

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""One path, or several."""

_Member = TypeVar("_Member", bound=enum.Enum)

_SIZE = re.compile(
    r"(?P<number>\d{1,15}(?:\.\d{1,9})?)\s*(?P<prefix>[kmgt]?)(?P<binary>i?)b?", re.IGNORECASE
)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

_OTHER_NAMES = {
    "cache_directory": "--cache-dir",
    "dataset": "DATASET",
    **{name: name for name in ("dtype", "existing", "first_epoch", "first_step", "label")},
}
"""Arguments that have another name on the command line, or none."""


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


def option_name(argument: str) -> str:
    """Return the option of an argument, such as "--early-stopping"; a phrase stays as it is."""
    option = argument if " " in argument else f"--{argument.replace('_', '-')}"
    return _OTHER_NAMES.get(argument, option)


def as_member(kind: type[_Member], choice: object, argument: str) -> _Member:
    """Return a member of an enumeration, from its value or itself.

    Raises:
        UsageError: there is no such member; lists the values.
    """
    try:
        return kind(choice)
    except ValueError:
        known = ", ".join(str(member.value) for member in kind)
        what = f"invalid {option_name(argument)} {repr(choice)[:100]}"
        raise UsageError(what, expected=f"one of {known}") from None


def parse_enum_fields(options: Any, **kinds: type[enum.Enum]) -> None:
    """Replace fields of a frozen dataclass by members of enumerations; for ``__post_init__``.

    ``kinds`` has the enumeration of each field. None stays if it is the field's default.
    """
    defaults = {field.name: field.default for field in fields(options)}
    for name, kind in kinds.items():
        choice = getattr(options, name)
        if choice is not None or defaults[name] is not None:
            object.__setattr__(options, name, as_member(kind, choice, name))


def check_no_url(location: str | os.PathLike[str], what: str) -> None:
    """Raise a `UsageError` if a path is a URL; ``what`` completes the message."""
    if isinstance(location, RemotePath) or (isinstance(location, str) and is_url(location)):
        url = remote_path(str(location))
        raise UsageError(f"is a URL, but {what}", path=url)


def as_path(location: str | os.PathLike[str]) -> AnyPath:
    """Return a path or a URL of a caller as a path.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(location, RemotePath):
        return location
    try:
        text = os.fspath(location)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise UsageError(
            f"a path must be a str or a PathLike of str, not {type(location).__name__}"
        )
    if not text or "\0" in text:
        raise UsageError(f"a path must not {'contain a NUL character' if text else 'be empty'}")
    return remote_path(text) if is_url(text) else Path(text)


def as_text(location: str | os.PathLike[str]) -> str:
    """Return a path as the caller wrote it, but a URL without secrets."""
    path = as_path(location)
    return str(path) if isinstance(path, RemotePath) else os.fspath(location)


def as_local_path(location: str | os.PathLike[str]) -> Path:
    """Return a caller's path to write to; a URL is a `UsageError`."""
    path = as_path(location)
    if isinstance(path, RemotePath):
        raise UsageError("is a URL, but only local paths can be written here", path=path)
    return path


def as_paths(locations: Paths) -> tuple[AnyPath, ...]:
    """Return one path or several as a tuple, by `as_path`."""
    if isinstance(locations, str | os.PathLike):
        return (as_path(locations),)
    try:
        return tuple(map(as_path, locations))
    except TypeError as error:
        raise UsageError(
            f"expected a path or several, a str or PathLike each, not {type(locations).__name__}"
        ) from error


def parse_path_fields(options: Any, *names: str) -> None:
    """Replace the named fields of a frozen dataclass by paths; for its ``__post_init__``.

    None stays if it is the field's default. Only a dataset may be a URL.
    """
    defaults = {field.name: field.default for field in fields(options)}
    for name in names:
        location = getattr(options, name)
        if location is not None or defaults[name] is not None:
            path = as_path(location) if name == "dataset" else as_local_path(location)
            object.__setattr__(options, name, path)


def user_cache(part: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder of one of tfrtool's caches (XDG Base Directory Specification 0.8).

    None if neither XDG_CACHE_HOME nor a home directory is known.
    """
    base = Path(environment.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the specification has relative paths ignored
        try:
            base = Path.home() / ".cache"
        except RuntimeError:
            return None
    return base / "tfrtool" / part
