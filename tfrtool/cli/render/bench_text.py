"""What a benchmark of a loader found, as text."""

from __future__ import annotations

from textwrap import wrap

from tfrtool.cli.output import human_bytes, human_count
from tfrtool.cli.render.page import Block, Facts, Heading, Lines, Page, Table
from tfrtool.loading.bench.bench_report import BenchReport, Numbers, StageReport, medians

__all__ = ["render_bench"]

_WIDTH = 96
_OTHERS = {"naive": "naive", "prefetch": "the published pipeline"}
_WORK = ("read a record from the page cache", "parse it", "decode the image", "resize it")
_HEAD = ("1st images/s", "CPU ms", "1st batch", "ending", "later images/s", "CPU ms", "memory")


def render_bench(report: BenchReport) -> Page:
    """Return what is shown to people."""
    images = human_count(report.images, "image")
    if report.images < report.total_images:
        images = f"{report.images:,} of {human_count(report.total_images, 'image')}"
    stages = Table(
        head=("stage", *_HEAD),
        rows=[(_name(stage), *_cells(stage)) for stage in report.stages],
        right=frozenset(range(1, 1 + len(_HEAD))),
    )
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
        stages,
        Lines([f"{_name(s)} was left out: {s.left_out}" for s in report.stages if s.left_out]),
        Heading("The work on an image, in one thread"),
        _parts(report),
        Lines([f"tfrtool {_times(report, other)}" for other in _OTHERS]),
        Lines(wrap(report.sentence, _WIDTH)),
        Lines([line for note in report.notes for line in wrap(note, _WIDTH)]),
    ]
    return [block for block in page if not isinstance(block, Lines) or block.lines]


def _name(stage: StageReport) -> str:
    return stage.stage if stage.stage in ("naive", "tfrtool") else f"+ {stage.stage}"


def _cells(stage: StageReport) -> list[str]:
    if not stage.first:
        return ["-"] * len(_HEAD)
    first, later = medians(stage.first), medians(stage.later)
    return [
        _rate(stage.first),
        f"{first['cpu_ms_per_image']:.2f}",
        f"{first['first_batch_seconds']:.2f} s",
        f"{first['ending_seconds']:.2f} s",
        _rate(stage.later),
        f"{later['cpu_ms_per_image']:.3f}",
        human_bytes(stage.memory_bytes or 0),
    ]


def _rate(epochs: tuple[Numbers, ...]) -> str:
    rates = [epoch["images_per_second"] for epoch in epochs]
    median = medians(epochs)["images_per_second"]
    apart = (max(rates) - min(rates)) / 2 / median
    return f"{median:,.0f} ±{apart:.0%}" if apart else f"{median:,.0f}"


def _times(report: BenchReport, other: str) -> str:
    """Return how many times an other pipeline's images a second ours loads."""
    speedup = report.speedup(other)
    if speedup is None:
        return f"v {_OTHERS[other]}: not measured"
    first, later = speedup.values()
    return f"v {_OTHERS[other]}: {first:.1f} times in a first epoch, {later:.1f} times later"


def _parts(report: BenchReport) -> Table:
    parts, size = report.parts, report.image_size
    whole = sum(parts.cpu.values())
    rows = [
        (work, f"{cpu:.3f}", f"{cpu / (whole or 1):.0%}")
        for work, cpu in zip(_WORK, parts.cpu.values(), strict=True)
    ]
    if parts.raw is not None:
        rows.append((f"all of it with --encode raw --resize {size}x{size}", f"{parts.raw:.3f}", ""))
    if parts.cold is not None:
        rows.append(("read a record from the disk (not CPU)", f"{parts.cold:.3f}", ""))
    return Table(head=("work", "CPU ms", "share"), rows=rows, right=frozenset({1, 2}))
