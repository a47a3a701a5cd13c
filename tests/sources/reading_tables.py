"""Tables that tests write and read."""

from __future__ import annotations

from pathlib import Path

from tfrtool.sources.items import Source
from tfrtool.sources.tables.tables import read_table

__all__ = ["found", "make_images", "read", "reasons"]


def make_images(folder: Path) -> Path:
    """Put three files into a folder: a.jpg, b.jpg and sub/c.jpg, of 1, 2 and 3 bytes."""
    (folder / "sub").mkdir()
    for size, name in enumerate(("a.jpg", "b.jpg", "sub/c.jpg"), start=1):
        (folder / name).write_bytes(b"x" * size)
    return folder


def read(
    folder: Path, text: str | bytes, name: str = "table.csv", root: Path | None = None
) -> Source:
    """Write a table into a folder, and read it."""
    table = folder / name
    table.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return read_table(table, root)


def found(source: Source) -> list[tuple[str, str, str | None]]:
    """Return the items of a source, without what follows from these."""
    return [(item.key, item.label, item.split) for item in source.items]


def reasons(source: Source) -> list[str]:
    """Return why rows are left out, in the order of their keys."""
    return [entry.reason for entry in source.rejected]
