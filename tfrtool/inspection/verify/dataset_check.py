"""Whether a directory has the shards that its metadata and its file names promise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tfrtool.errors import DatasetError, TfrtoolError, printable
from tfrtool.examples.tfds_metadata import (
    DATASET_INFO,
    DatasetInfo,
    SplitInfo,
    read_dataset_info,
)
from tfrtool.examples.written import REPORT, read_written_shards
from tfrtool.inspection.verify.verify_shard import ShardVerdict
from tfrtool.records.compression import Compression
from tfrtool.records.dataset_folders import shards_in
from tfrtool.records.framing import FRAME_SIZE, FaultKind
from tfrtool.records.names import ShardName
from tfrtool.records.shard_sets import ShardSet, find_rivals, group_shards

__all__ = ["DatasetFault", "DatasetFindings", "check_directory"]

MISSING_TOLD = 100
"""Missing shards of a set that are told one by one; the others are one fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFault:
    """Something that is wrong with shards as a whole, rather than within one of them.

    Attributes:
        kind: what sort of fault.
        path: the shard, the metadata file or the directory concerned; it need not exist.
        message: what was expected and what was found, in one line.
        expected: the number that was expected, where the fault is about numbers.
        found: the number that was found.
    """

    kind: FaultKind
    path: Path
    message: str
    expected: int | None = None
    found: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFindings:
    """What was found about one directory.

    Attributes:
        directory: the directory.
        info: its TFDS metadata; None where there is none, or none that can be read.
        sets: the shard sets that were looked at.
        faults: what is wrong with them.
        notes: what is worth to be known, and no damage.
    """

    directory: Path
    info: DatasetInfo | None
    sets: tuple[ShardSet, ...]
    faults: tuple[DatasetFault, ...]
    notes: tuple[str, ...]


def check_directory(
    directory: Path, verdicts: Mapping[Path, ShardVerdict], *, whole: bool = True
) -> DatasetFindings:
    """Compare the shards in a directory with its metadata and with their own names.

    What is missing is what is not on the disk, whether it was to be verified or not.

    Args:
        directory: where the shards are.
        verdicts: what was found in those of them that were verified.
        whole: whether the directory as such is meant, and not only the sets of these shards.
    """
    sets = _sets_in(directory, verdicts)
    if not whole:
        sets = [one for one in sets if any(path in verdicts for path in one.paths)]
    faults: list[DatasetFault] = []
    notes: list[str] = []
    info = None
    try:
        info = read_dataset_info(directory)
    except DatasetError as error:
        faults.append(_fault(FaultKind.PARSE, directory / DATASET_INFO, error.what))
    if info is not None and info.splits:
        faults += _against_metadata(directory, info, sets, verdicts, whole)
        compressed = sum(_compression(verdicts, p) is not Compression.NONE for p in verdicts)
        if compressed:
            notes.append(
                f"TFDS reads uncompressed shards only, and {compressed:,} of these are compressed"
            )
    else:
        faults += _against_names(sets)
    try:
        faults += _against_report(directory, verdicts)
    except DatasetError as error:
        faults.append(_fault(FaultKind.PARSE, directory / REPORT, error.what))
    for one in sets:
        faults += _within_set(one, verdicts)
    return DatasetFindings(
        directory=directory,
        info=info,
        sets=tuple(sets),
        faults=tuple(faults),
        notes=tuple(notes),
    )


def _against_report(
    directory: Path, verdicts: Mapping[Path, ShardVerdict]
) -> Iterator[DatasetFault]:
    """Tell whole shards that are not those which a write made."""
    for name, written in read_written_shards(directory).items():
        verdict = verdicts.get(directory / name)
        if verdict is None or not verdict.is_whole or verdict.shard is None:
            continue
        if verdict.sha256 != written.sha256:
            yield _fault(
                FaultKind.COUNT,
                directory / name,
                f"is whole, but not the file that was written: {REPORT} says {written.records:,} "
                f"records in {written.bytes:,} bytes of SHA-256 {written.sha256[:12]}..., found "
                f"{verdict.records:,} in {verdict.shard.bytes:,} of {str(verdict.sha256)[:12]}...",
                expected=written.bytes,
                found=verdict.shard.bytes,
            )


def _sets_in(directory: Path, verdicts: Mapping[Path, ShardVerdict]) -> list[ShardSet]:
    paths = {*verdicts}
    with suppress(OSError):  # readable files in a folder that can't be listed
        paths.update(shards_in(directory))
    return list(group_shards(sorted(paths)))


def _against_metadata(
    directory: Path,
    info: DatasetInfo,
    sets: Sequence[ShardSet],
    verdicts: Mapping[Path, ShardVerdict],
    whole: bool,
) -> Iterator[DatasetFault]:
    known = {split.name for split in info.splits}
    for one in sets:
        if one.split not in known:
            message = f"{DATASET_INFO} says nothing of {printable(one.name)}"
            yield _fault(FaultKind.COUNT, one.paths[0], message, expected=0, found=len(one.paths))
    for split in info.splits:
        of_split = [one for one in sets if one.split == split.name]
        if split.shard_lengths and (of_split or whole):
            yield from _split_against_metadata(directory, info.name, split, of_split, verdicts)


def _split_against_metadata(
    directory: Path,
    dataset: str,
    split: SplitInfo,
    sets: Sequence[ShardSet],
    verdicts: Mapping[Path, ShardVerdict],
) -> Iterator[DatasetFault]:
    count = len(split.shard_lengths)
    meant = [one for one in sets if (one.count or 1) == count]
    for one in sets:
        if one not in meant[:1]:
            message = (
                f"expected {_shards(count)} of split {split.name!r} by {DATASET_INFO}, found "
                f"{printable(one.name)} beside them, perhaps of an earlier write"
                if meant
                else f"expected {_shards(count)} of split {split.name!r} by {DATASET_INFO}, found "
                f"names that say {one.count or 1:,}: {printable(one.name)}"
            )
            path = one.paths[0]
            yield _fault(FaultKind.COUNT, path, message, expected=count, found=one.count or 1)
    if not meant:
        if not sets:
            yield from _all_missing(directory, dataset, split)
        return
    yield from _missing(meant[0])
    checked: list[ShardVerdict] = []
    for index, expected in enumerate(split.shard_lengths):
        shard = meant[0].shards.get(index)
        verdict = None if shard is None else verdicts.get(shard)
        if verdict is None or verdict.error is not None:
            continue
        checked.append(verdict)
        if expected not in (verdict.records, verdict.records + verdict.lost):
            message = f"expected {_records(expected)} by {DATASET_INFO}, found {verdict.records:,}"
            yield _fault(
                FaultKind.COUNT,
                verdict.path,
                message,
                expected=expected,
                found=verdict.records,
            )
    yield from _size_against_metadata(directory, split, checked)


def _size_against_metadata(
    directory: Path, split: SplitInfo, verdicts: Sequence[ShardVerdict]
) -> Iterator[DatasetFault]:
    """Compare the bytes of a split that is whole and has the right number of records."""
    records = sum(verdict.records for verdict in verdicts)
    if len(verdicts) != len(split.shard_lengths) or records != split.records or not split.bytes:
        return
    size = sum(verdict.payload_bytes for verdict in verdicts)
    # TFDS counts payloads; older versions and other writers counted the files.
    if split.bytes not in (size, size + FRAME_SIZE * records):
        message = (
            f"expected {split.bytes:,} bytes in the records of split {split.name!r} by "
            f"{DATASET_INFO}, found {size:,}: it was written for other records"
        )
        path = directory / DATASET_INFO
        yield _fault(FaultKind.COUNT, path, message, expected=split.bytes, found=size)


def _all_missing(directory: Path, dataset: str, split: SplitInfo) -> Iterator[DatasetFault]:
    count = len(split.shard_lengths)
    try:
        names = [
            str(ShardName(dataset=dataset, split=split.name, index=index, count=count))
            for index in range(min(count, MISSING_TOLD))
        ]
    except (TfrtoolError, ValueError):  # names that are no names
        message = f"none of the {_shards(count)} of split {split.name!r} is there"
        yield _fault(FaultKind.MISSING_SHARD, directory, message, expected=count, found=0)
        return
    for name in names:
        message = f"missing, by {DATASET_INFO}"
        yield _fault(FaultKind.MISSING_SHARD, directory / name, message)
    if count > len(names):
        message = f"and {count - len(names):,} more of split {split.name!r} are missing"
        yield _fault(FaultKind.MISSING_SHARD, directory, message, expected=count, found=0)


def _against_names(sets: Sequence[ShardSet]) -> Iterator[DatasetFault]:
    forgiven: list[ShardSet] = []
    for rivals in find_rivals(sets):
        whole = [one for one in rivals if not one.n_missing]
        # What an earlier write left need not be whole, where something is.
        forgiven += [one for one in rivals if one.n_missing] if whole else []
        counts = " and of ".join(f"{one.count:,}" for one in rivals)
        message = (
            f"shards of {counts} side by side, perhaps of an earlier write: a glob such as "
            f"{printable(rivals[0].prefix)}* reads them all"
        )
        yield _fault(FaultKind.COUNT, rivals[-1].paths[0], message)
    for one in sets:
        if one not in forgiven:
            yield from _missing(one)


def _missing(one: ShardSet) -> Iterator[DatasetFault]:
    for name in islice(one.missing, MISSING_TOLD):
        message = f"missing: the others' names say that there are {one.count:,}"
        yield _fault(FaultKind.MISSING_SHARD, one.directory / name, message)
    if one.n_missing > MISSING_TOLD:
        message = f"and {one.n_missing - MISSING_TOLD:,} more of {printable(one.name)} are missing"
        yield _fault(
            FaultKind.MISSING_SHARD,
            one.directory,
            message,
            expected=one.count,
            found=len(one.shards),
        )


def _within_set(one: ShardSet, verdicts: Mapping[Path, ShardVerdict]) -> Iterator[DatasetFault]:
    for path in one.extra:
        message = f"its number is too high: its own name says that there are {one.count:,}"
        yield _fault(FaultKind.COUNT, path, message)
    for index, paths in one.duplicates.items():
        for path in paths:
            message = (
                f"a second file for number {index}, beside {printable(one.shards[index].name)}"
            )
            yield _fault(FaultKind.COUNT, path, message)
    kinds: dict[Compression, list[Path]] = {}
    for path in one.paths:
        kind = _compression(verdicts, path)
        if path in verdicts and verdicts[path].records:
            kinds.setdefault(kind, []).append(path)
    if len(kinds) > 1:
        rarest = min(kinds.values(), key=len)
        found = " and ".join(f"{len(paths):,} {kind.value}" for kind, paths in kinds.items())
        message = (
            f"expected all of {printable(one.name)} to be compressed alike, found {found}: "
            "TensorFlow reads one compression_type at a time"
        )
        yield _fault(FaultKind.DECOMPRESSION, rarest[0], message)


def _compression(verdicts: Mapping[Path, ShardVerdict], path: Path) -> Compression:
    verdict = verdicts.get(path)
    return (
        Compression.NONE if verdict is None or verdict.shard is None else verdict.shard.compression
    )


def _fault(
    kind: FaultKind,
    path: Path,
    message: str,
    *,
    expected: int | None = None,
    found: int | None = None,
) -> DatasetFault:
    return DatasetFault(kind=kind, path=path, message=message, expected=expected, found=found)


def _shards(count: int) -> str:
    return "1 shard" if count == 1 else f"{count:,} shards"


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"
