"""Ray on this machine beside local processes: what a cluster costs where it gains nothing.

``python -m tests.bench cluster``. The start of a cluster's connection and workers is told apart;
the first run of each command is, too, for it loads libraries.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tfrtool
from tests.bench.photographs import make_photographs
from tests.engines.running import running_nodes
from tests.engines.tasks import name_of
from tfrtool.engines.pool import map_shards
from tfrtool.engines.ray_cluster import RayCluster

__all__ = ["run"]

IMAGES, SHARDS, RUNS = 2000, 8, 5


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if "report" not in path.name}


def _verified(folder: Path, **words: Any) -> int:
    return tfrtool.verify(folder, **words).records


def _table(ways: dict[str, dict[str, Any]], commands: dict[str, Callable[..., Any]]) -> list[str]:
    rows = []
    for command, call in commands.items():
        firsts, times, results = {}, {way: list[float]() for way in ways}, []
        for turn in range(RUNS + 1):
            for way, words in ways.items():
                started = time.perf_counter()
                found = call(**words)
                took = time.perf_counter() - started
                results.append(_files(found) if isinstance(found, Path) else found)
                if results[-1] != results[0]:
                    raise RuntimeError(f"{command}: {way} comes to another result")
                if turn:
                    times[way].append(took)
                else:
                    firsts[way] = took
        local = times[next(iter(ways))]
        for way, own in times.items():
            ratios = [mine / other for mine, other in zip(own, local, strict=True)]
            rows.append(
                f"| {command} | {way} | {firsts[way]:.2f} | {statistics.median(own):.2f} "
                f"| {min(own):.2f} to {max(own):.2f} | {statistics.median(ratios):.2f} |"
            )
    return rows


def run(directory: Path) -> Iterator[str]:
    """Yield a table of commands, each by local processes and by a cluster of three nodes."""
    photos = make_photographs(directory / "photos", IMAGES)
    made = directory / "made"

    def write(**words: Any) -> Path:
        shutil.rmtree(made, ignore_errors=True)
        tfrtool.write(photos, made, name="pets", shards=SHARDS, **words)
        return made

    with running_nodes(3) as nodes:
        os.environ.update(nodes.environment)
        started = time.perf_counter()
        with RayCluster(nodes.address) as cluster:
            connected = time.perf_counter()
            list(map_shards(name_of, [photos] * 2, cluster))
            yield (
                f"connecting to Ray {connected - started:.2f} s, "
                f"the first tasks on two nodes {time.perf_counter() - connected:.2f} s"
            )
            ways: dict[str, dict[str, Any]] = {"local, 2 workers": {"workers": 2}}
            for workers in (1, 2):
                ways[f"ray, {workers} at a time"] = {"workers": workers, "engine": "ray"}
            yield "| command | where | first, s | median, s | | ratio to local |"
            yield "|---|---|--:|--:|---|--:|"
            yield from _table(
                ways,
                {
                    "write": write,
                    "verify --images": lambda **words: _verified(made, images=True, **words),
                    "verify": lambda **words: _verified(made, **words),
                },
            )
