"""Two small sets of records, without a random number, on which TFDV's figures were recorded."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["records"]


def records(which: int) -> list[dict[str, list[Any]]]:
    """Return records as features by name; 0 and 1 are two sets that differ."""
    made: list[dict[str, list[Any]]] = []
    for n in range(400 + 150 * which):
        record: dict[str, list[Any]] = {
            "wave": [math.sin(n) * 10 + 3 * which],
            "steps": [n * n % 97 - 20 * which],
            "word": [b"abcdefgh"[n * n % (5 + which)].to_bytes(1, "big") * 3],
            "list": [float(n % 7 + k) for k in range(n % 4)],
        }
        if n % 5 < 3 + which:
            record["seldom"] = [n % 3]
        if n % 50 == 0:
            record["wave"] = [math.nan]
        made.append(record)
    return made
