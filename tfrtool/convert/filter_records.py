"""The verb: some of the records of a dataset; they are copied unparsed."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.copying import CopyJob, Selection, SelectionInput
from tfrtool.convert.pipeline.job_report import Faults, JobReport
from tfrtool.convert.pipeline.record_marks import KEPT, Decoding, Marks, mark_records, with_columns
from tfrtool.convert.pipeline.record_order import permuted
from tfrtool.convert.pipeline.record_sources import SourceShard
from tfrtool.convert.pipeline.segments import Frames, read_payloads
from tfrtool.errors import UsageError, WriteError, human_count, os_errors_as
from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.example import PayloadKind, decode_example
from tfrtool.examples.roles import find_roles
from tfrtool.inspection.rows.conditions import Condition
from tfrtool.storage.locations import as_path
from tfrtool.storage.opening import file_sha256, open_regular
from tfrtool.storage.progress import OnProgress, silent
from tfrtool.writing.write_options import check_numbers

_RULES = {"keep": 2, "drop": 3, "where": 4, "dedupe": 5, "sample": 6}
"""What leaves records out, in this order, and the marks of those."""

_LONGEST_LINE = 8192


def filter_records(
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    dataset: str | os.PathLike[str],
    *,
    where: str | None = None,
    keep: str | os.PathLike[str] | None = None,
    drop: str | os.PathLike[str] | None = None,
    dedupe: bool = False,
    sample: int | None = None,
    seed: int = 0,
    shards: int | None = None,
    shard_size: int | str | None = None,
    compression: str = "none",
    name: str | None = None,
    version: str | None = None,
    on_corrupt: str = "skip",
    workers: int | None = None,
    existing: str = "refuse",
    dry_run: bool = False,
    on_progress: OnProgress = silent,
) -> JobReport:
    """Write some records of a dataset as another one, in their order and their splits.

    A record has to pass all rules that are given; the report tells which one left out how many.
    Further words, errors and what becomes of damage are those of `tfrtool.reshard`.

    Args:
        source: a dataset's directory, a shard or a pattern; or several.
        dataset: the directory to write to.
        where: an SQL condition: ``label = 1 AND height > 64``. Only its features are decoded.
        keep: a file with lines ``shard record``: the only records to keep. A shard is named by its
            file's name or path, a record by its index.
        drop: a file like that with the records to leave out.
        dedupe: whether exact copies are left out, all but the first: of the image where records
            have one, else of the record.
        sample: how many records to keep at most, drawn at random from what the other rules leave.
        seed: decides the sample.
        shards: how many shards each split gets.
        shard_size: of a shard before compression.
        compression: of the shards.
        name: the dataset's name.
        version: its version.
        on_corrupt: "skip" or "stop".
        workers: how many processes at most.
        existing: "refuse", "overwrite" or "resume".
        dry_run: whether only the plan is reported.
        on_progress: called now and then.

    Raises:
        UsageError: there is no rule, or one makes no sense: a condition that can't be understood, a
            list that names what is not there.
        WriteError: no record is left.
    """
    check_numbers(None, None, seed)
    rules: dict[str, Any] = {}
    lists: dict[str, Path] = {}
    for rule, given in (("keep", keep), ("drop", drop)):
        if given is not None:
            lists[rule] = as_path(given)
            with os_errors_as(UsageError, lists[rule]):
                rules[rule] = file_sha256(lists[rule])
    if where is not None:
        rules["where"] = where
    if dedupe:
        rules["dedupe"] = True
    if sample is not None:
        if sample < 1:
            raise UsageError("impossible number of records", expected="at least 1", found=sample)
        rules |= {"sample": sample, "seed": seed}
    if not rules:
        what = "one of where, keep, drop, dedupe and sample"
        raise UsageError("nothing says which records to keep", expected=what)
    return CopyJob(
        command="filter",
        sources=source,
        dataset=dataset,
        name=name,
        version=version,
        shards=shards,
        shard_size=shard_size,
        compression=compression,
        on_corrupt=on_corrupt,
        workers=workers,
        existing=existing,
        dry_run=dry_run,
        on_progress=on_progress,
        rules=rules,
    ).run(_Filter(where=where, lists=lists, dedupe=dedupe, sample=sample, seed=seed))


@dataclass(frozen=True, slots=True, kw_only=True)
class _FilterLens:
    """Asks a condition of records, and makes 128-bit digests that tell copies."""

    condition: Condition | None
    certain: bool
    digests: bool
    image: Columns | None

    @property
    def dtype(self) -> "np.dtype[Any]":
        """Of a row."""
        return np.dtype([("mark", "u1")] + [("high", "u8"), ("low", "u8")] * self.digests)

    def look(self, shard: SourceShard, frames: Frames, faults: Faults) -> Marks:
        """Return a row for each record."""
        rows = np.zeros(len(frames.keys), self.dtype)
        rows["mark"] = KEPT
        if self.condition is not None:
            rows["mark"] = 0  # of those that have no such features
            asked = Decoding(columns=self.condition.columns, certain=self.certain)
            for places, table in asked.rows(shard, frames, faults):
                kept = self.condition.keep(table)
                rows["mark"][places] = np.where(kept, KEPT, _RULES["where"])
        if self.digests:
            contents: list[bytes] = frames.payloads
            if self.image is not None:
                pictured = Decoding(columns=self.image, certain=True)
                for places, table in pictured.rows(shard, frames, Faults()):
                    for place, value in zip(places, pictured.values(table), strict=True):
                        contents[place] = value if isinstance(value, bytes) else contents[place]
            digests = b"".join(blake2b(one, digest_size=16).digest() for one in contents)
            words = np.frombuffer(digests, "<u8").reshape(-1, 2)
            rows["high"], rows["low"] = words[:, 0], words[:, 1]
        return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filter:
    """Keeps the records that pass all rules."""

    where: str | None
    lists: Mapping[str, Path]
    dedupe: bool
    sample: int | None
    seed: int

    def __call__(self, given: SelectionInput) -> Selection:
        """Return the records of each split that are kept."""
        shards = given.pool.shards
        listed = {rule: _listed(path, shards) for rule, path in self.lists.items()}

        def mark(columns: Columns | None, certain: bool) -> Any:
            condition, image = None, None
            if columns is not None:
                condition = None if self.where is None else Condition(self.where, columns)
                name = _image_feature(shards) if self.dedupe else None
                image = columns.select([name]) if name in columns.names else None
            lens = _FilterLens(
                condition=condition, certain=certain, digests=self.dedupe, image=image
            )
            return mark_records(
                shards,
                lens,
                given.scratch,
                workers=given.workers,
                stop=given.stop,
                on_progress=given.on_progress,
            )

        if self.where is None and not self.dedupe:
            marks, read, faults = mark(None, certain=True)
        else:
            marks, read, faults = with_columns(shards, given.workers, mark)
        codes = np.array(marks["mark"])
        for rule, those in listed.items():
            codes[(codes != 0) & (those == (rule == "drop"))] = _RULES[rule]
        if self.dedupe:
            codes[_copies(marks, np.flatnonzero(codes == KEPT))] = _RULES["dedupe"]
        if self.sample is not None:
            kept = np.flatnonzero(codes == KEPT)
            if len(kept) > self.sample:
                drawn = permuted(np.arange(self.sample, dtype=np.uint64), len(kept), self.seed)
                codes[np.delete(kept, drawn.astype(np.int64))] = _RULES["sample"]
        counts = np.bincount(codes, minlength=max(_RULES.values()) + 1)
        if not counts[KEPT]:
            what = f"none of the {human_count(read.records, 'record')} is left"
            raise WriteError(what, path=shards[0].path.parent)
        return Selection(
            orders={
                split: given.order(split, codes[some.start : some.stop] == KEPT, some.start)
                for split, some in given.splits.items()
            },
            read=read,
            faults=faults,
            left_out={rule: int(counts[code]) for rule, code in _RULES.items() if counts[code]},
        )


def _copies(marks: Marks, kept: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return those of some records whose digest one before them has."""
    high, low = marks["high"][kept], marks["low"][kept]
    order = np.lexsort((low, high))  # which keeps the order of those that are alike
    same = (high[order][1:] == high[order][:-1]) & (low[order][1:] == low[order][:-1])
    return np.asarray(kept[order[1:][same]], np.int64)


def _image_feature(shards: Sequence[SourceShard]) -> str | None:
    """Return the feature of the first record that is its image."""
    for shard in shards:
        for payloads in read_payloads(shard.head, Faults().add) if shard.records else ():
            try:
                return find_roles(decode_example(payloads[0], PayloadKind.EXAMPLE).features).image
            except ValueError:
                return None
    return None


def _listed(path: Path, shards: Sequence[SourceShard]) -> NDArray[np.bool_]:
    """Return for each record whether a file names it; `UsageError` if it names what isn't there."""
    names: dict[str, list[int]] = {}
    for number, shard in enumerate(shards):
        for name in {str(shard.path), str(shard.path.absolute()), shard.path.name}:
            names.setdefault(name, []).append(number)
    firsts = np.cumsum([0, *(shard.records for shard in shards)]).tolist()
    found = np.zeros(firsts[-1], np.bool_)
    for number, (name, index) in _lines(path):
        known = names.get(name, [])
        if len(known) != 1:
            what = "names no shard of the source" if not known else "names several shards"
            raise UsageError(f"line {number} {what}", path=path, found=repr(name))
        shard = shards[known[0]]
        at = shard.in_copy(index)
        if at is not None and at >= shard.records:
            raise UsageError(
                f"line {number} names a record that is not there",
                path=path,
                expected=f"below {shard.original(shard.records - 1) + 1} in {name}",
                found=index,
            )
        if at is not None:  # else it is damaged, and left out anyway
            found[firsts[known[0]] + at] = True
    return found


def _lines(path: Path) -> Iterator[tuple[int, tuple[str, int]]]:
    with os_errors_as(UsageError, path), open_regular(path) as file:
        number = 0
        while line := file.readline(_LONGEST_LINE):
            number += 1
            if not line.strip():
                continue
            name, _, index = os.fsdecode(line).strip().rpartition(" ")
            if not (name and index.isdecimal() and index.isascii()) or len(index) > 18:
                what = "a shard and the index of a record: pets-train.tfrecord-00000-of-00008 5"
                raise UsageError(f"line {number} is none", path=path, expected=what)
            yield number, (name.strip(), int(index))
