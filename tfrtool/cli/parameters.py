"""Types of option values, and what the arguments for shards and datasets mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import click

from tfrtool.cli.output import note
from tfrtool.errors import printable

__all__ = ["RESIZE", "SIZE", "dataset_of", "shards_of"]

_SIZE = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)\s*(?P<prefix>[kmgt]?)(?P<binary>i?)b?", re.IGNORECASE
)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


class _Size(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    """A number of bytes: 1000, 64KB (a thousand each), 128MiB (1024 each)."""

    name = "SIZE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the number of bytes."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        if match is None or (match["binary"] and not match["prefix"]):
            self.fail(f"{value!r} is not a size; 128MiB and 100MB are", param, ctx)
        base = 1024 if match["binary"] else 1000
        size = int(float(match["number"]) * base ** _POWERS[match["prefix"].lower()])
        if size < 1:
            self.fail("a size is at least 1 byte", param, ctx)
        return size


SIZE = _Size()


class _Resize(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    """A size of images: 224 for the shorter side, 224x160 for width and height."""

    name = "N|WxH"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return one number, or width and height."""
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(\d{1,6})(?:[xX](\d{1,6}))?", str(value).strip(), re.ASCII)
        if match is None:
            self.fail(f"{value!r} is no size of images; 224 and 224x160 are", param, ctx)
        return tuple(int(group) for group in match.groups() if group is not None)


RESIZE = _Resize()


def shards_of(arguments: Iterable[str]) -> tuple[Path, ...]:
    """Return the shards that SHARDS means, and say what was decided on the way."""
    from tfrtool.records.shards import locate_shards

    found = locate_shards(arguments)
    for text in found.notes:
        note(text)
    return found.paths


def dataset_of(argument: str) -> Path:
    """Return the directory that DATASET means, and say what was decided on the way."""
    from tfrtool.records.dataset_folders import find_folders
    from tfrtool.storage.locations import as_path

    found = find_folders(as_path(argument))
    for text in found.notes:
        note(f"{printable(argument)}: {text}")
    return found.root
