"""Fuzzing the Arrow bridge: payloads as columns and back, compared with protobuf."""

from __future__ import annotations

import contextlib

from tests.examples.arrow.checking import check, taken
from tests.fuzz.examples import MARK, mutate, seeds
from tests.fuzz.target import Target
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.arrow.infer import ColumnsFold

__all__ = ["TARGET"]


def check_bridge(data: bytes) -> None:
    """All Examples come back; of other bytes none are read beyond their end."""
    payloads = data.split(MARK)
    check(taken(payloads))
    fold = ColumnsFold()
    fold.add(payloads)
    assert fold.kinds.total() == len(payloads)
    with contextlib.suppress(MisfitError):
        decode_batch(payloads, fold.columns()).validate(full=True)


# Under atheris the process grows by a tenth of a MiB a run; without it, 6,000 runs take no more.
TARGET = Target(check=check_bridge, seeds=seeds, mutate=mutate, memory=4096)
