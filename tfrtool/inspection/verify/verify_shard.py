"""Verifying one shard: every CRC, every payload, and, when asked, every image."""

import hashlib
from array import array
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfrtool.errors import ShardError, printable
from tfrtool.examples.example import PayloadKind
from tfrtool.inspection.verify.causes import Causes
from tfrtool.inspection.verify.image_check import ImageCheck, ImageFindings
from tfrtool.inspection.verify.payload_check import PayloadCheck, unparseable
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.framing import Fault
from tfrtool.records.reader import read_records
from tfrtool.records.shards import Shard
from tfrtool.records.stream import Location, as_source, folder_of, open_shard, path_of, size_of
from tfrtool.storage.limits import MAX_FAULTS, FirstOf
from tfrtool.storage.opening import file_sha256
from tfrtool.storage.plain import plain

_CRCS_HELD = 16 * 1024


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
    images: ImageFindings | None = None  # None where they were not looked at

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
            "path": plain(self.path),
            "bytes": None if shard is None else shard.bytes,
            "compression": None if shard is None else shard.compression.value,
            "records": self.records,
            "payload": self.payload.value,
            "payload_bytes": self.payload_bytes,
            "faults": [{**plain(fault), "cause": fault.cause} for fault in self.faults],
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


def verify_shard(
    shard: Location, *, images: bool = False, hashed: Iterable[Path] = ()
) -> ShardVerdict:
    """Read the whole of a shard, and check all that can be checked of it alone.

    Memory is bounded by the longest record, by `MAX_FAULTS`, and with images by 32 bytes for
    each of them. A file that can't be read is no exception here, but in the verdict: the other
    shards of a dataset are worth to be verified, too. ``hashed`` are those whose SHA-256 is wanted.
    """
    source = as_source(shard, keep=True)
    path = path_of(source)
    payloads = PayloadCheck()
    image_check = ImageCheck(folder_of(source)) if images else None
    damage, misfits = FirstOf[Fault](MAX_FAULTS), FirstOf[Fault](MAX_FAULTS)
    crcs, digest = array("I"), hashlib.blake2b(digest_size=16)
    records = lost = size = 0
    found, error = None, None
    try:
        with open_shard(source) as file:
            compression = detect_compression(file)
            bytes_known = size_of(source, file) if source is path else 0
            found = Shard(path=path, bytes=bytes_known, compression=compression)
            for item in read_records(file, compression=compression):
                if isinstance(item, Fault):
                    lost += item.record is not None
                    damage.add(item)
                    continue
                records += 1
                size += len(item.payload)
                crcs.append(item.payload_crc)
                if len(crcs) == _CRCS_HELD:
                    digest.update(crcs.tobytes())
                    del crcs[:]
                problem = payloads.problem(item.payload)
                if problem is not None:
                    misfits.add(unparseable(item, problem))
                elif image_check is not None and not payloads.others:
                    image_check.add(item)
            found = replace(found, bytes=size_of(source, file))
    except ShardError as caught:
        error = caught.what
    if found is None:
        return ShardVerdict(path=path, error=error)
    digest.update(crcs.tobytes())
    faults, count = damage.kept, damage.count
    findings = None if image_check is None else ImageFindings()
    if payloads.holds_examples:
        faults, count = faults + misfits.kept, count + misfits.count
        if image_check is not None:
            findings = image_check.findings()
            faults, count = [*faults, *findings.faults], count + findings.n_faults
    causes = Causes(found, records, source)
    whole = path in hashed and error is None and not count
    return ShardVerdict(
        path=path,
        shard=found,
        error=error,
        records=records,
        lost=lost,
        payload=payloads.kind,
        payload_bytes=size,
        digest=digest.digest(),
        sha256=digest_of(path) if whole else None,
        faults=tuple(
            replace(fault, cause=fault.cause or causes.of(fault))
            for fault in sorted(faults, key=lambda fault: fault.offset)[:MAX_FAULTS]
        ),
        n_faults=count,
        images=findings,
    )


def digest_of(path: Path) -> str | None:
    """Return the SHA-256 of a file, in hexadecimal; None where it can't be read any more."""
    with suppress(OSError):  # it was read a moment ago
        return file_sha256(path)
    return None
