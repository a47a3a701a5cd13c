"""What a command shows to people: headings, lines and tables.

Rich knows the width of a terminal and whether colours are wanted (``NO_COLOR``, ``TERM=dumb``). No
result is shown by its colour alone.
"""

import shutil
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.table import Table as Grid
    from rich.text import Text

_INDENT = "  "
_FOUND_SHOWN = 10
_UNLIMITED, _WIDEST = 2**20, 200
"""Columns of a pipe, and of a cell in it: a hostile name doesn't pad all rows."""


class Good(str):
    """A text that says that something is as it should be."""

    style = "green"


class Bad(str):
    """A text that says that something is wrong."""

    style = "bold red"


class Heading(str):
    """A line that starts a part; it may be good or bad."""

    def __init__(self, text: str) -> None:
        """Take over how the text looks."""
        self.style = getattr(text, "style", "bold")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns under a head, or, without one, labels and what they say.

    Cells stand at the right in the columns of ``right``, from 0.
    """

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    right: Collection[int] = ()


Page = Sequence[str | Table]
"""Texts are lines, which are indented by two columns unless they are headings."""


def page_width() -> int:
    """Return how many columns a page takes: 80, or those of a terminal that has fewer."""
    return min(shutil.get_terminal_size().columns, 80)


def facts(*rows: tuple[str, str]) -> Table:
    """Return labels and what they say, a line each, or several where it is long."""
    lines: list[tuple[str, str]] = []
    room = page_width() - len(_INDENT) - 3 - max((len(label) for label, _ in rows), default=0)
    for label, text in rows:
        first, *more = wrapped(text, width=room) or [""]
        lines += [(label, first if more else text), *(("", line) for line in more)]
    return Table(rows=lines)


def wrapped(text: str, first: str = "", width: int | None = None) -> list[str]:
    """Return lines that start where the first one does; long words stay whole."""
    width = page_width() - len(_INDENT) if width is None else width
    wrap = textwrap.TextWrapper(width, break_on_hyphens=False, break_long_words=False)
    wrap.initial_indent, wrap.subsequent_indent = first, " " * len(first)
    return wrap.wrap(text)


def shortened(
    lines: Sequence[str], shown: int, total: int | None = None, hint: str = "use --json to list all"
) -> list[str]:
    """Return the first lines, and one that says how many more there are: ``total`` in all."""
    more = (len(lines) if total is None else total) - min(len(lines), shown)
    return [*lines[:shown], *([f"... and {more:,} more; {hint}"] if more > 0 else [])]


def findings(found: Sequence[tuple[str, str]], total: int | None = None) -> list[str]:
    """Return what is wrong, each with its reason below it; of ``total`` the first."""
    lines: list[str] = []
    for what, why in found[:_FOUND_SHOWN]:
        lines += [Bad(what), *wrapped(why, " " * 4)]
    more = (len(found) if total is None else total) - min(len(found), _FOUND_SHOWN)
    return shortened(lines, len(lines), len(lines) + more)


def render(page: Page, *, terminal: bool) -> str:
    """Return a page as text, without a final newline.

    For a terminal it has styles, and what is too long is folded. For pipes and files it is as wide
    as it needs to be.
    """
    from rich.console import Console
    from rich.padding import Padding

    console = Console(
        force_terminal=terminal,
        color_system="auto" if terminal else None,
        width=None if terminal else _UNLIMITED,
        highlight=False,
        soft_wrap=not terminal,
    )
    with console.capture() as captured:
        for number, block in enumerate(page):
            if number and _is_apart(page[number - 1], block):
                console.print()
            if isinstance(block, Table):
                grid = _grid(block, None if terminal else _WIDEST)
                console.print(Padding(grid, (0, 0, 0, len(_INDENT)), expand=False))
                continue
            text = block.lstrip(" ")
            indent = len(block) - len(text) + (0 if isinstance(block, Heading) else len(_INDENT))
            line = _text(text, getattr(block, "style", ""))
            if terminal and text:
                console.print(Padding.indent(line, indent))
            else:
                console.print(" " * indent, line, sep="")
    return "\n".join(map(str.rstrip, captured.get().splitlines()))


def _is_apart(before: str | Table, block: str | Table) -> bool:
    """Return whether an empty line stands between two blocks."""
    if isinstance(before, Heading) and not isinstance(block, Heading):
        return isinstance(block, Table) and bool(block.head)
    return isinstance(block, Table | Heading) or isinstance(before, Table)


def _text(content: str, style: str = "") -> "Text":
    from rich.text import Text

    return Text(content, style=style or getattr(content, "style", ""), overflow="fold")


def _grid(table: Table, widest: int | None) -> "Grid":
    from rich.table import Table as Grid

    gap = 2 if table.head else 3
    grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    grid.show_header = bool(table.head)
    for column, name in enumerate(table.head or ("", "")):
        numeric = column in table.right
        justify: JustifyMethod = "right" if numeric else "left"
        grid.add_column(_text(name), justify=justify, no_wrap=numeric, overflow="fold")
        grid.columns[-1].max_width = widest
    for row in table.rows:
        grid.add_row(*map(_text, row))
    return grid
