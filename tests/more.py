"""What the gate leaves to ``make test-several``, as it has another of its kind."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["more"]


def more(*values: Any) -> Any:
    """Return the values of a test that is one more of a kind."""
    return pytest.param(*values, marks=pytest.mark.more)
