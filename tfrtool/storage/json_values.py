"""Results as JSON values, and as text in a notebook."""

import enum
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any

from tfrtool.errors import printable
from tfrtool.storage.remote_path import RemotePath


def to_json_values(value: object) -> Any:
    """Return a value as JSON values: an object by its fields, an enumeration's member by its value.

    A field that holds a dataclass is replaced by the fields of that: a fault in a file has the keys
    of both. What counts in no comparison is left out where it is None: causes that nobody looked
    for.
    """
    if isinstance(value, PurePath | RemotePath):
        return printable(str(value))
    if is_dataclass(value) and not isinstance(value, type):
        data: dict[str, Any] = {}
        for field in fields(value):
            part = getattr(value, field.name)
            if part is None and not field.compare:
                continue
            values = to_json_values(part)
            is_part = is_dataclass(part) and isinstance(values, dict)
            data |= values if is_part else {field.name: values}
        return data
    if isinstance(value, Mapping):
        return {printable(str(key)): to_json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_values(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    return value


class Shown:
    """A result that a notebook displays as text."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the values as YAML, in HTML."""
        import html

        import yaml

        described = getattr(self, "to_json", lambda: to_json_values(self))()
        text = yaml.safe_dump(described, sort_keys=False, allow_unicode=True)
        return f"<pre>{html.escape(text)}</pre>"
