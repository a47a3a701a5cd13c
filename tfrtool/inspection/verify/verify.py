"""Verifying shards and datasets: each shard for itself, and all of them together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tfrtool.engines.processes import cores, map_shards
from tfrtool.errors import DatasetError, printable
from tfrtool.examples.roles import Roles
from tfrtool.examples.written import WrittenShard, read_written_shards
from tfrtool.inspection.verify.causes import Evidence, likely_cause
from tfrtool.inspection.verify.dataset_check import DatasetFault, DatasetFindings, check_directory
from tfrtool.inspection.verify.duplicates import Duplicates, ImageShard, find_duplicates
from tfrtool.inspection.verify.verify_shard import ShardVerdict, VerifyOptions, verify_shard
from tfrtool.records.compression import Compression
from tfrtool.records.framing import FaultKind
from tfrtool.records.shard_sets import ShardSet
from tfrtool.records.shards import Locations, locate_shards
from tfrtool.records.stream import Stream

__all__ = ["VerifyReport", "verify"]

_WORTH_WITH_IMAGES = 2 * 1024 * 1024
"""Bytes of images that are decoded in the time that a process takes to start, roughly."""

_NOTES_KEPT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was found.

    Attributes:
        shards: each shard, in the order of the arguments.
        directories: what was found about their directories; empty where one file alone was meant.
        faults: what is wrong with the shards as a whole.
        notes: what is worth to be known, and no damage.
        duplicates: images that are there more than once; None where images were not looked at.
    """

    shards: tuple[ShardVerdict, ...]
    directories: tuple[DatasetFindings, ...] = ()
    faults: tuple[DatasetFault, ...] = ()
    notes: tuple[str, ...] = ()
    duplicates: Duplicates | None = None

    @property
    def records(self) -> int:
        """How many whole records there are."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """How many bytes the shards have on disk."""
        return sum(verdict.shard.bytes for verdict in self.shards if verdict.shard is not None)

    @property
    def unreadable(self) -> tuple[ShardVerdict, ...]:
        """The shards that could not be read to their end."""
        return tuple(shard for shard in self.shards if shard.error is not None)

    @property
    def n_faults(self) -> int:
        """How many faults there are, duplicates that spoil results included."""
        spoiled = 0 if self.duplicates is None else self.duplicates.spoiled
        return sum(shard.n_faults for shard in self.shards) + len(self.faults) + spoiled

    @property
    def is_sound(self) -> bool:
        """Whether all was read, and nothing is wrong."""
        return not self.n_faults and not self.unreadable


def verify(
    shards: Locations,
    options: VerifyOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> VerifyReport:
    """Check shards, and, unless it is one file alone, whether they are all that belong together.

    Args:
        shards: files, patterns and directories, as for `find_shards`; or a binary stream.
        options: what is checked; None takes the defaults.
        progress: called after each shard with how many are done, and how many there are.

    Raises:
        ShardError: an argument means no file at all, or a worker process died.
    """
    options = options or VerifyOptions()
    located = locate_shards(shards, keep=True)
    sources = located.sources
    workers = options.workers or cores()
    verdicts: list[ShardVerdict] = []
    worth = {"worth": _WORTH_WITH_IMAGES} if options.images else {}
    work = partial(verify_shard, options=options, hashed=_written(located.paths))
    for verdict in map_shards(work, sources, workers, **worth):
        verdicts.append(verdict)
        if progress is not None:
            progress(len(verdicts), len(sources))
    if options.images:
        verdicts = _resolve_doubts(verdicts, options)
    by_path = {verdict.path: verdict for verdict in verdicts}
    directories = _check_directories(located.folders, by_path)
    splits = {path: one.split for found in directories for one in found.sets for path in one.paths}
    notes = [*located.notes, *(note for found in directories for note in found.notes)]
    faults = [fault for found in directories for fault in found.faults]
    twins, twin_notes = _twins(verdicts, directories)
    return VerifyReport(
        shards=tuple(verdicts),
        directories=directories,
        faults=(*faults, *twins),
        notes=(*notes, *twin_notes, *_conflicts(directories, by_path), *_gzip(verdicts)),
        duplicates=_duplicates(verdicts, sources, splits, workers) if options.images else None,
    )


def _written(paths: Iterable[Path]) -> frozenset[Path]:
    """Return the shards of which a write's report says what they should be."""
    reports: dict[Path, Mapping[str, WrittenShard]] = {}
    for directory in {path.parent for path in paths}:
        with contextlib.suppress(DatasetError):  # told with the directory
            reports[directory] = read_written_shards(directory)
    return frozenset(path for path in paths if path.name in reports.get(path.parent, ()))


def _check_directories(
    meant: Sequence[Path], verdicts: Mapping[Path, ShardVerdict]
) -> tuple[DatasetFindings, ...]:
    if len(verdicts) == 1 and not meant:
        return ()
    by_directory: dict[Path, dict[Path, ShardVerdict]] = {}
    for path, verdict in verdicts.items():
        by_directory.setdefault(path.parent, {})[path] = verdict
    return tuple(
        check_directory(directory, inside, whole=directory in meant)
        for directory, inside in by_directory.items()
    )


def _resolve_doubts(verdicts: Sequence[ShardVerdict], options: VerifyOptions) -> list[ShardVerdict]:
    """Take values that are no image for broken ones where their feature holds images elsewhere."""
    found = [verdict.images for verdict in verdicts if verdict.images is not None]
    encoded = {name for images in found for name in images.features}
    return [_resolved(verdict, encoded, options) for verdict in verdicts]


def _resolved(verdict: ShardVerdict, encoded: set[str], options: VerifyOptions) -> ShardVerdict:
    images, shard = verdict.images, verdict.shard
    if images is None or shard is None or not images.doubts:
        return verdict
    role = None if images.roles is None else images.roles.image
    if role is None or role not in encoded:
        return verdict
    evidence = Evidence(shard=shard, records=verdict.records)
    told = [
        *zip(verdict.faults, verdict.causes, strict=True),
        *((fault, likely_cause(fault, evidence)) for fault in images.doubts),
    ]
    told = sorted(told, key=lambda pair: pair[0].offset)[: options.max_faults]
    return replace(
        verdict,
        faults=tuple(fault for fault, _ in told),
        n_faults=verdict.n_faults + images.doubtful,
        causes=tuple(cause for _, cause in told),
        images=replace(
            images,
            features={**images.features, role: images.features.get(role, 0) + images.doubtful},
            n_faults=images.n_faults + images.doubtful,
            doubtful=0,
        ),
    )


def _twins(
    verdicts: Sequence[ShardVerdict], directories: Sequence[DatasetFindings]
) -> tuple[list[DatasetFault], list[str]]:
    """Tell shards that hold the same records in the same order."""
    set_of = {path: one for found in directories for one in found.sets for path in one.paths}
    earlier: dict[tuple[bytes, int, int], dict[int, ShardVerdict]] = {}  # the first of each set
    faults: list[DatasetFault] = []
    notes: list[str] = []
    for verdict in verdicts:
        if not verdict.records or not verdict.is_whole:
            continue
        own = set_of.get(verdict.path)
        same = earlier.setdefault((verdict.digest, verdict.records, verdict.payload_bytes), {})
        mistaken = [
            other
            for other in same.values()
            if _is_twin(own, set_of.get(other.path), verdict.records)
        ]
        for other in (mistaken or list(same.values()))[:1]:
            what = "record" if verdict.records == 1 else f"{verdict.records:,} records"
            message = f"holds the same {what} as {printable(other.path.name)}"
            if mistaken:
                fault = DatasetFault(kind=FaultKind.COUNT, path=verdict.path, message=message)
                faults.append(fault)
            else:
                notes.append(f"{printable(verdict.path.name)} {message}")
        same.setdefault(id(own), verdict)
    return faults, _capped(notes)


def _is_twin(one: ShardSet | None, other: ShardSet | None, records: int) -> bool:
    """Return whether two shards of the same records are a mistake, and not a choice."""
    if one is None or other is None:
        return False
    if one is other:
        return records > 1
    return None not in (one.split, other.split) and one.split != other.split


def _conflicts(
    directories: Sequence[DatasetFindings], verdicts: Mapping[Path, ShardVerdict]
) -> list[str]:
    """Tell features whose type differs between the shards of a set, each of which agrees."""
    notes = []
    for one in (one for found in directories for one in found.sets):
        types: dict[str, dict[str, Path]] = {}
        for path in one.paths:
            for name, seen in verdicts[path].types.items() if path in verdicts else ():
                if len(seen) == 1:
                    (dtype,) = seen
                    types.setdefault(name, {}).setdefault(dtype.value, path)
        notes += [
            f"feature {name!r} is "
            + " and ".join(f"{dtype} in {printable(p.name)}" for dtype, p in seen.items())
            + ": no one description parses both"
            for name, seen in types.items()
            if len(seen) > 1
        ]
    return _capped(notes)


def _gzip(verdicts: Sequence[ShardVerdict]) -> list[str]:
    notes = []
    for compression in (Compression.GZIP, Compression.ZLIB):
        count = sum(
            verdict.shard is not None and verdict.shard.compression is compression
            for verdict in verdicts
        )
        if count:
            what = "1 shard is" if count == 1 else f"{count:,} shards are"
            notes.append(
                f"{what} {compression.value}: read with "
                f"tf.data.TFRecordDataset(..., compression_type={compression.value.upper()!r})"
            )
    return notes


def _duplicates(
    verdicts: Sequence[ShardVerdict],
    sources: Sequence[Path | Stream],
    splits: Mapping[Path, str | None],
    workers: int,
) -> Duplicates:
    shards = [
        ImageShard(
            source=source,
            split=splits.get(verdict.path),
            roles=verdict.images.roles or Roles(image=None, label=None, name=None),
            fingerprints=verdict.images.fingerprints,
        )
        for verdict, source in zip(verdicts, sources, strict=True)
        if verdict.images is not None and verdict.images.fingerprints
    ]
    return find_duplicates(shards, workers)


def _capped(notes: list[str]) -> list[str]:
    if len(notes) <= _NOTES_KEPT:
        return notes
    return [*notes[:_NOTES_KEPT], f"and {len(notes) - _NOTES_KEPT:,} more like that"]
