"""What verbs return as plain JSON values."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from tfrtool.errors import printable

__all__ = ["as_json"]


def as_json(value: Any, *left_out: str) -> Any:
    """Return a value as JSON has it: dataclasses as objects of their fields, enums as their words.

    Args:
        value: dataclasses, enums, paths, mappings and sequences of them, and what JSON knows.
        left_out: fields of ``value`` itself that are left out.
    """
    if is_dataclass(value):
        names = (field.name for field in fields(value) if field.name not in left_out)
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Path):
        return printable(str(value))
    if isinstance(value, Mapping):
        return {as_json(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value
