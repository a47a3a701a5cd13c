"""What a command shows to people: blocks of text, as plain text in a pipe, styled on a terminal.

A page is built once. `plain` lays it out in fixed columns, for pipes, files and tests; on a
terminal the same blocks go through rich, which knows its width and whether colours are wanted
(``NO_COLOR``, ``TERM=dumb``). No result is ever told by its colour alone.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

__all__ = [
    "Block",
    "Facts",
    "Heading",
    "Lines",
    "Page",
    "Table",
    "Tone",
    "Toned",
    "plain",
    "styled",
]

_INDENT = "  "
_GAP = "  "
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

    def __new__(cls, text: str, tone: Tone) -> Toned:
        """Give ``text`` a tone."""
        made = super().__new__(cls, text)
        made.tone = tone
        return made


@dataclass(frozen=True, slots=True)
class Heading:
    """A line that starts a part; facts that follow it stand right below.

    Attributes:
        text: the line.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels and what they say, a line each.

    Attributes:
        rows: labels and texts.
    """

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns under a head.

    Attributes:
        head: the columns' names.
        rows: the cells; each row has as many as there are names.
        right: the numbers of the columns, from 0, whose cells stand at the right.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if any(len(row) != len(self.head) for row in self.rows):
            raise ValueError("each row has as many cells as the head")


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines as they are, indented by two columns.

    Attributes:
        lines: the lines.
    """

    lines: Sequence[str]


Block = Heading | Facts | Table | Lines
Page = Sequence[Block]


def plain(page: Page) -> str:
    """Return a page as text without any escape sequence, and without a final newline."""
    text = ""
    for number, block in enumerate(page):
        if number:
            below = isinstance(page[number - 1], Heading) and isinstance(block, Facts | Lines)
            text += "\n" if below else "\n\n"
        text += "\n".join(_plain_lines(block))
    return text


def _plain_lines(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield str(block.text)
    elif isinstance(block, Facts):
        width = max((len(label) for label, _ in block.rows), default=0) + 3
        for label, text in block.rows:
            yield f"{_INDENT}{label:{width}}{text}".rstrip()
    elif isinstance(block, Table):
        rows = [block.head, *block.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(block.head))]
        widths = [min(width, _WIDEST) for width in widths]
        for row in rows:
            cells = (
                cell.rjust(width) if column in block.right else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            yield (_INDENT + _GAP.join(cells)).rstrip()
    else:
        for line in block.lines:
            yield f"{_INDENT}{line}".rstrip()


def styled(page: Page) -> RenderableType:
    """Return a page as rich prints it on a terminal."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for number, block in enumerate(page):
        if number:
            below = isinstance(page[number - 1], Heading) and isinstance(block, Facts | Lines)
            parts += [] if below else [Text("")]
        parts.append(_styled_block(block))
    return Group(*parts)


def _styled_text(content: str, default: str = "") -> Text:
    from rich.text import Text

    tone = content.tone.value if isinstance(content, Toned) else default
    return Text(str(content), style=tone, overflow="fold")


def _styled_line(line: str) -> RenderableType:
    """Return a line whose continuation, should it be too long, starts where it does."""
    from rich.padding import Padding

    text = _styled_text(line)
    indent = len(line) - len(line.lstrip(" "))
    return Padding(text[indent:], (0, 0, 0, len(_INDENT) + indent))


def _styled_block(block: Block) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table as Grid
    from rich.text import Text

    text = _styled_text
    if isinstance(block, Heading):
        return text(block.text, Tone.TITLE.value)
    if isinstance(block, Lines):
        return Group(*map(_styled_line, block.lines))
    if isinstance(block, Facts):
        grid = Grid.grid(padding=(0, 3, 0, 0))
        for label, content in block.rows:
            grid.add_row(text(label, Tone.FAINT.value), text(content))
    else:
        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=Tone.FAINT.value)
        for column, name in enumerate(block.head):
            right = column in block.right
            grid.add_column(Text(name), justify="right" if right else "left", overflow="fold")
        for row in block.rows:
            grid.add_row(*(text(cell) for cell in row))
    return Padding(grid, (0, 0, 0, 2))
