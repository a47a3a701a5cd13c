"""How soon ``tfrtool view`` answers, and what memory it takes: ``python -m tests.bench.viewer``.

Photographs are shown, or shards that are given; requests are made as the page makes them. Memory
is that of the server and of all processes that it started, shared pages counted once (PSS).
"""

from __future__ import annotations

import argparse
import http.cookiejar
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.photos import image_bytes
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.records.framing import frame


def write_photographs(folder: Path, count: int) -> None:
    """Write a shard of photographs of 500 x 375 pixels, 250 of which are different ones."""
    photos = [image_bytes(size=(500, 375), tint=n) for n in range(250)]
    with folder.joinpath("photos.tfrecord").open("wb") as file:
        for number in range(count):
            image = Feature(dtype=DType.STRING, values=(photos[number % 250],))
            label = Feature(dtype=DType.INT64, values=(number % 37,))
            file.write(frame(encode_example({"image": image, "label": label})))


def memory_of(pid: int) -> float:
    """Return the MB of a process and of those that it started."""
    found = 0.0
    children = Path(f"/proc/{pid}/task/{pid}/children")
    for task in Path(f"/proc/{pid}/task").iterdir():
        children = task / "children"
        found += sum(memory_of(int(child)) for child in children.read_text().split())
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            found += int(line.split()[1]) / 1024
    return found


def measure(shards: list[str], seconds: float) -> None:
    """Print what a page would wait for, until all is found out or the time is over."""
    began = time.monotonic()
    command = [sys.executable, "-m", "tfrtool", "view", *shards, "--no-open", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["url"]
            cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
            opener = urllib.request.build_opener(cookies)

            def get(path: str) -> bytes:
                return bytes(opener.open(address.split("/?")[0] + path, timeout=60).read())

            def timed(what: str, ask: Callable[[], Any]) -> Any:
                start = time.monotonic()
                found = ask()
                print(f"{what:42} {time.monotonic() - start:7.2f} s")
                return found

            def page(query: str) -> None:
                html = get(f"/?{query}").decode()
                for address in re.findall('<img src="([^"]+)"', html):
                    get(address.replace("&amp;", "&"))

            opener.open(address, timeout=60).read()
            while b'name="seen"' not in get("/"):
                time.sleep(0.05)
            page("")
            print(f"{'first page, from the start on':42} {time.monotonic() - began:7.2f} s")
            most, state = 0.0, json.loads(get("/state"))
            while not state["done"] and time.monotonic() - began < seconds:
                time.sleep(0.5)
                state, most = json.loads(get("/state")), max(most, memory_of(server.pid))
            print(f"{state['text'] or 'everything read'} after {time.monotonic() - began:.0f} s")
            questions = ("page=9", "where=_bytes+%3E+400", "sort=_bytes&descending=1", "text=cat")
            for question in questions:
                timed(question, partial(page, question))
            print(f"{'most memory':42} {max(most, memory_of(server.pid)):7.0f} MB")
        finally:
            server.terminate()
            timed("to its end", server.wait)


def main() -> None:
    """Measure shards that are given, or photographs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shards", nargs="*")
    parser.add_argument("--photographs", type=int, default=25_000)
    parser.add_argument("--seconds", type=float, default=120)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        if not given.shards:
            write_photographs(Path(made), given.photographs)
        measure(given.shards or [made], given.seconds)


if __name__ == "__main__":
    main()
