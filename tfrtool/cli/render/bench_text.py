"""What a benchmark of a loader found, as text."""

from __future__ import annotations

from textwrap import wrap

from tfrtool.cli.output import human_bytes, human_count
from tfrtool.cli.render.page import Block, Facts, Heading, Lines, Page, Table
from tfrtool.loading.bench.bench_report import BenchReport, Spread, StageReport
from tfrtool.loading.bench.bench_tasks import BenchStage

__all__ = ["render_bench"]

_WIDTH = 96
_OTHERS = {BenchStage.NAIVE: "naive", BenchStage.PREFETCH: "the published pipeline"}
_NUMBERS = frozenset(range(1, 8))


def render_bench(report: BenchReport) -> Page:
    """Return what is shown to people."""
    images = human_count(report.images, "image")
    if report.images < report.total_images:
        images = f"{report.images:,} of {human_count(report.total_images, 'image')}"
    page: list[Block] = [
        Heading(f"Loading {images} from {human_count(report.shards, 'shard')}"),
        Facts(
            [
                ("images", f"{report.image_size} px, {report.batch_size} a batch"),
                ("cores", str(report.cores)),
                ("cache", f"ours: {report.cache}; the published one: float32 in memory"),
                ("rounds", f"{report.rounds}; the median, and how far runs were apart"),
            ]
        ),
        _stages(report),
    ]
    left_out = [
        f"{_name(stage)} was left out: {stage.left_out}"
        for stage in report.stages
        if stage.left_out is not None
    ]
    if left_out:
        page.append(Lines(left_out))
    page += [Heading("The work on an image, in one thread"), _parts(report)]
    page.append(Lines([f"tfrtool {_times(report, other)}" for other in _OTHERS]))
    verdict = report.verdict
    page.append(Lines(wrap(verdict.sentence, _WIDTH)))
    if verdict.notes:
        page.append(Lines([line for note in verdict.notes for line in wrap(note, _WIDTH)]))
    return page


def _name(stage: StageReport) -> str:
    if stage.stage in (BenchStage.NAIVE, BenchStage.TFRTOOL):
        return f"{stage.stage.value}"
    return f"+ {stage.stage.value}"


def _stages(report: BenchReport) -> Table:
    """Return a table of the pipelines: CPU time is that of an image."""
    rows = []
    for stage in report.stages:
        if stage.first is None or stage.later is None:
            rows.append((_name(stage), *["-"] * 7))
            continue
        rows.append(
            (
                _name(stage),
                _rate(stage.first.images_per_second),
                f"{stage.first.cpu_ms.median:.2f}",
                f"{stage.first.first_batch.median:.2f} s",
                f"{stage.first.ending.median:.2f} s",
                _rate(stage.later.images_per_second),
                f"{stage.later.cpu_ms.median:.3f}",
                human_bytes(stage.memory),
            )
        )
    head = (
        "stage",
        "1st images/s",
        "CPU ms",
        "1st batch",
        "ending",
        "later images/s",
        "CPU ms",
        "memory",
    )
    return Table(head=head, rows=rows, right=_NUMBERS)


def _times(report: BenchReport, other: BenchStage) -> str:
    """Return how many times an other pipeline's images a second ours loads."""
    speedup = report.speedup(other)
    if speedup is None:
        return f"v {_OTHERS[other]}: not measured"
    first, later = speedup
    return f"v {_OTHERS[other]}: {first:.1f} times in a first epoch, {later:.1f} times later"


def _rate(spread: Spread) -> str:
    if spread.least == spread.most:
        return f"{spread.median:,.0f}"
    apart = (spread.most - spread.least) / 2 / spread.median
    return f"{spread.median:,.0f} ±{apart:.0%}"


def _parts(report: BenchReport) -> Table:
    parts = report.parts
    rows = [
        ("read a record from the page cache", parts.reading),
        ("parse it", parts.parsing),
        ("decode the image", parts.decoding),
        ("resize it", parts.resizing),
    ]
    shown = [
        (name, f"{cpu * 1e3:.3f}", f"{cpu / parts.whole if parts.whole else 0:.0%}")
        for name, cpu in rows
    ]
    if parts.raw is not None:
        size = report.image_size
        shown.append(
            (f"all of it with --encode raw --resize {size}x{size}", f"{parts.raw * 1e3:.3f}", "")
        )
    if parts.cold is not None:
        shown.append(("read a record from the disk (not CPU)", f"{parts.cold * 1e3:.3f}", ""))
    return Table(head=("work", "CPU ms", "share"), rows=shown, right=frozenset({1, 2}))
