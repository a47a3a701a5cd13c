"""What the plan of a write takes, by the number of images: memory, CPU time and disk.

``python -m tests.bench plan`` plans one million images, ``python -m tests.bench.plan 5 20`` as many
millions, each in its own process. It is ``write --dry-run`` of a folder with two splits, but the
files and what is found in them are made up: 1 % are copies, 0.1 % are bad, 2 % are converted.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.photos import image_bytes
from tfrtool.sources.folders.class_layout import arrange
from tfrtool.sources.folders.listing import Entry, Listing
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Item, Source

__all__ = ["run"]

_CLASSES = 1000


@dataclass(frozen=True)
class _MadeUp:
    """Reads images that are not there: a JPEG, and zeros after it."""

    image: bytes

    def read(self, item: Item) -> bytes:
        return self.image + bytes(item.bytes - len(self.image))

    def describe(self, item: Item) -> str:
        return item.key


def _entries(count: int) -> Iterator[Entry]:
    """Yield made-up files, in no order, of 20 to 110 kB."""
    for number in range(count):
        mixed = number * 2654435761 % 2**32
        label = f"n{mixed % _CLASSES:08d}"
        yield Entry(f"{label}/{label}_{number:010d}.JPEG", 20_000 + mixed % 90_000, number)


def _found(source: Source, *_: Any) -> Any:
    """Return what a check of made-up images might find."""
    from tfrtool.writing.image_findings import SourceFindings
    from tfrtool.writing.image_task import Finding

    scratch = next((one for one in _ if isinstance(one, Path)), None)
    findings = SourceFindings(len(source.items), scratch)
    for at in range(len(source.items)):
        digest = (at if at % 100 else at // 200) * 0x9E3779B97F4A7C15 % 2**64 or 1
        if at % 1000 == 7:
            findings.add(at, Finding(0, problem="truncated"))
        elif at % 50 == 7:
            findings.add(at, Finding(digest, format="PNG", conversion="a PNG"))
        else:
            findings.add(at, Finding(digest))
    return findings


def _measure(count: int) -> None:
    """Plan so many images in this process, and print what it took."""
    disk, done = 0, threading.Event()

    def watch() -> None:
        nonlocal disk
        while not done.wait(0.2):
            size = 0
            for one in Path("/proc/self/fd").iterdir():
                with suppress(OSError):
                    size += 512 * one.stat().st_blocks if "(deleted)" in str(one.readlink()) else 0
            disk = max(disk, size)

    reader = _MadeUp(image_bytes())
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)

        def opened(*_: Any, **__: Any) -> Source:
            return arrange(Listing(_entries(count), reader), LabelFrom.FOLDER, "/made-up", scratch)

        patch.setattr("tfrtool.writing.write.open_source", opened)
        patch.setattr("tfrtool.writing.write.check_all", _found)
        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        start = time.perf_counter()
        report = tfrtool.write(
            "/made-up",
            scratch / "out",
            splits={"train": 0.9, "test": 0.1},
            stratify="stratify" in sys.argv,
            dry_run=True,
            name="made_up",
            check="header",
            workers=1,
        )
        seconds = time.perf_counter() - start
        done.set()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    shards = sum(len(split.shards) for split in report.splits.values())
    print(
        f"{count:>11,} images: peak memory {usage.ru_maxrss / 1024:,.0f} MiB, "
        f"{(usage.ru_utime + usage.ru_stime) / count * 1e6:.1f} us of CPU each, {seconds:.0f} s, "
        f"{disk / 1e6:,.0f} MB on disk, {shards:,} shards"
    )


def run(_: Path, millions: tuple[float, ...] = (1,)) -> Iterator[str]:
    """Yield a line for each number of images."""
    for one in millions:
        command = [sys.executable, "-m", "tests.bench.plan", "--once", str(int(one * 1e6))]
        command += ["stratify"] if "stratify" in sys.argv else []
        yield subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ}
        ).stdout.rstrip()


if __name__ == "__main__":
    if sys.argv[1] == "--once":
        _measure(int(sys.argv[2]))
    else:
        for line in run(Path(), tuple(float(a) for a in sys.argv[1:] if a != "stratify")):
            print(line, flush=True)
