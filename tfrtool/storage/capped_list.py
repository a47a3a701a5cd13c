"""A list of bounded length that counts everything."""

from typing import Generic, TypeVar

from tfrtool.storage.limits import MAX_FAULTS

_Entry = TypeVar("_Entry")


class CappedList(Generic[_Entry]):
    """A list that keeps the first entries and counts all of them."""

    def __init__(self, limit: int = MAX_FAULTS) -> None:
        """Set how many entries are kept."""
        self._limit = limit
        self.entries: list[_Entry] = []
        self.count = 0

    def add(self, entry: _Entry) -> None:
        """Count an entry, and keep it if there is room."""
        self.count += 1
        if len(self.entries) < self._limit:
            self.entries.append(entry)

    @property
    def more(self) -> int:
        """How many entries are counted but not kept."""
        return self.count - len(self.entries)

    def merge(self, other: "CappedList[_Entry]") -> None:
        """Count the entries of another list, and keep its first ones if there is room."""
        self.count += other.count
        self.entries += other.entries[: self._limit - len(self.entries)]
