"""What can't be shown does not change what a command does: closed, full and unread files."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.datasets import flip_bit, image_payload, write_foreign
from tests.more import more
from tests.photos import write_class_folders
from tests.process.forking import Forking
from tfrtool.cli import main

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")

TOOL = [sys.executable, "-m", "tfrtool"]
QUIET = [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "| head -c 1", "2>/dev/full"]
WAYS = {"damaged": QUIET, "extract": [">&- 2>&-", "2>/dev/full"]}
"""How the gate runs a command that only prints, and one that writes files."""

QUICK = {
    "count": "count {shard}",
    "index": "index {shard}",
    "verify": "verify {shard}",
    "damaged": "verify {damaged}",
    "repair": "repair {damaged} {out}/saved",
    "extract": "extract {shard} {out}/files",
    "shard": "inspect shard {shard}",
    "schema": "inspect schema {shard}",
    "dataset": "inspect dataset {shards}",
    "images": "inspect images {shard} --out {out}/sheet.png",
}


SEVERAL = """
import sys
from tfrtool.cli import main
codes = ""
for words in sys.argv[1:]:
    sys.argv[1:] = words.split()
    codes += str(main())
sys.exit(int(codes))
"""
"""Runs commands after each other in a process; its exit code has theirs as digits."""


def sh(
    words: str, how: str = "", cwd: Path | None = None, tool: list[str] = TOOL
) -> tuple[int, str, str]:
    """Run the command in a shell; return its exit code, and what it printed to a pipe or file."""
    command = f"{shlex.join(tool)} {words} {how}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=300, check=False, cwd=cwd
    )
    return done.returncode, done.stdout, done.stderr


def made(directory: Path) -> dict[str, bytes]:
    """Return what the files are that a command made."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder with a good shard, that shard, and a damaged one."""
    directory = tmp_path_factory.mktemp("places")
    write_foreign(directory / "good", [[image_payload(n % 2) for n in range(50)]])
    write_foreign(directory / "bad", [[image_payload(n % 2) for n in range(50)]])
    name = "part-00000-of-00001.tfrecord"
    flip_bit(directory / "bad" / name, 40)
    return {
        "shards": directory / "good",
        "shard": directory / "good" / name,
        "damaged": directory / "bad" / name,
    }


@pytest.mark.slow
@pytest.mark.parametrize("command", [name if name in WAYS else more(name) for name in QUICK])
def test_quick_commands(places: dict[str, Path], tmp_path: Path, command: str) -> None:
    """With standard files closed, unread or full, files and exit code are those of any run."""
    usual = tmp_path / "usual"
    usual.mkdir()
    code = main(shlex.split(QUICK[command].format(out=usual, **places)))
    assert code in (0, 3)
    ways = WAYS.get(command, [QUIET[(2, 4)[list(QUICK).index(command) % 2]]])
    for number, how in enumerate(ways):
        out = tmp_path / str(number)
        out.mkdir()
        found, output, errors = sh(QUICK[command].format(out=out, **places), how)
        assert (found, made(out)) == (code, made(usual))
        assert errors == ""
        assert bool(output) is (">&-" not in how.replace("2>&-", ""))


@pytest.mark.parametrize("command", ["damaged", "extract"])
def test_results_that_are_lost(places: dict[str, Path], tmp_path: Path, command: str) -> None:
    """Results on a full disk are a failure, in one line; the files that were made are there."""
    code, _, errors = sh(QUICK[command].format(out=tmp_path, **places), ">/dev/full")
    (line,) = errors.splitlines()
    assert code == 1
    assert line == "tfrtool: error: standard output: no space left on device"
    assert bool(made(tmp_path)) is (command == "extract")


@pytest.mark.parametrize(
    ("words", "how"),
    [
        ("train --help", ">&- 2>&-"),
        ("--help", ">/dev/full 2>/dev/full"),
        ("--bogus", ">/dev/full 2>/dev/full"),
    ],
)
def test_help(words: str, how: str) -> None:
    """Help and usage errors need no one to read them."""
    code, _, _ = sh(words, how)
    assert code == (2 if words == "--bogus" else "full" in how)


@pytest.mark.several
@pytest.mark.tf
def test_writing_and_training(forking: Forking, tmp_path: Path) -> None:
    """Where TensorFlow is at work, no shard and no model takes what it says to closed files."""
    photos, nowhere = write_class_folders(tmp_path / "photos", count=10), Path(os.devnull)
    splits = "--split train=0.7 --split validation=0.3 --shards 2"
    forking.start(["write", photos, tmp_path / "pets", *splits.split()], nowhere, nowhere)
    assert forking.wait() == 0
    shards = {n: data for n, data in made(tmp_path / "pets").items() if ".tfrecord" in n}
    assert len(shards) == 4
    train = "train pets --model cnn --image-size 32 --epochs 1 --out run"
    words = shlex.join([f"write photos new/pets {splits}", train])
    code, _, _ = sh(words, ">/dev/full 2>&-", tmp_path, [sys.executable, "-c", SEVERAL])
    assert code == 11
    again = made(tmp_path / "new" / "pets")
    assert {name: data for name, data in again.items() if ".tfrecord" in name} == shards
    assert {"model.keras", "history.json"} <= set(os.listdir(tmp_path / "run"))  # noqa: PTH208


@pytest.mark.more
def test_who_is_not_read_stops_early(places: dict[str, Path]) -> None:
    """What only prints goes on no further where nobody reads: here, not to the damaged shard."""
    reading, writing = os.pipe()
    os.close(reading)
    words = ["cat", str(places["shard"]), str(places["damaged"])]
    done = subprocess.run([*TOOL, *words], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
    assert sh(" ".join(words))[0] == 3
