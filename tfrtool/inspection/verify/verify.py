"""Verifying shards and datasets: each shard for itself, and all of them together."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrtool.declare import takes
from tfrtool.engines.pool import engine_of
from tfrtool.errors import human_count, printable
from tfrtool.inspection.inspect_options import VerifyOptions
from tfrtool.inspection.profile import Asked, ShardProfile, profile_shards
from tfrtool.inspection.verify.dataset_check import (
    DatasetFault,
    DatasetFindings,
    check_directory,
    written_shards,
)
from tfrtool.records.compression import Compression
from tfrtool.records.framing import LENGTH
from tfrtool.records.shard_sets import ShardSet
from tfrtool.records.shards import FoundShards, Locations, locate_shards
from tfrtool.records.stream import Stream
from tfrtool.storage.json_values import Shown, to_json_values
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import RemotePath

if TYPE_CHECKING:
    from tfrtool.inspection.verify.duplicates import Duplicates

# Bytes of images that are decoded in the time that a process takes to start, roughly.
_WORTH_WITH_IMAGES = 2 * 1024 * 1024

# Without decoding, such bytes by the length of records: a record costs about as much as 20 KB.
_SHORT, _LONG, _RECORDS_WORTH = 2048, 24 * 1024, 32 * 1024
_NOTES_KEPT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport(Shown):
    """Result of verifying shards.

    Attributes:
        shards: result for each shard, in the order of the arguments.
        directories: result for each directory. Empty if a single file was verified.
        faults: faults that concern the shards as a set, such as missing shards.
        notes: remarks that are not damage.
        duplicates: duplicate images, or None if images were not checked.
    """

    shards: tuple[ShardProfile, ...]
    directories: tuple[DatasetFindings, ...] = ()
    faults: tuple[DatasetFault, ...] = ()
    notes: tuple[str, ...] = ()
    duplicates: "Duplicates | None" = None

    @property
    def records(self) -> int:
        """Number of intact records."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Total size of the shards on disk, in bytes."""
        return sum(verdict.shard.bytes for verdict in self.shards if verdict.shard is not None)

    @property
    def unreadable(self) -> tuple[ShardProfile, ...]:
        """Shards that could not be read to the end."""
        return tuple(shard for shard in self.shards if shard.error is not None)

    @property
    def n_faults(self) -> int:
        """Number of faults, including images duplicated across splits or labels."""
        spoiled = 0 if self.duplicates is None else self.duplicates.spoiled
        return sum(shard.n_faults for shard in self.shards) + len(self.faults) + spoiled

    @property
    def n_problems(self) -> int:
        """Number of faults and of unreadable shards."""
        return self.n_faults + len(self.unreadable)

    @property
    def is_sound(self) -> bool:
        """Whether everything was read and nothing is wrong."""
        return not self.n_problems

    def to_json(self) -> dict[str, Any]:
        """Return the last object that ``verify --json`` prints, about all shards together."""
        data: dict[str, Any] = {
            "shards": len(self.shards),
            "records": self.records,
            "bytes": self.bytes,
            "sound": self.is_sound,
            "faults": to_json_values(self.faults),
            "fault_count": self.n_faults,
            "notes": list(map(printable, self.notes)),
        }
        if self.duplicates is not None:
            counts = to_json_values(self.duplicates)
            data |= {"duplicates": counts.pop("groups"), "duplicate_counts": counts}
        return data


@takes(VerifyOptions)
def verify(shards: Locations, options: VerifyOptions) -> VerifyReport:
    """Verify shards and, unless a single file is given, whether the set is complete.

    Args:
        shards: files, glob patterns and directories, as for `find_shards`; or a binary stream.

    Raises:
        ShardError: an argument matches no file, or a worker process died.
    """
    located = locate_shards(shards)
    asked = Asked(parsing=True, images=options.images, hashed=written_shards(located.paths))
    worth = _WORTH_WITH_IMAGES if options.images else _worth_a_process(located.sources)
    with engine_of(options.engine, options.engine_address, options.workers) as pool:
        profiles = [
            *profile_shards(
                located.sources,
                asked,
                pool,
                worth,
                title="verifying",
                on_progress=options.on_progress,
            )
        ]
    return verify_report(located, profiles)


def verify_report(located: FoundShards, profiles: Sequence[ShardProfile]) -> VerifyReport:
    """Return the report on profiles that were asked for parsing, and perhaps for images."""
    from tfrtool.inspection.verify.image_check import ImageCheck, ImageFindings

    checks = [profile.fold(ImageCheck) for profile in profiles]
    encoded = {name for check in checks if check is not None for name in check.encoded}
    shards = []
    for profile, check in zip(profiles, checks, strict=True):
        if check is not None:
            found = check.findings(encoded) if profile.holds_examples else ImageFindings()
            profile = replace(profile.with_faults(found.faults, found.n_faults), images=found)
        shards.append(profile)
    by_folder: dict[Path, dict[Path, ShardProfile]] = {}
    if len(shards) > 1 or located.folders:
        for shard in shards:
            by_folder.setdefault(shard.path.parent, {})[shard.path] = shard
    directories = tuple(
        check_directory(folder, inside, whole=folder in located.folders)
        for folder, inside in by_folder.items()
    )
    set_of = {path: one for found in directories for one in found.sets for path in one.paths}
    same = list(_same_records(shards, set_of))
    duplicates = None
    if any(check is not None for check in checks):
        from tfrtool.inspection.verify.duplicates import find_duplicates

        duplicates = find_duplicates(
            [
                (
                    source,
                    set_of[s.path].split if s.path in set_of else None,
                    check.roles,
                    check.fingerprints,
                )
                for s, source, check in zip(shards, located.sources, checks, strict=True)
                if check is not None and s.holds_examples
            ]
        )
    notes = (
        (one for one in same if isinstance(one, str)),
        _image_notes(shards),
        _compressed(shards),
    )
    return VerifyReport(
        shards=tuple(shards),
        directories=directories,
        faults=(
            *(fault for found in directories for fault in found.faults),
            *(one for one in same if isinstance(one, DatasetFault)),
        ),
        notes=(*located.notes, *(note for some in notes for note in _capped(some))),
        duplicates=duplicates,
    )


def _worth_a_process(sources: Sequence[Path | Stream]) -> int:
    """Return the bytes that are checked in the time that a process takes to start."""
    length = _LONG
    if sources and not isinstance(sources[0], Stream | RemotePath):
        with suppress(OSError), open_regular(sources[0]) as file:
            head = file.read(LENGTH.size)
            length = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else length
    return _RECORDS_WORTH * min(max(length, _SHORT), _LONG)


def _same_records(
    verdicts: Sequence[ShardProfile], set_of: Mapping[Path, ShardSet]
) -> Iterator[DatasetFault | str]:
    """Tell shards that hold the same records in the same order; where none is meant, as a note."""
    earlier: dict[tuple[bytes, int, int], dict[int, ShardProfile]] = {}  # the first of each set
    for verdict in verdicts:
        if not verdict.records or not verdict.is_whole:
            continue
        own, records = set_of.get(verdict.path), verdict.records
        same = earlier.setdefault((verdict.digest, records, verdict.payload_bytes), {})
        mistaken = [v for v in same.values() if _is_mistake(own, set_of.get(v.path), records)]
        for other in (mistaken or [*same.values()])[:1]:
            message = f"contains the same {human_count(records, 'record')} as "
            message += printable(other.path.name)
            name = printable(verdict.path.name)
            yield DatasetFault(verdict.path, message) if mistaken else f"{name} {message}"
        same.setdefault(id(own), verdict)


def _is_mistake(one: ShardSet | None, other: ShardSet | None, records: int) -> bool:
    """Return whether two shards of the same records are a mistake, and not a choice."""
    if one is None or other is None:
        return False
    if one is other:
        return records > 1
    return None not in (one.split, other.split) and one.split != other.split


def _image_notes(verdicts: Sequence[ShardProfile]) -> Iterator[str]:
    for shard in verdicts:
        images = shard.images
        if images is not None and images.doubtful:
            yield (
                f"{shard.path.name}: {images.doubtful:,} values of {images.roles.image!r} are "
                "neither images in a known format nor raw pixels of the recorded size"
            )
        if images is not None and images.absent:
            records = human_count(images.absent, "record")
            yield f"{shard.path.name}: {records} without {images.roles.image!r}"


def _compressed(verdicts: Sequence[ShardProfile]) -> Iterator[str]:
    counts = Counter(verdict.compression for verdict in verdicts if verdict.records)
    for kind in (Compression.GZIP, Compression.ZLIB):
        if counts[kind]:
            yield (
                f"{human_count(counts[kind], 'shard')} {'uses' if counts[kind] == 1 else 'use'} "
                f"{kind.value} compression, which TFDS can't read and tf.data.TFRecordDataset "
                f"reads with compression_type={kind.value.upper()!r}"
            )


def _capped(notes: Iterator[str]) -> Iterator[str]:
    yield from islice(notes, _NOTES_KEPT)
    more = sum(1 for _ in notes)
    if more:
        yield f"and {more:,} more of these"
