"""How far a verb is, told to whoever called it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a verb is; the last of a phase has ``done == total``, where a total is known."""

    what: str  # the phase, in a word or two that a person can read: "checking", "writing"
    done: int
    total: int | None  # None where that can't be known beforehand
    unit: str  # of both: "records", "images", "shards", "steps", "B"
    note: str = ""  # what else can be told by now, such as "loss 0.31"


OnProgress = Callable[[Progress], None]
"""What takes it: called from the thread that called the verb, some times a second."""


def silent(_progress: Progress) -> None:
    """Tell nobody."""
