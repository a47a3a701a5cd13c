"""The account of a job: what each file holds, what was read, and what was left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, FaultKind, LocatedFault
from tfrtool.records.tally import Tally
from tfrtool.sources.items import LeftOut
from tfrtool.storage.limits import FirstOf
from tfrtool.storage.plain import plain
from tfrtool.writing.write_report import SplitReport

_FAULTS_KEPT = 1000
"""Of one file; all are counted."""


class Faults(FirstOf[LocatedFault]):
    """Damage that a task met, of which the first is an error where it is to stop the job."""

    def __init__(self, *, stop: bool = False) -> None:
        super().__init__(_FAULTS_KEPT)
        self.stop = stop

    def add(self, entry: LocatedFault) -> None:
        """Count a fault; `CorruptShardError` if the job is to stop."""
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
    """What a job has written, or would write.

    Attributes:
        command: the job's name.
        dataset: the directory.
        name: the dataset's name.
        dry_run: whether nothing was written; then files have no digests, and their sizes are those
            of the uncompressed records.
        splits: its splits, by name.
        records_in: how many whole records were read.
        records_out: how many were written.
        digest_in: of the multiset of their payloads (`Tally`), 16 hexadecimal digits; None where
            shards were copied unread, and no report tells theirs.
        digest_out: likewise of those that were written.
        skipped: how many whole records were left out, by the rule.
        corrupt: how many faults were found in the sources.
        resumed: how many files an earlier run had done.
        seconds: how long it took.
        plan: a digest of all that the files depend on.
        options: those that decide what the files hold.
        metadata: the names of the files that describe the others.
        faults: the faults, the first of each file.
        rejected: images that were left out.
        complete: whether an earlier run had done all, so that nothing was written.
        warnings: what the user should know, a sentence each.
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
        """Return the object that ``--json`` prints and write_report.json holds."""
        return dict(plain(self))
