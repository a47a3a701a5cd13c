"""Payloads as record batches and back, against protobuf in a loop and TensorFlow's parser."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.bench.timing import Pair, compare
from tfrtool.examples.arrow.decode_batch import decode_batch
from tfrtool.examples.arrow.encode_batch import encode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import encode_example

__all__ = ["run"]

_RECORDS = 20_000


def _payloads() -> list[bytes]:
    """Return records of about 400 bytes with ten features."""
    rng = random.Random(0)
    words = ("Cash", "Credit Card", "Flash Cab", "Taxi Affiliation Services")
    return [
        encode_example(
            {
                "trip_id": f"{rng.getrandbits(320):080x}",
                "company": rng.choice(words),
                "payment_type": rng.choice(words),
                "fare": rng.uniform(3, 40),
                "tips": rng.uniform(0, 9),
                "trip_miles": rng.uniform(0, 30),
                "trip_seconds": rng.randrange(5000),
                "trip_start_timestamp": 1_400_000_000 + rng.randrange(10**8),
                "pickup_community_area": rng.randrange(77),
                "embedding": [rng.random() for _ in range(16)],
            }
        )
        for _ in range(_RECORDS)
    ]


def _loop(payloads: list[bytes]) -> Any:
    """Decode as is done without a library for it: protobuf, and lists by name."""
    import tensorflow as tf

    columns: dict[str, list[Any]] = {}
    for payload in payloads:
        example = tf.train.Example.FromString(payload)
        for name, feature in example.features.feature.items():
            values = list(getattr(feature, feature.WhichOneof("kind")).value)
            columns.setdefault(name, []).append(values[0] if len(values) == 1 else values)
    return pa.table(columns)


def _ray(payloads: list[bytes]) -> int:
    """Decode as Ray 2.60 does without tfx-bsl: a table for each record, and all of them joined."""
    import tensorflow as tf

    types = {"bytes_list": pa.binary(), "float_list": pa.float32(), "int64_list": pa.int64()}
    tables = []
    for payload in payloads:
        example = tf.train.Example.FromString(payload)
        record = {}
        for name, feature in example.features.feature.items():
            kind = next(one for one in types if feature.HasField(one))
            values = list(getattr(feature, kind).value)
            if len(values) == 1:
                record[name] = pa.array([values[0]], types[kind])
            else:
                record[name] = pa.array([values], pa.list_(types[kind]))
        tables.append(pa.Table.from_pydict(record))
    return int(pa.concat_tables(tables).num_rows)


def _message(table: Any) -> list[bytes]:
    """Encode as is done without a library for it: a message of each row."""
    return [encode_example(row) for row in table.to_pylist()]


def run(_directory: Path) -> Iterator[Pair]:
    """Measure decoding, inferring and encoding."""
    import tensorflow as tf

    payloads = _payloads()
    fold = ColumnsFold()
    fold.add(payloads)
    columns = fold.columns()
    batch = decode_batch(payloads, columns)
    if encode_batch(batch, columns) != payloads:
        raise RuntimeError("the payloads don't come back")
    specs = {
        name: tf.io.FixedLenFeature((16,) if name == "embedding" else (), dtype)
        for name, dtype in zip(batch.schema.names, map(_tf_dtype(tf), batch.schema), strict=True)
    }

    def ours() -> int:
        return int(decode_batch(payloads, columns).num_rows)

    def infer() -> int:
        held = ColumnsFold()
        held.add(payloads)
        return held.kinds.total()

    def parse(size: int) -> Callable[[], int]:
        def parsed() -> int:
            parts = range(0, len(payloads), size)
            done = [tf.io.parse_example(payloads[at : at + size], specs) for at in parts]
            return sum(int(one["fare"].shape[0]) for one in done)

        return parsed

    size = sum(map(len, payloads)) // len(payloads)
    what = f"{_RECORDS:,} records of {size} bytes and 10 features"
    yield compare(f"decode {what}: protobuf and lists", ours, lambda: _loop(payloads).num_rows, 3)
    yield compare(f"decode {what}: as Ray without tfx-bsl", ours, lambda: _ray(payloads), 2)
    yield compare(f"decode {what}: tf.io.parse_example by 1,000", ours, parse(1000), 3)
    yield compare(f"infer the columns of {what}: decoding as above", infer, ours, 3)
    one = columns.select(["fare"])
    yield compare(
        "decode one of ten features: all",
        lambda: decode_batch(payloads, one).num_rows,
        ours,
        3,
    )
    table = pa.Table.from_batches([batch])
    yield compare(
        f"encode {what}: encode_example of each row",
        lambda: encode_batch(batch, columns),
        lambda: _message(table),
        3,
    )


def _tf_dtype(tf: Any) -> Callable[[pa.Field], Any]:
    kinds = {pa.binary(): tf.string, pa.float32(): tf.float32, pa.int64(): tf.int64}
    return lambda field: kinds.get(field.type, tf.float32)
