"""Writing to stores that fail, lose what was sent or said, list late, or are written to by two."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.datasets import write_foreign
from tests.emulators import SECRET, Bucket, Misbehaviour
from tests.photos import write_class_folders
from tfrtool.cli import main

pytest.importorskip("obstore")
pytestmark = pytest.mark.usefixtures("hurry")

Run = Callable[..., tuple[int, str, str]]

INFO = "pets/dataset_info.json"
FAULTS = {
    "500 now and then": Misbehaviour(every=3, status=500),
    "503 for uploads": Misbehaviour(methods=("PUT",), every=2, status=503, code="SlowDown"),
    "lost answers to all that creates": Misbehaviour(methods=("PUT",), every=2, lose_answer=True),
    "an error with status 200": Misbehaviour(
        methods=("POST",), matching="uploadId", first=1, status=200
    ),
    "lost connections": Misbehaviour(methods=("PUT",), every=2, hang_up_after=20_000),
    "lists late": Misbehaviour(hide_for=60),
    "a clock five hours behind": Misbehaviour(clock=-5),
    "a clock five hours ahead": Misbehaviour(clock=5),
    "slow": Misbehaviour(delay=0.02, rate=20_000_000),
}

ALIKE = ("500 now and then", "slow", "a clock five hours ahead")


def _or_more(name: str) -> Any:
    marks = [pytest.mark.more] if name in ALIKE else []
    return pytest.param(FAULTS[name], id=name, marks=marks)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of three shards, two of which are sent in parts."""
    noise = os.urandom(4 << 20)
    shards = [[noise[:n] for n in (4 << 20, 4 << 20, 3 << 20)], [noise, noise, b"x"], [b"1", b"2"]]
    return write_foreign(tmp_path_factory.mktemp("source"), shards)


@pytest.fixture(scope="module")
def made_here(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the shards that resharding the source makes, by their names."""
    folder = tmp_path_factory.mktemp("made") / "pets"
    assert main(["reshard", str(source), str(folder), "--shards", "3"]) == 0
    return {path.name: path.read_bytes() for path in folder.glob("*.tfrecord-*")}


def _made_there(bucket: Bucket, prefix: str = "pets/") -> dict[str, bytes]:
    keys = [key for key in bucket.names(prefix) if ".tfrecord-" in key]
    return {key.rpartition("/")[2]: bucket.get(key) for key in keys}


@pytest.mark.parametrize("fault", [*map(_or_more, FAULTS)])
def test_what_can_be_survived_is(
    bucket: Bucket, run: Run, source: Path, made_here: dict[str, bytes], fault: Misbehaviour
) -> None:
    """The shards are those that a folder gets, nothing else is left, and the dataset is whole."""
    bucket.misbehave(fault)
    code, _, err = run("reshard", source, f"{bucket.url}/pets", "--shards", "3")
    assert (code, err) == (0, "")
    bucket.misbehave()
    assert _made_there(bucket) == made_here
    assert bucket.uploads() == []
    assert [key for key in bucket.names() if "incomplete" in key] == []
    assert run("verify", f"{bucket.url}/pets")[0] == 0


@pytest.mark.tf
def test_photographs_too(bucket: Bucket, run: Run, tmp_path: Path) -> None:
    """What `write` reads of a store and puts there survives all of it at once."""
    photos = write_class_folders(tmp_path / "photos")
    bucket.put_folder(photos, "photos/")
    assert run("write", photos, tmp_path / "pets", "--shards", "2")[0] == 0
    bucket.misbehave(
        Misbehaviour(every=4, status=503, code="SlowDown"),
        Misbehaviour(methods=("GET",), every=5, cut_after=100),
        Misbehaviour(methods=("PUT",), every=3, lose_answer=True),
        Misbehaviour(hide_for=60),
    )
    code, _, err = run("write", f"{bucket.url}/photos", f"{bucket.url}/pets", "--shards", "2")
    assert (code, err) == (0, "")
    here = {path.name: path.read_bytes() for path in (tmp_path / "pets").glob("*.tfrecord-*")}
    assert _made_there(bucket) == here


def test_uploads_that_never_end(
    bucket: Bucket, run: Run, source: Path, made_here: dict[str, bytes]
) -> None:
    """The write fails, says so, and leaves no dataset; resuming it ends with the same bytes."""
    bucket.misbehave(Misbehaviour(methods=("PUT",), matching="partNumber=2", hang_up_after=100_000))
    code, _, err = run("reshard", source, f"{bucket.url}/pets", "--shards", "3")
    assert code == 1
    assert f"{bucket.url}/pets" in err
    assert err.count("\n") <= 2
    bucket.misbehave()
    assert INFO not in bucket.names()
    assert bucket.uploads() == []
    assert run("count", f"{bucket.url}/pets")[0] == 1
    code, _, _ = run("reshard", source, f"{bucket.url}/pets", "--shards", "3", "--resume")
    assert code == 0
    assert _made_there(bucket) == made_here


def test_credentials_that_expire(
    bucket: Bucket, run: Run, source: Path, made_here: dict[str, bytes]
) -> None:
    """The write ends with exit code 1 and the name of the error; with new ones it is resumed."""
    text = f"The provided token {SECRET} has expired."
    gone = Misbehaviour(methods=("PUT",), after=2, status=403, code="ExpiredToken", text=text)
    bucket.misbehave(gone)
    code, out, err = run("reshard", source, f"{bucket.url}/pets", "--shards", "3")
    assert code == 1
    assert "ExpiredToken" in err
    assert SECRET not in out + err
    bucket.misbehave()
    assert INFO not in bucket.names()
    code, _, _ = run("reshard", source, f"{bucket.url}/pets", "--shards", "3", "--resume")
    assert code == 0
    assert _made_there(bucket) == made_here
    assert [key for key in bucket.names() if SECRET.encode() in bucket.get(key)] == []


@pytest.mark.more
def test_two_writers(bucket: Bucket, source: Path, made_here: dict[str, bytes]) -> None:
    """Of two that write to one prefix, one gets through and the other says that it does not."""
    bucket.misbehave(Misbehaviour(delay=0.02))
    words = ("reshard", str(source), f"{bucket.url}/pets", "--shards", "3")
    writers = [_started(*words) for _ in range(2)]
    said = [writer.communicate(timeout=300)[1] for writer in writers]
    codes = [writer.returncode for writer in writers]
    bucket.misbehave()
    assert sorted(codes) in ([0, 1], [0, 2]), said
    assert f"{bucket.url}/pets" in said[codes.index(max(codes))]
    assert _made_there(bucket) == made_here
    assert main(["verify", f"{bucket.url}/pets"]) == 0


def test_a_listing_that_is_late_lets_nobody_replace_a_dataset(
    bucket: Bucket, run: Run, source: Path
) -> None:
    """A second write is refused though the listing has nothing of the first."""
    assert run("reshard", source, f"{bucket.url}/pets")[0] == 0
    before = {key: bucket.get(key) for key in bucket.names()}
    bucket.misbehave(Misbehaviour(hide_for=60))
    assert run("reshard", source, f"{bucket.url}/pets", "--shards", "2")[0] == 2
    assert {key: bucket.get(key) for key in bucket.names()} == before


def _started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tfrtool", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("more", [(), ("--overwrite",)])
def test_a_store_that_refuses_conditions(
    bucket: Bucket, run: Run, source: Path, more: tuple[str, ...]
) -> None:
    """It is found before any shard is made, and named; a quoted If-Match is one that fails."""
    if more:
        assert run("reshard", source, f"{bucket.url}/pets")[0] == 0
    before = bucket.names()
    bucket.forget()
    bucket.misbehave(
        Misbehaviour(
            methods=("PUT",), having='^if-match: ".*"$', status=412, code="PreconditionFailed"
        )
    )
    code, _, err = run("reshard", source, f"{bucket.url}/pets", *more)
    assert code == 1
    assert "(If-Match)" in err
    assert bucket.names() == before
    assert not any(".tfrecord" in one["target"] for one in bucket.log() if one["method"] == "PUT")
