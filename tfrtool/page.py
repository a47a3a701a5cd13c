"""Results as people see them: lines, facts and tables, for the terminal and for HTML pages."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

_BARS = " ▁▂▃▄▅▆▇█"
_FINDINGS_SHOWN = 10


class Good(str):
    """A text about something that is as it should be."""

    style = "green"


class Bad(str):
    """A text about something that is wrong."""

    style = "bold red"


class Heading(str):
    """A line that starts a part; it may be good or bad."""

    def __init__(self, text: str) -> None:
        """Keep the style of a good or bad text."""
        self.style = getattr(text, "style", "bold")


class Prose(str):
    """A text to wrap: its lines start after ``first``, which begins the first one."""

    first = ""

    def __new__(cls, text: str, first: str = "") -> "Prose":
        """Make a text."""
        prose = super().__new__(cls, text)
        prose.first = first
        return prose


class Histogram(str):
    """A distribution: a row of bars as text, which HTML pages draw."""

    counts: Sequence[float]
    edges: Sequence[float]

    def __new__(cls, counts: Sequence[float], edges: Sequence[float]) -> "Histogram":
        """Draw the counts between edges; a bucket with anything in it has a bar."""
        most = max(counts)
        histogram = super().__new__(cls, "".join(_BARS[math.ceil(8 * n / most)] for n in counts))
        histogram.counts, histogram.edges = counts, edges
        return histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns under a head, or, without one, facts: labels and what they say.

    The columns of ``right``, from 0, are aligned at the right.
    """

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    right: Collection[int] = ()


Page = Sequence[str | Table]
"""Texts are lines, indented by two columns unless they are headings."""


def facts(*rows: tuple[str, str]) -> Table:
    """Return labels and what they say; long texts are wrapped."""
    return Table(rows=rows)


def figure_text(value: float | None) -> str:
    """Return a score or a loss, None if there is none, as text."""
    return "-" if value is None else f"{value:.4f}"


def shortened(
    lines: Sequence[str], shown: int, total: int | None = None, hint: str = "use --json to list all"
) -> list[str]:
    """Return the first lines, and one that says how many more there are: ``total`` in all."""
    more = (len(lines) if total is None else total) - min(len(lines), shown)
    return [*lines[:shown], *([f"... and {more:,} more; {hint}"] if more > 0 else [])]


def findings(found: Sequence[tuple[str, str]], total: int | None = None) -> list[str]:
    """Return the first faults of ``total``, each with its reason below it."""
    first = found[:_FINDINGS_SHOWN]
    lines = [line for what, why in first for line in (Bad(what), Prose(why, " " * 4))]
    more = (len(found) if total is None else total) - len(first)
    return shortened(lines, len(lines), len(lines) + more)
