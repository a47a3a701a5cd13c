"""Exact copies of images: which are in several splits, and which are left out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from tfrtool.sources.items import Source
from tfrtool.writing.scan.image_audit import Audit, read_item

Shared = Mapping[str, tuple[str, ...]]
"""The keys of an image's copies, by the splits that they are in."""


def shared_images(source: Source, audit: Audit) -> tuple[Shared, ...]:
    """Return the images that the source's own splits share, in the order of their keys.

    Where splits are drawn, there are none.
    """
    shared: list[Shared] = []
    for group in _groups(source, audit) if source.splits else ():
        items = [source.items[position] for position in group]
        splits = {
            split: tuple(item.key for item in items if item.split == split)
            for split in source.splits
        }
        shared.append({split: keys for split, keys in splits.items() if keys})
    return tuple(splits for splits in shared if len(splits) > 1)


def without_copies(source: Source, audit: Audit) -> Audit:
    """Return an audit that keeps one of each set of copies, and calls the others problems.

    The one that stays is in the first of the source's splits that has any (`train` comes first),
    and has the smallest key there.
    """
    rank = {split: number for number, split in enumerate(source.splits)}
    copies = {}
    for group in _groups(source, audit):
        kept = min(group, key=lambda position: rank.get(source.items[position].split or "", 0))
        item = source.items[kept]
        for position in group:
            if position != kept:
                other = "" if source.items[position].label == item.label else ", of another class"
                copies[position] = f"an exact copy of {item.key}{other}"
    return audit.without(copies)


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
