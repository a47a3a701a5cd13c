"""What the gate leaves to ``make test-several``, as it has another of its kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["more", "thinned"]


def more(*values: Any) -> Any:
    """Return the values of a test that is one more of a kind."""
    return pytest.param(*values, marks=pytest.mark.more)


def thinned(values: Iterable[Any], *, every: int) -> list[Any]:
    """Return the values of a test, of which the gate takes the first of each ``every``."""
    return [more(value) if number % every else value for number, value in enumerate(values)]
