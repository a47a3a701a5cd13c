"""What a benchmark of a loader found, as text."""

from __future__ import annotations

from textwrap import wrap

from tfrtool.cli.output import human_bytes, human_count
from tfrtool.cli.render.page import Facts, Heading, Lines, Page, Table
from tfrtool.loading.bench.bench import BenchReport, StageReport

__all__ = ["render_bench"]

_HEAD = ("1st images/s", "CPU ms", "later images/s", "CPU ms", "memory")


def render_bench(report: BenchReport) -> Page:
    """Return what is shown to people."""
    images = human_count(report.images, "image")
    if report.images < report.total_images:
        images = f"{report.images:,} of {human_count(report.total_images, 'image')}"
    left_out = [f"{_name(s)} was left out: {s.left_out}" for s in report.stages if s.left_out]
    return [
        Heading(f"Loading {images} from {human_count(report.shards, 'shard')}"),
        Facts(
            [
                ("images", f"{report.image_size} px"),
                ("cores", str(report.cores)),
                ("cache", f"ours: {report.cache}; the published one: float32 in memory"),
            ]
        ),
        Table(
            head=("stage", *_HEAD),
            rows=[(_name(stage), *_cells(stage)) for stage in report.stages],
            right=frozenset(range(1, 1 + len(_HEAD))),
        ),
        *([Lines(left_out)] if left_out else []),
        Lines(wrap(report.sentence, 96)),
    ]


def _name(stage: StageReport) -> str:
    return stage.stage if stage.stage in ("naive", "tfrtool") else f"+ {stage.stage}"


def _cells(stage: StageReport) -> list[str]:
    first, later = stage.first_epoch, stage.later_epochs
    if first is None or later is None:
        return ["-"] * len(_HEAD)
    return [
        f"{first['images_per_second']:,.0f}",
        f"{first['cpu_ms_per_image']:.2f}",
        f"{later['images_per_second']:,.0f}",
        f"{later['cpu_ms_per_image']:.3f}",
        human_bytes(stage.memory_bytes or 0),
    ]
