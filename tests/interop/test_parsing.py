"""Real records, parsed with right and wrong descriptions, judged by tf.io."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.examples.test_parsing import parse_by_tf, parse_by_us, parse_sequence_by_tf
from tests.inspection.real_files import SOME_FILES, payloads_of
from tfrtool.examples.example import DType, PayloadKind, Value, decode_example
from tfrtool.examples.parsing import fit_example
from tfrtool.examples.schema import FeatureSpec, Schema
from tfrtool.inspection.schema.shard_schema import infer_schema

DEFAULTS: dict[DType, Value] = {DType.STRING: b"", DType.INT64: -1, DType.FLOAT32: 0.0}
RECORDS = 12
"""Records of a file that are tried: the first ones, and then those further and further apart."""


def chosen(path: Path) -> list[bytes]:
    """Return some records of a shard."""
    payloads = payloads_of(path)
    return [*payloads[: RECORDS // 2], *payloads[RECORDS // 2 :: max(len(payloads) // RECORDS, 1)]]


def wrong(spec: FeatureSpec) -> Iterator[FeatureSpec]:
    """Yield specs that differ from one in one thing: type, shape, default, name."""
    for dtype in DType:
        yield replace(spec, dtype=dtype)
    yield replace(spec, shape=())
    yield replace(spec, shape=(2,))
    yield replace(spec, shape=None)
    if not spec.is_list:
        yield replace(spec, shape=(), default=(DEFAULTS[spec.dtype],))
    yield replace(spec, name=spec.name + "?")
    yield replace(spec, name=spec.name + "?", shape=None)


@pytest.mark.parametrize("name", SOME_FILES)
def test_right_description(tf: Any, shared_data: Path, name: str) -> None:
    """With the inferred schema nothing misfits, and the values are TensorFlow's."""
    path = shared_data / "tfrecord" / name
    found = infer_schema([path], sample=300)
    by_tf = parse_sequence_by_tf if found.payload is PayloadKind.SEQUENCE_EXAMPLE else parse_by_tf
    for payload in chosen(path):
        ours = parse_by_us(payload, found.schema, PayloadKind.SEQUENCE_EXAMPLE)
        theirs = by_tf(tf, payload, found.schema)
        assert ours is not None
        assert theirs is not None
        assert repr(sorted(ours.items())) == repr(sorted(theirs.items()))  # a NaN is itself


@pytest.mark.parametrize("name", SOME_FILES)
def test_wrong_descriptions(tf: Any, shared_data: Path, name: str) -> None:
    """A record is refused where TensorFlow refuses it, and has a default where it gives one."""
    path = shared_data / "tfrecord" / name
    found = infer_schema([path], sample=300)
    by_tf = parse_sequence_by_tf if found.payload is PayloadKind.SEQUENCE_EXAMPLE else parse_by_tf
    lists = [spec for spec in found.schema if spec.is_list][:1]
    payloads = chosen(path)[:2] + chosen(path)[-1:]
    refused = 0
    for spec in list(found.schema)[:4]:
        for other in wrong(spec):
            rest = [item for item in lists if not spec.is_list]
            schema = Schema((other, *rest))
            for payload in payloads:
                theirs = by_tf(tf, payload, schema)
                ours = parse_by_us(payload, schema, PayloadKind.SEQUENCE_EXAMPLE)
                assert repr(ours) == repr(theirs), (spec.name, other)
                refused += theirs is None
                example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
                fitted = fit_example(example, schema)
                assert bool(fitted.misfits) == (theirs is None)
                if other.default and fitted.defaulted:
                    assert theirs is not None
                    assert theirs[other.name] == list(other.default)
    assert refused
