"""What limits a loader, told from measurements alone, and which option would help."""

from __future__ import annotations

from dataclasses import replace

from tfrtool.loading.bench.bench_report import BenchReport, Numbers, medians

__all__ = ["judge"]

_MOSTLY = 0.5
_OTHERS = 0.25
_STALL_PART, _STALL_SECONDS = 0.05, 0.1

_SMALLER = "--resize {size} of tfrtool write leaves fewer pixels to work on"
_HELP = {
    "reading": "records hold far more than the images that come out of them, and --resize {size} "
    "of tfrtool write makes them smaller",
    "inflating": "shards of tfrtool write --compression none need no inflating",
    "parsing": "records are small, and in Python, load(batched_parse=N) parses N of them at a time",
    "decoding": _SMALLER,
    "resizing": _SMALLER,
    "storing": "images are copied into the cache and into batches, whose memory the system clears "
    "first, and only a smaller --image-size needs less of it",
    "batching": "images are copied from thread to thread and into batches, and only a smaller "
    "--image-size, or keeping them (--cache of tfrtool train), needs less of it",
    "waiting": "{idle:.1f} of {cores} cores had nothing to do, and the disk is fast enough; ",
}
_RAW = (
    "up to there, records of tfrtool write --encode raw --resize {size}x{size} took "
    "{ratio:.1f} times less CPU time ({measured:,} measured)"
)
_ONE_SHARD = "there is one shard to read from, and tfrtool write --shards makes more"
_MORE_AT_ONCE = "--parallel-calls and --cycle-length of tfrtool train let more be done at a time"


def judge(report: BenchReport, *, compressed: bool) -> BenchReport:
    """Return a report with what limits the first epoch of our pipeline, which was measured.

    It is ``starting`` where the data are over before a pipeline is at work; ``disk`` where records
    come from it more slowly than they could be taken; else the largest part of the cores' time:
    ``reading`` (or ``inflating``, where shards are compressed), ``parsing``, ``decoding``,
    ``resizing``; ``storing`` or ``batching``, which is all that is done with images from then on,
    with and without a cache; or ``waiting``, where cores are idle, but not for the disk.
    """
    first = medians(report.stage("tfrtool").first)
    bottleneck, sentence = _before_work(report, first) or _largest(report, first, compressed)
    notes = tuple(_notes(report, first))
    return replace(report, bottleneck=bottleneck, sentence=sentence, notes=notes)


def _before_work(report: BenchReport, first: Numbers) -> tuple[str, str] | None:
    """Tell whether something keeps the pipeline from being at work at all."""
    seconds, cold = first["seconds"], report.parts.cold
    if cold is not None and cold > seconds / report.images * 1e3:
        return "disk", (
            f"The disk is the bottleneck of a first epoch: it gives {1e3 / cold:,.0f} images a "
            f"second, and the loader could take {report.images / seconds:,.0f}; smaller records "
            f"help (tfrtool write --encode jpeg --resize {report.image_size}), or a faster disk."
        )
    naive = report.stage("naive")
    if not naive.first:
        return None
    a_batch = min(report.batch_size / report.images, 1) * min(e["seconds"] for e in naive.later)
    starting = medians(naive.first)["first_batch_seconds"] - a_batch
    if starting <= _MOSTLY * seconds:
        return None
    return "starting", (
        f"Starting is the bottleneck: a first epoch takes {seconds:.2f} s, and any pipeline "
        f"{starting:.2f} s to begin; {report.images:,} images are too few for any option to matter."
    )


def _largest(report: BenchReport, first: Numbers, compressed: bool) -> tuple[str, str]:
    """Tell what most of the cores' time in the first epoch was for."""
    parts, idle = report.parts, first.get("idle_cores")
    whole = sum(parts.cpu.values())
    costs = {("inflating" if compressed else "reading"): parts.cpu["reading"], **parts.cpu}
    if compressed:
        del costs["reading"]
    rest = max(first["cpu_ms_per_image"] - whole, 0.0)
    costs["batching" if report.cache == "none" else "storing"] = rest
    if idle is not None:
        costs["waiting"] = max(idle, 0.0) * first["seconds"] / report.images * 1e3
    bottleneck = max(costs, key=lambda name: costs[name])
    shares = {name: f"{cost / sum(costs.values()):.0%}" for name, cost in costs.items()}
    helps = _HELP[bottleneck]
    if bottleneck == "waiting":
        helps += _ONE_SHARD if report.shards == 1 else _MORE_AT_ONCE
    elif helps == _SMALLER and parts.raw is not None and parts.raw < whole:
        helps = _RAW
    helps = helps.format(
        size=report.image_size,
        ratio=whole / (parts.raw or 1),
        measured=parts.images,
        idle=idle,
        cores=report.cores,
    )
    told = ", ".join(f"{name} {share}" for name, share in shares.items())
    return bottleneck, (
        f"{bottleneck.capitalize()} is the bottleneck, {shares[bottleneck]} of the cores' time in "
        f"a first epoch ({told}): {helps}."
    )


def _notes(report: BenchReport, first: Numbers) -> list[str]:
    notes = []
    cpu, seconds = first["cpu_ms_per_image"], first["seconds"]
    later_cpu = medians(report.stage("tfrtool").later)["cpu_ms_per_image"]
    if report.cache != "none" and later_cpu < cpu:
        times = f"{cpu / later_cpu:,.0f} times less CPU time"
        notes.append(f"Later epochs come from the cache, with {times}.")
    if first["first_batch_seconds"] > _MOSTLY * seconds:
        notes.append(
            f"The first batch of a first epoch came after {first['first_batch_seconds']:.1f} of "
            f"{seconds:.1f} s, once there was enough to draw from; tfrtool train with a smaller "
            "--shuffle-buffer starts sooner."
        )
    if report.shards == 1:
        notes.append("There is one shard, and so nothing to interleave.")
    published = report.stage("prefetch")
    epochs = [medians(some) for some in (published.first, published.later) if some]
    longest = max(epochs, key=lambda epoch: epoch["ending_seconds"], default=None)
    if longest is not None:
        stall, epoch = longest["ending_seconds"], longest["seconds"]
        if stall > max(_STALL_SECONDS, _STALL_PART * epoch):
            notes.append(
                f"The published pipeline stood still for {stall:.1f} s after the last batch of "
                f"an epoch of {epoch:.1f} s: its tuner sleeps. Ours has none."
            )
    busy = cpu / 1e3 * report.images / seconds
    others = report.cores - first.get("idle_cores", report.cores) - busy
    if others > _OTHERS * report.cores:
        notes.append(
            f"Other programs kept {others:.1f} of {report.cores} cores busy: CPU times say more "
            "than rates."
        )
    return notes
