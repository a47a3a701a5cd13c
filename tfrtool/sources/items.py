"""What a source gives: items, and an account of everything that is none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Item", "LeftOut", "Source"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One labelled image of a source.

    Attributes:
        key: its path below the source, with ``/`` between folders; unique in the source.
        label: its class, by name.
        path: where its bytes are.
        bytes: how many those are.
    """

    key: str
    label: str
    path: Path
    bytes: int

    def __post_init__(self) -> None:
        if not self.key or not self.label:
            raise ValueError("an item has a key and a label")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Something that is not written.

    Attributes:
        key: its path below the source.
        reason: why, in a clause.
    """

    key: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Everything that was found in a source.

    Attributes:
        items: the images, sorted by key.
        labels: the class names, sorted.
        rejected: images that belong to no class.
        ignored: files that are no images by their names.
    """

    items: tuple[Item, ...]
    labels: tuple[str, ...]
    rejected: tuple[LeftOut, ...] = ()
    ignored: tuple[LeftOut, ...] = ()
