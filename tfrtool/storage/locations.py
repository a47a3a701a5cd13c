"""What users give as a path, and where their caches are."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError
from tfrtool.storage.remote_path import RemotePath, is_url, remote_path

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""One path, or several."""


def check_no_url(location: str | os.PathLike[str], what: str) -> None:
    """Raise a `UsageError` if what stands for a path is a URL; ``what`` says what is done there."""
    if isinstance(location, RemotePath) or (isinstance(location, str) and is_url(location)):
        url = remote_path(str(location))
        raise UsageError(f"is a URL, but {what}", path=url)


def as_path(location: str | os.PathLike[str]) -> Path:
    """Return what a caller gave as a path, or as a URL; `UsageError` if it is none."""
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
    """Return a path as it is given, and a URL without what is secret in it."""
    path = as_path(location)
    return str(path) if isinstance(path, RemotePath) else os.fspath(location)


def as_local_path(location: str | os.PathLike[str]) -> Path:
    """Return what a caller gave as a path to write to, which can't be a URL."""
    path = as_path(location)
    check_no_url(path, "only local paths can be written here")
    return path


def as_paths(locations: Paths) -> tuple[Path, ...]:
    """Return one path or several as a tuple; the errors are those of `as_path`."""
    if isinstance(locations, str | os.PathLike):
        return (as_path(locations),)
    try:
        return tuple(map(as_path, locations))
    except TypeError as error:
        raise UsageError(
            f"expected a path or several, a str or PathLike each, not {type(locations).__name__}"
        ) from error


def take_paths(options: Any, *names: str) -> None:
    """Make paths of the named fields of a frozen dataclass; for its ``__post_init__``.

    None stays where it is the field's default. All but a dataset are local. The errors are those
    of `as_path`.
    """
    defaults = {field.name: field.default for field in fields(options)}
    for name in names:
        location = getattr(options, name)
        if location is not None or defaults[name] is not None:
            made = as_path(location) if name == "dataset" else as_local_path(location)
            object.__setattr__(options, name, made)


def user_cache(part: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return where a part of tfrtool's caches is (XDG Base Directory Specification 0.8).

    None where neither XDG_CACHE_HOME nor a home directory is known.
    """
    base = Path(environment.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the specification has relative paths ignored
        try:
            base = Path.home() / ".cache"
        except RuntimeError:
            return None
    return base / "tfrtool" / part
