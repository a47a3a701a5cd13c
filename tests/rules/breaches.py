"""How the rules report what breaks them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

__all__ = ["expect_none"]


def expect_none(found: Mapping[str, Any] | Collection[Any], rule: str) -> None:
    """Fail with a rule and the places that break it, if there are any.

    Args:
        found: the places: by file, or a list of texts or of (file, text). Empty values count as
            none.
        rule: what the rule is, and what to do if it is broken.
    """
    __tracebackhide__ = True
    if isinstance(found, Mapping):
        lines = [f"{file}: {places}" for file, places in found.items() if places]
    else:
        lines = [place if isinstance(place, str) else ": ".join(map(str, place)) for place in found]
    if lines:
        pytest.fail("\n  ".join([rule, *lines]), pytrace=False)
