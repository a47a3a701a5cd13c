"""The profile of a shard: all that one read of its records finds, as far as it is asked for."""

import hashlib
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tfrtool.engines.engine import Workers
from tfrtool.engines.split_shards import later, map_folds
from tfrtool.errors import ShardError, printable
from tfrtool.examples.example import PayloadKind
from tfrtool.inspection.verify.causes import Causes
from tfrtool.inspection.verify.payload_check import ParserCheck, PayloadVote, RecordFold
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.framing import Fault, Record
from tfrtool.records.reader import read_records
from tfrtool.records.shards import Shard
from tfrtool.records.stream import (
    Location,
    Stream,
    as_source,
    folder_of,
    open_shard,
    path_of,
    size_of,
    total_bytes,
)
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.json_values import to_json_values
from tfrtool.storage.limits import MAX_FAULTS
from tfrtool.storage.opening import file_sha256, hashed_while_read
from tfrtool.storage.progress import BYTES, Meter, OnProgress, no_progress

if TYPE_CHECKING:  # the rest is imported where it is needed, to keep processes light
    from tfrtool.inspection.verify.image_check import ImageFindings

_CRCS_HELD = 16 * 1024
_BATCH = 256, 512 * 1024
_STATISTICS_BATCH = 4096, 16 * 1024 * 1024
"""Records, and bytes of payloads, that are added to the folds together."""

_Fold = TypeVar("_Fold", bound=RecordFold)


class LabelsAsked(NamedTuple):
    """What to find about labels and objects."""

    label: str | None  # the label feature
    is_list: bool = False  # whether a record may have several labels
    objects: Mapping[int, str] | None = None  # class names of objects; None doesn't count objects


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a profile has to find, besides the records of a shard and its damage.

    Attributes:
        features: features and their values (`RecordSchema`).
        statistics: distributions of values (`StatsFold`).
        parsing: whether each record parses, whether its objects are possible, and causes of damage.
        images: whether every image decodes, and its fingerprint; with ``parsing``.
        labels: labels in order, and objects.
        hashed: the shards whose SHA-256 is needed.
        sample: the maximum number of records to read of each shard, if there is one.
    """

    features: bool = False
    statistics: bool = False
    parsing: bool = False
    images: bool = False
    labels: LabelsAsked | None = None
    hashed: Collection[Path] = ()
    sample: Mapping[Any, int | None] = field(default_factory=dict)


class RecordSchema(RecordFold):
    """The schema of records."""

    def __init__(self, source: str, *, values: bool = True) -> None:
        from tfrtool.examples.schema_fold import SchemaFold

        super().__init__()
        self.schema = SchemaFold(values=values, source=source)

    def add(self, records: Sequence[Record], rejected: set[int]) -> None:
        """Add records to the schema."""
        for record in records:
            if record.index not in rejected and not self.schema.add_payload(
                record.payload, index=record.index
            ):
                self.reject(record, rejected)
        self.sequences = self.schema.sequences > 0

    def can_merge(self, other: "RecordSchema") -> bool:
        """Return whether there are few enough features that their order doesn't matter."""
        return self.schema.can_follow(other.schema)

    def merge(self, other: "RecordSchema", index: int) -> None:
        """Add the schema of the next part."""
        super().merge(other, index)
        self.schema.follow(other.schema, index)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardProfile:
    """What was found in one shard.

    Attributes:
        path: the file.
        shard: its size and compression; None if it can't be opened.
        failure: why it could not be read to its end, such as a disk error.
        records: number of intact records.
        lost: number of damaged records.
        payload: payload kind.
        content: what payloads of an unknown kind hold.
        payload_bytes: total size of the payloads.
        digest: of the payloads' CRCs in order; shards with the same records have the same digest.
        sha256: of the file, if it was asked for and the file is intact.
        faults: the first `MAX_FAULTS` faults, in file order.
        n_faults: number of all faults.
        cut: whether the sample ended before the shard did.
        folds: what the folds have found.
        images: what is known of the images, once `verify` has compared all shards.
    """

    path: Path
    shard: Shard | None = None
    failure: ShardError | None = None
    records: int = 0
    lost: int = 0
    payload: PayloadKind = PayloadKind.EMPTY
    content: str = ""
    payload_bytes: int = 0
    digest: bytes = b""
    sha256: str | None = None
    faults: tuple[Fault, ...] = ()
    n_faults: int = 0
    cut: bool = False
    folds: tuple[RecordFold, ...] = ()
    images: "ImageFindings | None" = None

    @property
    def error(self) -> str | None:
        """Why it could not be read to its end."""
        return None if self.failure is None else self.failure.what

    @property
    def holds_examples(self) -> bool:
        """Whether the payloads are Examples, as far as is known."""
        return self.payload not in (PayloadKind.EVENT, PayloadKind.UNKNOWN)

    @property
    def is_whole(self) -> bool:
        """Whether it was read to its end, without a fault."""
        return self.failure is None and not self.n_faults

    @property
    def compression(self) -> Compression:
        """How it is compressed, as far as is known."""
        return Compression.NONE if self.shard is None else self.shard.compression

    def fold(self, kind: type[_Fold]) -> _Fold | None:
        """Return what one fold has found, if it was asked for."""
        return next((fold for fold in self.folds if isinstance(fold, kind)), None)

    def with_faults(self, faults: Sequence[Fault], count: int) -> "ShardProfile":
        """Return the profile with more faults, of which the first are given."""
        found = sorted((*self.faults, *faults), key=lambda fault: fault.offset)
        return replace(self, faults=tuple(found[:MAX_FAULTS]), n_faults=self.n_faults + count)

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``verify --json`` prints for a shard."""
        shard, images = self.shard, self.images
        data = {
            "path": to_json_values(self.path),
            "bytes": None if shard is None else shard.bytes,
            "compression": None if shard is None else shard.compression.value,
            "records": self.records,
            "payload": self.payload.value,
            "payload_bytes": self.payload_bytes,
            "faults": [{**to_json_values(fault), "cause": fault.cause} for fault in self.faults],
            "fault_count": self.n_faults,
            "error": self.error,
        }
        if images is not None:
            data["images"] = {
                "feature": images.roles.image,
                "features": {printable(name): count for name, count in images.features.items()},
                "encoded": images.encoded,
                "pixels": images.pixels,
                "unknown": images.doubtful,
                "absent": images.absent,
            }
        return data


class Profile:
    """A fold over what is read of one shard, or of a part of it."""

    def __init__(
        self,
        source: Path | Stream,
        asked: Asked,
        *,
        part: bool = False,
        folds: Sequence[RecordFold] | None = None,
    ) -> None:
        """Begin with what is asked for, or with other folds."""
        self._source, self._path, self._asked = source, path_of(source), asked
        self.vote = PayloadVote(part=part)
        self.folds = _folds_of(source, asked) if folds is None else folds
        self.damage = CappedList[Fault]()
        self.records = self.lost = self.size = 0
        self._failure: ShardError | None = None
        self._cut = False
        self._crcs = array("I")
        self._digest = None if part else hashlib.blake2b(digest_size=16)

    def fail(self, failure: ShardError) -> None:
        """Note that the shard can't be read any further."""
        self._failure = failure

    def raise_failure(self) -> None:
        """Raise what kept the shard from being read, if anything did."""
        if self._failure is not None:
            raise self._failure

    def read(self, items: Iterable[Record | Fault]) -> None:
        """Add what is read, some records at a time."""
        held, size = list[Record](), 0
        most, most_bytes = _STATISTICS_BATCH if self._asked.statistics else _BATCH
        share = self._asked.sample.get(self._source)
        try:
            for item in items:
                if isinstance(item, Fault):
                    self.lost += item.record is not None
                    self.damage.add(item)
                    continue
                if self.records + len(held) == share:
                    self._cut = True
                    break
                held.append(item)
                size += len(item.payload)
                if size > most_bytes or len(held) == most:
                    self._add(held, size)
                    held, size = [], 0
        except ShardError as failure:
            self._failure = failure
        self._add(held, size)

    def _add(self, records: Sequence[Record], size: int) -> None:
        self.records += len(records)
        self.size += size
        self._add_crcs(array("I", [one.payload_crc for one in records]))
        self.vote.add(records)
        rejected = set[int]()
        for fold in self.folds if not self.vote.others else ():
            fold.add(records, rejected)

    def _add_crcs(self, crcs: "array[int]") -> None:
        self._crcs += crcs
        if self._digest is not None and len(self._crcs) >= _CRCS_HELD:
            self._digest.update(self._crcs)
            self._crcs = array("I")

    def merge(self, other: "Profile", index: int) -> bool:
        """Add the profile of the part that follows, as `ShardFold` has it."""
        pairs = list(zip(self.folds, other.folds, strict=True))
        if other._failure is not None or not all(a.can_merge(b) for a, b in pairs):
            return False
        for mine, others in pairs:
            mine.merge(others, index)
        self.vote.merge(other.vote)
        self.damage.merge(later(other.damage, index))
        self.records += other.records
        self.lost += other.lost
        self.size += other.size
        self._add_crcs(other._crcs)
        return True

    @property
    def kind(self) -> PayloadKind:
        """What the payloads are."""
        return self.vote.kind(sequences=any(fold.sequences for fold in self.folds))

    @property
    def misfits(self) -> CappedList[Fault]:
        """The faults of intact records; none unless most of the records are Examples."""
        total = CappedList[Fault](MAX_FAULTS * max(1, len(self.folds)))
        for fold in self.folds if self.vote.holds_examples else ():
            total.merge(fold.faults)
        return total

    def found(self) -> ShardProfile:
        """Return what was found in a shard that was read in parts."""
        try:
            size = self._path.stat().st_size
        except OSError:
            size = self.size
        return self.profile(Shard(path=self._path, bytes=size, compression=Compression.NONE))

    def profile(self, shard: Shard | None, sha256: Sequence[str] = ()) -> ShardProfile:
        """Return what was found in a shard."""
        digest = self._digest or hashlib.blake2b(digest_size=16)
        digest.update(self._crcs)
        damage, misfits = self.damage, self.misfits
        faults = sorted((*damage.kept, *misfits.kept), key=lambda fault: fault.offset)[:MAX_FAULTS]
        n_faults = damage.count + misfits.count
        if self._asked.parsing and shard is not None:
            causes = Causes(shard, self.records, self._source)
            faults = [replace(one, cause=one.cause or causes.of(one)) for one in faults]
        whole = self._failure is None and not n_faults
        digest_asked = self._path in self._asked.hashed and whole
        return ShardProfile(
            path=self._path,
            shard=shard,
            failure=self._failure,
            records=self.records,
            lost=self.lost,
            payload=self.kind,
            content=self.vote.content,
            payload_bytes=self.size,
            digest=digest.digest(),
            sha256=(sha256[0] if sha256 else _digest_of(self._path)) if digest_asked else None,
            faults=tuple(faults),
            n_faults=n_faults,
            cut=self._cut,
            folds=tuple(self.folds),
        )


def _folds_of(source: Path | Stream, asked: Asked) -> list[RecordFold]:
    """Return the folds that find what is asked for, cheap ones first, without heavy imports."""
    folds: list[RecordFold] = []
    if asked.parsing:
        folds.append(ParserCheck(folder_of(source), images=asked.images))
    if asked.features:
        folds.append(RecordSchema(str(path_of(source))))
    if asked.labels is not None and (asked.labels.label or asked.labels.objects is not None):
        from tfrtool.inspection.dataset.record_labels import LabelCounts

        folds.append(LabelCounts(*asked.labels))
    if asked.statistics:
        from tfrtool.inspection.stats.stats_fold import StatsFold

        folds.append(StatsFold())
    if asked.images:
        from tfrtool.inspection.verify.image_check import ImageCheck

        folds.append(ImageCheck(folder_of(source)))
    return folds


def profile_shard(shard: Location, asked: Asked) -> ShardProfile:
    """Read a whole shard, and find what is asked for.

    Memory is bounded by the longest record and by `MAX_FAULTS`; and by what the folds hold. A file
    that can't be read is no exception here: the profile has it as its failure.
    """
    source = as_source(shard)
    path = path_of(source)
    fold, found, sha256 = Profile(source, asked), None, list[str]()
    try:
        with open_shard(source) as file, hashed_while_read(file, path in asked.hashed) as sha256:
            compression = detect_compression(file)
            bytes_known = size_of(source, file) if source is path else 0
            found = Shard(path=path, bytes=bytes_known, compression=compression)
            fold.read(read_records(file, compression=compression))
            found = replace(found, bytes=size_of(source, file))
    except ShardError as failure:
        fold.fail(failure)
    return fold.profile(found, sha256)


def profile_shards(
    sources: Sequence[Path | Stream],
    asked: Asked,
    workers: Workers,
    worth: int,
    *,
    title: str = "reading",
    on_progress: OnProgress = no_progress,
) -> Iterator[ShardProfile]:
    """Yield the profile of each shard, in order; large shards are read in parts at once.

    Those that have a sample, or whose SHA-256 is needed, are read as one. A process is worth its
    start for ``worth`` bytes.
    """
    meter = Meter(on_progress, title, BYTES, total_bytes(sources))
    yield from map_folds(
        partial(Profile, asked=asked),
        sources,
        workers,
        worth,
        whole=partial(profile_shard, asked=asked),
        one_pass={*asked.hashed, *asked.sample},
        on_counts=meter.add,
    )
    meter.finish()


def _digest_of(path: Path) -> str | None:
    """Return the SHA-256 of a file, in hexadecimal; None if it can't be read any more."""
    with suppress(OSError):
        return file_sha256(path)
    return None
