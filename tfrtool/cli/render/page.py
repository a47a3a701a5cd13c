"""What a command shows to people: blocks of text, as plain text in a pipe, styled on a terminal.

A page is built once. `plain` writes it in fixed columns, for pipes, files and tests, without the
30 ms that rich takes to load; on a terminal the same blocks go through rich, which knows its width
and whether colours are wanted (``NO_COLOR``, ``TERM=dumb``). No result is told by its colour alone.
"""

import enum
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

_INDENT = "  "
_FOUND_SHOWN = 10
_WIDEST = 60
"""Columns that all cells of a column get; a longer one pushes what follows it to the right."""


class Tone(enum.Enum):
    """What a piece of text means; the values are styles of rich."""

    TITLE = "bold"
    GOOD = "green"
    BAD = "bold red"
    FAINT = "dim"


class Toned(str):
    """A text with a tone, which plain output ignores."""

    __slots__ = ("tone",)

    tone: Tone

    def __new__(cls, text: str, tone: Tone) -> "Toned":
        """Give ``text`` a tone."""
        made = super().__new__(cls, text)
        made.tone = tone
        return made


@dataclass(frozen=True, slots=True)
class Heading:
    """A line that starts a part; facts and lines that follow it stand right below."""

    text: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels and what they say, a line each."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns under a head; cells stand at the right in the columns of ``right``, from 0."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines as they are, indented by two columns."""

    lines: Sequence[str]


Block = Heading | Facts | Table | Lines
Page = Sequence[Block]


def findings(found: Sequence[tuple[str, str]], more: int = 0) -> Lines:
    """Return what is wrong, each with its reason below it; of many the first, and how many more."""
    lines: list[str] = []
    for what, why in found[:_FOUND_SHOWN]:
        lines.append(Toned(what, Tone.BAD))
        lines += textwrap.wrap(why, 78, initial_indent=" " * 4, subsequent_indent=" " * 4)
    more += max(len(found) - _FOUND_SHOWN, 0)
    return Lines([*lines, f"... and {more:,} more; --json lists them all"] if more else lines)


def shortened(lines: Sequence[str], shown: int, total: int | None = None) -> list[str]:
    """Return the first lines, and one that says how many more there are: ``total`` in all."""
    more = (len(lines) if total is None else total) - shown
    return [*lines[:shown], *([f"... and {more:,} more; --json lists them"] if more > 0 else [])]


def plain(page: Page) -> str:
    """Return a page as text without any escape sequence, and without a final newline."""
    return "\n".join(line for part in _parts(page) for line in _plain_lines(part))


def _parts(page: Page) -> Iterator[Block | None]:
    """Yield the blocks of a page, with None for an empty line between two."""
    for number, block in enumerate(page):
        below = (
            number and isinstance(page[number - 1], Heading) and isinstance(block, Facts | Lines)
        )
        if number and not below:
            yield None
        yield block


def _plain_lines(block: Block | None) -> Iterator[str]:
    if block is None:
        yield ""
    elif isinstance(block, Heading):
        yield str(block.text)
    elif isinstance(block, Lines):
        yield from (f"{_INDENT}{line}".rstrip() for line in block.lines)
    else:
        rows, right, gap = block.rows, frozenset[int](), "   "
        if isinstance(block, Table):
            rows, right, gap = [block.head, *block.rows], block.right, "  "
        widths = [min(max(map(len, column)), _WIDEST) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (
                cell.rjust(width) if column in right else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            yield (_INDENT + gap.join(cells)).rstrip()


def styled(page: Page) -> "RenderableType":
    """Return a page as rich prints it on a terminal: what is too long is folded in its column."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table as Grid
    from rich.text import Text

    def text(content: str, tone: Tone | None = None) -> Text:
        tone = content.tone if isinstance(content, Toned) else tone
        return Text(str(content), style=tone.value if tone else "", overflow="fold")

    shown: list[RenderableType] = []
    for block in _parts(page):
        if block is None:
            shown.append("")
        elif isinstance(block, Heading):
            shown.append(text(block.text, Tone.TITLE))
        elif isinstance(block, Lines):
            for line in block.lines:
                indent = len(line) - len(line.lstrip(" "))
                shown.append(Padding(text(line)[indent:], (0, 0, 0, len(_INDENT) + indent)))
        elif isinstance(block, Facts):
            grid = Grid.grid(padding=(0, 3, 0, 0))
            for label, content in block.rows:
                grid.add_row(text(label, Tone.FAINT), text(content))
            shown.append(Padding(grid, (0, 0, 0, len(_INDENT))))
        else:
            grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
            for column, name in enumerate(block.head):
                right = column in block.right
                grid.add_column(text(name), justify="right" if right else "left", overflow="fold")
            for row in block.rows:
                grid.add_row(*map(text, row))
            shown.append(Padding(grid, (0, 0, 0, len(_INDENT))))
    return Group(*shown)
