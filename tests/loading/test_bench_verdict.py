"""What the benchmark says limits the loader, from measurements that are made up."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.cli.app import cli
from tfrtool.loading.bench.bench_tasks import PartsRun
from tfrtool.loading.bench.bench_verdict import Bottleneck, Measured, Verdict, judge
from tfrtool.loading.pipeline.load_options import LoadOptions

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
        (Bottleneck.DECODING, MEASURED, ["52 %", "--encode raw --resize 224x224", "5.0 times"]),
        (
            Bottleneck.DECODING,
            replace(MEASURED, parts=replace(PARTS, raw=None)),
            ["--resize 224 "],
        ),
        (
            Bottleneck.RESIZING,
            replace(MEASURED, parts=replace(PARTS, decoding=0.2 * MS, resizing=0.7 * MS)),
            ["60 %", "decoding 17 %", "--encode raw"],
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
        (
            Bottleneck.STORING,
            replace(MEASURED, first_cpu=3 * MS),
            ["67 %", "decoding 20 %", "waiting 2 %", "--image-size"],
        ),
        (Bottleneck.BATCHING, replace(MEASURED, first_cpu=3 * MS, cached=False), ["67 %"]),
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
    assert_named_options_exist(verdict)


def assert_named_options_exist(verdict: Verdict) -> None:
    """An option is one of the benchmark, or of a command that the sentence names."""
    for text in (verdict.sentence, *verdict.notes):
        commands = ["bench", *re.findall(r"tfrtool (\w+)", text)]
        known = {name for one in commands for p in cli.commands[one].params for name in p.opts}
        assert set(re.findall(r"--[a-z-]+", text)) <= known
    if "LoadOptions" in verdict.sentence:
        field = re.search(r"LoadOptions\((\w+)=", verdict.sentence)
        assert field is not None
        LoadOptions(image_size=8, **{field[1]: 2})  # type: ignore[arg-type]


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
    assert_named_options_exist(judge(measured))
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
    assert (less.bottleneck, less.notes) == (known.bottleneck, known.notes)
    assert ("waiting" in less.sentence) is (unknown != "idle")
    without_cold = judge(replace(MEASURED, parts=replace(PARTS, cold=None)))
    assert without_cold.bottleneck is Bottleneck.DECODING


_COST = st.floats(min_value=1e-7, max_value=0.1)


@given(parts=st.tuples(*[_COST] * 4), rest=_COST, idle=st.none() | _COST, cached=st.booleans())
def test_bottleneck_has_the_largest_share(
    parts: tuple[float, ...], rest: float, idle: float | None, cached: bool
) -> None:
    """The sentence names what cost most of all that was measured, and all shares are 100 %."""
    names = ("reading", "parsing", "decoding", "resizing")
    named: dict[str, Any] = dict(zip(names, parts, strict=True))
    costs = {**named, "storing" if cached else "batching": rest}
    if idle is not None:
        costs["waiting"] = idle
    measured = replace(
        MEASURED,
        parts=replace(PARTS, raw=None, cold=None, **named),
        first_cpu=sum(parts) + rest,
        first_seconds=1.0,
        images=1,
        idle=idle,
        cached=cached,
    )
    verdict = judge(measured)
    assert costs[verdict.bottleneck.value] >= max(costs.values()) * (1 - 1e-6)
    told = dict(re.findall(r"(\w+) (\d+)%[,)]", verdict.sentence))
    assert set(told) == set(costs)
    for name, cost in costs.items():
        assert abs(int(told[name]) - 100 * cost / sum(costs.values())) < 0.51


def test_cpu_time_below_that_of_its_parts() -> None:
    """Where the epoch took less than its parts alone, nothing is left for the store."""
    verdict = judge(replace(MEASURED, first_cpu=0.5 * MS))
    assert "storing 0%" in verdict.sentence
