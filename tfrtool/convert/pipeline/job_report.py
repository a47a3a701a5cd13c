"""The account of a job: what each file holds, what was read, and what was left out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfrtool.convert.pipeline.tally import Tally, digest_text
from tfrtool.inspection.first_of import FirstOf
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, FaultKind, LocatedFault
from tfrtool.sources.items import LeftOut
from tfrtool.storage.plain import plain
from tfrtool.writing.dataset_folder import Target
from tfrtool.writing.write_report import ShardReport, SplitReport

_FAULTS_KEPT = 1000
"""Of one file; all are counted."""


TOLD = ("records_in", "digest_in", "digest_out", "left_out", "corrupt", "metadata")
"""What a report tells of a job that is complete."""


class Faults(FirstOf[LocatedFault]):
    """Damage that a task met, of which the first is an error where it is to stop the job."""

    def __init__(self, *, stop: bool = False) -> None:
        super().__init__(_FAULTS_KEPT)
        self._stop = stop

    def add(self, entry: LocatedFault) -> None:
        """Count a fault; `CorruptShardError` if the job is to stop."""
        if self._stop:
            raise as_error(entry.path, entry.fault)
        super().add(entry)

    def merge(self, other: "Faults") -> None:
        """Count those that another task met."""
        self.count += other.count
        self.kept += other.kept[: _FAULTS_KEPT - len(self.kept)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of a task.

    Attributes:
        tally: the payloads that the file has.
        read: those that were read for it, damaged ones left out.
        faults: damage that was met.
        left_out: how many whole records are not in the file, by the rule that left them out.
        labels: how many records of each class, where that is known.
        crc32c: the CRC-32C of the file's bytes, in hexadecimal, where it stands for a SHA-256 that
            would take longer than to write the file.
    """

    tally: Tally
    read: Tally
    faults: Faults = field(default_factory=Faults)
    left_out: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)
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
        digest_in: of the multiset of their payloads (`Tally`), 16 hexadecimal digits.
        digest_out: of those that were written.
        left_out: how many whole records were left out, by the rule.
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
    digest_in: str
    digest_out: str
    left_out: Mapping[str, int]
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
        return {**plain(self), "faults": plain(list(self.faults))}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """What is noted of a file that is whole."""

    path: str
    split: str
    records: int
    bytes: int
    payload_bytes: int
    sha256: str | None
    crc32c: str | None = None
    digest: int
    read: int = 0
    read_digest: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)
    corrupt: int = 0
    faults: Sequence[LocatedFault] = ()

    @classmethod
    def of_note(cls, note: Mapping[str, Any]) -> "FileResult":
        """Return what was noted by an earlier run."""
        facts = {name: note[name] for name in cls.__slots__ if name != "faults"}
        faults = [
            LocatedFault(
                path=Path(fault.pop("path")),
                fault=Fault(**{**fault, "kind": FaultKind(fault["kind"])}),
            )
            for fault in note["faults"]
        ]
        return cls(**facts, faults=faults)


def job_report(
    target: Target,
    results: Sequence[FileResult],
    planned_read: Tally | None,
    faults: Faults,
    left_out_before: Mapping[str, int],
    **more: Any,
) -> JobReport:
    """Return the report of a job, of its files and of what was met and left out before them."""
    by_split: dict[str, list[FileResult]] = {}
    for result in results:
        by_split.setdefault(result.split, []).append(result)
    splits = {}
    for split, own in by_split.items():
        labels: Counter[str] = Counter()
        for one in own:
            labels.update(one.labels)
        splits[split] = SplitReport(
            records=sum(one.records for one in own),
            bytes=sum(one.bytes for one in own),
            shards=tuple(
                ShardReport(
                    one.path, one.records, one.bytes, one.payload_bytes, one.sha256, one.crc32c
                )
                for one in own
            ),
            labels=dict(sorted(labels.items())),
        )
    left_out = Counter(left_out_before)
    for one in results:
        left_out.update(one.left_out)
    read = Tally()
    for one in results:
        read.merge(Tally(records=one.read, digest=one.read_digest))
    read = planned_read or read
    return JobReport(
        command=target.command,
        dataset=target.folder,
        name=target.name,
        splits=splits,
        records_in=read.records,
        records_out=sum(one.records for one in results),
        digest_in=digest_text(read.digest),
        digest_out=digest_text(sum(one.digest for one in results) % 2**64),
        left_out=dict(left_out),
        corrupt=faults.count + sum(one.corrupt for one in results),
        options=target.options,
        faults=(*faults.kept, *(fault for one in results for fault in one.faults)),
        **more,
    )
