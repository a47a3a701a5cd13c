"""How far a verb is, told to whoever called it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a verb is; the last of a phase has ``done == total``, where a total is known.

    Attributes:
        what: the phase, in a word or two that a person can read: "checking", "writing".
        done: how much of it is done.
        total: how much there is; None where that can't be known beforehand.
        unit: of both: "records", "images", "shards", "steps", "B".
        note: what else can be told by now, such as "loss 0.31"; empty for nothing.
    """

    what: str
    done: int
    total: int | None
    unit: str
    note: str = ""


OnProgress = Callable[[Progress], None]
"""What takes it: called from the thread that called the verb, some times a second."""


def silent(_progress: Progress) -> None:
    """Tell nobody."""
