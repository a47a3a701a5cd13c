"""How time, memory, requests and bytes grow with images, shards and workers.

``python -m tests.bench.costs [images] [shards] [workers] [latency]``. Each is a whole command in a
process of its own; what an item costs is the slope between the smallest and the largest number.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.photographs import make_photographs
from tests.bench.shards import write_shard
from tests.emulators import Bucket, Emulators, Misbehaviour

__all__ = ["run"]

IMAGES = (250, 500, 1000)
SHARDS = (1, 10, 100)
WORKERS = (1, 2)
DELAY = 0.05
"""Seconds: about what stores of this kind take to begin to answer."""


@dataclass(frozen=True)
class Cost:
    """What one command took: seconds, CPU seconds, the largest process's MiB, and traffic."""

    wall: float
    cpu: float
    memory: float
    requests: int = 0
    down: int = 0
    up: int = 0


def measure(words: list[str], home: Path, bucket: Bucket | None = None) -> Cost:
    """Run ``tfrtool`` with these words to its end.

    Raises:
        RuntimeError: it failed.
    """
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        **(bucket.environment if bucket else {}),
    }
    if bucket:
        bucket.forget()
    started = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "tfrtool", *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stderr is not None
        said = running.stderr.read().decode()
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - started
    if running.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {running.returncode}: {said[-500:]}")
    log = bucket.log() if bucket else []
    return Cost(
        wall,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss / 1024,
        len(log),
        sum(entry["down"] for entry in log),
        sum(entry["up"] for entry in log),
    )


_OF_IMAGES = {
    "write": "write {B}/photos{N} {B}/pets{N} --shards 4",
    "verify": "verify {B}/pets{N}",
    "count": "count {B}/pets{N}",
    "inspect shard": "inspect shard {B}/pets{N}/pets{N}-train.tfrecord-00000-of-00004",
    "inspect dataset": "inspect dataset {B}/pets{N}",
    "query": "query {B}/pets{N} SELECT_label",
    "reshard": "reshard {B}/pets{N} {B}/resharded{N} --shards 2",
    "train, 1 epoch": "train {B}/pets{N} --model cnn --image-size 64 --epochs 1 --cache none",
    "train, 3 epochs": "train {B}/pets{N} --model cnn --image-size 64 --epochs 3 --cache none",
}
_SQL = {"SELECT_label": "SELECT label, count(*) FROM records GROUP BY label"}


def _words(text: str, base: str, number: int) -> list[str]:
    return [_SQL.get(word, word).format(B=base, N=number) for word in text.split()]


def _table(title: str, unit: str, rows: dict[str, list[tuple[int, Cost]]]) -> Iterator[str]:
    """Yield a table of the smallest and largest runs, and what one item more costs."""
    yield f"\n{title}\n"
    yield (
        f"| command | {unit} | s | CPU s | MiB | requests | MB down | MB up "
        f"| CPU ms each | requests each | bytes down each | bytes up each |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for name, costs in rows.items():
        (least, first), (most, last) = costs[0], costs[-1]
        more = most - least
        for number, cost in costs:
            slopes = (
                f"{1000 * (last.cpu - first.cpu) / more:.3f} "
                f"| {(last.requests - first.requests) / more:.4f} "
                f"| {(last.down - first.down) / more:.0f} | {(last.up - first.up) / more:.0f}"
            )
            yield (
                f"| {name} | {number:,} | {cost.wall:.2f} | {cost.cpu:.2f} | {cost.memory:.0f} "
                f"| {cost.requests} | {cost.down / 1e6:.3f} | {cost.up / 1e6:.3f} "
                f"| {slopes if number == most else ' | | |'} |"
            )


def of_images(directory: Path, bucket: Bucket | None) -> Iterator[str]:
    """Measure how costs grow with the number of images."""
    rows: dict[str, list[tuple[int, Cost]]] = {name: [] for name in _OF_IMAGES}
    for number in IMAGES:
        photographs = directory / f"photos{number}"
        if not photographs.exists():
            make_photographs(photographs, number)
        base = str(directory)
        if bucket:
            bucket.put_folder(photographs, f"photos{number}/")
            base = bucket.url
        for name, text in _OF_IMAGES.items():
            home = directory / f"home-{name.replace(' ', '-')}-{number}"
            home.mkdir()
            costs = measure(_words(text, base, number), home, bucket)
            rows[name].append((number, costs))
            shutil.rmtree(home)
    where = "a bucket" if bucket else "a local disk"
    yield from _table(f"Images, on {where}", "images", rows)


def of_shards(directory: Path, bucket: Bucket | None) -> Iterator[str]:
    """Measure how costs grow with the number of shards that hold the same records."""
    source = directory / "whole.tfrecord"
    if not source.exists():
        write_shard(source, 2_000, 4_000_000)
    base = bucket.url if bucket else str(directory)
    commands = {
        "reshard to them": f"reshard {source} {{B}}/s{{N}} --shards {{N}}",
        "count": "count {B}/s{N}",
        "verify": "verify {B}/s{N}",
        "inspect dataset": "inspect dataset {B}/s{N}",
        "query": "query {B}/s{N} SELECT_label",
    }
    rows: dict[str, list[tuple[int, Cost]]] = {name: [] for name in commands}
    home = directory / "home-of-shards"
    home.mkdir(exist_ok=True)
    for number in SHARDS:
        for name, text in commands.items():
            rows[name].append((number, measure(_words(text, base, number), home, bucket)))
    where = "a bucket" if bucket else "a local disk"
    yield from _table(f"Shards of 2,000 records in all, on {where}", "shards", rows)


def of_workers(directory: Path, bucket: Bucket | None) -> Iterator[str]:
    """Measure what a second worker gains."""
    number = 1000
    photographs = directory / f"photos{number}"
    if not photographs.exists():
        make_photographs(photographs, number)
    base = str(directory)
    if bucket:
        bucket.put_folder(photographs, f"photos{number}/")
        base = bucket.url
    home = directory / "home-of-workers"
    home.mkdir(exist_ok=True)
    rows: dict[str, list[tuple[int, Cost]]] = {}
    for name, text in {
        "write": f"write {{B}}/photos{number} {{B}}/w{{N}} --name pets --shards 8 --workers {{N}}",
        "verify": "verify {B}/w{N} --workers {N}",
        "reshard": "reshard {B}/w{N} {B}/rw{N} --shards 6 --workers {N}",
    }.items():
        rows[name] = [(n, measure(_words(text, base, n), home, bucket)) for n in WORKERS]
    where = "a bucket" if bucket else "a local disk"
    yield from _table(f"Workers, {number:,} images, on {where}", "workers", rows)


def of_latency(directory: Path, bucket: Bucket | None) -> Iterator[str]:
    """Measure what a store costs that takes its time for each answer."""
    if bucket is None:
        return
    number = 200
    photographs = directory / f"photos{number}"
    make_photographs(photographs, number)
    bucket.put_folder(photographs, f"photos{number}/")
    home = directory / "home-of-latency"
    yield f"\nA store that waits {1000 * DELAY:.0f} ms before each answer, {number} images\n"
    yield "| command | requests | s at once | s with waiting | waits one after the other |"
    yield "|---|--:|--:|--:|--:|"
    texts = dict(list(_OF_IMAGES.items())[:-1])
    for name, text in texts.items():
        costs = []
        for delay in (0.0, DELAY):
            bucket.misbehave(Misbehaviour(delay=delay))
            home.mkdir()
            words = _words(text, bucket.url, number)
            writes = name in ("write", "reshard")
            costs.append(measure([*words, *(["--overwrite"] if writes else [])], home, bucket))
            shutil.rmtree(home)
        bucket.misbehave()
        first, last = costs
        yield (
            f"| {name} | {last.requests} | {first.wall:.2f} | {last.wall:.2f} "
            f"| {max(0, last.wall - first.wall) / DELAY:.0f} |"
        )


def run(directory: Path, parts: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the tables, of a local disk and of a bucket of moto's."""
    emulators = Emulators()
    try:
        for part in (of_images, of_shards, of_workers, of_latency):
            if not parts or part.__name__.removeprefix("of_") in parts:
                yield from part(directory, None)
                if "local" not in parts:
                    yield from part(directory, emulators.bucket())
    finally:
        emulators.end()


def main() -> None:
    """Run the parts that the command line names."""
    with tempfile.TemporaryDirectory() as directory:
        for line in run(Path(directory), tuple(sys.argv[1:])):
            print(line, flush=True)


if __name__ == "__main__":
    main()
