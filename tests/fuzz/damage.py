"""Fuzzing single damage: one flip, cut, insertion or removal costs no record that it didn't touch.

These are the properties of ``tests/records/test_damage.py``, with coverage in place of chance. An
input is the number of a property and the choices that Hypothesis draws from.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.fuzz.target import Target
from tests.records import test_damage as properties

__all__ = ["TARGET"]

_PROPERTIES: tuple[Any, ...] = (
    properties.test_flipped_bit,
    properties.test_two_flipped_bits,
    properties.test_cut,
    properties.test_inserted_run,
    properties.test_removed_run,
    properties.test_overwritten_run,
    properties.test_records_inside_a_damaged_record,
    properties.test_stray_bytes_at_the_end,
    properties.test_limit,
    properties.test_damage_below_compression,
)


def seeds() -> Iterator[bytes]:
    """Yield choices at random for each property."""
    rng = random.Random(3)
    for number in range(len(_PROPERTIES)):
        for size in (40, 200, 1000):
            yield bytes([number]) + rng.randbytes(size)


def check(data: bytes) -> None:
    """Run the property that the first byte names."""
    if data:
        run: Callable[[bytes], object] = _PROPERTIES[
            data[0] % len(_PROPERTIES)
        ].hypothesis.fuzz_one_input
        run(data[1:])


TARGET = Target(check=check, seeds=seeds, max_length=4096)
