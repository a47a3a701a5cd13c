"""Lists that a report bounds."""

from typing import Generic, TypeVar

Entry = TypeVar("Entry")


class FirstOf(Generic[Entry]):
    """Entries of which the first are kept, and all are counted."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.kept: list[Entry] = []
        self.count = 0

    def add(self, entry: Entry) -> None:
        """Count an entry, and keep it while there is room."""
        self.count += 1
        if len(self.kept) < self._limit:
            self.kept.append(entry)
