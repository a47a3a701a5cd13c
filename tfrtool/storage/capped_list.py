"""A list of bounded length that counts everything."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tfrtool.storage.limits import MAX_FAULTS

_Entry = TypeVar("_Entry")


@dataclass(eq=False)
class CappedList(Generic[_Entry]):
    """A list that keeps the first entries and counts all of them."""

    limit: int = MAX_FAULTS  # of entries that are kept
    entries: list[_Entry] = field(default_factory=list)
    count: int = 0

    def add(self, entry: _Entry) -> None:
        """Count an entry, and keep it if there is room."""
        self.count += 1
        if len(self.entries) < self.limit:
            self.entries.append(entry)

    @property
    def more(self) -> int:
        """How many entries are counted but not kept."""
        return self.count - len(self.entries)

    def merge(self, other: "CappedList[_Entry]") -> None:
        """Count the entries of another list, and keep its first ones if there is room."""
        self.count += other.count
        self.entries += other.entries[: self.limit - len(self.entries)]
