"""Records as their features.json describes them, against the flat columns of the same records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.arrow.decode_batch import decode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import DType, Feature, encode_example, parse_message
from tfrtool.examples.fields import Field, ListOf, Struct, Values
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.record_arrays import FeatureArrays

__all__ = ["run"]

_SMALL, _EPISODES = 100_000, 500
_RUNS = 7


def _values(spelling: str) -> Values:
    return Values.parse(spelling)


_SMALL_TREE = Struct(
    {
        "id": _values("int64"),
        "label": _values("label"),
        "x": _values("float32[2,3]"),
        "text": _values("text"),
        "flag": _values("bool"),
        "u8": _values("uint8"),
        "objects": ListOf(
            item=Struct({"bbox": _values("float32[4]"), "label": _values("label")}),
        ),
        "words": ListOf(item=_values("text")),
        "score": _values("float64"),
    }
)
_STEP: dict[str, Field] = {
    "action": _values("float32[7]"),
    "discount": _values("float32"),
    "is_first": _values("bool"),
    "is_last": _values("bool"),
    "reward": _values("float32"),
    "language_instruction": _values("text"),
    "observation": Struct({"image": _values("image"), "state": _values("float64[7]")}),
}
_EPISODE_TREE = Struct(
    {
        "episode_metadata": Struct({"file_path": _values("text")}),
        "steps": ListOf(item=Struct(_STEP), is_dataset=True),
    }
)


def _small() -> list[bytes]:
    """Return records of about 244 bytes with nine features."""
    return [
        encode_example(
            {
                "id": number,
                "label": number % 10,
                "x": [float(number)] * 6,
                "text": f"text number {number} of the set",
                "flag": number % 2,
                "u8": number % 256,
                "objects/bbox": Feature(
                    dtype=DType.FLOAT32, values=(0.1, 0.2, 0.5, 0.6) * (number % 4)
                ),
                "objects/label": Feature(dtype=DType.INT64, values=(1,) * (number % 4)),
                "words": Feature(dtype=DType.STRING, values=(b"ab", b"cde")[: number % 3]),
                "score": number / 3,
            }
        )
        for number in range(_SMALL)
    ]


def _episodes() -> list[bytes]:
    """Return episodes of about 94 kB with 50 to 149 steps."""
    image = bytes(range(256)) * 3
    return [
        encode_example(
            {
                "episode_metadata/file_path": f"/data/{number}",
                "steps/action": [float(step) for step in range(steps) for _ in range(7)],
                "steps/discount": [1.0] * steps,
                "steps/is_first": [int(step == 0) for step in range(steps)],
                "steps/is_last": [int(step == steps - 1) for step in range(steps)],
                "steps/reward": [0.5] * steps,
                "steps/language_instruction": [b"pick up the cup"] * steps,
                "steps/observation/image": [image] * steps,
                "steps/observation/state": [float(step) for step in range(steps) for _ in range(7)],
            }
        )
        for number in range(_EPISODES)
        for steps in [50 + number % 100]
    ]


def _seconds(
    works: Sequence[Callable[[Sequence[bytes]], Any]], batches: Sequence[Sequence[bytes]]
) -> list[float]:
    """Return the least CPU time of each way to decode batches, run in turn."""
    times = []
    for _ in range(_RUNS):
        round_times = []
        for work in works:
            start = time.process_time()
            for payloads in batches:
                work(payloads)
            round_times.append(time.process_time() - start)
        times.append(round_times)
    return [min(column) for column in zip(*times, strict=True)]


def _infer(payloads: Sequence[bytes]) -> Columns:
    fold = ColumnsFold()
    fold.add(payloads)
    return fold.table_columns(exact=False)


def _message_loop(payloads: Sequence[bytes]) -> None:
    """Do what users write: make a flat array of each feature."""
    dtypes: dict[str, Any] = {"int64_list": np.int64, "float_list": np.float32}
    for payload in payloads:
        for entry in parse_message(payload).context.feature:
            kind = entry.value.WhichOneof("kind") or "bytes_list"
            np.array(getattr(entry.value, kind).value, dtypes.get(kind, object))


def _bytes_of(decode: Callable[[Sequence[bytes]], pa.RecordBatch], payloads: Any) -> int:
    return sum(int(decode(part).nbytes) for part in payloads)


def _measured(what: str, payloads: list[bytes], step: int, tree: Struct) -> Iterator[str]:
    batches = [payloads[first : first + step] for first in range(0, len(payloads), step)]
    flat, nested = _infer(payloads), FeatureColumns.of(tree)

    def flat_table(part: Sequence[bytes]) -> pa.RecordBatch:
        return decode_batch(part, flat)

    def nested_table(part: Sequence[bytes]) -> pa.RecordBatch:
        table, rejected = nested.decode(part)
        if rejected:
            raise RuntimeError("the tree doesn't fit the payloads")
        return table

    arrays = FeatureArrays(tree)

    def records(part: Sequence[bytes]) -> None:
        for payload in part:
            arrays(payload)

    unit = 1e6 / len(payloads)
    works = (_infer, flat_table, nested_table, records, _message_loop)
    infer_time, flat_time, nested_time, *record_times = _seconds(works, batches)
    sizes = _bytes_of(nested_table, batches) / _bytes_of(flat_table, batches)
    size = sum(map(len, payloads)) // len(payloads)
    yield (
        f"{what} of {size:,} bytes, CPU us each: infer {infer_time * unit:.2f}, "
        f"flat {flat_time * unit:.2f}, typed {nested_time * unit:.2f} "
        f"({nested_time / flat_time:.3f}x, target 1.10x); bytes {sizes:.2f}x (target 1.3x); "
        f"NumPy arrays {record_times[0] * unit:.2f}, plain loop {record_times[1] * unit:.2f}"
    )


def run(_directory: Path) -> Iterator[str]:
    """Measure decoding to a tree's columns, and to flat ones, which have to be inferred first."""
    yield from _measured(f"{_SMALL:,} records", _small(), 25_000, _SMALL_TREE)
    yield from _measured(f"{_EPISODES} episodes", _episodes(), 100, _EPISODE_TREE)
