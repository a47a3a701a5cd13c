"""Reports of jobs: what each file holds, what was read, and what was skipped."""

import abc
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from tfrtool.errors import CorruptShardError, UsageError, printable
from tfrtool.examples.tfds_metadata import DATASET_INFO, FEATURES, SplitInfo
from tfrtool.records.count import INDEX, as_error
from tfrtool.records.framing import Fault, FaultKind, LocatedFault
from tfrtool.records.tally import Tally, digest_text
from tfrtool.storage.arguments import as_path
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.json_values import Shown, to_json_values
from tfrtool.storage.remote_path import AnyPath

_FAULTS_KEPT = 1000
"""Of one file; all are counted."""

_KEYS = (
    "command", "dataset", "name", "dry_run", "splits", "records_in", "records_out", "digest_in",
    "digest_out", "skipped", "corrupt", "resumed", "seconds", "plan", "options", "metadata",
    "faults", "complete", "warnings",
)  # fmt: skip
"""The keys of a job's report, in the order in which people read them."""

DROPPED = "dropped"
"""Key of the objects that were dropped, in a report and in the facts of a file."""

COUNTED = "counted"
"""Key of the rows of each warning that gets their number in all files, in the facts of a file."""


@dataclass(frozen=True, slots=True)
class ShardReport:
    """A shard, as written or planned. A plan has no digests, and sizes before compression.

    Attributes:
        path: the file's name.
        records: number of records.
        bytes: the file's size.
        payload_bytes: the payloads' size, without frames and before compression.
        sha256: the file's digest, in hexadecimal; None if `crc32c` stands for it.
        crc32c: the CRC-32C of the file, in hexadecimal, if records were copied: a SHA-256 takes
            longer than to copy them.
        etag: the store's tag for the object's content.
        payload_digest: digest of the multiset of payloads (`Tally`), 16 hexadecimal digits.
        index: size of ``SHARD.idx`` in bytes, if there is one.
    """

    path: str
    records: int
    bytes: int
    payload_bytes: int | None = None
    sha256: str | None = None
    crc32c: str | None = field(default=None, compare=False)  # no part of a report without it
    etag: str | None = field(default=None, compare=False)
    payload_digest: str | None = field(default=None, compare=False)
    index: int | None = field(default=None, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the file, and of its index if there is one."""
        return (self.path,) if self.index is None else (self.path, f"{self.path}{INDEX}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReport:
    """A split, as written or planned.

    Attributes:
        records: number of records.
        bytes: size of its files.
        shards: its shards, in order.
        labels: number of records of each class, including classes without any.
    """

    records: int
    bytes: int
    shards: tuple[ShardReport, ...]
    labels: Mapping[str, int]

    @classmethod
    def of_shards(
        cls, shards: Sequence[ShardReport], labels: Mapping[str, int] | None = None
    ) -> "SplitReport":
        """Return the report of a split that has these shards."""
        return cls(
            records=sum(shard.records for shard in shards),
            bytes=sum(shard.bytes for shard in shards),
            shards=tuple(shards),
            labels=dict(labels or {}),
        )


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
        path: AnyPath,
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
    """Result of a task.

    Attributes:
        tally: the payloads in the file.
        read: the intact payloads that were read for it.
        faults: damage in what was read.
        crc32c: CRC-32C of the file's bytes, in hexadecimal. None computes a SHA-256, which takes
            longer than to copy records.
        facts: what else the report needs to know of the file, as JSON values: objects that were
            `DROPPED`, ``warnings``, and rows by the warnings that are `COUNTED`.
    """

    tally: Tally
    read: Tally
    faults: Faults = field(default_factory=Faults)
    crc32c: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


class _NotedFault(msgspec.Struct):
    path: str
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedFile:
    """A finished file of a job, as it is noted for ``--resume``.

    Attributes:
        shard: the file.
        split: the split that it belongs to.
        digest: the digest of its payloads; None if they are unknown.
        read: number of intact records that were read for it.
        read_digest: the digest of those; None if it is unknown.
        corrupt: number of faults in what was read.
        faults: the first of them.
        facts: the `Written.facts`.
    """

    shard: ShardReport
    split: str
    digest: int | None = None
    read: int = 0
    read_digest: int | None = None
    corrupt: int = 0
    faults: Sequence[Any] = ()  # a `LocatedFault` each
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, split: str, written: Written, **file: Any) -> "FinishedFile":
        """Return what a task wrote; ``file`` are further fields of its `ShardReport`."""
        tally, read = written.tally, written.read
        return cls(
            shard=ShardReport(
                path=name,
                records=tally.records,
                payload_bytes=tally.payload_bytes,
                crc32c=written.crc32c,
                payload_digest=known_digest(tally.records, tally.digest),
                **file,
            ),
            split=split,
            digest=tally.digest,
            read=read.records,
            read_digest=read.digest,
            corrupt=written.faults.count,
            faults=written.faults.entries,
            facts=written.facts,
        )

    def to_json(self) -> dict[str, Any]:
        """Return JSON values that `from_json` reads."""
        return dict(msgspec.to_builtins(self, enc_hook=lambda path: printable(str(path))))

    @classmethod
    def from_json(cls, data: object) -> "FinishedFile":
        """Return the file that a note describes; `ValueError` if it is not such a note."""
        file = msgspec.convert(data, cls)
        try:
            faults = [
                LocatedFault(path=as_path(noted.path), fault=noted.fault)
                for noted in msgspec.convert(file.faults, list[_NotedFault])
            ]
        except UsageError as error:
            raise ValueError("not a path") from error
        return replace(file, faults=faults)


def known_digest(records: int, digest: int) -> str | None:
    """Return a digest as text; None if no payloads were counted, as in a plan or a table."""
    return digest_text(digest) if digest or not records else None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunReport(Shown, abc.ABC):
    """What the reports of all commands that write datasets have in common.

    Attributes:
        dataset: directory of the dataset.
        name: name of the dataset.
        dry_run: whether nothing was written. Files then have no digests, and their sizes are those
            of the uncompressed records.
        splits: splits by name.
        resumed: number of files taken from an interrupted run.
        seconds: duration, in seconds.
        plan: digest of everything that the files depend on.
        options: options that determine what the files contain.
        metadata: names of the metadata files; None if they are the usual ones of `write`.
        complete: whether an earlier run had finished, so nothing was written.
        warnings: warnings, one sentence each.
    """

    dataset: AnyPath
    name: str
    dry_run: bool = False
    splits: Mapping[str, SplitReport]
    resumed: int = 0
    seconds: float = 0.0
    plan: str = ""
    options: Mapping[str, Any]
    metadata: tuple[str, ...] | None = None
    complete: bool = False
    warnings: tuple[str, ...] = ()

    @abc.abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints and write_report.json contains."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JobReport(RunReport):
    """Result of a command that writes shards from shards, or the plan of a dry run.

    It has the attributes of `RunReport`, and these:

    Attributes:
        command: name of the command.
        records_in: number of intact records read.
        records_out: number of records written.
        digest_in: order-independent digest of the payloads read, 16 hexadecimal digits. None if
            shards were copied without being read and no report contains their digest.
        digest_out: the same digest of the payloads written.
        skipped: number of intact records that were skipped, by rule.
        corrupt: number of faults found in the sources.
        faults: the first faults of each file.
        dropped: number of ``objects`` that ``--class-map`` dropped, and of
            ``images_without_objects`` that this left.
    """

    command: str
    records_in: int
    records_out: int
    digest_in: str | None
    digest_out: str | None
    skipped: Mapping[str, int]
    corrupt: int
    faults: Sequence[LocatedFault] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints and write_report.json contains."""
        values = to_json_values(self)
        keys = (*_KEYS, DROPPED) if self.dropped else _KEYS
        return {key: values[key] for key in keys}


def split_reports(files: Iterable[FinishedFile]) -> dict[str, SplitReport]:
    """Return the splits that files belong to, in order."""
    splits: dict[str, list[ShardReport]] = {}
    for file in files:
        splits.setdefault(file.split, []).append(file.shard)
    return {split: SplitReport.of_shards(shards) for split, shards in splits.items()}


def split_infos(splits: Mapping[str, SplitReport]) -> tuple[SplitInfo, ...]:
    """Return what TFDS has to know of splits that were written."""
    return tuple(
        SplitInfo(
            name=name,
            shard_lengths=tuple(shard.records for shard in split.shards),
            bytes=sum(shard.payload_bytes or 0 for shard in split.shards),
        )
        for name, split in splits.items()
    )


def dataset_texts(
    class_files: Mapping[str, str], features: object, info: Mapping[str, Any]
) -> dict[str, str]:
    """Return the metadata files of a TFDS dataset, by name in the order of their appearance."""
    described = {} if features is None else {FEATURES: json_text(features)}
    return {**class_files, **described, DATASET_INFO: json_text(info)}


def json_text(data: object) -> str:
    """Return the text of a JSON file that people read, too."""
    return json.dumps(data, indent=2) + "\n"
