"""The account of a job: what each file holds, what was read, and what was left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfrtool.errors import CorruptShardError
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, FaultKind, LocatedFault
from tfrtool.records.tally import Tally
from tfrtool.sources.items import LeftOut
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.plain import plain
from tfrtool.writing.write_report import SplitReport

_FAULTS_KEPT = 1000
"""Of one file; all are counted."""


class Faults(CappedList[LocatedFault]):
    """Damage that a task met, of which the first is an error where it is to stop the job."""

    def __init__(self, *, stop: bool = False) -> None:
        super().__init__(_FAULTS_KEPT)
        self.stop = stop

    def add(self, entry: LocatedFault) -> None:
        """Count a fault; `CorruptShardError` if the job is to stop."""
        if self.stop and entry.fault.kind is FaultKind.MISSING_SHARD:
            raise CorruptShardError(entry.fault.message, path=entry.path)
        if self.stop:
            raise as_error(entry.path, entry.fault)
        super().add(entry)

    def note(
        self,
        path: Path,
        kind: FaultKind,
        message: str,
        *,
        offset: int = 0,
        record: int | None = None,
    ) -> None:
        """Count a fault of a shard; `CorruptShardError` if the job is to stop."""
        fault = Fault(kind=kind, offset=offset, record=record, message=message)
        self.add(LocatedFault(path=path, fault=fault))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of a task.

    Attributes:
        tally: the payloads that the file has.
        read: those that were read for it, damaged ones left out.
        faults: damage that was met.
        crc32c: the CRC-32C of the file's bytes, in hexadecimal, where it stands for a SHA-256 that
            would take longer than to write the file.
    """

    tally: Tally
    read: Tally
    faults: Faults = field(default_factory=Faults)
    crc32c: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """Result of a command that writes shards from shards, or the plan of a dry run.

    Attributes:
        command: name of the command.
        dataset: directory that was written.
        name: name of the dataset.
        dry_run: whether nothing was written. Files then have no digests, and their sizes are those
            of the uncompressed records.
        splits: splits by name.
        records_in: number of intact records read.
        records_out: number of records written.
        digest_in: order-independent digest of the payloads read, 16 hexadecimal digits. None if
            shards were copied without being read and no report contains their digest.
        digest_out: the same digest of the payloads written.
        skipped: number of intact records that were skipped, by rule.
        corrupt: number of faults found in the sources.
        resumed: number of files taken from an interrupted run.
        seconds: duration, in seconds.
        plan: digest of everything that the files depend on.
        options: options that determine what the files contain.
        metadata: names of the metadata files.
        faults: the first faults of each file.
        rejected: skipped images, with the reason.
        complete: whether an earlier run had finished, so nothing was written.
        warnings: warnings, one sentence each.
    """

    command: str
    dataset: Path
    name: str
    dry_run: bool = False
    splits: Mapping[str, SplitReport]
    records_in: int
    records_out: int
    digest_in: str | None
    digest_out: str | None
    skipped: Mapping[str, int]
    corrupt: int
    resumed: int = 0
    seconds: float = 0.0
    plan: str
    options: Mapping[str, Any]
    metadata: Sequence[str] = ()
    faults: Sequence[LocatedFault] = ()
    rejected: Sequence[LeftOut] = ()
    complete: bool = False
    warnings: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints and write_report.json contains."""
        return dict(plain(self))
