"""What limits a loader, told from measurements alone, and which option would help."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tfrtool.loading.bench.bench_tasks import PartsRun

__all__ = ["Bottleneck", "Measured", "Verdict", "judge"]

_MOSTLY = 0.5
_OTHERS = 0.25
_STALL_PART, _STALL_SECONDS = 0.05, 0.1


class Bottleneck(enum.Enum):
    """What limits a loader; the values are those of the JSON output.

    STARTING: the data are over before the pipeline is at work. DISK: records come from the disk
    more slowly than the pipeline could take them. The others are the largest part of the cores'
    time in a first epoch. WAITING: cores are idle, but not for the disk. STORING and BATCHING are
    all that is done with images once they are decoded and resized: copying them from thread to
    thread, into the cache where there is one, and into batches.
    """

    STARTING = "starting"
    DISK = "disk"
    WAITING = "waiting"
    READING = "reading"
    INFLATING = "inflating"
    PARSING = "parsing"
    DECODING = "decoding"
    RESIZING = "resizing"
    STORING = "storing"
    BATCHING = "batching"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What is known of our pipeline, of the published one, and of the data.

    Attributes:
        parts: the work on a record, piece by piece.
        images: in an epoch.
        first_seconds: of our first epoch.
        first_cpu: CPU seconds of an image in it.
        first_batch: seconds until its first batch.
        starting: seconds that the naive pipeline took before it was at work; None if unknown.
        idle: how many cores nobody used in our first epoch; None if unknown.
        later_cpu: CPU seconds of an image in our later epochs.
        cached: whether those come from a cache.
        stall: the largest part that the end of an epoch had of the notebook's epochs, in seconds;
            None if it was not measured.
        stalled_epoch: the seconds of that epoch.
        cores: how many there are.
        shards: how many were read.
        compressed: whether they are.
        image_size: in pixels, both ways.
    """

    parts: PartsRun
    images: int
    first_seconds: float
    first_cpu: float
    first_batch: float
    starting: float | None
    idle: float | None
    later_cpu: float
    cached: bool
    stall: float | None
    stalled_epoch: float | None
    cores: int
    shards: int
    compressed: bool
    image_size: int

    @property
    def busy(self) -> float:
        """How many cores our first epoch kept busy."""
        return self.first_cpu * self.images / self.first_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What limits a loader.

    Attributes:
        bottleneck: what it is.
        sentence: that, and which option would help, for people.
        notes: what else there is to say, a sentence each.
    """

    bottleneck: Bottleneck
    sentence: str
    notes: tuple[str, ...] = ()


def judge(measured: Measured) -> Verdict:
    """Tell what limits the first epoch of our pipeline."""
    bottleneck, sentence = _before_work(measured) or _largest(measured)
    return Verdict(bottleneck=bottleneck, sentence=sentence, notes=tuple(_notes(measured)))


def _before_work(found: Measured) -> tuple[Bottleneck, str] | None:
    """Tell whether something keeps the pipeline from being at work at all."""
    per_image = found.first_seconds / found.images
    cold = found.parts.cold
    if cold is not None and cold > per_image:
        return Bottleneck.DISK, (
            f"The disk is the bottleneck of a first epoch: it gives {1 / cold:,.0f} images a "
            f"second, and the loader could take {1 / per_image:,.0f}; smaller records help "
            f"(tfrtool write --encode jpeg --resize {found.image_size}), or a faster disk."
        )
    if found.starting is not None and found.starting > _MOSTLY * found.first_seconds:
        return Bottleneck.STARTING, (
            f"Starting is the bottleneck: a first epoch takes {found.first_seconds:.2f} s, and "
            f"any pipeline {found.starting:.2f} s to begin; {found.images:,} images are too few "
            "for any option to matter."
        )
    return None


def _costs(found: Measured) -> dict[Bottleneck, float]:
    """Return what the cores' time in the first epoch was for, in seconds of an image."""
    parts = found.parts
    costs = {
        Bottleneck.INFLATING if found.compressed else Bottleneck.READING: parts.reading,
        Bottleneck.PARSING: parts.parsing,
        Bottleneck.DECODING: parts.decoding,
        Bottleneck.RESIZING: parts.resizing,
        Bottleneck.STORING if found.cached else Bottleneck.BATCHING: max(
            found.first_cpu - parts.whole, 0.0
        ),
    }
    if found.idle is not None:
        costs[Bottleneck.WAITING] = max(found.idle, 0.0) * found.first_seconds / found.images
    return costs


def _largest(found: Measured) -> tuple[Bottleneck, str]:
    """Tell what most of the cores' time in the first epoch was for."""
    costs = _costs(found)
    whole = sum(costs.values())
    bottleneck = max(costs, key=lambda name: costs[name])
    shares = ", ".join(f"{name.value} {cost / whole:.0%}" for name, cost in costs.items())
    return bottleneck, (
        f"{bottleneck.value.capitalize()} is the bottleneck, {costs[bottleneck] / whole:.0%} of "
        f"the cores' time in a first epoch ({shares}): {_help(bottleneck, found)}."
    )


def _help(bottleneck: Bottleneck, found: Measured) -> str:
    """Return the option that would help, with what it was measured to bring."""
    size, parts = found.image_size, found.parts
    fewer = f"--resize {size} of tfrtool write leaves fewer pixels to work on"
    if parts.raw is not None and parts.raw < parts.whole:
        fewer = (
            f"up to there, records of tfrtool write --encode raw --resize {size}x{size} took "
            f"{parts.whole / parts.raw:.1f} times less CPU time ({parts.images:,} measured)"
        )
    idle = (
        "" if found.idle is None else f"{found.idle:.1f} of {found.cores} cores had nothing to do"
    )
    return {
        Bottleneck.READING: "records hold far more than the images that come out of them, and "
        f"--resize {size} of tfrtool write makes them smaller",
        Bottleneck.INFLATING: "shards of tfrtool write --compression none need no inflating",
        Bottleneck.PARSING: "records are small, and in Python, LoadOptions(batched_parse=N) parses "
        "N of them at a time",
        Bottleneck.DECODING: fewer,
        Bottleneck.RESIZING: fewer,
        Bottleneck.STORING: "images are copied into the cache and into batches, whose memory the "
        "system clears first, and only a smaller --image-size needs less of it",
        Bottleneck.BATCHING: "images are copied from thread to thread and into batches, and only a "
        "smaller --image-size, or keeping them (--cache of tfrtool train), needs less of it",
        Bottleneck.WAITING: f"{idle}, and the disk is fast enough; "
        + (
            "there is one shard to read from, and tfrtool write --shards makes more"
            if found.shards == 1
            else "--parallel-calls and --cycle-length of tfrtool train let more be done at a time"
        ),
    }[bottleneck]


def _notes(found: Measured) -> list[str]:
    notes = []
    if found.cached and found.later_cpu < found.first_cpu:
        notes.append(
            f"Later epochs come from the cache, with {found.first_cpu / found.later_cpu:,.0f} "
            "times less CPU time."
        )
    if found.first_batch > _MOSTLY * found.first_seconds:
        notes.append(
            f"The first batch of a first epoch came after {found.first_batch:.1f} of "
            f"{found.first_seconds:.1f} s, once there was enough to draw from; tfrtool train "
            "with a smaller --shuffle-buffer starts sooner."
        )
    if found.shards == 1:
        notes.append("There is one shard, and so nothing to interleave.")
    if (
        found.stall is not None
        and found.stalled_epoch is not None
        and found.stall > max(_STALL_SECONDS, _STALL_PART * found.stalled_epoch)
    ):
        notes.append(
            f"The published pipeline stood still for {found.stall:.1f} s after the last batch of "
            f"an epoch of {found.stalled_epoch:.1f} s: its tuner sleeps. Ours has none."
        )
    others = 0.0 if found.idle is None else found.cores - found.idle - found.busy
    if others > _OTHERS * found.cores:
        notes.append(
            f"Other programs kept {others:.1f} of {found.cores} cores busy: CPU times say more "
            "than rates."
        )
    return notes
