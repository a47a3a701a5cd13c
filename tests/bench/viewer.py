"""The viewer: time to the first page, memory, and reads, then what a user asks for.

``BENCH_PHOTOGRAPHS`` and ``BENCH_RECORDS`` name datasets to take instead of those that are made.
Wall time and CPU seconds are of all processes of the viewer. What is read is what they asked the
system for (`rchar`), also from temporary files and from what the system still has in memory.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.bench.photographs import make_photographs
from tests.bench.small import write_small
from tfrtool.examples.example import encode_example
from tfrtool.records.framing import frame

__all__ = ["run"]

_PHOTOGRAPHS, _DIFFERENT, _RECORDS = 24_000, 1_500, 1_000_000
_TICKS = os.sysconf("SC_CLK_TCK")
_FOUND = re.compile(r'<h2 id="found">([\d,]+) records')
_THUMBNAIL = re.compile(r'src="(/image/[^"]*)"')

Counts = dict[str, float]


@dataclass
class _Viewer:
    """A viewer that runs, and the highest counts that were seen of each of its processes."""

    process: subprocess.Popen[str]
    started: float
    port: int
    cookie: str
    counts: dict[int, Counts] = field(default_factory=dict)

    @classmethod
    def start(cls, data: Path, folder: Path) -> _Viewer:
        words = ("view", str(data), "--no-open", "--json")
        environment = os.environ | {"XDG_DATA_HOME": str(folder), "XDG_STATE_HOME": str(folder)}
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "tfrtool", *words],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert process.stdout is not None
        url = urlsplit(json.loads(process.stdout.readline())["url"])
        viewer = cls(process, started, url.port or 0, "")
        viewer.cookie = viewer._request(f"/?token={parse_qs(url.query)['token'][0]}")[1]
        return viewer

    def _request(self, path: str) -> tuple[bytes, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("GET", path, headers={"Cookie": self.cookie})
        answer = connection.getresponse()
        body, cookie = answer.read(), answer.getheader("Set-Cookie", "")
        connection.close()
        return body, cookie.partition(";")[0]

    def page(self, **question: str) -> str:
        """Return the page of the records of a question."""
        return self._request(f"/?{urlencode(question)}")[0].decode()

    def fetch(self, path: str) -> int:
        """Return the size of what is at an address."""
        return len(self._request(path)[0])

    def is_done(self) -> bool:
        """Return whether all records have been read."""
        return bool(json.loads(self._request("/state")[0])["done"])

    def total(self) -> Counts:
        """Return the sums over all processes, also those that have ended."""
        for process in _family(self.process.pid):
            try:
                self.counts[process] = _counts_of(process)
            except (OSError, KeyError):  # it has ended
                continue
        names = {name for one in self.counts.values() for name in one}
        return {name: sum(one.get(name, 0) for one in self.counts.values()) for name in names}

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


def _family(process: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield process
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from _family(int(child))


def _line(title: str, wall: float, cpu: float | None, note: str) -> str:
    spent = "" if cpu is None else f"CPU {cpu:6.2f} s"
    return f"  {title:30} wall {wall:6.2f} s   {spent:14}   {note}"


def _counts_of(process: int) -> Counts:
    """Return CPU seconds, peak memory, and bytes and calls of reading."""
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{process}/status").read_text()
    io = dict(re.findall(r"(\w+): (\d+)", Path(f"/proc/{process}/io").read_text()))
    peak = dict(re.findall(r"(\w+):\s+(\d+) kB", status))["VmHWM"]
    cpu = (int(after_name[11]) + int(after_name[12])) / _TICKS
    return {
        "cpu": cpu,
        "peak": int(peak) / 1024,
        "bytes": int(io["rchar"]),
        "calls": int(io["syscr"]),
    }


def _measure(
    name: str, data: Path, folder: Path, questions: Sequence[dict[str, str]]
) -> Iterator[str]:
    """Yield what a viewer of a dataset takes."""
    payload = sum(path.stat().st_size for path in data.glob("*.tfrecord*"))
    viewer = _Viewer.start(data, folder)
    try:
        ready = time.perf_counter() - viewer.started
        while (found := _FOUND.search(page := viewer.page())) is None:
            time.sleep(0.02)
        first, so_far = time.perf_counter() - viewer.started, viewer.total()
        yield f"{name}: {payload / 1e6:,.0f} MB"
        yield _line("address printed", ready, None, "")
        yield _line("first page", first, so_far["cpu"], f"{found[1]} records")
        if thumbnails := _THUMBNAIL.findall(page):
            start = time.perf_counter()
            size = sum(map(viewer.fetch, thumbnails))
            wall = time.perf_counter() - start
            yield _line(f"{len(thumbnails)} thumbnails", wall, None, f"{size / 1e6:.1f} MB")
        while not viewer.is_done():
            viewer.total()
            time.sleep(0.2)
        wall, counts = time.perf_counter() - viewer.started, viewer.total()
        found = _FOUND.search(viewer.page())
        records = int(found[1].replace(",", "")) if found else 1
        yield _line("everything read", wall, counts["cpu"], f"{records:,} records")
        yield (
            f"  read {counts['bytes'] / payload:.2f} times the size of the shards, "
            f"{counts['calls'] / records:.3f} calls a record; "
            f"peak memory {counts['peak']:,.0f} MiB in {len(viewer.counts)} processes"
        )
        for question in questions:
            before, start = viewer.total(), time.perf_counter()
            found = _FOUND.search(viewer.page(**question))
            wall, cpu = time.perf_counter() - start, viewer.total()["cpu"] - before["cpu"]
            shown = urlencode(question) or "first page again"
            yield _line(shown, wall, cpu, f"{found[1] if found else 0} records")
        yield f"  peak memory at the end {viewer.total()['peak']:,.0f} MiB"
    finally:
        viewer.stop()


def _photographs(directory: Path) -> Path:
    """Return a dataset of photographs: some with other bytes, in turn."""
    if given := os.environ.get("BENCH_PHOTOGRAPHS"):
        return Path(given)
    files = sorted(make_photographs(directory / "files", _DIFFERENT).glob("*/*.jpg"))
    images = [(path.read_bytes(), path.parent.name) for path in files]
    target = directory / "photographs"
    target.mkdir()
    with (target / "photographs-train.tfrecord-00000-of-00001").open("wb") as file:
        for number in range(_PHOTOGRAPHS):
            data, label = images[number % len(images)]
            comment = b"\xff\xfe\x00\x0a%08d" % number  # so that no two are the same
            row = {"image": data[:2] + comment + data[2:], "label": label == "dog"}
            file.write(frame(encode_example(row | {"image/filename": f"{label}/{number}.jpg"})))
    return target


def run(directory: Path) -> Iterator[str]:
    """Yield lines about photographs and small records."""
    photographs = _photographs(directory)
    yield from _measure(
        "24,000 photographs",
        photographs,
        directory / "state",
        (
            {},
            {"sort": "brightness"},
            {"label": "1"},
            {"text": "1234"},
            {"where": "width < 400"},
            {"page": "390"},
        ),
    )
    records = Path(os.environ.get("BENCH_RECORDS", directory / "small"))
    if not records.exists():
        records.mkdir()
        write_small(records / "small-train.tfrecord-00000-of-00001", _RECORDS, 1, 1)
    yield from _measure(
        "1,000,000 small records",
        records,
        directory / "state",
        (
            {},
            {"sort": "feature_0"},
            {"is:label": "3"},
            {"text": "ab"},
            {"where": "id % 7 = 0"},
            {"in:feature_0": "[0.25,0.5)"},
            {"page": "9999"},
            {"sort": "feature_0", "page": "9999"},
        ),
    )
