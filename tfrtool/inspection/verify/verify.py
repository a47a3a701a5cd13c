"""Verifying shards and datasets: each shard for itself, and all of them together."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tfrtool.engines.processes import map_shards
from tfrtool.errors import DatasetError, human_count, printable
from tfrtool.examples.tfds_metadata import WrittenShard, read_written_shards
from tfrtool.inspection.verify.dataset_check import DatasetFault, DatasetFindings, check_directory
from tfrtool.inspection.verify.duplicates import Duplicates, find_duplicates
from tfrtool.inspection.verify.verify_shard import MAX_FAULTS, ShardVerdict, verify_shard
from tfrtool.records.compression import Compression
from tfrtool.records.framing import FaultKind
from tfrtool.records.shard_sets import ShardSet
from tfrtool.records.shards import Locations, locate_shards
from tfrtool.storage.plain import plain
from tfrtool.storage.progress import OnProgress, Progress, silent

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

    def to_json(self) -> dict[str, Any]:
        """Return the last object of ``verify --json``: what concerns all shards together."""
        duplicates = self.duplicates
        data: dict[str, Any] = {
            "shards": len(self.shards),
            "records": self.records,
            "bytes": self.bytes,
            "sound": self.is_sound,
            "faults": plain(self.faults),
            "fault_count": self.n_faults,
            "notes": list(map(printable, self.notes)),
        }
        if duplicates is not None:
            data["duplicates"] = plain(duplicates.groups)
            data["duplicate_counts"] = {
                "across_splits": duplicates.across_splits,
                "across_labels": duplicates.across_labels,
                "within": duplicates.within,
            }
        return data


def verify(
    shards: Locations,
    *,
    images: bool = False,
    workers: int | None = None,
    on_progress: OnProgress = silent,
) -> VerifyReport:
    """Check shards, and, unless it is one file alone, whether they are all that belong together.

    Args:
        shards: files, patterns and directories, as for `find_shards`; or a binary stream.
        images: whether every image is decoded, and looked for among all others.
        workers: how many processes at most; None takes the cores.
        on_progress: told after each shard how many are done.

    Raises:
        ShardError: an argument means no file at all, or a worker process died.
    """
    located = locate_shards(shards, keep=True)
    sources = located.sources
    verdicts: list[ShardVerdict] = []
    worth = {"worth": _WORTH_WITH_IMAGES} if images else {}
    work = partial(verify_shard, images=images, hashed=_written(located.paths))
    for verdict in map_shards(work, sources, workers, **worth):
        verdicts.append(verdict)
        done, total = len(verdicts), len(sources)
        on_progress(Progress(what="verify", done=done, total=total, unit="shards"))
    encoded = {name for v in verdicts if v.images is not None for name in v.images.features}
    verdicts = [_resolved(verdict, encoded) for verdict in verdicts]
    by_path = {verdict.path: verdict for verdict in verdicts}
    directories = _check_directories(located.folders, by_path)
    set_of = {path: one for found in directories for one in found.sets for path in one.paths}
    doubled, noted = _same_records(verdicts, set_of)
    duplicates = None
    if images:
        duplicates = find_duplicates(
            [
                (source, set_of[v.path].split if v.path in set_of else None, v.images)
                for v, source in zip(verdicts, sources, strict=True)
                if v.images is not None
            ]
        )
    return VerifyReport(
        shards=tuple(verdicts),
        directories=directories,
        faults=(*(fault for found in directories for fault in found.faults), *doubled),
        notes=(
            *located.notes,
            *(note for found in directories for note in found.notes),
            *_capped(noted),
            *_capped(_conflicts(directories, by_path)),
            *_compressed(verdicts),
        ),
        duplicates=duplicates,
    )


def _written(paths: Iterable[Path]) -> frozenset[Path]:
    """Return the shards of which a write's report says what they should be."""
    reports: dict[Path, Mapping[str, WrittenShard]] = {}
    for directory in {path.parent for path in paths}:
        with contextlib.suppress(DatasetError):  # told with the directory
            reports[directory] = read_written_shards(directory)
    return frozenset(path for path in paths if path.name in reports.get(path.parent, ()))


def _resolved(verdict: ShardVerdict, encoded: set[str]) -> ShardVerdict:
    """Take values that are no image for broken ones where their feature holds images elsewhere."""
    images = verdict.images
    if images is None or not images.doubts or images.roles.image not in encoded:
        return verdict
    role = images.roles.image
    faults = sorted((*verdict.faults, *images.doubts), key=lambda fault: fault.offset)
    return replace(
        verdict,
        faults=tuple(faults[:MAX_FAULTS]),
        n_faults=verdict.n_faults + images.doubtful,
        images=replace(
            images,
            features={**images.features, role: images.features.get(role, 0) + images.doubtful},
            n_faults=images.n_faults + images.doubtful,
            doubtful=0,
        ),
    )


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


def _same_records(
    verdicts: Sequence[ShardVerdict], set_of: Mapping[Path, ShardSet]
) -> tuple[list[DatasetFault], list[str]]:
    """Tell duplicate shards: those that hold the same records in the same order."""
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
            if _is_mistake(own, set_of.get(other.path), verdict.records)
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
    return faults, notes


def _is_mistake(one: ShardSet | None, other: ShardSet | None, records: int) -> bool:
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
    return notes


def _compressed(verdicts: Sequence[ShardVerdict]) -> list[str]:
    counts = Counter(verdict.compression for verdict in verdicts)
    return [
        f"{human_count(counts[kind], 'shard')} {'is' if counts[kind] == 1 else 'are'} "
        f"{kind.value}: read with "
        f"tf.data.TFRecordDataset(..., compression_type={kind.value.upper()!r})"
        for kind in (Compression.GZIP, Compression.ZLIB)
        if counts[kind]
    ]


def _capped(notes: list[str]) -> list[str]:
    if len(notes) <= _NOTES_KEPT:
        return notes
    return [*notes[:_NOTES_KEPT], f"and {len(notes) - _NOTES_KEPT:,} more like that"]
