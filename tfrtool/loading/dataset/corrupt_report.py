"""What is done about damaged records, and what became of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import printable
from tfrtool.records.framing import Fault, FaultKind

__all__ = ["DropReport", "DroppedRecord", "OnCorrupt"]

_OF_RECORDS = (
    FaultKind.LENGTH_CRC,
    FaultKind.PAYLOAD_CRC,
    FaultKind.TRUNCATED,
    FaultKind.OVERSIZED_LENGTH,
    FaultKind.PARSE,
)
"""Damage of a record even where its number is not known; other damage may be beside records."""


class OnCorrupt(enum.Enum):
    """What damage in the shards does to a run; the values are those of the CLI.

    STOP ends it with an error that names the record. SKIP leaves out the records that can't be
    used, and no other.
    """

    STOP = "stop"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedRecord:
    """A record, or more than one, that can't be used.

    Attributes:
        path: the shard that it is in, or that is missing.
        fault: where, and why. The kind is PARSE for whole records that can't be trained on, COUNT
            for records that are missing without a trace.
    """

    path: Path
    fault: Fault

    def __str__(self) -> str:
        record = "" if self.fault.record is None else f", record {self.fault.record}"
        place = f"{printable(str(self.path))}{record}, offset {self.fault.offset}"
        return f"{place}: {self.fault.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropReport:
    """What is left of a damaged dataset.

    Attributes:
        records: how many records can be used.
        left_out: what can't, in the order of the shards.
        expected: how many records there should be; None where nothing says so.
    """

    records: int
    left_out: tuple[DroppedRecord, ...]
    expected: int | None

    @property
    def n_left_out(self) -> int:
        """How many records are not used.

        It is exact where the metadata tells how many there should be; else a damaged stretch,
        which may have been more than one record, counts as one.
        """
        if self.expected is not None:
            return max(self.expected - self.records, 0)
        faults = (one.fault for one in self.left_out)
        return sum(fault.record is not None or fault.kind in _OF_RECORDS for fault in faults)
