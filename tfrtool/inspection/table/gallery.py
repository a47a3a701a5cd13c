"""Which rows of a table are worth to be shown: examples of each class, unusual images, copies."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrtool.inspection.table.near_copies import near_copies
from tfrtool.inspection.table.record_table import RecordTable

UNLABELLED = -1
_CLASSES = 2**15
_BINS = 24


class Labels(NamedTuple):
    """The label of each row as a code into names, `UNLABELLED` without one."""

    names: tuple[str, ...]  # in order
    codes: Any  # an array of int32
    overflowed: bool  # whether there are too many to keep apart; then there are none


def labels_of(table: RecordTable, column: str | None) -> Labels:
    """Return the labels of all rows, of a column with single values."""
    nothing = Labels((), np.full(table.rows, UNLABELLED, np.int32), False)
    if column is None or not table.has(column) or pa.types.is_nested(table.type_of(column)):
        return nothing
    known: dict[Any, int] = {}
    parts = [np.zeros(0, np.int32)]
    for _, batch in table.batches([column]):
        encoded = pc.dictionary_encode(batch.column(0))
        table_of = [known.setdefault(v, len(known)) for v in encoded.dictionary.to_pylist()]
        lookup = np.array([*table_of, UNLABELLED], np.int32)
        parts.append(lookup[np.from_dlpack(pc.fill_null(encoded.indices, len(table_of)))])
        if len(known) > _CLASSES:
            return nothing._replace(overflowed=True)
    order = sorted(known, key=lambda one: (isinstance(one, bytes), one))
    rank = np.zeros(len(known) + 1, np.int32)
    rank[[known[one] for one in order]] = np.arange(len(order))
    rank[-1] = UNLABELLED
    return Labels(tuple(map(_text, order)), rank[np.concatenate(parts)], False)


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def label_counts(
    table: RecordTable, labels: Labels, split_of: Mapping[Path, str]
) -> dict[str, dict[str, int]]:
    """Return for each split how many rows have each label."""
    found: dict[str, Any] = {}
    start = 0
    for path, rows in table.shard_rows().items():
        codes = labels.codes[start : start + rows]
        counts = np.bincount(codes[codes >= 0], minlength=len(labels.names))
        found[split_of[path]] = found.get(split_of[path], 0) + counts
        start += rows
    return {
        split: dict(zip(labels.names, counts.tolist(), strict=True))
        for split, counts in found.items()
    }


def histogram(table: RecordTable, column: str) -> tuple[list[int], list[float]] | None:
    """Return the counts and the edges of a column of numbers; None if it has none."""
    values = table.numbers(column)
    kept = values[np.isfinite(values)]
    if not len(kept):
        return None
    counts, edges = np.histogram(kept, bins=_BINS)
    edges[[0, -1]] = kept.min(), kept.max()  # it puts a lone value amid a range of its own
    return counts.tolist(), edges.tolist()


def examples(labels: Labels, each: int, classes: int) -> dict[str, list[int]]:
    """Return rows of each class, evenly from first to last; of the largest classes."""
    found: dict[str, list[int]] = {}
    if not labels.names:
        return {"": _spread(np.arange(len(labels.codes)), each * classes)} if classes else {}
    counts = Counter(labels.codes[labels.codes >= 0].tolist())
    for code in sorted(code for code, _ in counts.most_common(classes)):
        found[labels.names[code]] = _spread(np.flatnonzero(labels.codes == code), each)
    return found


def _spread(rows: Any, count: int) -> list[int]:
    places = np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int)
    return [int(row) for row in rows[places]]


def strips(
    table: RecordTable, labels: Labels, cells: int = 6000, most: int = 60
) -> Mapping[str, list[int | None]]:
    """Return for the first shards the commonest label in each of their cells, by the path.

    There are up to 240 cells a shard, and about so many as are asked for in all.
    """
    found: dict[str, list[int | None]] = {}
    start, shards = 0, list(table.shard_rows().items())[:most]
    cells = min(240, cells // max(len(shards), 1))
    for path, rows in shards:
        codes = labels.codes[start : start + rows]
        start += rows
        bounds = np.linspace(0, rows, min(cells, rows) + 1).astype(int)
        found[str(path)] = [_commonest(codes[a:b]) for a, b in pairwise(bounds)]
    return found


def _commonest(codes: Any) -> int | None:
    kept = codes[codes >= 0]
    return int(np.bincount(kept).argmax()) if len(kept) else None


def unusual(table: RecordTable, most: int) -> dict[str, list[tuple[int, str]]]:
    """Return the rows with the most unusual images, by what is unusual, each with its figure."""
    if not table.has("image.width"):
        return {}
    width, height = (table.numbers(f"image.{name}") for name in ("width", "height"))
    bright, entropy = (table.numbers(f"image.{name}") for name in ("brightness", "entropy"))
    pixels, ratio = width * height, width / height

    def first(keys: Any, say: Any, keep: Any = True) -> list[tuple[int, str]]:
        rows = np.flatnonzero(np.isfinite(keys) & keep)
        chosen = rows[np.argsort(keys[rows], kind="stable")[:most]]
        return [(int(row), say(int(row))) for row in chosen]

    def size(row: int) -> str:
        return f"{width[row]:.0f} x {height[row]:.0f}"

    some = np.nanmedian(pixels) if np.isfinite(pixels).any() else 0
    found = {
        "smallest": first(pixels, size, pixels < some),
        "largest": first(-pixels, size, pixels > some),
        "widest": first(-ratio, size, ratio > 1.5),
        "tallest": first(ratio, size, ratio < 1 / 1.5),
        "nearly black": first(bright, lambda row: f"brightness {bright[row]:.2f}", bright < 0.1),
        "nearly white": first(-bright, lambda row: f"brightness {bright[row]:.2f}", bright > 0.9),
        "least detail": first(entropy, lambda row: f"{entropy[row]:.1f} bits", entropy < 4),
    }
    return {why: rows for why, rows in found.items() if rows}


def alike(table: RecordTable, most: int) -> tuple[list[list[int]], bool]:
    """Return groups of rows whose images look alike; and whether there may be more."""
    if not table.has("image.hash"):
        return [], False
    rows: list[Any] = [np.zeros(0, np.int64)]
    hashes: list[Any] = [np.zeros(0, np.uint64)]
    start = 0
    for _, batch in table.batches(["image.hash"]):
        column = batch.column(0)
        there = np.from_dlpack(pc.is_valid(column).cast(pa.uint8()))
        rows.append(np.flatnonzero(there) + start)
        hashes.append(np.from_dlpack(column.drop_null()))
        start += len(column)
    place = np.concatenate(rows)
    groups, more = near_copies(np.concatenate(hashes), most)
    return [[int(place[one]) for one in group] for group in groups], more
