"""Results that show themselves in a notebook."""

from importlib import import_module
from typing import Any

from tfrtool.errors import UsageError

VIEW = "tfrtool.view.notebook"
"""The room of pages, which stands to the left of all who have something to show: it is looked for
when something is shown, and only then."""


class Shown:
    """What a notebook shows as a page: its ``_page`` names a template, and what goes into it."""

    __slots__ = ()

    def _page(self) -> tuple[str, dict[str, Any]]:
        """Return the template's name and its values: JSON, or what is named in the template."""
        raise NotImplementedError

    def _repr_html_(self) -> str | None:
        """Return the page; None, so that the text is shown, where Jinja2 is missing."""
        try:
            return str(import_module(VIEW).cell(*self._page()))
        except (ImportError, UsageError):
            return None
