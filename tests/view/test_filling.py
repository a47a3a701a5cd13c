"""What the viewer finds while it is asked, what goes wrong then, and how it ends."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.datasets import flip_bit, image_payload, write_foreign
from tests.emulators import Bucket
from tfrtool.view.findings import Findings
from tfrtool.view.live import Live

QUESTION: dict[str, Any] = {
    "where": None, "text": None, "equal": {}, "sort": None, "descending": False
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of two shards of images; a payload of the first one is damaged."""
    made = write_foreign(tmp_path / "two", [[image_payload(n % 3) for n in range(20)]] * 2)
    flip_bit(min(made.iterdir()), 100)
    return made


def _wait(live: Live) -> None:
    until = time.monotonic() + 30
    while not live.state()["done"]:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_process_finds_what_this_one_finds(folder: Path) -> None:
    """The reader's process tells all: rows, places, statistics, the verdict."""
    live = Live(folder)
    try:
        assert live.rows(QUESTION, 0, 3)["rows"][2]["record"] == 2  # before anything is read
        live.start()
        _wait(live)
        with Findings(folder) as here:
            here.fill(workers=2)
            assert here.verdict is not None
            assert live.found.verdict == here.verdict
            assert live.found.statistics == here.statistics
            assert live.found.schema == here.schema
            names = ["_record", "_offset", "label", "image.hash"]
            assert live.found.table.take(names, range(40)) == here.table.take(names, range(40))
            assert [live.found.index.place(n) for n in range(40)] == [
                here.index.place(n) for n in range(40)
            ]
        state = live.state()
        assert (state["records"], state["read"], state["counted"]) == (40, 40, True)
        assert (state["damaged"], state["faults"], state["errors"]) == (1, 1, {})
        answer = live.rows({**QUESTION, "where": "label = 2"}, 0, 100)
        assert (answer["complete"], answer["total"]) == (True, 12)
        assert {row["label"] for row in answer["rows"]} == {"2"}
    finally:
        live.close()
    assert not Path(live.found._scratch.name).exists()


def test_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That there is no room is said; records are still shown, and verified."""

    def full(**_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Findings(folder) as found:
        monkeypatch.setattr(
            "tfrtool.inspection.table.record_table.tempfile.NamedTemporaryFile", full
        )
        found.fill(workers=1)
        assert "can't store temporary data" in found.errors["table_done"]
        assert "no space left on device" in found.errors["table_done"]
        assert sorted(found.index.read(range(3))) == [1, 2]
        assert found.verdict is not None


def test_a_store_sends_what_is_shown(folder: Path, bucket: Bucket) -> None:
    """The first records of a shard in a bucket are there before the rest of it is asked for."""
    payloads = [image_payload(1, data=os.urandom(200_000)) for _ in range(120)]
    big = write_foreign(folder.parent / "big", [payloads])
    bucket.put_folder(big, "big/")
    with Findings(f"{bucket.url}/big") as found:
        records = found.index.read(range(5))
        assert [len(records[n].payload) for n in range(5)] == [len(one) for one in payloads[:5]]
        assert bucket.down() < 120 * 200_000 / 2
        found.fill(workers=1)
        assert (found.table.rows, len(found.index), found.errors) == (120, 120, {})
        assert found.index.read([119])[119].payload == payloads[119]


@pytest.fixture
def viewer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a viewer of records that take a while; its temporary folder is ``tmp_path / "tmp"``."""
    payload = image_payload(1)
    many = write_foreign(tmp_path / "many", [[payload] * 40_000])
    tmp_path.joinpath("tmp").mkdir()
    command = [sys.executable, "-m", "tfrtool", "view", str(many), "--no-open", "--json"]
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process
        process.kill()


@pytest.mark.several
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_end(
    viewer: subprocess.Popen[str], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """In the midst of reading it ends at once; no process and no file stays."""
    assert viewer.stdout is not None
    json.loads(viewer.stdout.readline())
    until = time.monotonic() + 20
    while not list(tmp_path.glob("tmp/*/tmp*")):
        assert time.monotonic() < until
        time.sleep(0.02)
    children = [
        int(child)
        for task in Path(f"/proc/{viewer.pid}/task").iterdir()
        for child in task.joinpath("children").read_text().split()
    ]
    assert children
    began = time.monotonic()
    viewer.send_signal(number)
    assert viewer.wait(20) == code
    assert time.monotonic() - began < 5
    assert list(tmp_path.joinpath("tmp").iterdir()) == []
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
