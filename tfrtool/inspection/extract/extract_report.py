"""What was taken out of shards, and what was not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrtool.records.framing import LocatedFault
from tfrtool.storage.plain import plain

LISTED = 1000
"""How many faults, records and names a report lists; the metadata has a line about each record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutRecord:
    """A whole record that nothing was taken out of, and why."""

    shard: Path
    record: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamedFile:
    """A file or a class folder that doesn't have the name that the record gives, and why."""

    file: str  # below the directory; a folder's has a "/" at its end
    recorded: str  # fit to be printed
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractReport:
    """What came out of shards.

    Attributes:
        directory: where the files are.
        metadata: the JSON Lines file with the other features, a line for each record.
        feature: the feature whose values became files.
        by: the feature that decided their class folders; None for none.
        name: the feature that gave their names; None where shard and record number did.
        files: how many files there are.
        bytes: their size in all.
        classes: how many of them lie in which folder, ``.`` for the directory itself.
        unlabelled: how many of them have no class, and so lie in no class folder.
        mismatched: how many of them hold something else than the image that their name says.
        left_out: the first records that nothing was taken out of.
        left_out_count: how many there are in all.
        renamed: the first files that have another name than in their records.
        renamed_count: how many there are in all.
        faults: the first faults of the shards.
        fault_count: how many there are in all.
    """

    directory: Path
    metadata: Path
    feature: str
    by: str | None
    name: str | None
    files: int
    bytes: int
    classes: Mapping[str, int]
    unlabelled: int
    mismatched: int
    left_out: tuple[LeftOutRecord, ...]
    left_out_count: int
    renamed: tuple[RenamedFile, ...]
    renamed_count: int
    faults: tuple[LocatedFault, ...]
    fault_count: int

    @property
    def complete(self) -> bool:
        """Whether every record is whole and gave its files."""
        return not self.fault_count and not self.left_out_count

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``extract --json`` prints."""
        data = plain(self)
        data["classes"] = dict(self.classes)  # the very names of the folders
        data["renamed"] = [
            {"file": entry.file, "from": entry.recorded, "reason": entry.reason}
            for entry in self.renamed
        ]
        return {"dir": data.pop("directory"), **data}
