"""What the benchmark says limits the loader, from measurements that are made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.loading.bench_tasks import PartsRun
from tfrtool.loading.bench_verdict import Bottleneck, Measured, judge

MS = 1e-3
PARTS = PartsRun(
    reading=0.05 * MS,
    parsing=0.1 * MS,
    decoding=0.6 * MS,
    resizing=0.2 * MS,
    raw=0.19 * MS,
    cold=0.1 * MS,
    images=256,
)
MEASURED = Measured(
    parts=PARTS,
    images=10_000,
    first_seconds=6.0,
    first_cpu=1.1 * MS,
    first_system=0.1 * MS,
    first_batch=0.5,
    starting=0.1,
    idle=0.1,
    later_cpu=0.05 * MS,
    cached=True,
    stall=0.0,
    stalled_epoch=6.0,
    cores=2,
    shards=8,
    compressed=False,
    image_size=224,
)


@pytest.mark.parametrize(
    ("bottleneck", "measured", "says"),
    [
        (Bottleneck.DECODING, MEASURED, ["73 %", "--encode raw --resize 224x224", "5.0 times"]),
        (
            Bottleneck.DECODING,
            replace(MEASURED, parts=replace(PARTS, raw=None)),
            ["--resize 224 "],
        ),
        (
            Bottleneck.DECODING,
            replace(MEASURED, parts=replace(PARTS, decoding=0.2 * MS, resizing=0.7 * MS)),
            ["82 %", "--encode raw"],
        ),
        (
            Bottleneck.PARSING,
            replace(MEASURED, parts=replace(PARTS, parsing=0.9 * MS)),
            ["batched_parse"],
        ),
        (
            Bottleneck.READING,
            replace(MEASURED, parts=replace(PARTS, reading=0.9 * MS)),
            ["--resize 224 "],
        ),
        (
            Bottleneck.INFLATING,
            replace(MEASURED, parts=replace(PARTS, reading=0.9 * MS), compressed=True),
            ["--compression none"],
        ),
        (Bottleneck.BATCHING, replace(MEASURED, later_cpu=2 * MS), ["--image-size"]),
        (
            Bottleneck.MEMORY,
            replace(MEASURED, first_cpu=3 * MS, first_system=1.9 * MS),
            ["62 %", "kernel"],
        ),
        (Bottleneck.HANDING_OVER, replace(MEASURED, first_cpu=3 * MS), ["batched_parse"]),
        (
            Bottleneck.DISK,
            replace(MEASURED, parts=replace(PARTS, cold=5 * MS)),
            ["200 images", "1,667", "--resize 224"],
        ),
        (
            Bottleneck.STARTING,
            replace(MEASURED, images=50, first_seconds=0.2, starting=0.15),
            ["0.20 s", "0.15 s", "50 images"],
        ),
        (Bottleneck.WAITING, replace(MEASURED, idle=1.4), ["1.4 of 2 cores", "--parallel-calls"]),
        (Bottleneck.WAITING, replace(MEASURED, idle=1.4, shards=1), ["one shard", "--shards"]),
    ],
)
def test_bottleneck(bottleneck: Bottleneck, measured: Measured, says: list[str]) -> None:
    """The bottleneck follows from the measurements; its sentence has the numbers and an option."""
    verdict = judge(measured)
    assert verdict.bottleneck is bottleneck
    sentence = verdict.sentence.replace("%", " %")
    for words in says:
        assert words in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    ("measured", "says"),
    [
        (MEASURED, "22 times less CPU time"),
        (replace(MEASURED, shards=1), "nothing to interleave"),
        (replace(MEASURED, first_batch=4.0), "--shuffle-buffer"),
        (replace(MEASURED, stall=1.3), "stood still for 1.3 s"),
        (replace(MEASURED, idle=0.0, first_cpu=0.5 * MS), "Other programs kept 1.2 of 2 cores"),
    ],
)
def test_notes(measured: Measured, says: str) -> None:
    """What else was found is said in a note, with its number, and only if it was found."""
    assert says in " ".join(judge(measured).notes)
    calm = replace(MEASURED, cached=False)
    assert judge(calm).notes == ()


@pytest.mark.parametrize(("stall", "epoch"), [(0.08, 0.2), (0.5, 60.0)])
def test_short_ends_are_no_stall(stall: float, epoch: float) -> None:
    """Closing takes some time; it is a stall only if it is long, and a part of its epoch."""
    measured = replace(MEASURED, cached=False, stall=stall, stalled_epoch=epoch)
    assert judge(measured).notes == ()


@pytest.mark.parametrize("unknown", ["starting", "idle", "stall", "stalled_epoch"])
def test_what_is_unknown_is_not_said(unknown: str) -> None:
    """A system that can't tell something is judged without it."""
    changes: dict[str, Any] = {unknown: None}
    known, less = judge(MEASURED), judge(replace(MEASURED, **changes))
    assert less == known
    without_cold = judge(replace(MEASURED, parts=replace(PARTS, cold=None)))
    assert without_cold.bottleneck is Bottleneck.DECODING


_COST = st.floats(min_value=1e-7, max_value=0.1)


@given(costs=st.tuples(_COST, _COST, _COST), whole=_COST, system=_COST, times=_COST)
def test_bottleneck_has_the_largest_share(
    costs: tuple[float, float, float], whole: float, system: float, times: float
) -> None:
    """No piece of a record's work costs more than the bottleneck, on machines of any speed."""
    names = ("reading", "parsing", "decoding")
    named: dict[str, Any] = dict(zip(names, costs, strict=True))
    parts = replace(PARTS, resizing=0.0, raw=None, cold=None, **named)
    measured = replace(
        MEASURED, parts=parts, first_cpu=whole, first_system=min(system, whole), idle=None
    )
    verdict = judge(measured)
    if verdict.bottleneck.value in names:
        assert named[verdict.bottleneck.value] == max(costs)
    else:
        own = whole - sum(costs)
        assert max(own, MEASURED.later_cpu) >= max(costs) * (1 - 1e-9) or own > max(costs)
    share = int(verdict.sentence.partition("%")[0].rpartition(" ")[2])
    assert 0 <= share <= 100
    faster: dict[str, Any] = {name: cost * times for name, cost in named.items()}
    scaled = replace(
        measured,
        parts=replace(parts, **faster),
        first_cpu=measured.first_cpu * times,
        first_system=measured.first_system * times,
        later_cpu=measured.later_cpu * times,
    )
    # Rounding may decide between pieces that are as good as alike.
    second, largest = sorted([*costs, MEASURED.later_cpu])[-2:]
    if largest > 1.001 * second and sum(costs) > 1.001 * whole:
        assert judge(scaled).bottleneck is verdict.bottleneck
