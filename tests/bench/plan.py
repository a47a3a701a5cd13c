"""What planning takes, by the number of images: memory, time and disk, up to 20 million.

``python -m tests.bench.plan 1 2 5 10 20`` plans so many million made-up images, each number in a
process of its own, by the code that `write` has between listing files and reading them: items are
sorted by key, the sizes of records told, splits drawn, copies found, records ordered and cut into
shards, and a digest and a report made of all. Only the files, and looking at them, are made up.
With ``--chart FILE`` that is drawn; ``--from FILE`` takes lines that ``--once`` has printed before.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.photos import image_bytes
from tests.writing.test_plan import make_options
from tfrtool.images.charts import Lines, draw_charts
from tfrtool.images.recipe import Check, ImageRecipe
from tfrtool.sources.folders.class_layout import LabelFrom, arrange
from tfrtool.sources.folders.listing import Entry, Listing
from tfrtool.sources.items import Item
from tfrtool.writing.image_account import ImageAccount
from tfrtool.writing.image_findings import SourceFindings
from tfrtool.writing.image_records import Finding, RecordMaker
from tfrtool.writing.job_report import ShardReport
from tfrtool.writing.record_sizes import RecordSizes
from tfrtool.writing.write_plan import plan_shards
from tfrtool.writing.write_report import report_on

__all__ = ["measure", "run"]

_CLASSES = 1000
_WORD = 2**64


def _entries(count: int) -> Iterator[Entry]:
    """Yield made-up files, in no order, of 20 to 110 kB."""
    for number in range(count):
        mixed = number * 2654435761 % 2**32
        label = f"n{mixed % _CLASSES:08d}"
        yield Entry(f"{label}/{label}_{number:010d}.JPEG", 20_000 + mixed % 90_000)


def _findings(count: int) -> Iterator[Finding]:
    """Yield what looking at images might find: 1 % are copies, 0.1 % bad, 2 % converted."""
    for at in range(count):
        digest = (at if at % 100 else at // 200) * 0x9E3779B97F4A7C15 % _WORD or 1
        if at % 1000 == 7:
            yield Finding(0, format="JPEG", problem=f"cut after {at % 777} bytes")
        elif at % 50 == 7:
            yield Finding(digest, format="PNG", conversion="it is a PNG")
        else:
            yield Finding(digest)


@dataclass(frozen=True)
class MadeUp:
    """Reads images that are not there: a JPEG, and zeros behind it."""

    image: bytes

    def read(self, item: Item) -> bytes:
        return self.image + bytes(item.bytes - len(self.image))

    def describe(self, item: Item) -> str:
        return item.key


class Peaks:
    """Looks again and again at what this process takes: MiB of memory, bytes on the disk."""

    def __init__(self) -> None:
        self.anonymous = self.disk = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            self.anonymous = max(self.anonymous, _status("RssAnon"))
            size = 0
            for one in Path("/proc/self/fd").iterdir():
                with contextlib.suppress(OSError):
                    own = "(deleted)" in str(one.readlink()) or "rows-" in str(one.readlink())
                    size += 512 * one.stat().st_blocks if own else 0
            self.disk = max(self.disk, size)


def _status(name: str) -> int:
    """Return what the kernel says of this process's memory, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) // 1024


def measure(count: int) -> dict[str, Any]:
    """Plan so many images; return seconds, memory in MiB, bytes on the disk, and the plan."""
    laps: dict[str, float] = {}
    start, last = time.perf_counter(), time.process_time()
    base = _status("VmHWM")

    def lap(name: str) -> None:
        nonlocal last
        now = time.process_time()
        laps[name], last = round((now - last) / count * 1e6, 2), now

    peaks = Peaks()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        listing = Listing(_entries(count), MadeUp(image_bytes()))
        source = arrange(listing, LabelFrom.FOLDER, "/photos", scratch)
        lap("list and sort")
        options = make_options(
            shards=None,
            splits={"train": 0.9, "validation": 0.1},
            shard_bytes=128 * 2**20,
            recipe=ImageRecipe(check=Check.HEADER),
        )
        maker = RecordMaker(source, options.recipe)
        sizes = RecordSizes(source.items, maker, 1)
        lap("sizes")
        findings = SourceFindings(count, scratch)
        for finding in _findings(count):
            findings.add(finding)
        lap("(made-up findings)")
        planned, plan = plan_shards(source, options, maker, findings, sizes, scratch)
        lap("plan")
        shards: dict[str, list[ShardReport]] = {name: [] for name in options.splits}
        images = {name: ImageAccount() for name in options.splits}
        for shard in planned:
            shards[shard.name.split].append(ShardReport(str(shard.name), len(shard.images), 1))
            for image in shard.images:
                images[shard.name.split].add(image.item, image.finding or Finding(0), maker)
        found = findings.shared(source, maker)
        report_on(source, options, shards, images, ImageAccount(), found, duplicates=0)
        lap("account and report")
    peaks.stop()
    return {
        "images": count,
        "seconds": round(time.perf_counter() - start, 1),
        "microseconds": round(sum(laps.values()), 2),
        "laps": laps,
        "base": base,
        "memory": _status("VmHWM"),
        "anonymous": peaks.anonymous,
        "disk": peaks.disk,
        "shards": len(planned),
        "plan": plan,
    }


def run(
    _: Path, millions: Sequence[float] = (0.1, 1, 2), chart: Path | None = None
) -> Iterator[str]:
    """Yield a line for each number of images."""
    found = []
    for one in millions:
        words = [sys.executable, "-m", "tests.bench.plan", "--once", str(int(one * 1e6))]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        found.append(told := json.loads(done.stdout))
        yield (
            f"{told['images']:>12,} images  {told['seconds']:7.1f} s, "
            f"{told['microseconds']:6.2f} us of CPU each; peak memory {told['memory']} MiB, "
            f"anonymous {told['anonymous']} (before it began {told['base']}); "
            f"{told['disk'] / 1e6:,.0f} MB on the disk; {told['shards']:,} shards, "
            f"plan {told['plan'][:8]}"
        )
        yield "             of them: " + ", ".join(f"{k} {v}" for k, v in told["laps"].items())
    rise = found[-1]["microseconds"] / found[0]["microseconds"]
    yield f"CPU an image, the last against the first: {rise:.2f}"
    if chart is not None:
        chart.write_bytes(_drawn(found))


def _drawn(found: Sequence[dict[str, Any]]) -> bytes:
    """Draw memory and time by millions of images, straight lines between those measured."""
    steps = [one["images"] // 10**6 for one in found]

    def line(name: str) -> list[float | None]:
        values: dict[int, float] = dict(zip(steps, (one[name] for one in found), strict=True))
        return [values.get(step) for step in range(1, max(steps) + 1)]

    charts: dict[str, Lines] = {
        "memory, MiB": {"peak": line("memory"), "of it not mapped": line("anonymous")},
        "CPU an image, us": {"planning": line("microseconds")},
    }
    return draw_charts(charts, "million images")


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("millions", nargs="*", type=float, default=(1, 2, 5, 10, 20))
    parser.add_argument("--once", type=int)
    parser.add_argument("--chart", type=Path)
    parser.add_argument("--from", type=Path, dest="told")
    told = parser.parse_args()
    if told.once:
        print(json.dumps(measure(told.once)))
        return
    if told.told and told.chart:
        found = [json.loads(line) for line in told.told.read_text().splitlines()]
        told.chart.write_bytes(_drawn(sorted(found, key=lambda one: int(one["images"]))))
        return
    for text in run(Path(), told.millions, told.chart):
        print(text, flush=True)


if __name__ == "__main__":
    main()
