"""Stores that fail, are slow, cut what they send, or take back what they allowed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.emulators import SECRET, Bucket, Misbehaviour
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.records.framing import frame

pytest.importorskip("obstore")
pytestmark = pytest.mark.usefixtures("hurry")

Run = Callable[..., tuple[int, str, str]]

COMMANDS = (
    ("count",),
    ("verify",),
    ("inspect", "schema"),
    ("inspect", "shard"),
    ("cat", "--limit", "5"),
    ("cat", "--records", "3,17"),
)
FAULTS = {
    "500, then better": Misbehaviour(first=2, status=500),
    "503 now and then": Misbehaviour(every=3, status=503, code="SlowDown"),
    "429 now and then": Misbehaviour(every=3, status=429, code="TooManyRequests"),
    "answers that are lost": Misbehaviour(every=3, lose_answer=True),
    "bodies that are cut": Misbehaviour(methods=("GET",), every=2, cut_after=70_000),
    "bodies without any byte": Misbehaviour(methods=("GET",), first=4, cut_after=0),
    "slow": Misbehaviour(delay=0.01, rate=50_000_000),
    "a clock five hours behind": Misbehaviour(clock=-5),
    "a clock five hours ahead": Misbehaviour(clock=5),
}

ALIKE = ("429 now and then", "slow", "a clock five hours ahead")


def _or_more(name: str) -> Any:
    marks = [pytest.mark.more] if name in ALIKE else []
    return pytest.param(FAULTS[name], id=name, marks=marks)


def _shard(count: int, size: int, seed: int = 0) -> bytes:
    noise = random.Random(seed)
    records = []
    for number in range(count):
        image = Feature(dtype=DType.STRING, values=(noise.randbytes(size),))
        label = Feature(dtype=DType.INT64, values=(number % 3,))
        records.append(frame(encode_example({"image": image, "label": label})))
    return b"".join(records)


@pytest.fixture
def both(bucket: Bucket, tmp_path: Path) -> tuple[Path, Bucket]:
    """Return a folder of shards, and a bucket that has the same ones below ``data``."""
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(3):
        (folder / f"part-{number}.tfrecord").write_bytes(_shard(20, 20_000, number))
    bucket.put_folder(folder, "data/")
    return folder, bucket


@pytest.mark.parametrize("fault", [*map(_or_more, FAULTS)])
def test_what_can_be_survived_is(both: tuple[Path, Bucket], run: Run, fault: Misbehaviour) -> None:
    """Each command says of a store that misbehaves what it says of a folder."""
    folder, bucket = both
    for command in COMMANDS:
        here = run(*command, folder, "--json")
        bucket.misbehave(fault)
        code, out, err = run(*command, f"{bucket.url}/data", "--json")
        there = (code, out.replace(f"{bucket.url}/data", str(folder)), err)
        assert there == here, command
    assert bucket.log()


@pytest.mark.parametrize("status", [500, 503])
def test_a_store_that_is_down_is_an_error(both: tuple[Path, Bucket], run: Run, status: int) -> None:
    """It is one line that names the object and what the store answered, and exit code 1."""
    _, bucket = both
    for command in COMMANDS:
        bucket.misbehave(Misbehaviour(after=1, status=status))
        code, out, err = run(*command, f"{bucket.url}/data/part-0.tfrecord")
        assert (code, out) == (1, "")
        assert err.count("\n") == 1
        assert f"{bucket.url}/data/part-0.tfrecord" in err
        assert str(status) in err


@pytest.mark.parametrize(
    ("code", "debug"),
    [("ExpiredToken", ("--debug",)), ("InvalidAccessKeyId", ()), ("RequestTimeTooSkewed", ())],
)
def test_credentials_that_expire(
    both: tuple[Path, Bucket], run: Run, code: str, debug: tuple[str, ...]
) -> None:
    """The error names what the store said and the variables to look at, and no credential."""
    _, bucket = both
    key = bucket.environment["AWS_ACCESS_KEY_ID"]
    text = f"The provided token {SECRET} of {key} has expired."
    for command in COMMANDS:
        bucket.misbehave(Misbehaviour(after=1, status=403, code=code, text=text))
        status, out, err = run(*command, *debug, f"{bucket.url}/data/part-1.tfrecord")
        assert (status, out) == (1, "")
        assert code in err
        assert "AWS_SESSION_TOKEN" in err
        assert SECRET not in err
        assert key not in err


def test_an_object_that_is_replaced(bucket: Bucket, run: Run) -> None:
    """An object that becomes another one while it is read is an error that says so."""
    bucket.put("a.tfrecord", _shard(120, 200_000))
    other = _shard(120, 200_000, seed=1)
    bucket.misbehave(Misbehaviour(methods=("GET",), matching="a.tfrecord", after=1, held=True))

    def replace() -> None:
        while not any("a.tfrecord" in entry["target"] for entry in bucket.log()):
            time.sleep(0.01)
        bucket.put("a.tfrecord", other)
        bucket.misbehave()

    replacing = threading.Thread(target=replace)
    replacing.start()
    code, out, err = run("verify", f"{bucket.url}/a.tfrecord")
    replacing.join()
    assert code == 1
    assert f"{bucket.url}/a.tfrecord" in out + err
    assert "changed" in out + err


def test_an_object_that_is_deleted(both: tuple[Path, Bucket], run: Run) -> None:
    """An object that is listed and then is not there is an error that names it."""
    _, bucket = both
    bucket.misbehave(Misbehaviour(matching="part-2", status=404, code="NoSuchKey"))
    code, out, err = run("verify", f"{bucket.url}/data")
    assert code == 1
    assert f"{bucket.url}/data/part-2.tfrecord" in out + err
