"""What belongs together: images whose names, or cells of a table, say the same group."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError, printable
from tfrtool.sources.items import Item, ItemTable, Source

_BATCH = 10_000
"""Names that are matched at a time."""


def group_number(name: str) -> int:
    """Return 64 bits that stand for a group; 0 for the empty name, which is none."""
    digest = blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little") | 1 if name else 0


def alone_notice(alone: int, count: int, group_by: str) -> str | None:
    """Return what becomes of images that say no group; None if there are none."""
    if not alone:
        return None
    shown = printable(group_by)
    return f"images without a group for '{shown}', split individually: {alone:,} of {count:,}"


def group_by_name(source: Source, pattern: str, scratch: Path) -> Source:
    """Return a source with the groups that a regular expression finds in its keys.

    It is RE2's, as pyarrow has it, whose time is linear in the length of a name: Python's own could
    take for ever. A UsageError if it is none, or is nowhere in the keys.
    """
    items, alone = ItemTable(scratch), 0
    for item, name in zip(source.items, _names(source.items, pattern), strict=True):
        items.add(item._replace(group=group_number(name)))
        alone += not name
    if alone == len(source.items):
        raise UsageError(
            f"--group-by '{printable(pattern)}' is not a column and matches no image name",
            found=f"names such as {printable(source.items[0].key)}",
        )
    notice = alone_notice(alone, len(source.items), pattern)
    notices = (*source.notices, *filter(None, (notice,)))
    return replace(source, items=items, grouped=True, notices=notices)


def _names(items: Iterable[Item], pattern: str) -> Iterator[str]:
    """Yield what a pattern finds in each key: its first group, if it has any; "" for nothing."""
    import pyarrow
    import pyarrow.compute as pc

    def found(keys: Any, pattern: str) -> Any:
        return pc.replace_substring_regex(keys, f"^(?s:.*?)(?:{pattern})(?s:.*)$", r"\1")

    try:
        pc.match_substring_regex(pyarrow.array(["-"]), pattern)
    except pyarrow.ArrowInvalid as error:
        raise UsageError(
            f"--group-by '{printable(pattern)}' is neither a column nor a valid regular expression "
            f"({printable(str(error).splitlines()[0].partition(': ')[2][:200])})",
        ) from error
    try:
        found(pyarrow.array(["-"]), pattern)
    except pyarrow.ArrowInvalid:  # it has no group
        pattern = f"({pattern})"
    keys = (item.key.encode("utf-8", "replace").decode() for item in items)
    while batch := [*islice(keys, _BATCH)]:
        texts = pyarrow.array(batch, pyarrow.large_string())
        matches = pc.match_substring_regex(texts, pattern)
        yield from pc.if_else(matches, found(texts, pattern), "").to_pylist()
