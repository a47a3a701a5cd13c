"""What the benchmark of a loader found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tfrtool.loading.bench.bench_tasks import BenchStage, PartsRun, StageRun
from tfrtool.loading.bench.bench_verdict import Verdict

__all__ = ["BenchReport", "Epochs", "Spread", "StageReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Measurements of one thing.

    Attributes:
        median: of them.
        least: the smallest.
        most: the largest.
    """

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Sum up one measurement or more."""
        return cls(median=median(values), least=min(values), most=max(values))

    def to_json(self) -> dict[str, float]:
        """Return it as JSON."""
        return {"median": self.median, "min": self.least, "max": self.most}


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """The first epochs of some rounds, or the later ones.

    Attributes:
        seconds: of an epoch on the wall, until its iterator is gone.
        images_per_second: likewise.
        cpu_ms: CPU milliseconds of an image.
        system_ms: how many of them the kernel took.
        first_batch: seconds until the first batch.
        ending: seconds from the last batch until the iterator is gone.
        idle: how many cores had nothing to do, the median; None where that can't be told.
    """

    seconds: Spread
    images_per_second: Spread
    cpu_ms: Spread
    system_ms: Spread
    first_batch: Spread
    ending: Spread
    idle: float | None

    @classmethod
    def of(cls, runs: Sequence[StageRun], *, first: bool) -> Epochs:
        """Sum up the first epochs of some runs, or all the others."""
        images = runs[0].images
        epochs = [epoch for run in runs for epoch in (run.epochs[:1] if first else run.epochs[1:])]
        idle = [epoch.idle for epoch in epochs if epoch.idle is not None]
        return cls(
            seconds=Spread.of([epoch.whole.seconds for epoch in epochs]),
            images_per_second=Spread.of([images / epoch.whole.seconds for epoch in epochs]),
            cpu_ms=Spread.of([epoch.whole.cpu / images * 1e3 for epoch in epochs]),
            system_ms=Spread.of([epoch.whole.system / images * 1e3 for epoch in epochs]),
            first_batch=Spread.of([epoch.first_batch for epoch in epochs]),
            ending=Spread.of([epoch.ending for epoch in epochs]),
            idle=median(idle) if idle else None,
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "seconds": self.seconds.to_json(),
            "images_per_second": self.images_per_second.to_json(),
            "cpu_ms_per_image": self.cpu_ms.to_json(),
            "system_ms_per_image": self.system_ms.to_json(),
            "first_batch_seconds": self.first_batch.to_json(),
            "ending_seconds": self.ending.to_json(),
            "idle_cores": self.idle,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """A pipeline, measured; or why it was not.

    Attributes:
        stage: which one.
        first: its first epochs; None if it was left out.
        later: its later epochs; likewise.
        memory: by how much a process grew at its largest, in bytes; 0 if left out.
        left_out: why it was not measured, if so.
    """

    stage: BenchStage
    first: Epochs | None = None
    later: Epochs | None = None
    memory: int = 0
    left_out: str | None = None

    @classmethod
    def of(cls, stage: BenchStage, runs: Sequence[StageRun]) -> StageReport:
        """Sum up the runs of a pipeline."""
        return cls(
            stage=stage,
            first=Epochs.of(runs, first=True),
            later=Epochs.of(runs, first=False),
            memory=round(median(run.memory for run in runs)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "stage": self.stage.value,
            "first_epoch": None if self.first is None else self.first.to_json(),
            "later_epochs": None if self.later is None else self.later.to_json(),
            "memory_bytes": self.memory if self.left_out is None else None,
            "left_out": self.left_out,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """What the benchmark of a loader found.

    Attributes:
        stages: the pipelines, in the order of `BenchStage`.
        parts: the work on a record, piece by piece.
        verdict: what limits our pipeline.
        images: how many an epoch had.
        total_images: how many the split has.
        shards: how many shards were read.
        image_size: in pixels, both ways.
        batch_size: images in a batch.
        cache: where ours kept images: memory, disk or none.
        cores: how many this process may use.
        rounds: how often each pipeline was measured.
    """

    stages: tuple[StageReport, ...]
    parts: PartsRun
    verdict: Verdict
    images: int
    total_images: int
    shards: int
    image_size: int
    batch_size: int
    cache: str
    cores: int
    rounds: int

    def stage(self, stage: BenchStage) -> StageReport:
        """Return what was found of a pipeline."""
        return next(report for report in self.stages if report.stage is stage)

    def speedup(self, other: BenchStage) -> tuple[float, float] | None:
        """Return by how much our images a second are more than another pipeline's.

        Returns:
            The ratio in a first epoch and that in later ones; None if it was not measured.
        """
        ours, theirs = self.stage(BenchStage.TFRTOOL), self.stage(other)
        if ours.first is None or ours.later is None or theirs.first is None or theirs.later is None:
            return None
        return (
            ours.first.images_per_second.median / theirs.first.images_per_second.median,
            ours.later.images_per_second.median / theirs.later.images_per_second.median,
        )

    def to_json(self) -> dict[str, Any]:
        """Return all but the stages, which have JSON of their own."""
        parts = self.parts
        return {
            "bottleneck": self.verdict.bottleneck.value,
            "sentence": self.verdict.sentence,
            "notes": list(self.verdict.notes),
            "speedup": {
                other.value: None
                if (speedup := self.speedup(other)) is None
                else dict(zip(("first_epoch", "later_epochs"), speedup, strict=True))
                for other in (BenchStage.NAIVE, BenchStage.PREFETCH)
            },
            "parts_cpu_ms_per_image": {
                "reading": parts.reading * 1e3,
                "parsing": parts.parsing * 1e3,
                "decoding": parts.decoding * 1e3,
                "resizing": parts.resizing * 1e3,
            },
            "raw_cpu_ms_per_image": None if parts.raw is None else parts.raw * 1e3,
            "cold_read_ms_per_image": None if parts.cold is None else parts.cold * 1e3,
            "images": self.images,
            "total_images": self.total_images,
            "shards": self.shards,
            "image_size": self.image_size,
            "batch_size": self.batch_size,
            "cache": self.cache,
            "cores": self.cores,
            "rounds": self.rounds,
        }
