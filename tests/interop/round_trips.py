"""Real files through each format and back, as a table: ``python -m tests.interop.round_trips``.

Words after it choose formats, and files by a part of their names.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import tfrtool
from tests.conftest import SHARED_DATA
from tfrtool.convert.formats.registry import NAMES
from tfrtool.examples.example import Feature, PayloadKind, decode_example
from tfrtool.records.framing import Record

__all__ = ["RoundTrip", "real_shards", "round_trip", "round_trips"]

_ROOT = SHARED_DATA / "tfrecord"
FORMATS = ("parquet", "jsonl", "csv", "arrayrecord", "webdataset")


class RoundTrip(NamedTuple):
    """What became of the records of a file."""

    path: Path
    format: str
    records: int
    outcome: str  # "equal", "bytes" where even these are, or an error that was said
    said: tuple[str, ...]  # what was said to be lost


def real_shards() -> list[Path]:
    """Return all files of other writers that are there, decoys among them."""
    return sorted(
        path for path in _ROOT.glob("**/*") if path.is_file() and path.name != "SOURCE.txt"
    )


def round_trip(path: Path, name: str, folder: Path, *, exact: bool = False) -> RoundTrip:
    """Take a file through a format and back."""
    said: list[str] = []
    there, back = folder / f"there-{name}", folder / f"back-{name}.tfrecord"
    try:
        tfrtool.convert(
            path,
            there,
            to=name,  # type: ignore[arg-type]
            from_format="tfrecord",
            exact=exact,
            on_note=said.append,
        )
        tfrtool.convert(there, back, from_format=name)  # type: ignore[arg-type]
    except tfrtool.TfrtoolError as error:
        return RoundTrip(path, name, 0, f"error: {error.what[:60]}", tuple(said))
    before, after = list(_payloads(path)), list(_payloads(back))
    outcome = "DIFFERENT"
    if before == after:
        outcome = "bytes"
    elif list(map(_meaning, before)) == list(map(_meaning, after)):
        outcome = "equal"
    return RoundTrip(path, name, len(before), outcome, tuple(said))


def _payloads(path: Path) -> Iterator[bytes]:
    return (item.payload for item in tfrtool.read(path) if isinstance(item, Record))


def _meaning(payload: bytes) -> str:
    """Return the features of a payload as text: to that, all NaNs are the same."""
    found = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
    lists = {name: [_values(step) for step in steps] for name, steps in found.feature_lists.items()}
    return repr((sorted((k, _values(v)) for k, v in found.features.items()), sorted(lists.items())))


def _values(feature: Feature) -> object:
    return feature.dtype and feature.dtype.value, list(feature.values)


def round_trips(paths: Sequence[Path], names: Sequence[str]) -> Iterator[RoundTrip]:
    """Take files through formats and back."""
    for path in paths:
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                yield round_trip(path, name, Path(folder))


def main(words: Sequence[str]) -> int:
    """Print the table; 1 where something differs that nobody said."""
    names = [word for word in words if word in NAMES] or FORMATS
    parts = [word for word in words if word not in NAMES]
    paths = [path for path in real_shards() if not parts or any(p in str(path) for p in parts)]
    wrong = 0
    for one in round_trips(paths, names):
        wrong += one.outcome == "DIFFERENT"
        cells = (one.path.relative_to(_ROOT), one.format, one.records, one.outcome)
        sys.stdout.write("  ".join(map(str, (*cells, "; ".join(one.said)[:80]))) + "\n")
        sys.stdout.flush()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
