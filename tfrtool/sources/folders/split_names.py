"""Names of splits in common use, and what they mean."""

from __future__ import annotations

__all__ = ["SPLIT_NAMES", "SPLIT_ORDER"]

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "dev",
    "eval": "eval",
    "test": "test",
    "testing": "test",
}
"""Names in lower case, and the splits' names: TFDS' own for what means the same."""

SPLIT_ORDER = tuple(dict.fromkeys(SPLIT_NAMES.values()))
"""The order that splits are given in."""
