"""Lists of Examples with a context, as TensorFlow Ranking stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tfrtool
from tests.examples.wire import field
from tests.records.strategies import shard_of
from tfrtool.examples.example import DType, Feature

Features = Mapping[str, Any]

NO_TEXT = Feature(dtype=DType.STRING, values=())
QUERIES = [
    ({"query": "q0"}, [{"title": ["a", "b"], "grade": 0, "score": 0.5}]),
    ({"query": "q1"}, []),
    ({"query": "q2"}, [{"title": ["c"], "grade": 2}, {"title": NO_TEXT, "grade": 1, "score": 1.5}]),
]
ROWS = [
    {"query": "q0", "title": ["a", "b"], "grade": 0, "score": 0.5},
    {"query": "q2", "title": ["c"], "grade": 2, "score": None},
    {"query": "q2", "title": [], "grade": 1, "score": 1.5},
]
"""The documents of all queries."""


def elwc(context: Features, documents: Sequence[Features]) -> bytes:
    """Return an ExampleListWithContext."""
    parts = [field(1, tfrtool.encode_example(one)) for one in documents]
    return b"".join([*parts, field(2, tfrtool.encode_example(context))])


def eie(context: Features, documents: Sequence[Features]) -> bytes:
    """Return an Example that holds others."""
    serialized = [*map(tfrtool.encode_example, documents)]
    features = {"serialized_context": tfrtool.encode_example(context)}
    return tfrtool.encode_example(features | {"serialized_examples": serialized or NO_TEXT})


def ranking_shard(path: Path, payloads: Sequence[bytes]) -> Path:
    """Write records to a shard."""
    path.write_bytes(shard_of([*payloads]))
    return path
