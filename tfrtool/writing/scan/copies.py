"""Exact copies of images: which are in several splits, and which are left out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tfrtool.sources.items import Source
from tfrtool.writing.scan.findings import Audit, read_item

__all__ = ["Shared", "shared_images", "without_copies"]

Shared = Mapping[str, tuple[str, ...]]
"""The keys of an image's copies, by the splits that they are in."""


def shared_images(source: Source, audit: Audit) -> tuple[Shared, ...]:
    """Return the images that the source's own splits share, in the order of their keys.

    Where splits are drawn, there are none.
    """
    shared: list[Shared] = []
    for group in _groups(source, audit) if source.splits else ():
        splits: dict[str, tuple[str, ...]] = {}
        for item in (source.items[position] for position in group):
            split = item.split or source.splits[0]
            splits[split] = (*splits.get(split, ()), item.key)
        if len(splits) > 1:
            shared.append({split: splits[split] for split in source.splits if split in splits})
    return tuple(shared)


def without_copies(source: Source, audit: Audit) -> Audit:
    """Return an audit that keeps one of each set of copies, and calls the others problems.

    The one that stays is in the first of the source's splits that has any (`train` comes first),
    and has the smallest key there.
    """
    rank = {split: number for number, split in enumerate(source.splits)}
    problems = dict(audit.problems)
    for group in _groups(source, audit):
        kept = min(group, key=lambda position: rank.get(source.items[position].split or "", 0))
        item = source.items[kept]
        for position in group:
            if position != kept:
                other = "" if source.items[position].label == item.label else ", of another class"
                problems[position] = f"an exact copy of {item.key}{other}"
    return replace(
        audit,
        good=[position for position in audit.good if position not in problems],
        problems=dict(sorted(problems.items())),
        converted={at: what for at, what in audit.converted.items() if at not in problems},
        leaders=range(len(audit.leaders)),
    )


def _groups(source: Source, audit: Audit) -> Iterator[list[int]]:
    """Yield the sorted positions of copies that belong together.

    Digests of 64 bits suffice to keep images in one split; here images are read again, for none
    must be called a copy that isn't.
    """
    alike: dict[int, list[int]] = {}
    for position, leader in enumerate(audit.leaders):
        if position != leader:
            alike.setdefault(leader, [leader]).append(position)
    for _, group in sorted(alike.items()):
        same: dict[bytes, list[int]] = {}
        for position in group:
            data = read_item(source.reader, source.items[position])
            same.setdefault(hashlib.sha256(data).digest(), []).append(position)
        yield from (positions for positions in same.values() if len(positions) > 1)
