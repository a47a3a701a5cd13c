"""What the benchmark of a loader found."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["STAGES", "BenchReport", "Numbers", "PartsRun", "StageReport", "StageRun", "medians"]

STAGES = ("naive", "interleave", "parallel map", "cache", "prefetch", "tfrtool")
"""The pipelines: each of the published ones has what those before it have, and one thing more;
"prefetch" is the notebooks' whole pipeline, and "tfrtool" is ours."""

Numbers = dict[str, float]
"""What an epoch took, named as in the JSON output, from asking for its iterator until that is gone;
``idle_cores`` is in it where it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """What one process measured of a pipeline.

    Attributes:
        images: in an epoch.
        labels: the sum of an epoch's labels.
        epochs: each of them.
        memory: by how much the process grew at its largest, in bytes.
    """

    images: int
    labels: int
    epochs: tuple[Numbers, ...]
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsRun:
    """What the work on a record takes, piece by piece, with one thread: milliseconds an image.

    Attributes:
        cpu: of CPU, of reading (from the page cache, and inflating), parsing, decoding (at the
            size that images have) and resizing (with rounding, and checking labels).
        raw: all of these where shards hold raw pixels of the right size; None where they do.
        cold: on the wall, of reading once the shards are out of the page cache; None if unknown.
        images: how many were measured.
    """

    cpu: Numbers
    raw: float | None
    cold: float | None
    images: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """A pipeline, measured in all rounds; or why it was not.

    Attributes:
        stage: which one.
        first: its first epochs.
        later: its later ones.
        memory_bytes: by how much a process grew at its largest; None if left out.
        left_out: why it was not measured, if so.
    """

    stage: str
    first: tuple[Numbers, ...] = ()
    later: tuple[Numbers, ...] = ()
    memory_bytes: int | None = None
    left_out: str | None = None

    @classmethod
    def of(cls, stage: str, runs: Sequence[StageRun]) -> StageReport:
        """Sum up the runs of a pipeline."""
        return cls(
            stage=stage,
            first=tuple(run.epochs[0] for run in runs),
            later=tuple(epoch for run in runs for epoch in run.epochs[1:]),
            memory_bytes=round(statistics.median(run.memory for run in runs)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "stage": self.stage,
            "first_epoch": _spread(self.first),
            "later_epochs": _spread(self.later),
            "memory_bytes": self.memory_bytes,
            "left_out": self.left_out,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """What the benchmark of a loader found.

    Attributes:
        stages: the pipelines, in the order of `STAGES`.
        parts: the work on a record, piece by piece.
        images: how many an epoch had.
        total_images: how many the split has.
        shards: how many shards were read.
        image_size: in pixels, both ways.
        batch_size: images in a batch.
        cache: where ours kept images: memory, disk or none.
        cores: how many this process may use.
        rounds: how often each pipeline was measured.
        bottleneck: what limits our pipeline, a word.
        sentence: the same for people, and which option would help.
        notes: what else there is to say, a sentence each.
    """

    stages: tuple[StageReport, ...]
    parts: PartsRun
    images: int
    total_images: int
    shards: int
    image_size: int
    batch_size: int
    cache: str
    cores: int
    rounds: int
    bottleneck: str = ""
    sentence: str = ""
    notes: tuple[str, ...] = ()

    def stage(self, stage: str) -> StageReport:
        """Return what was found of a pipeline."""
        return next(report for report in self.stages if report.stage == stage)

    def speedup(self, other: str) -> dict[str, float] | None:
        """Return our images a second over another pipeline's, in a first epoch and in later ones.

        None if the other was not measured.
        """
        ours, theirs = self.stage("tfrtool"), self.stage(other)
        if not ours.first or not theirs.first:
            return None
        rate = "images_per_second"
        return {
            "first_epoch": medians(ours.first)[rate] / medians(theirs.first)[rate],
            "later_epochs": medians(ours.later)[rate] / medians(theirs.later)[rate],
        }

    def to_json(self) -> list[dict[str, Any]]:
        """Return an object for each stage, and a last one for all else."""
        names = ("images", "total_images", "shards", "image_size", "batch_size")
        last = {
            "bottleneck": self.bottleneck,
            "sentence": self.sentence,
            "notes": list(self.notes),
            "speedup": {other: self.speedup(other) for other in ("naive", "prefetch")},
            "parts_cpu_ms_per_image": self.parts.cpu,
            "raw_cpu_ms_per_image": self.parts.raw,
            "cold_read_ms_per_image": self.parts.cold,
            **{name: getattr(self, name) for name in (*names, "cache", "cores", "rounds")},
        }
        return [*(stage.to_json() for stage in self.stages), last]


def medians(epochs: Sequence[Numbers]) -> Numbers:
    """Return the median of each number of some epochs."""
    names = {name for epoch in epochs for name in epoch}
    return {
        name: statistics.median(epoch[name] for epoch in epochs if name in epoch) for name in names
    }


def _spread(epochs: Sequence[Numbers]) -> dict[str, Any] | None:
    if not epochs:
        return None
    spread = {
        name: {"median": statistics.median(values), "min": min(values), "max": max(values)}
        for name in epochs[0]
        if (values := [epoch[name] for epoch in epochs if name in epoch]) and name != "idle_cores"
    }
    return {**spread, "idle_cores": medians(epochs).get("idle_cores")}
