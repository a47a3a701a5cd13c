"""What limits a loader, told from measurements alone, and which option would help."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tfrtool.loading.bench_tasks import PartsRun

__all__ = ["Bottleneck", "Measured", "Verdict", "judge"]

_MOSTLY = 0.5
_OTHERS = 0.25
_STALL_PART, _STALL_SECONDS = 0.05, 0.1


class Bottleneck(enum.Enum):
    """What limits a loader; the values are those of the JSON output.

    STARTING: the data are over before the pipeline is at work. DISK: records come from the disk
    more slowly than the pipeline could take them. WAITING: cores are idle, but not for the disk.
    The others are the largest part of the first epoch's CPU time. DECODING is resizing, too: the
    same option saves both. BATCHING is what comes after
    the cache. The last two are no work on a record: MEMORY is the kernel's, mostly giving out
    fresh pages, and HANDING_OVER that of threads and queues.
    """

    STARTING = "starting"
    DISK = "disk"
    WAITING = "waiting"
    READING = "reading"
    INFLATING = "inflating"
    PARSING = "parsing"
    DECODING = "decoding"
    BATCHING = "batching"
    MEMORY = "fresh memory"
    HANDING_OVER = "handing over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What is known of our pipeline, of the published one, and of the data.

    Attributes:
        parts: the work on a record, piece by piece.
        images: in an epoch.
        first_seconds: of our first epoch.
        first_cpu: CPU seconds of an image in it.
        first_system: how many of them the kernel took.
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
    first_system: float
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
    bottleneck, sentence = _waiting(measured) or _working(measured)
    return Verdict(bottleneck=bottleneck, sentence=sentence, notes=tuple(_notes(measured)))


def _waiting(found: Measured) -> tuple[Bottleneck, str] | None:
    """Tell whether the first epoch waits rather than works."""
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
    if found.idle is not None and found.idle > _MOSTLY * found.cores:
        why = (
            "there is one shard to read from, and tfrtool write --shards makes more"
            if found.shards == 1
            else "--parallel-calls and --cycle-length of tfrtool train let more be done at a time"
        )
        return Bottleneck.WAITING, (
            f"Waiting is the bottleneck: {found.idle:.1f} of {found.cores} cores had nothing to "
            f"do in a first epoch, and the disk is fast enough; {why}."
        )
    return None


def _working(found: Measured) -> tuple[Bottleneck, str]:
    """Tell what the first epoch's CPU time is for."""
    parts = found.parts
    costs = {
        Bottleneck.INFLATING if found.compressed else Bottleneck.READING: parts.reading,
        Bottleneck.PARSING: parts.parsing,
        Bottleneck.DECODING: parts.decoding + parts.resizing,
    }
    if found.cached:
        costs[Bottleneck.BATCHING] = found.later_cpu
    whole = max(found.first_cpu, sum(costs.values()))
    rest = whole - sum(costs.values())
    # The kernel also reads: that is counted already.
    costs[Bottleneck.MEMORY] = min(rest, max(found.first_system - parts.reading, 0))
    costs[Bottleneck.HANDING_OVER] = rest - costs[Bottleneck.MEMORY]
    bottleneck = max(costs, key=lambda name: costs[name])
    what = f"{bottleneck.value.capitalize()} is"
    if bottleneck is Bottleneck.DECODING:
        what = "Decoding and resizing are"
    share = f"{costs[bottleneck] / whole:.0%} of the CPU time of a first epoch"
    return bottleneck, f"{what} the bottleneck, {share}: {_help(bottleneck, found)}."


def _help(bottleneck: Bottleneck, found: Measured) -> str:
    """Return the option that would help, with what it was measured to bring."""
    size, parts = found.image_size, found.parts
    if bottleneck is Bottleneck.DECODING:
        encode = f"tfrtool write --encode raw --resize {size}x{size}"
        if parts.raw is None or parts.raw >= parts.whole:
            return f"--resize {size} of tfrtool write leaves fewer pixels to work on"
        return (
            f"records of {encode} came to the cache with {parts.whole / parts.raw:.1f} times less "
            f"CPU time ({parts.images:,} measured)"
        )
    return {
        Bottleneck.READING: "records hold far more than the images that come out of them, and "
        f"--resize {size} of tfrtool write makes them smaller",
        Bottleneck.INFLATING: "shards written with --compression none need no inflating",
        Bottleneck.PARSING: "records are small, and in Python, LoadOptions(batched_parse=N) parses "
        "N of them at a time",
        Bottleneck.BATCHING: "copying and rescaling are all that is left, and take less only with "
        "a smaller --image-size",
        Bottleneck.MEMORY: "that is the kernel at work, which clears each page of the cache and of "
        "the batches before it is used, and only a smaller --image-size needs fewer",
        Bottleneck.HANDING_OVER: "handing images from thread to thread costs more than the work "
        "on them, and in Python, LoadOptions(batched_parse=N) hands over fewer",
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
