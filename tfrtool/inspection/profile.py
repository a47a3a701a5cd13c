"""The profile of a shard: all that one read of its records finds, as far as it is asked for."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tfrtool.engines.engine import cores
from tfrtool.engines.split_shards import map_folds, shift_record_index
from tfrtool.errors import ShardError, printable
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.schema_fold import SchemaFold
from tfrtool.inspection.verify.causes import STYLED_KINDS, Causes
from tfrtool.inspection.verify.payload_check import ParserCheck, PayloadVote, RecordFold
from tfrtool.records.checksum_styles import explain_style
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.frames import Frames, bytes_of, crcs_of, together, without_block
from tfrtool.records.framing import FRAME_SIZE, Fault, Record
from tfrtool.records.reader import RecordReader
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
from tfrtool.storage.progress import BYTES, Meter
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:  # the rest is imported where it is needed, to keep processes light
    from tfrtool.examples.fields import Struct
    from tfrtool.inspection.inspect_options import ScanOptions
    from tfrtool.inspection.schema.data_schema import DataSchema
    from tfrtool.inspection.table.record_table import RowRequest
    from tfrtool.inspection.verify.image_check import ImageFindings, IntactImages

_BATCH_RECORDS, _BATCH_BYTES = 4096, 16 * 1024 * 1024
"""Records, and bytes of payloads, whose statistics are taken together, at least."""

_MANY_RECORDS = 2048
"""Records that are parsed one by one: to load NumPy takes longer."""

_LONG_RECORD = 8192
"""Bytes of a record above which a batch saves nothing: most of the time goes to its values."""

_Fold = TypeVar("_Fold", bound=RecordFold)


class LabelRequest(NamedTuple):
    """What to find about labels and objects."""

    label: str | None  # the label feature
    is_list: bool = False  # whether a record may have several labels
    objects: Mapping[int, str] | None = None  # class names of objects; None doesn't count objects


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """What a profile has to find, besides the records of a shard and its damage.

    Attributes:
        features: features and their values (`RecordSchema`).
        statistics: distributions of values (`StatsFold`).
        typed: what features.json says of the records in a folder, for statistics of components.
        parsing: whether each record parses, whether its objects are possible, and causes of damage.
        images: whether every image decodes, and its fingerprint; with ``parsing``.
        labels: labels in order, and objects.
        schema: what the features of records are compared with (`SchemaCheck`).
        declared: what they are compared with besides, by folder (`FeatureCheck`).
        rows: where to store a row for each record.
        hashed: the shards whose SHA-256 is needed.
        sample: the maximum number of records to read of each shard, if there is one.
        expected_bytes: what a process will read, roughly; 0 if that is not known.
    """

    features: bool = False
    statistics: bool = False
    typed: "Mapping[AnyPath, Struct]" = field(default_factory=dict)
    parsing: bool = False
    images: bool = False
    labels: LabelRequest | None = None
    schema: "DataSchema | None" = None
    declared: "Mapping[AnyPath, Struct]" = field(default_factory=dict)
    rows: "RowRequest | None" = None
    hashed: Collection[AnyPath] = ()
    sample: Mapping[Any, int | None] = field(default_factory=dict)
    expected_bytes: int = 0


class RecordSchema(RecordFold):
    """The schema of records."""

    def __init__(self, source: str, *, values: bool = True, expected_bytes: int = 0) -> None:
        """Begin; ``expected_bytes`` are what this process reads, if that is known."""
        super().__init__()
        self.schema = SchemaFold(values=values, source=source)
        self._expected_bytes = expected_bytes

    def add(self, records: Sequence[Record], rejected: set[int]) -> None:
        """Add records to the schema; a batch at a time if there are many."""
        if not rejected and _are_consecutive(records) and self._expects_many(records):
            self._add_batch(records, rejected)
        else:
            for record in records:
                if record.index not in rejected and not self.schema.add_payload(
                    record.payload, index=record.index
                ):
                    self.reject(record, rejected)
        self.sequences = self.schema.sequences > 0

    def _expects_many(self, records: Sequence[Record]) -> bool:
        """Return whether there are many short records, or will be if all have the size of these."""
        if bytes_of(records) > _LONG_RECORD * len(records):
            return False
        if self.schema.records >= _MANY_RECORDS:
            return True
        size = bytes_of(records) + FRAME_SIZE * len(records)
        return self._expected_bytes * len(records) >= _MANY_RECORDS * size

    def _add_batch(self, records: Sequence[Record], rejected: set[int]) -> None:
        from tfrtool.examples.arrow.schema_scan import BatchSchemaFold
        from tfrtool.records.payloads import payloads_of

        fold = BatchSchemaFold.continued(self.schema)
        first = records[0].index
        for at in fold.add_batch(payloads_of(records), first):
            self.reject(records[at], rejected)
        self.schema = SchemaFold.continued(fold)

    def can_merge(self, other: "RecordSchema") -> bool:
        """Return whether there are few enough features that their order doesn't matter."""
        return self.schema.has_room(other.schema)

    def merge(self, other: "RecordSchema", index: int) -> None:
        """Add the schema of the next part."""
        super().merge(other, index)
        self.schema.follow(other.schema, index)


def _are_consecutive(records: Sequence[Record]) -> bool:
    """Return whether the records follow each other, without a damaged one between them."""
    if isinstance(records, Frames) or not records:
        return len(records) > 0
    return records[-1].index - records[0].index == len(records) - 1


class ShardProfile:
    """What is found in one shard, or in a part of it, while it is read.

    Attributes:
        path: the file.
        shard: its size and compression; None if it can't be opened.
        failure: why it could not be read to its end, such as a disk error.
        records: number of intact records.
        lost: number of damaged records.
        payload_bytes: total size of the payloads.
        sha256: of the file, if it was asked for and the file is intact.
        damage: faults of the file; those of intact records are in the folds.
        faults: once the shard is read, the first `MAX_FAULTS` faults, in file order.
        n_faults: number of all faults.
        cut: whether the sample ended before the shard did.
        folds: what else was asked for.
        images: what is known of the images, once `verify` has compared all shards.
    """

    def __init__(
        self,
        source: AnyPath | Stream,
        request: ProfileRequest,
        *,
        part: bool = False,
        folds: Sequence[RecordFold] | None = None,
    ) -> None:
        """Begin with what is asked for, or with other folds."""
        self._source, self.path, self._request = source, path_of(source), request
        self._vote = PayloadVote(part=part)
        self.folds = _folds_of(source, request) if folds is None else folds
        self.shard: Shard | None = None
        self.failure: ShardError | None = None
        self.records = self.lost = self.payload_bytes = self.n_faults = 0
        self.damage = CappedList[Fault]()
        self.faults: tuple[Fault, ...] = ()
        self.sha256: str | None = None
        self.images: ImageFindings | None = None
        self.cut = False
        self._crcs: bytearray | None = bytearray() if part else None
        self._digest = blake2b(digest_size=16)

    def __getstate__(self) -> dict[str, Any]:
        digest = self.digest if self._crcs is None else None
        # A callback belongs to this process; features would be copied with each profile.
        request = replace(self._request, rows=None, declared={})
        return {**self.__dict__, "_digest": digest, "_source": None, "_request": request}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.to_json()})"

    def __eq__(self, other: object) -> bool:
        """Whether the payloads and everything that `verify` reports are the same."""
        return isinstance(other, ShardProfile) and (self.digest, self.to_json()) == (
            other.digest,
            other.to_json(),
        )

    def __hash__(self) -> int:
        return hash(self.path)

    def read(self, pieces: Iterable[Sequence[Record] | Fault]) -> None:
        """Add what is read: consecutive intact records together, and faults."""
        parts, size, count = list[Sequence[Record]](), 0, 0
        sample_limit = self._request.sample.get(self._source)
        try:
            for piece in pieces:
                if isinstance(piece, Fault):
                    self.lost += piece.record is not None
                    self.damage.add(piece)
                    for fold in self.folds:
                        fold.add_fault(piece)
                    continue
                if sample_limit is not None:
                    left = sample_limit - self.records - count
                    self.cut = len(piece) > left
                    piece = piece[:left]
                if self._request.statistics:  # more of them are faster together
                    parts.append(without_block(piece))
                    size += bytes_of(piece)
                    count += len(piece)
                    if size > _BATCH_BYTES or count > _BATCH_RECORDS:
                        self._add(together(parts))
                        parts, size, count = [], 0, 0
                else:
                    self._add(piece)
                if self.cut:
                    break
        except ShardError as failure:
            self.failure = failure
        self._add(together(parts))
        for fold in self.folds:
            fold.flush()

    def _add(self, records: Sequence[Record]) -> None:
        self.records += len(records)
        self.payload_bytes += bytes_of(records)
        self._add_crcs(crcs_of(records))
        self._vote.add(records)
        rejected = set[int]()
        for fold in self.folds:
            if fold.takes_all or not self._vote.others:
                fold.add(records, rejected)

    def _add_crcs(self, crcs: bytes | bytearray) -> None:
        if self._crcs is None:
            self._digest.update(crcs)
        else:
            self._crcs += crcs

    def merge(self, other: "ShardProfile", index: int) -> bool:
        """Add the profile of the part that follows, as `ShardFold` has it."""
        pairs = list(zip(self.folds, other.folds, strict=True))
        if other.failure is not None or not all(a.can_merge(b) for a, b in pairs):
            return False
        for mine, others in pairs:
            mine.merge(others, index)
        self._vote.merge(other._vote)
        self.damage.merge(shift_record_index(other.damage, index))
        self.records += other.records
        self.lost += other.lost
        self.payload_bytes += other.payload_bytes
        self._add_crcs(other._crcs or b"")
        return True

    def found(self) -> "ShardProfile":
        """Return the profile of a shard that was read in parts."""
        with suppress(OSError):
            size = self.path.stat().st_size
            self.shard = Shard(path=self.path, bytes=size, compression=Compression.NONE)
        return self.finish()

    def finish(self, sha256: Sequence[str] = ()) -> "ShardProfile":
        """Collect the faults, and find their causes, once all is read."""
        for fold in self.folds:
            fold.finish()
        # Without Examples, no record is expected to be one.
        lists = [self.damage, *(one.faults for one in self.folds if self._vote.holds_examples)]
        self.n_faults = sum(one.count for one in lists)
        entries = [fault for one in lists for fault in one.entries]
        faults = sorted(entries, key=lambda fault: fault.offset)[:MAX_FAULTS]
        if self._request.parsing and self.shard is not None:
            causes = Causes(self.shard, self.records, self._source)
            faults = [replace(fault, cause=fault.cause or causes.of(fault)) for fault in faults]
        self.faults = tuple(faults)
        if self.path in self._request.hashed and self.is_whole:
            with suppress(OSError):  # it was read a moment ago
                self.sha256 = sha256[0] if sha256 else file_sha256(self.path)
        return self

    def add_checksum_style(self) -> None:
        """Add the style of checksums to the first fault, if that is why no record is intact."""
        if not self.records and self.faults and self.faults[0].kind in STYLED_KINDS:
            first = self.faults[0]
            with suppress(ShardError):
                cause = explain_style(self._source)
                self.faults = (replace(first, cause=cause), *self.faults[1:])

    def add_faults(self, faults: CappedList[Fault]) -> None:
        """Add faults that only a look at other shards has shown."""
        found = sorted((*self.faults, *faults.entries), key=lambda fault: fault.offset)
        self.faults, self.n_faults = tuple(found[:MAX_FAULTS]), self.n_faults + faults.count

    @property
    def payload(self) -> PayloadKind:
        """What the payloads are."""
        return self._vote.kind(sequences=any(fold.sequences for fold in self.folds))

    @property
    def holds_examples(self) -> bool:
        """Whether the payloads are Examples, as far as is known."""
        return self._vote.holds_examples

    @property
    def content(self) -> str:
        """What most payloads of an unknown kind hold."""
        return self._vote.content

    @property
    def digest(self) -> bytes:
        """A digest of the payloads' CRCs in order; shards of the same records have the same."""
        return self._digest if isinstance(self._digest, bytes) else self._digest.digest()

    @property
    def error(self) -> str | None:
        """Why it could not be read to its end."""
        return None if self.failure is None else self.failure.what

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


def _folds_of(source: AnyPath | Stream, request: ProfileRequest) -> list[RecordFold]:
    """Return the folds that find what is asked for, cheap ones first, without heavy imports."""
    folds: list[RecordFold] = []
    intact: IntactImages | None = None
    if request.rows is not None and path_of(source) in request.rows.shards:
        from tfrtool.inspection.table.record_table import RowFold

        rows = RowFold(path_of(source), request.rows)
        folds.append(rows)
        intact = rows.intact_images
    if request.parsing:
        folds.append(ParserCheck(folder_of(source), images=request.images))
    if request.schema is not None:
        from tfrtool.inspection.verify.schema_check import SchemaCheck

        folds.append(SchemaCheck(request.schema, path_of(source)))
    if request.features:
        folds.append(RecordSchema(str(path_of(source)), expected_bytes=request.expected_bytes))
    if request.labels is not None and (request.labels.label or request.labels.objects is not None):
        from tfrtool.inspection.dataset.record_labels import LabelCounts

        folds.append(LabelCounts(*request.labels))
    root = request.declared.get(path_of(source).parent)
    if root is not None:
        from tfrtool.inspection.verify.feature_check import FeatureCheck

        folds.append(FeatureCheck(root, path_of(source)))
    if request.statistics:
        from tfrtool.inspection.stats.stats_fold import StatsFold, component_counts

        typed = request.typed.get(path_of(source).parent)
        folds.append(StatsFold(None if typed is None else component_counts(typed)))
    if request.images:
        from tfrtool.inspection.verify.image_check import ImageCheck
        from tfrtool.inspection.verify.image_shapes import ImageShapes

        shapes = None if root is None else ImageShapes(root, path_of(source))
        folds.append(ImageCheck(folder_of(source), shapes, intact))
    return folds


def profile_shard(shard: Location, request: ProfileRequest) -> ShardProfile:
    """Read a whole shard, and find what is asked for.

    Memory is bounded by the longest record, by `MAX_FAULTS`, and by what the folds hold. A file
    that can't be read is the profile's ``failure``.
    """
    source = as_source(shard)
    profile, sha256 = ShardProfile(source, request), list[str]()
    path, wanted = profile.path, profile.path in request.hashed
    try:
        with open_shard(source) as file, hashed_while_read(file, wanted) as sha256:
            compression = detect_compression(file)
            bytes_known = size_of(source, file) if source is path else 0
            profile.shard = Shard(path=path, bytes=bytes_known, compression=compression)
            profile.read(RecordReader(file, compression).pieces())
            profile.shard = replace(profile.shard, bytes=size_of(source, file))
    except ShardError as failure:
        profile.failure = failure
    return profile.finish(sha256)


def profile_shards(
    sources: Sequence[AnyPath | Stream],
    request: ProfileRequest,
    options: "ScanOptions",
    worth: int,
    title: str = "reading",
) -> Iterator[ShardProfile]:
    """Yield the profile of each shard, in order; large shards are read in parts at once.

    Those that have a sample, or whose SHA-256 is needed, are read as one; so are all whose rows
    are wanted at once. A process is worth its start for ``worth`` bytes.
    """
    at_once = request.rows is not None and request.rows.on_piece is not None
    total = total_bytes(sources)
    if total and not request.sample:
        share = max(total // (options.workers or cores()), min(total, worth))
        request = replace(request, expected_bytes=share)
    meter = Meter(options.on_progress, title, BYTES, total)
    with options.pool() as pool:
        yield from map_folds(
            partial(ShardProfile, request=request),
            sources,
            pool,
            worth,
            read_unsplit=partial(profile_shard, request=request),
            one_pass=sources if at_once else {*request.hashed, *request.sample},
            on_counts=meter.add,
        )
    meter.finish()
