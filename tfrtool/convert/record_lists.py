"""Files that list records: a line for each, or predictions as JSON Lines."""

import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.source_records import SourceRecords
from tfrtool.errors import UsageError, os_errors_as
from tfrtool.inspection.table.predictions import LONGEST_LINE, ShardNames, decode_line
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import AnyPath

_ENTRY = re.compile(r"(?P<shard>\S.*?)(?::| +)(?P<record>[0-9]{1,18})(?: +#.*)?", re.ASCII)
"""SHARD:RECORD; lists of other tools may have a space in between."""

_COMMENT = "#"


class _Entry(NamedTuple):
    """A record in a list."""

    shard: str
    record: int


def listed_records(path: AnyPath, table: SourceRecords) -> NDArray[np.bool_]:
    """Return for each record whether a file lists it.

    Raises:
        UsageError: a line lists a shard or a record that doesn't exist.
    """
    names = ShardNames(shard for shard, _, _ in table.shards)
    listed, indices_of = np.zeros(len(table), np.bool_), lru_cache(table.indices_of)
    for where, (name, index) in _entries(path):
        shard = _only_shard(path, where, name, names)
        first, indices = table.records_of(shard).start, indices_of(shard)
        row = int(np.searchsorted(indices, index))
        if row == len(indices):
            what, most = f"{where}: no record {index} in {name}", indices[-1] + 1 if row else 0
            raise UsageError(what, path=path, expected=f"less than {most}")
        if indices[row] == index:  # else it is damaged, and skipped anyway
            listed[first + row] = True
    return listed


def listed_numbers(path: AnyPath, shards: Sequence[AnyPath]) -> dict[AnyPath, frozenset[int]]:
    """Return the numbers of the records that a file lists, for each shard that it names.

    Raises:
        UsageError: a line lists a shard that doesn't exist.
    """
    numbers, names = dict[AnyPath, set[int]](), ShardNames(shards)
    for location, (name, record) in _entries(path):
        shard = shards[_only_shard(path, location, name, names)]
        numbers.setdefault(shard, set()).add(record)
    return {shard: frozenset(listed) for shard, listed in numbers.items()}


def _only_shard(path: AnyPath, location: str, name: str, names: ShardNames) -> int:
    """Return the number of the shard of a name; `UsageError` if there is none, or several."""
    known = names.find(name)
    if len(known) != 1:
        what = f"several shards are named {name!r}" if known else f"no shard {name!r}"
        raise UsageError(f"{location}: {what}", path=path)
    return known[0]


def _entries(path: AnyPath) -> Iterator[tuple[str, _Entry]]:
    """Yield the number of each line for errors, and the record that it lists."""
    with os_errors_as(UsageError, path), open_regular(path) as file:
        for number, data in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            where, line = f"line {number}", os.fsdecode(data).strip()
            if not line or line.startswith(_COMMENT):
                continue
            if line.startswith("{"):
                entry = _predicted_entry(path, where, data)
            else:
                entry = _written_entry(path, where, line)
            if entry is not None:
                yield where, entry


def _written_entry(path: AnyPath, where: str, line: str) -> _Entry:
    found = _ENTRY.fullmatch(line)
    if found is None:
        expected = "SHARD:RECORD, such as pets-train.tfrecord-00000-of-00008:5"
        raise UsageError(where, path=path, expected=expected, found=repr(line[:100]))
    return _Entry(found["shard"], int(found["record"]))


def _predicted_entry(path: AnyPath, where: str, data: bytes) -> _Entry | None:
    """Return the record of a prediction, or None if the prediction is right."""
    line = decode_line(path, where, data)
    if line.is_right:
        return None
    if line.record is None:
        raise UsageError(
            f"{where} has no record number: damaged records before it were skipped",
            path=path,
            hint="repair the shard, and evaluate again",
        )
    return _Entry(line.shard or line.path, line.record)
