"""Types of option values."""

from __future__ import annotations

import re

import click

__all__ = ["SIZE"]

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
