"""Filter records: copy those that pass all rules, unparsed, to a new dataset."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.convert_options import FilterOptions
from tfrtool.convert.feature_values import feature_values, image_feature, no_feature
from tfrtool.convert.record_lists import listed_records
from tfrtool.convert.reshard import Selection, as_numbers, copy_records, shuffled
from tfrtool.convert.source_records import OnFault, Rows, SourceRecords
from tfrtool.declare import takes
from tfrtool.engines.engine import Engine
from tfrtool.errors import UsageError, WriteError, os_errors_as
from tfrtool.examples.dataset_files import DatasetFiles
from tfrtool.inspection.rows.query import matching_records
from tfrtool.records.framing import FaultKind, LocatedFault, Record
from tfrtool.records.tally import Words
from tfrtool.storage.arguments import Paths, as_path
from tfrtool.storage.limits import MAX_CLASSES
from tfrtool.storage.opening import file_sha256
from tfrtool.storage.remote_path import AnyPath
from tfrtool.writing.digests import DIGESTS, digest_halves
from tfrtool.writing.job_report import JobReport
from tfrtool.writing.run_options import JobSettings

_RULES = ("keep", "drop", "where", "dedupe", "dedupe-by", "sample")
"""Rules that skip records, in the order of reports."""

_NUMBER = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?|\.[0-9]{1,18})(%?)")


@takes(FilterOptions)
def filter_records(
    source: Paths, dataset: str | os.PathLike[str], options: FilterOptions
) -> JobReport:
    """Write selected records to a new dataset, in the same order and splits.

    A record is kept if it passes every given rule. The report gives the number of records that each
    rule skipped. Errors and the handling of damage are those of `tfrtool.reshard`.

    Args:
        source: dataset directory, shard or glob pattern; or several.
        dataset: directory to write to.

    Raises:
        UsageError: no rule is given, or a rule is invalid: a condition that can't be parsed, or a
            list that names a missing shard or record.
        WriteError: no record is left.
    """
    rules: dict[str, Any] = {}
    lists: dict[str, AnyPath] = {}
    for rule, path in (("keep", options.keep), ("drop", options.drop)):
        if path is not None:
            lists[rule] = as_path(path)
            with os_errors_as(UsageError, lists[rule]):
                rules[rule] = file_sha256(lists[rule])
    if options.where is not None:
        rules["where"] = options.where
    if options.dedupe:
        rules["dedupe"] = True
    if options.dedupe_by is not None:
        rules["dedupe_by"] = options.dedupe_by
    if options.sample_per is not None:
        rules["sample_per"] = options.sample_per
    if options.sample_per is not None and options.sample is None:
        raise UsageError("--sample-per requires --sample")
    sample = None if options.sample is None else _sample_size(options.sample)
    if sample is not None:
        rules |= {"sample": sample, "seed": options.seed}
    if not rules:
        hint = "use --where, --keep, --drop, --dedupe, --dedupe-by or --sample"
        raise UsageError("no filter given", hint=hint)
    select = partial(_select, source=source, options=options, lists=lists, sample=sample)
    return copy_records("filter", source, dataset, options, rules, select)


def _sample_size(sample: int | float | str) -> int | float:
    """Return a number of records, or a share of them above 0 and up to 1, which is a float."""
    text = str(sample).strip()
    number = _NUMBER.fullmatch(text)
    if number is not None and number[2]:
        share = float(number[1]) / 100
        if 0 < share <= 1:
            return share
    elif text.isascii() and text.isdecimal() and int(text[:18]) > 0 and len(text) <= 18:
        return int(text)
    elif number is not None and 0 < float(text) < 1:
        return float(text)
    expected = "a number of records, such as 1000, or a share of them, such as 5% or 0.05"
    raise UsageError(f"invalid --sample {sample!r}", expected=expected)


def _no_marks(keys: Words) -> Rows:
    """Have records read and checked, for rules that need no digests."""
    return np.zeros(len(keys), "u1")


def _marks(
    _path: Path,
    records: list[Record],
    _report: OnFault,
    dtype: Any,
    image: str | None,
    features: Mapping[str, str],
) -> Iterator[tuple[list[Record], Rows]]:
    """Make the 128-bit digests by which copies, and records with the same values, are found."""
    marks, payloads = np.zeros(len(records), dtype), [record.payload for record in records]
    if "dedupe" in marks.dtype.names:
        contents = payloads.copy()
        for at, values in enumerate(feature_values(payloads, image) if image else ()):
            if values and len(values) == 1 and isinstance(values[0], bytes):
                contents[at] = values[0]
        marks["dedupe"] = digest_halves(contents)
    for rule, feature in features.items():
        found = feature_values(payloads, feature)
        marks[rule] = digest_halves([repr(one).encode() for one in found])
        marks[rule][[one is None for one in found]] = 0
    yield records, marks


def _select(
    files: DatasetFiles,
    settings: JobSettings,
    scan: Callable[..., SourceRecords],
    source: Paths,
    options: FilterOptions,
    lists: Mapping[str, AnyPath],
    sample: int | float | None,
) -> Selection:
    """Keep the records that pass all rules."""
    matching, unparsed = dict[AnyPath, list[int]](), list[LocatedFault]()
    if options.where is not None:
        matching = matching_records(
            files.paths,
            options.where,
            sources=source,
            as_stored=options.as_stored,
            types=options.types,
            workers=None if isinstance(settings.workers, Engine) else settings.workers,
            on_fault=lambda found: unparsed.append(found) if _is_unparsed(found) else None,
            on_progress=settings.on_progress,
        )
    table = _scan_marked(files, scan, options)
    passing = _PassingRecords(np.ones(len(table), np.bool_), {})
    for rule, path in lists.items():
        listed = listed_records(path, table)
        passing.skip(rule, listed if rule == "drop" else ~listed)
    if options.where is not None:
        for found in unparsed:
            table.faults.add(found)
        rows = _rows_of(table, ((one.path, [one.fault.record or 0]) for one in unparsed))
        passing.selected[rows] = False
        passing.skip("where", ~_rows_of(table, matching.items()))
    if options.dedupe:
        records, first = _grouped(table.marks["dedupe"], as_numbers(passing.selected))
        passing.skip("dedupe", records[~first])
    if options.dedupe_by is not None:
        keys = table.marks["dedupe-by"]
        has_key = (keys["high"] != 0) | (keys["low"] != 0)
        records, first = _grouped(keys, as_numbers(passing.selected & has_key))
        passing.skip("dedupe-by", records[~first])
    if sample is not None:
        passing.skip(
            "sample", _outside_sample(table, as_numbers(passing.selected), sample, options)
        )
    if not passing.selected.any() and len(table):
        raise WriteError(f"no records match (0 of {len(table):,})", path=files.paths[0].parent)
    codes = np.where(passing.selected, table.split_codes, np.uint16(0))
    skipped = {rule: passing.skipped[rule] for rule in _RULES if passing.skipped.get(rule)}
    return Selection(table, [*table.split_sizes], codes, skipped)


class _PassingRecords(NamedTuple):
    """Which records pass the rules so far, and how many did not pass each."""

    selected: NDArray[np.bool_]
    skipped: dict[str, int]

    def skip(self, rule: str, rows: NDArray[Any]) -> None:
        """Skip records by a rule."""
        before = np.count_nonzero(self.selected)
        self.selected[rows] = False
        self.skipped[rule] = int(before - np.count_nonzero(self.selected))


def _scan_marked(
    files: DatasetFiles, scan: Callable[..., SourceRecords], options: FilterOptions
) -> SourceRecords:
    """Scan records with the digests that rules need; `UsageError` if none has a feature."""
    wanted = {"dedupe-by": options.dedupe_by, "sample": options.sample_per}
    features = {rule: name for rule, name in wanted.items() if name is not None}
    rules = [*(["dedupe"] if options.dedupe else ()), *features]
    dtype: Any = [(rule, DIGESTS) for rule in rules]
    if not rules:
        return scan(key_marker=_no_marks)
    image = image_feature(files.paths) if options.dedupe else None
    table = scan(marker=partial(_marks, dtype=dtype, image=image, features=features), dtype=dtype)
    for rule, name in features.items():
        if len(table) and not table.marks[rule]["high"].any():
            flag = {"sample": "--sample-per"}.get(rule, f"--{rule}")
            raise no_feature(name, files.paths, flag)
    return table


def _outside_sample(
    table: SourceRecords, records: NDArray[Any], sample: int | float, options: FilterOptions
) -> NDArray[Any]:
    """Return those of some records that are not in a random sample of them."""
    classes = [0]
    if options.sample_per is not None:
        records, first = _grouped(table.marks["sample"], records)
        classes = np.flatnonzero(first).tolist()
    if len(classes) > MAX_CLASSES:
        what = f"--sample-per: {options.sample_per!r} has too many different values"
        raise UsageError(what, expected=f"at most {MAX_CLASSES:,}")
    rest = [records[:0]]
    for start, end in pairwise([*classes, len(records)]):
        count = sample if isinstance(sample, int) else max(1, round(sample * (end - start)))
        rest.append(shuffled(records[start:end], options.seed)[count:])
    return np.concatenate(rest)


def _is_unparsed(found: LocatedFault) -> bool:
    return found.fault.kind is FaultKind.PARSE


def _rows_of(
    table: SourceRecords, numbers: Iterable[tuple[AnyPath, Sequence[int]]]
) -> NDArray[np.bool_]:
    """Return for each record whether it has one of these numbers in its shard."""
    shards = {shard.path: place for place, shard in enumerate(table.shards)}
    wanted = np.zeros(len(table), np.bool_)
    for path, record_numbers in numbers:
        shard_records = table.records_of(shards[path])
        if shards[path] in table.indices:
            wanted[shard_records] |= np.isin(table.indices_of(shards[path]), record_numbers)
        else:
            wanted[shard_records][np.array(record_numbers, np.int64)] = True
    return wanted


def _grouped(marks: Rows, selected: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return records by their digests, and whether each is the first with its own."""
    high, low = marks["high"][selected], marks["low"][selected]
    order = np.lexsort((low, high))  # which keeps the order of equal ones
    high, low, first = high[order], low[order], np.ones(len(order), np.bool_)
    first[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return selected[order], first
