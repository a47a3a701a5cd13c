"""Whether a directory has the shards that its metadata and its file names promise."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from tfrtool.errors import DatasetError, human_count, printable
from tfrtool.examples.tfds_metadata import (
    DATASET_INFO,
    REPORT,
    DatasetInfo,
    SplitInfo,
    read_dataset_info,
    read_written_shards,
)
from tfrtool.inspection.profile import ShardProfile
from tfrtool.inspection.verify.counts_in_names import check_named_counts
from tfrtool.records.compression import Compression
from tfrtool.records.framing import FRAME_SIZE, FaultKind
from tfrtool.records.shard_sets import ShardSet, find_conflicts, group_shards
from tfrtool.records.shards import shards_in
from tfrtool.storage.remote_path import AnyPath

MISSING_LISTED = 100  # missing shards of a set that are listed; the others are one fault

ProfilesByPath = Mapping[AnyPath, ShardProfile]


@dataclass(frozen=True, slots=True)
class DatasetFault:
    """Something that is wrong with shards as a whole, rather than within one of them."""

    path: AnyPath  # of a shard, the metadata or the directory; it need not exist
    message: str
    kind: FaultKind = FaultKind.COUNT
    offset: None = None  # as of a fault within a shard
    record: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFindings:
    """What was found about one directory."""

    info: DatasetInfo | None  # None also where it can't be read
    sets: tuple[ShardSet, ...]
    faults: tuple[DatasetFault, ...]
    notes: tuple[str, ...] = ()


def written_shards(paths: Iterable[AnyPath]) -> frozenset[AnyPath]:
    """Return the shards whose SHA-256 is in the report of a write."""
    found: set[AnyPath] = set()
    for directory in {path.parent for path in paths}:
        with suppress(DatasetError):  # reported with the directory
            found.update(directory / name for name in read_written_shards(directory))
    return frozenset(found)


def name_notes(directories: Iterable[DatasetFindings]) -> Iterator[str]:
    """Yield the notes on the names of shards in some directories."""
    return (note for one in directories for note in one.notes)


def check_directory(
    directory: AnyPath, profiles: ProfilesByPath, *, is_full_directory: bool = True
) -> DatasetFindings:
    """Compare the shards in a directory with its metadata and with their own names.

    What is missing is what is not on the disk, whether it was to be verified or not. Without
    ``is_full_directory``, only the sets of these shards are looked at.
    """
    paths = {*profiles}
    with suppress(OSError):  # readable files in a folder that can't be listed
        paths.update(shards_in(directory))
    sets = group_shards(sorted(paths))
    if not is_full_directory:
        sets = tuple(one for one in sets if any(path in profiles for path in one.paths))
    faults: list[DatasetFault] = []
    info, notes = None, tuple[str, ...]()
    try:
        info = read_dataset_info(directory)
    except DatasetError as error:
        faults.append(DatasetFault(directory / DATASET_INFO, error.what, FaultKind.PARSE))
    if info is not None and info.splits:
        faults += _against_metadata(directory, info, sets, profiles, is_full_directory)
    else:
        faults += _against_names(sets)
        counts = check_named_counts(profiles)
        faults += (DatasetFault(one.profile.path, one.message) for one in counts.certain)
        notes = (*counts.notes,)
    try:
        faults += [
            DatasetFault(path, f"intact, but its SHA-256 differs from the one in {REPORT}")
            for name, written in read_written_shards(directory).items()
            if (profile := profiles.get(path := directory / name)) is not None
            and profile.is_whole
            and profile.sha256 != written.sha256
        ]
    except DatasetError as error:
        faults.append(DatasetFault(directory / REPORT, error.what, FaultKind.PARSE))
    for one in sets:
        faults += _within_set(one, profiles)
    return DatasetFindings(info=info, sets=sets, faults=tuple(faults), notes=notes)


def _against_metadata(
    directory: AnyPath,
    info: DatasetInfo,
    sets: Sequence[ShardSet],
    profiles: ProfilesByPath,
    is_full_directory: bool,
) -> Iterator[DatasetFault]:
    known = {split.name for split in info.splits}
    for one in sets:
        if one.split not in known:
            message = f"{printable(one.name)} is not listed in {DATASET_INFO}"
            yield DatasetFault(one.paths[0], message)
    for split in info.splits:
        count = human_count(len(split.shard_lengths), "shard")
        current = info.shards_of(split, sets, directory)
        others = [one for one in sets if one.split == split.name and one is not current]
        for one in others if split.shard_lengths else ():
            extra = " next to them, perhaps from an earlier write" if current.shards else ""
            message = f"{DATASET_INFO} lists {count} for split {split.name!r}, "
            message += f"found {printable(one.name)}{extra}"
            yield DatasetFault(one.paths[0], message)
        if current.shards and split.shard_lengths:
            yield from _split_against_metadata(directory, split, current, profiles)
        elif split.shard_lengths and is_full_directory and not others:
            message = f"no shards of split {split.name!r} found, {DATASET_INFO} lists {count}"
            yield DatasetFault(directory, message, FaultKind.MISSING_SHARD)


def _split_against_metadata(
    directory: AnyPath, split: SplitInfo, shard_set: ShardSet, profiles: ProfilesByPath
) -> Iterator[DatasetFault]:
    count = len(split.shard_lengths)
    yield from _missing(shard_set)
    checked: list[ShardProfile] = []
    for index, expected in enumerate(split.shard_lengths):
        shard = shard_set.shards.get(index)
        profile = None if shard is None else profiles.get(shard)
        if profile is None or profile.error is not None:
            continue
        checked.append(profile)
        if expected not in (profile.records, profile.records + profile.lost):
            records = human_count(expected, "record")
            message = f"{DATASET_INFO} lists {records}, found {profile.records:,}"
            yield DatasetFault(profile.path, message)
    records_found = sum(profile.records for profile in checked)
    if len(checked) != count or records_found != split.records or not split.bytes:
        return
    size = sum(profile.payload_bytes for profile in checked)
    # TFDS counts payloads; older versions and other writers counted the files.
    if split.bytes not in (size, size + FRAME_SIZE * records_found):
        message = (
            f"{DATASET_INFO} lists {split.bytes:,} bytes of records for split {split.name!r}, "
            f"found {size:,}: it was written for different records"
        )
        yield DatasetFault(directory / DATASET_INFO, message)


def _against_names(sets: Sequence[ShardSet]) -> Iterator[DatasetFault]:
    incomplete: list[ShardSet] = []
    for conflicting in find_conflicts(sets):
        # What an earlier write left need not be whole, where something is.
        if not all(one.n_missing for one in conflicting):
            incomplete += [one for one in conflicting if one.n_missing]
        counts = " and of ".join(f"{one.count:,}" for one in conflicting)
        message = (
            f"sets of {counts} shards in one folder, perhaps from an earlier write; a glob such as "
            f"{printable(conflicting[0].prefix)}* matches all of them"
        )
        yield DatasetFault(conflicting[-1].paths[0], message)
    for one in sets:
        if one not in incomplete:
            yield from _missing(one)


def _missing(shard_set: ShardSet) -> Iterator[DatasetFault]:
    for name in islice(shard_set.missing, MISSING_LISTED):
        message = f"missing: shard names give a total of {shard_set.count:,}"
        yield DatasetFault(shard_set.directory / name, message, FaultKind.MISSING_SHARD)
    more = shard_set.n_missing - MISSING_LISTED
    if more > 0:
        message = f"{more:,} more of {printable(shard_set.name)} are missing"
        yield DatasetFault(shard_set.directory, message, FaultKind.MISSING_SHARD)


def _within_set(shard_set: ShardSet, profiles: ProfilesByPath) -> Iterator[DatasetFault]:
    for path in shard_set.extra:
        message = f"shard number out of range: the name gives a total of {shard_set.count:,}"
        yield DatasetFault(path, message)
    for index, paths in shard_set.duplicates.items():
        first = printable(shard_set.shards[index].name)
        for path in paths:
            yield DatasetFault(path, f"second file for shard number {index}, next to {first}")
    kinds: dict[Compression, list[AnyPath]] = {}
    for path in shard_set.paths:
        if path in profiles and profiles[path].records:
            kinds.setdefault(profiles[path].compression, []).append(path)
    if len(kinds) > 1:
        rarest = min(kinds.values(), key=len)
        found = " and ".join(f"{len(paths):,} {kind.value}" for kind, paths in kinds.items())
        message = (
            f"expected one compression for all of {printable(shard_set.name)}, found {found}: "
            "TensorFlow reads one compression_type at a time"
        )
        yield DatasetFault(rarest[0], message, FaultKind.DECOMPRESSION)
