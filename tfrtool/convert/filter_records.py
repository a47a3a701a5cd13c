"""Filter records: copy those that pass all rules, unparsed, to a new dataset."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.pipeline.record_copies import Selection, copy_records, permuted
from tfrtool.convert.pipeline.record_marks import (
    KEPT,
    UNPARSED,
    RecordFlags,
    columns_of,
    image_feature,
    mark_records,
    values_of,
)
from tfrtool.convert.pipeline.record_pool import RecordPool, SourceShard
from tfrtool.errors import UsageError, WriteError, os_errors_as
from tfrtool.examples.arrow.columns import Columns
from tfrtool.inspection.rows.batches import Batch, RowColumns
from tfrtool.inspection.rows.conditions import Condition
from tfrtool.storage.arguments import Paths, as_path
from tfrtool.storage.opening import file_sha256, open_regular
from tfrtool.writing.job_report import JobReport
from tfrtool.writing.job_settings import JobSettings
from tfrtool.writing.write_options import check_numbers

_RULES = {"keep": 2, "drop": 3, "where": 4, "dedupe": 5, "sample": 6}
"""Rules that skip records, in this order, and the marks of these records."""

_ROW = [("mark", "u1"), ("high", "u8"), ("low", "u8")]
_LONGEST_LINE = 8192
_NUMBER = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?|\.[0-9]{1,18})(%?)")


def filter_records(
    source: Paths,
    dataset: str | os.PathLike[str],
    *,
    where: str | None = None,
    keep: str | os.PathLike[str] | None = None,
    drop: str | os.PathLike[str] | None = None,
    dedupe: bool = False,
    sample: int | float | str | None = None,
    seed: int = 0,
    **options: Any,
) -> JobReport:
    """Write selected records to a new dataset, in the same order and splits.

    A record is kept if it passes every given rule. The report gives the number of records that each
    rule skipped. Errors and the handling of damage are those of `tfrtool.reshard`.

    Args:
        source: dataset directory, shard or glob pattern; or several.
        dataset: directory to write to.
        where: SQL condition, such as ``label = 1 AND height > 64``. Only the features in it are
            decoded.
        keep: file with lines ``SHARD RECORD`` that lists the records to keep. SHARD is the name or
            path of a file, RECORD an index counted from 0.
        drop: file in the same format that lists the records to skip.
        dedupe: whether to skip exact duplicates of an earlier record: of the image if the records
            have one, otherwise of the whole record.
        sample: maximum number of records to keep, drawn at random after the other rules; or a
            fraction, such as ``0.05`` or ``"5%"``.
        seed: random seed for ``sample``.
        **options: options of `tfrtool.reshard`.

    Raises:
        UsageError: no rule is given, or a rule is invalid: a condition that can't be parsed, or a
            list that names a missing shard or record.
        WriteError: no record is left.
    """
    check_numbers(None, None, seed)
    rules: dict[str, Any] = {}
    lists: dict[str, Path] = {}
    for rule, path in (("keep", keep), ("drop", drop)):
        if path is not None:
            lists[rule] = as_path(path)
            with os_errors_as(UsageError, lists[rule]):
                rules[rule] = file_sha256(lists[rule])
    if where is not None:
        rules["where"] = where
    if dedupe:
        rules["dedupe"] = True
    if sample is not None:
        sample = _sample_size(sample)
        rules |= {"sample": sample, "seed": seed}
    if not rules:
        hint = "use --where, --keep, --drop, --dedupe or --sample"
        raise UsageError("no filter given", hint=hint)
    select = partial(
        _select, source=source, where=where, lists=lists, dedupe=dedupe, sample=sample, seed=seed
    )
    return copy_records("filter", source, dataset, rules, select, **options)


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


def _mark(
    batch: Batch, columns: Columns, condition: Condition | None, digests: bool, image: str | None
) -> RecordFlags:
    """Evaluate a condition, and make 128-bit digests by which copies are found."""
    rows = np.zeros(len(batch.records), _ROW[: 3 if digests else 1])
    rows["mark"] = KEPT
    if condition is not None:
        rows["mark"][~condition.keep(batch)] = _RULES["where"]
    if digests:
        contents = [record.payload for record in batch.records]
        if image is not None:
            for at, values in enumerate(values_of(batch.table, columns, image)):
                if values and len(values) == 1 and isinstance(values[0], bytes):
                    contents[at] = values[0]
        joined = b"".join(blake2b(content, digest_size=16).digest() for content in contents)
        rows["high"], rows["low"] = np.frombuffer(joined, "<u8").reshape(-1, 2).T
    return rows


def _select(
    pool: RecordPool,
    splits: Mapping[str, int],
    settings: JobSettings,
    source: Paths,
    where: str | None,
    lists: Mapping[str, Path],
    dedupe: bool,
    sample: int | float | None,
    seed: int,
) -> Selection:
    """Keep the records that pass all rules."""
    shards = pool.shards
    listed = {rule: _read_list(path, shards) for rule, path in lists.items()}
    columns, condition, image = UNPARSED, None, None
    with ExitStack() as stack:
        if where is not None or dedupe:
            features = columns_of(pool, settings)
            names = set[str]()
            if where is not None:
                rows = RowColumns.of([shard.path for shard in shards], features, source, where)
                condition = stack.enter_context(Condition(where, features, rows))
                names |= {*condition.columns.names}
            if dedupe:
                paths = [shard.readable for shard in shards]
                image = image_feature(paths, shards[0].path.parent)
                image = image if image in features.names else None
                names |= {image} if image is not None else set()
            if condition is not None or image is not None:
                columns = features.select([*names])
        mark = partial(_mark, columns=columns, condition=condition, digests=dedupe, image=image)
        marks, plan = mark_records(pool, mark, _ROW[: 3 if dedupe else 1], columns, settings)
    codes = np.array(marks["mark"])
    for rule, in_list in listed.items():
        codes[(codes != 0) & (in_list == (rule == "drop"))] = _RULES[rule]
    if dedupe:
        codes[_later_copies(marks, np.flatnonzero(codes == KEPT))] = _RULES["dedupe"]
    if sample is not None:
        kept = np.flatnonzero(codes == KEPT)
        count = sample if isinstance(sample, int) else max(1, round(sample * len(kept)))
        if len(kept) > count:
            drawn = permuted(np.arange(count, dtype=np.uint64), len(kept), seed)
            codes[np.delete(kept, drawn.astype(np.int64))] = _RULES["sample"]
    counts = np.bincount(codes, minlength=max(_RULES.values()) + 1)
    if not counts[KEPT]:
        what = f"no records match (0 of {np.count_nonzero(codes):,})"
        raise WriteError(what, path=shards[0].path.parent)
    numbers = np.arange(1, len(splits) + 1, dtype=np.uint16)
    codes = np.where(codes == KEPT, np.repeat(numbers, [*splits.values()]), np.uint16(0))
    skipped = {rule: int(counts[code]) for rule, code in _RULES.items() if counts[code]}
    return Selection(list(splits), codes, replace(plan, skipped=skipped))


def _later_copies(marks: RecordFlags, kept: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the records with the digest of an earlier one."""
    high, low = marks["high"][kept], marks["low"][kept]
    order = np.lexsort((low, high))  # which keeps the order of equal ones
    same = (high[order][1:] == high[order][:-1]) & (low[order][1:] == low[order][:-1])
    return np.asarray(kept[order[1:][same]], np.int64)


def _read_list(path: Path, shards: Sequence[SourceShard]) -> NDArray[np.bool_]:
    """Return for each record whether a file lists it.

    Raises:
        UsageError: a line lists a shard or a record that doesn't exist.
    """
    numbers: dict[str, list[int]] = {}
    for number, shard in enumerate(shards):
        for name in {str(shard.path), str(shard.path.absolute()), shard.path.name}:
            numbers.setdefault(name, []).append(number)
    firsts = np.cumsum([0, *(shard.records for shard in shards)]).tolist()
    listed = np.zeros(firsts[-1], np.bool_)
    for line_number, line in enumerate(_lines(path), start=1):
        if not line:
            continue
        where = f"line {line_number}"
        name, _, index = (part.strip() for part in line.rpartition(" "))
        if not (name and index.isdecimal() and index.isascii()) or len(index) > 18:
            expected = "SHARD RECORD, such as pets-train.tfrecord-00000-of-00008 5"
            raise UsageError(where, path=path, expected=expected, found=repr(line[:100]))
        known = numbers.get(name, [])
        if len(known) != 1:
            what = f"several shards are named {name!r}" if known else f"no shard {name!r}"
            raise UsageError(f"{where}: {what}", path=path)
        shard = shards[known[0]]
        row = shard.row(int(index))
        if row is None:  # damaged, and skipped anyway
            continue
        if row >= shard.records:
            what, most = f"{where}: no record {index} in {name}", shard.records + len(shard.lost)
            raise UsageError(what, path=path, expected=f"less than {most}")
        listed[firsts[known[0]] + row] = True
    return listed


def _lines(path: Path) -> Iterator[str]:
    with os_errors_as(UsageError, path), open_regular(path) as file:
        while line := file.readline(_LONGEST_LINE):
            yield os.fsdecode(line).strip()
