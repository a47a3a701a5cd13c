"""Layout of a `Page` as text: by rich on a terminal, in plain columns for pipes and files.

Rich knows the width of a terminal and whether colors are wanted (``NO_COLOR``, ``TERM=dumb``). It
takes 40 ms to import, so pipes do without it. No result is shown by its color alone.
"""

import re
import shutil
import textwrap
import unicodedata
from collections.abc import Iterator

from tfrtool.page import Heading, Page, Prose, Table

_INDENT = "  "
_LINE = re.compile(".{1,200}", re.DOTALL)
"""A line of a cell in a pipe: a hostile name doesn't pad all rows."""
_NARROWEST = 40
"""Columns of a page; a terminal that has fewer breaks lines by itself."""
_NARROWEST_TEXT = 20
"""Columns of a text next to a label."""


def page_width() -> int:
    """Return how many columns a page takes: 80, or 40 to 80 on a terminal that has fewer."""
    return min(max(shutil.get_terminal_size().columns, _NARROWEST), 80)


def render(page: Page, *, terminal: bool) -> str:
    """Return a page as text, without a final newline.

    For a terminal it has styles, and what is too long is folded. For pipes and files it is as wide
    as it needs to be.
    """
    lines: list[str] = []
    draw = _Terminal() if terminal else _Plain()
    for number, block in enumerate(page):
        if number and _is_apart(page[number - 1], block):
            lines.append("")
        if isinstance(block, Table):
            rows = block.rows if block.head else _wrapped_facts(block)
            lines += draw.table(Table(rows=[*rows], head=block.head, right=block.right))
            continue
        parts = _wrapped(block, block.first) if isinstance(block, Prose) else [block]
        for part in parts:
            indent = len(part) - len(part.lstrip(" "))
            indent += 0 if isinstance(block, Heading) else len(_INDENT)
            lines += draw.line(part.lstrip(" "), indent, getattr(block, "style", ""))
    return "\n".join(map(str.rstrip, lines))


def _is_apart(before: str | Table, block: str | Table) -> bool:
    """Return whether an empty line stands between two blocks."""
    if isinstance(before, Heading) and not isinstance(block, Heading):
        return isinstance(block, Table) and bool(block.head)
    return isinstance(block, Table | Heading) or isinstance(before, Table)


def _wrapped(text: str, first: str = "", width: int | None = None) -> list[str]:
    """Return lines that start where the first one does; long words stay whole."""
    width = page_width() - len(_INDENT) if width is None else width
    wrap = textwrap.TextWrapper(width, break_on_hyphens=False, break_long_words=False)
    wrap.initial_indent, wrap.subsequent_indent = first, " " * len(first)
    return wrap.wrap(text)


def _wrapped_facts(table: Table) -> Iterator[tuple[str, str]]:
    room = page_width() - len(_INDENT) - 3 - max((len(row[0]) for row in table.rows), default=0)
    for label, text in table.rows:
        first, *more = _wrapped(text, width=max(room, _NARROWEST_TEXT)) or [""]
        kind = type(text) if hasattr(text, "style") else str
        yield label, kind(first) if more else text
        yield from (("", kind(line)) for line in more)


class _Plain:
    """Text for pipes and files."""

    def line(self, text: str, indent: int, _style: str) -> list[str]:
        return [" " * indent + text]

    def table(self, table: Table) -> Iterator[str]:
        gap = _INDENT if table.head else " " * 3
        texts = [row for row in (table.head, *table.rows) if row]
        rows = [[_LINE.findall(text) or [""] for text in row] for row in texts]
        columns = range(len(rows[0]) if rows else 0)
        widths = [max(_columns(part) for row in rows for part in row[n]) for n in columns]
        for row in rows:
            for line in range(max(map(len, row))):
                cells = []
                for n, parts in enumerate(row):
                    text = parts[line] if line < len(parts) else ""
                    pad = " " * (widths[n] - _columns(text))
                    cells.append(pad + text if n in table.right else text + pad)
                yield _INDENT + gap.join(cells)


def _columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    narrow = (one for one in text if not unicodedata.combining(one))
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in narrow)


class _Terminal:
    """Text with styles, folded at the width of the terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(force_terminal=True, color_system="auto", highlight=False)
        self._console.width = max(self._console.width, _NARROWEST)

    def line(self, text: str, indent: int, style: str) -> list[str]:
        from rich.padding import Padding
        from rich.text import Text

        line = Text(text, style=style, overflow="fold")
        return self._printed(Padding.indent(line, indent) if text else line)

    def table(self, table: Table) -> list[str]:
        from rich.padding import Padding
        from rich.table import Table as Grid
        from rich.text import Text

        gap = 2 if table.head else 3
        grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
        grid.show_header = bool(table.head)
        for column, name in enumerate(table.head or ("", "")):
            numeric = column in table.right
            grid.add_column(
                Text(name, overflow="fold"),
                justify="right" if numeric else "left",
                no_wrap=numeric,
                overflow="fold",
            )
        for row in table.rows:
            cells = (Text(one, getattr(one, "style", ""), overflow="fold") for one in row)
            grid.add_row(*cells)
        return self._printed(Padding(grid, (0, 0, 0, len(_INDENT)), expand=False))

    def _printed(self, block: object) -> list[str]:
        with self._console.capture() as captured:
            self._console.print(block)
        return captured.get().splitlines()
