"""What the benchmark says limits the loader, from measurements that are made up."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.cli.app import cli
from tfrtool.loading.bench.bench_report import BenchReport, Numbers, PartsRun, StageReport
from tfrtool.loading.bench.bench_verdict import judge
from tfrtool.loading.pipeline.load_options import LoadOptions

PARTS = PartsRun(
    cpu={"reading": 0.05, "parsing": 0.1, "decoding": 0.6, "resizing": 0.2},
    raw=0.19,
    cold=0.1,
    images=256,
)


def _parts(*, raw: float | None = PARTS.raw, cold: float | None = PARTS.cold, **cpu: float) -> Any:
    return replace(PARTS, cpu={**PARTS.cpu, **cpu}, raw=raw, cold=cold)


def _judged(
    *,
    parts: PartsRun = PARTS,
    images: int = 10_000,
    seconds: float = 6.0,
    cpu: float = 1.1,
    first_batch: float = 0.5,
    starting: float | None = 0.1,
    idle: float | None = 0.1,
    later_cpu: float = 0.05,
    cached: bool = True,
    stall: float | None = 0.0,
    stalled_epoch: float = 6.0,
    shards: int = 8,
    compressed: bool = False,
) -> BenchReport:
    """Return what is said of made-up measurements; None where something was not measured."""
    first = {"seconds": seconds, "cpu_ms_per_image": cpu, "first_batch_seconds": first_batch}
    if idle is not None:
        first["idle_cores"] = idle
    naive: tuple[Numbers, ...] = ({"first_batch_seconds": (starting or 0), "seconds": 0.0},)
    published: tuple[Numbers, ...] = ({"ending_seconds": stall or 0, "seconds": stalled_epoch},)
    if starting is None:
        naive = ()
    if stall is None:
        published = ()
    later = ({"cpu_ms_per_image": later_cpu},)
    report = BenchReport(
        stages=(
            StageReport(stage="naive", first=naive, later=naive),
            StageReport(stage="prefetch", first=published, later=published),
            StageReport(stage="tfrtool", first=(first,), later=later),
        ),
        parts=parts,
        images=images,
        total_images=images,
        shards=shards,
        image_size=224,
        batch_size=32,
        cache="memory" if cached else "none",
        cores=2,
        rounds=1,
    )
    return judge(report, compressed=compressed)


@pytest.mark.parametrize(
    ("bottleneck", "measured", "says"),
    [
        ("decoding", {}, ["52 %", "--encode raw --resize 224x224", "5.0 times"]),
        (
            "decoding",
            {"parts": _parts(raw=None)},
            ["--resize 224 "],
        ),
        (
            "resizing",
            {"parts": _parts(decoding=0.2, resizing=0.7)},
            ["60 %", "decoding 17 %", "--encode raw"],
        ),
        (
            "parsing",
            {"parts": _parts(parsing=0.9)},
            ["batched_parse"],
        ),
        (
            "reading",
            {"parts": _parts(reading=0.9)},
            ["--resize 224 "],
        ),
        (
            "inflating",
            {"parts": _parts(reading=0.9), "compressed": True},
            ["--compression none"],
        ),
        (
            "storing",
            {"cpu": 3},
            ["67 %", "decoding 20 %", "waiting 2 %", "--image-size"],
        ),
        ("batching", {"cpu": 3, "cached": False}, ["67 %"]),
        (
            "disk",
            {"parts": _parts(cold=5)},
            ["200 images", "1,667", "--resize 224"],
        ),
        (
            "starting",
            {"images": 50, "seconds": 0.2, "starting": 0.15},
            ["0.20 s", "0.15 s", "50 images"],
        ),
        ("waiting", {"idle": 1.4}, ["1.4 of 2 cores", "--parallel-calls"]),
        ("waiting", {"idle": 1.4, "shards": 1}, ["one shard", "--shards"]),
    ],
)
def test_bottleneck(bottleneck: str, measured: dict[str, Any], says: list[str]) -> None:
    """The bottleneck follows from the measurements; its sentence has the numbers and an option."""
    verdict = _judged(**measured)
    assert verdict.bottleneck == bottleneck
    sentence = verdict.sentence.replace("%", " %")
    for words in says:
        assert words in sentence
    assert sentence.endswith(".")
    assert_named_options_exist(verdict)


def assert_named_options_exist(verdict: BenchReport) -> None:
    """An option is one of the benchmark, or of a command that the sentence names."""
    for text in (verdict.sentence, *verdict.notes):
        commands = ["bench", *re.findall(r"tfrtool (\w+)", text)]
        known = {name for one in commands for p in cli.commands[one].params for name in p.opts}
        assert set(re.findall(r"--[a-z-]+", text)) <= known
    if "load(" in verdict.sentence:
        field = re.search(r"load\((\w+)=", verdict.sentence)
        assert field is not None
        LoadOptions(image_size=8, **{field[1]: 2})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("measured", "says"),
    [
        ({}, "22 times less CPU time"),
        ({"shards": 1}, "nothing to interleave"),
        ({"first_batch": 4.0}, "--shuffle-buffer"),
        ({"stall": 1.3}, "stood still for 1.3 s"),
        ({"idle": 0.0, "cpu": 0.5}, "Other programs kept 1.2 of 2 cores"),
    ],
)
def test_notes(measured: dict[str, Any], says: str) -> None:
    """What else was found is said in a note, with its number, and only if it was found."""
    report = _judged(**measured)
    assert says in " ".join(report.notes)
    assert_named_options_exist(report)
    assert _judged(cached=False).notes == ()


@pytest.mark.parametrize(("stall", "epoch"), [(0.08, 0.2), (0.5, 60.0)])
def test_short_ends_are_no_stall(stall: float, epoch: float) -> None:
    """Closing takes some time; it is a stall only if it is long, and a part of its epoch."""
    assert _judged(cached=False, stall=stall, stalled_epoch=epoch).notes == ()


@pytest.mark.parametrize("unknown", ["starting", "idle", "stall"])
def test_what_is_unknown_is_not_said(unknown: str) -> None:
    """A system that can't tell something is judged without it."""
    changes: dict[str, Any] = {unknown: None}
    known, less = _judged(), _judged(**changes)
    assert (less.bottleneck, less.notes) == (known.bottleneck, known.notes)
    assert ("waiting" in less.sentence) is (unknown != "idle")
    without_cold = _judged(parts=_parts(cold=None))
    assert without_cold.bottleneck == "decoding"


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
    verdict = _judged(
        parts=_parts(raw=None, cold=None, **named),
        cpu=sum(parts) + rest,
        seconds=1e-3,
        starting=0.0,
        images=1,
        idle=idle,
        cached=cached,
    )
    assert costs[verdict.bottleneck] >= max(costs.values()) * (1 - 1e-6)
    told = dict(re.findall(r"(\w+) (\d+)%[,)]", verdict.sentence))
    assert set(told) == set(costs)
    for name, cost in costs.items():
        assert abs(int(told[name]) - 100 * cost / sum(costs.values())) < 0.51


def test_cpu_time_below_that_of_its_parts() -> None:
    """Where the epoch took less than its parts alone, nothing is left for the store."""
    verdict = _judged(cpu=0.5)
    assert "storing 0%" in verdict.sentence
