"""Verifying one shard: every CRC, every payload, and, when asked, every image."""

import hashlib
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrtool.engines.engine import Workers
from tfrtool.engines.split_shards import later, map_folds
from tfrtool.errors import ShardError, printable
from tfrtool.examples.example import PayloadKind
from tfrtool.inspection.verify.causes import Causes
from tfrtool.inspection.verify.payload_check import PayloadCheck, unparseable
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
)
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.json_values import to_json_values
from tfrtool.storage.limits import (
    MAX_FAULTS,
)
from tfrtool.storage.opening import file_sha256, hashed_while_read
from tfrtool.storage.progress import OnCounts

if TYPE_CHECKING:  # imported when they are needed, which keeps processes light
    from tfrtool.inspection.verify.image_check import ImageFindings

_CRCS_HELD = 16 * 1024
_RECORDS_HELD, _BYTES_HELD = 256, 512 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardVerdict:
    """What was found in one shard."""

    path: Path
    shard: Shard | None = None  # its size and compression; None where it can't be read at all
    error: str | None = None  # why it could not be read to its end: the disk, permissions
    records: int = 0  # whole ones
    lost: int = 0  # faults that stand for a record that was there
    payload: PayloadKind = PayloadKind.EMPTY
    payload_bytes: int = 0  # of all payloads together, without frames
    digest: bytes = b""  # of its payloads' CRCs, in order: shards of the same records have the same
    sha256: str | None = None  # of the file, where it is whole and something says what it should be
    faults: tuple[Fault, ...] = ()  # the first `MAX_FAULTS` in the order of the file, with causes
    n_faults: int = 0  # in all
    images: "ImageFindings | None" = None  # None where they were not looked at

    @property
    def is_whole(self) -> bool:
        """Whether it was read to its end, without a fault."""
        return self.error is None and not self.n_faults

    @property
    def compression(self) -> Compression:
        """How it is compressed, as far as is known."""
        return Compression.NONE if self.shard is None else self.shard.compression

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


class VerifyFold:
    """A fold over what is read of one shard."""

    def __init__(self, source: Path | Stream, *, images: bool, part: bool = False) -> None:
        """Begin with nothing; ``images`` are looked at if they are asked for."""
        self._path = path_of(source)
        self.payloads = PayloadCheck(part=part)
        self.images: Any = None  # an ImageCheck, imported when it is needed
        self.objects: Any = None  # an ObjectCheck
        self._folder = folder_of(source)
        if images:
            from tfrtool.inspection.verify.image_check import ImageCheck

            self.images = ImageCheck(self._folder)
        self.damage, self.misfits = CappedList[Fault](MAX_FAULTS), CappedList[Fault](MAX_FAULTS)
        self.records = self.lost = self.size = 0
        self.error: str | None = None
        self._crcs = array("I")
        self._digest = None if part else hashlib.blake2b(digest_size=16)

    def read(self, items: Iterable[Record | Fault]) -> None:
        """Take in what is read, some records at a time."""
        held, size = list[Record](), 0
        try:
            for item in items:
                if isinstance(item, Fault):
                    self.lost += item.record is not None
                    self.damage.add(item)
                    continue
                self.size += len(item.payload)
                held.append(item)
                size += len(item.payload)
                if size > _BYTES_HELD or len(held) == _RECORDS_HELD:
                    self._take(held)
                    held, size = [], 0
        except ShardError as caught:
            self.error = caught.what
        self._take(held)

    def _take(self, records: Sequence[Record]) -> None:
        self.records += len(records)
        self._digested(array("I", [one.payload_crc for one in records]))
        odd = set()
        for record, problem in self.payloads.problems(records):
            self.misfits.add(unparseable(record, problem))
            odd.add(record.index)
        if self.payloads.others:
            return
        if self.payloads.may_have_boxes:
            for fault in self._object_check().faults(
                one for one in records if one.index not in odd
            ):
                self.misfits.add(fault)
        if self.images is not None:
            for record in records:
                if record.index not in odd:
                    self.images.add(record)

    def _object_check(self) -> Any:
        if self.objects is None:
            from tfrtool.inspection.verify.object_check import ObjectCheck

            self.objects = ObjectCheck(self._folder, images=self.images is not None)
        return self.objects

    def _digested(self, crcs: "array[int]") -> None:
        self._crcs += crcs
        if self._digest is not None and len(self._crcs) >= _CRCS_HELD:
            self._digest.update(self._crcs)
            self._crcs = array("I")

    def merge(self, other: "VerifyFold", index: int) -> bool:
        """Take in a fold over a part, as `ShardFold` has it."""
        if other.error is not None:
            return False
        if self.images and other.images and not self.images.merge(other.images, index):
            return False
        self.payloads.join(other.payloads)
        self.damage.merge(later(other.damage, index))
        self.misfits.merge(later(other.misfits, index))
        self.records += other.records
        self.lost += other.lost
        self.size += other.size
        self._digested(other._crcs)
        return True

    def found(self) -> ShardVerdict:
        """Return what was found in a shard that was read in parts."""
        size, path = self._path.stat().st_size, self._path
        return self.verdict(path, Shard(path=path, bytes=size, compression=Compression.NONE), ())

    def verdict(
        self,
        source: Path | Stream,
        found: Shard,
        hashed: Iterable[Path],
        sha256: Sequence[str] = (),
    ) -> ShardVerdict:
        """Return what was found in a shard."""
        path = path_of(source)
        digest = self._digest or hashlib.blake2b(digest_size=16)
        digest.update(self._crcs)
        faults, count = self.damage.kept, self.damage.count
        findings = None
        if self.payloads.holds_examples:
            faults, count = faults + self.misfits.kept, count + self.misfits.count
        if self.images is not None:
            from tfrtool.inspection.verify.image_check import ImageFindings

            findings = ImageFindings()
            if self.payloads.holds_examples:
                findings = self.images.findings()
                faults, count = [*faults, *findings.faults], count + findings.n_faults
        causes = Causes(found, self.records, source)
        whole = path in hashed and self.error is None and not count
        return ShardVerdict(
            path=path,
            shard=found,
            error=self.error,
            records=self.records,
            lost=self.lost,
            payload=self.payloads.kind,
            payload_bytes=self.size,
            digest=digest.digest(),
            sha256=(sha256[0] if sha256 else digest_of(path)) if whole else None,
            faults=tuple(
                replace(fault, cause=fault.cause or causes.of(fault))
                for fault in sorted(faults, key=lambda fault: fault.offset)[:MAX_FAULTS]
            ),
            n_faults=count,
            images=findings,
        )


def verify_shard(
    shard: Location, *, images: bool = False, hashed: Iterable[Path] = ()
) -> ShardVerdict:
    """Read the whole of a shard, and check all that can be checked of it alone.

    Memory is bounded by the longest record, by `MAX_FAULTS`, and with images by 40 bytes for
    each of them. A file that can't be read is no exception here, but in the verdict: the other
    shards of a dataset are worth to be verified, too. ``hashed`` are those whose SHA-256 is wanted.
    """
    source = as_source(shard, keep=True)
    path = path_of(source)
    fold, found, sha256 = VerifyFold(source, images=images), None, list[str]()
    try:
        with open_shard(source) as file, hashed_while_read(file, path in hashed) as sha256:
            compression = detect_compression(file)
            bytes_known = size_of(source, file) if source is path else 0
            found = Shard(path=path, bytes=bytes_known, compression=compression)
            fold.read(read_records(file, compression=compression))
            found = replace(found, bytes=size_of(source, file))
    except ShardError as caught:
        fold.error = caught.what
    if found is None:
        return ShardVerdict(path=path, error=fold.error)
    return fold.verdict(source, found, hashed, sha256)


def verify_shards(
    sources: Sequence[Path | Stream],
    workers: Workers,
    worth: int,
    *,
    images: bool,
    hashed: Collection[Path],
    on_counts: OnCounts,
) -> Iterator[ShardVerdict]:
    """Yield the verdicts of shards; large ones are read in parts.

    But for those whose SHA-256 is wanted: it can't be had in parts, and takes as long.
    """
    whole = partial(verify_shard, images=images, hashed=hashed)
    begin = partial(VerifyFold, images=images)
    return map_folds(
        begin, sources, workers, worth, whole=whole, one_pass=hashed, on_counts=on_counts
    )


def digest_of(path: Path) -> str | None:
    """Return the SHA-256 of a file, in hexadecimal; None where it can't be read any more."""
    with suppress(OSError):  # it was read a moment ago
        return file_sha256(path)
    return None
