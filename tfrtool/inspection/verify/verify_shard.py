"""Verifying one shard: every CRC, every payload, and, when asked, every image."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tfrtool.errors import ShardError
from tfrtool.examples.example import DType, PayloadKind
from tfrtool.inspection.verify.causes import Evidence, likely_cause
from tfrtool.inspection.verify.image_check import ImageCheck, ImageFindings
from tfrtool.inspection.verify.payload_check import PayloadCheck
from tfrtool.records.compression import detect_compression
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.records.reader import ReadOptions, read_records
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
from tfrtool.storage.opening import file_sha256

__all__ = ["ShardVerdict", "VerifyOptions", "digest_of", "verify_shard"]

_CRCS_HELD = 16 * 1024
_LOSSES = frozenset(
    (
        FaultKind.LENGTH_CRC,
        FaultKind.PAYLOAD_CRC,
        FaultKind.OVERSIZED_LENGTH,
        FaultKind.TRUNCATED,
        FaultKind.DECOMPRESSION,
    )
)
"""Faults that stand for a record that was there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """What is verified, and how.

    Attributes:
        images: whether every image is decoded, and looked for among all others.
        workers: how many processes at most; None takes the cores.
        max_faults: how many faults of a shard are kept; all are counted.
    """

    images: bool = False
    workers: int | None = None
    max_faults: int = 10_000

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers is at least 1, not {self.workers}")
        if self.max_faults < 1:
            raise ValueError(f"max_faults is at least 1, not {self.max_faults}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardVerdict:
    """What was found in one shard.

    Attributes:
        path: where it is.
        shard: the file, its size and its compression; None where it can't be read at all.
        error: why it could not be read to its end; None where it could. Not damage of the
            format, but of the disk or of permissions.
        records: how many whole records it has.
        lost: how many faults stand for a record that was there.
        payload: what its records are.
        payload_bytes: how many bytes all payloads have together, without frames.
        digest: of its payloads' CRCs, in order: shards of the same records have the same.
        sha256: of the file, in hexadecimal; None where nothing says what it should be.
        faults: its damage in the order of the file; at most `VerifyOptions.max_faults`.
        n_faults: how many there are in all.
        causes: what likely made each of `faults`; None where nothing tells.
        types: by feature, the types that its values have, and the first record with each.
        images: what was found in its images; None where they were not looked at.
    """

    path: Path
    shard: Shard | None = None
    error: str | None = None
    records: int = 0
    lost: int = 0
    payload: PayloadKind = PayloadKind.EMPTY
    payload_bytes: int = 0
    digest: bytes = b""
    sha256: str | None = None
    faults: tuple[Fault, ...] = ()
    n_faults: int = 0
    causes: tuple[str | None, ...] = ()
    types: Mapping[str, Mapping[DType, int]] = field(default_factory=dict)
    images: ImageFindings | None = None

    def __post_init__(self) -> None:
        if self.n_faults < len(self.faults):
            raise ValueError("there are at least as many faults as are kept")
        if len(self.causes) != len(self.faults):
            raise ValueError("each fault has a cause, or None")

    @property
    def is_whole(self) -> bool:
        """Whether it was read to its end, without a fault."""
        return self.error is None and not self.n_faults

    @property
    def conflicts(self) -> tuple[str, ...]:
        """Sentences about features whose type differs between records; TensorFlow fails there."""
        return tuple(
            f"feature {name!r} is "
            + " and ".join(f"{dtype.value} in record {record}" for dtype, record in types.items())
            for name, types in self.types.items()
            if len(types) > 1
        )


def verify_shard(
    shard: Location,
    options: VerifyOptions = VerifyOptions(),
    hashed: frozenset[Path] = frozenset(),
) -> ShardVerdict:
    """Read the whole of a shard, and check all that can be checked of it alone.

    Memory is bounded by the longest record, by ``max_faults``, and with images by 36 bytes for
    each of them. A file that can't be read is no exception here, but in the verdict: the other
    shards of a dataset are worth to be verified, too.

    Args:
        shard: a file, or a binary stream, of which a copy is kept on disk as long as this goes on.
        options: what is verified.
        hashed: the shards whose SHA-256 is wanted.
    """
    source = as_source(shard, keep=True)
    path = path_of(source)
    fold = _Verification(source, options)
    found, failure = None, None
    try:
        with open_shard(source) as file:
            compression = detect_compression(file)
            size = size_of(source, file) if source is path else 0
            found = Shard(path=path, bytes=size, compression=compression)
            for item in read_records(file, ReadOptions(compression=compression)):
                fold.add(item)
            found = replace(found, bytes=size_of(source, file))
    except ShardError as error:
        failure = error.what
    if found is None:
        return ShardVerdict(path=path, error=failure)
    verdict = fold.verdict(found, failure)
    if path in hashed and verdict.is_whole:
        verdict = replace(verdict, sha256=digest_of(path))
    return verdict


def digest_of(path: Path) -> str | None:
    """Return the SHA-256 of a file, in hexadecimal; None where it can't be read any more."""
    try:
        return file_sha256(path)
    except OSError:  # it was read a moment ago
        return None


class _Verification:
    """A fold over the records and faults of one shard."""

    def __init__(self, source: Path | Stream, options: VerifyOptions) -> None:
        self._source = source
        self._limit = options.max_faults
        self._payloads = PayloadCheck()
        self._images = ImageCheck(folder_of(source)) if options.images else None
        self._records = 0
        self._bytes = 0
        self._lost = 0
        self._damage = 0
        self._faults: list[Fault] = []
        self._strangers: list[Fault] = []
        self._n_strangers = 0
        self._crcs = array("I")
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, item: Record | Fault) -> None:
        if isinstance(item, Fault):
            self._damage += 1
            self._lost += item.kind in _LOSSES and item.record is not None
            if len(self._faults) < self._limit:
                self._faults.append(item)
            return
        self._records += 1
        self._bytes += len(item.payload)
        self._crcs.append(item.payload_crc)
        if len(self._crcs) == _CRCS_HELD:
            self._drain()
        problem = self._payloads.problem(item.payload, item.index)
        if problem is not None:
            self._n_strangers += 1
            if len(self._strangers) < self._limit:
                self._strangers.append(_stranger(item, problem))
        elif self._images is not None:
            self._images.add(item)

    def _drain(self) -> None:
        self._hash.update(self._crcs.tobytes())
        del self._crcs[:]

    def verdict(self, shard: Shard, error: str | None) -> ShardVerdict:
        self._drain()
        faults, count = list(self._faults), self._damage
        if self._payloads.holds_examples:
            faults += self._strangers
            count += self._n_strangers
        images = None
        if self._images is not None:
            images = self._images.findings() if self._payloads.holds_examples else ImageFindings()
            faults += images.faults
            count += images.n_faults
        faults.sort(key=lambda fault: fault.offset)
        del faults[self._limit :]
        evidence = Evidence(shard=shard, records=self._records, source=self._source)
        return ShardVerdict(
            path=shard.path,
            shard=shard,
            error=error,
            records=self._records,
            lost=self._lost,
            payload=self._payloads.payload,
            payload_bytes=self._bytes,
            digest=self._hash.digest(),
            faults=tuple(faults),
            n_faults=count,
            causes=tuple(likely_cause(fault, evidence) for fault in faults),
            types=self._payloads.types,
            images=images,
        )


def _stranger(record: Record, problem: str) -> Fault:
    return Fault(kind=FaultKind.PARSE, offset=record.offset, record=record.index, message=problem)
