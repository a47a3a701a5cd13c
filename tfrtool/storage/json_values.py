"""Results as JSON values, with the names of what is in memory; and as pages in a notebook."""

import abc
import enum
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import PurePath
from typing import Any

from tfrtool.errors import printable


def to_json_values(value: object) -> Any:
    """Return a value as JSON values: an object by its fields, an enumeration's member by its value.

    A field that holds a dataclass is replaced by the fields of that: a fault in a file has the keys
    of both. What counts in no comparison is left out where it is None: causes that nobody looked
    for.
    """
    if is_dataclass(value) and not isinstance(value, type):
        data: dict[str, Any] = {}
        for field in fields(value):
            part = getattr(value, field.name)
            if part is None and not field.compare:
                continue
            data |= (
                to_json_values(part) if is_dataclass(part) else {field.name: to_json_values(part)}
            )
        return data
    if isinstance(value, Mapping):
        return {printable(str(key)): to_json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_values(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, PurePath):
        return printable(str(value))
    return value


VIEW = "tfrtool.view.notebook"
"""The room of pages, which stands to the left of all who have something to show: it is looked for
when something is shown, and only then."""


class Shown(abc.ABC):
    """What a notebook shows as a page: its ``_page`` names a template, and what goes into it."""

    __slots__ = ()

    @abc.abstractmethod
    def _page(self) -> tuple[str, dict[str, Any]]:
        """Return the template's name and its values: JSON, or what is named in the template."""

    def _repr_html_(self) -> str:
        """Return the page."""
        return str(import_module(VIEW).cell(*self._page()))
