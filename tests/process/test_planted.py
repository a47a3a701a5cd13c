"""Files of the current directory are never run, whatever their names are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.datasets import flip_bit, write_pets
from tests.more import more
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.records.framing import frame

SCRIPT = "import sys\nfrom tfrtool.cli import main\nsys.exit(main())\n"
"""What installers make for the command."""

PLANT = "import os\nos.write(2, b'PLANTED ' + __file__.encode())\nos._exit(99)\n"
LIBRARIES = ["PIL", "absl", "click", "google", "google_crc32c", "h5py", "keras", "numpy", "rich"]
LIBRARIES += ["sitecustomize", "tensorflow", "tensorflow_datasets", "tfrtool", "tqdm"]
LATE = "PIL concurrent multiprocessing numpy pickle queue rich subprocess tempfile threading tqdm"
"""What no part of Python itself has loaded before ``python -m tfrtool`` begins."""


def plant(directory: Path, names: list[str]) -> Path:
    """Make modules that end the process, every other one as a package; return their folder."""
    directory.mkdir(exist_ok=True)
    for number, name in enumerate(names):
        if number % 2 and not name.startswith("_"):
            (directory / name).mkdir()
            (directory / name / "__init__.py").write_text(PLANT)
        else:
            (directory / f"{name}.py").write_text(PLANT)
    return directory


def large_shard(path: Path, megabytes: int) -> None:
    """Write a shard of Examples with a megabyte of zeros each, which take no room on the disk."""
    zeros = bytes(1 << 20)
    record = frame(
        encode_example(
            {
                "image": Feature(dtype=DType.STRING, values=(zeros,)),
                "label": Feature(dtype=DType.INT64, values=(1,)),
            }
        )
    )
    before = record.index(bytes(64))
    with path.open("wb") as file:
        for number in range(megabytes):
            file.seek(number * len(record))
            file.write(record[:before])
            file.seek(before + len(zeros), os.SEEK_CUR)
            file.seek(-before, os.SEEK_CUR)
            file.write(record[before + len(zeros) :])


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset that is large enough for two processes, whatever is done with it."""
    directory = tmp_path_factory.mktemp("shards")
    for number in range(2):
        large_shard(directory / f"x-train.tfrecord-{number:05d}-of-00002", 129)
    return directory


@pytest.fixture
def script(tmp_path: Path) -> list[str]:
    """Return the words that run the command as it is installed."""
    (tmp_path / "bin").mkdir()
    path = tmp_path / "bin" / "tfrtool"
    path.write_text(SCRIPT)
    return [sys.executable, str(path)]


CHILDREN = ["verify {} --images", more("inspect dataset {}")]


def run(words: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder."""
    return subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("words", CHILDREN)
def test_the_command_runs_nothing(
    words: str, shards: Path, script: list[str], tmp_path: Path
) -> None:
    """With a file for every module that there is, a command and its processes run none."""
    here = plant(tmp_path / "here", sorted({*sys.stdlib_module_names, *LIBRARIES}))
    done = run([*script, *words.format(shards).split(), "--workers", "2"], here)
    assert done.stderr == ""
    assert done.returncode in (0, 3)
    assert done.stdout


@pytest.mark.slow
def test_python_m_runs_nothing_of_what_comes_late(shards: Path, tmp_path: Path) -> None:
    """Python itself puts the current directory first; we take it away."""
    here = plant(tmp_path / "here", LATE.split())
    words = ["inspect", "schema", str(shards), "--workers", "2"]
    done = run([sys.executable, "-m", "tfrtool", *words], here)
    assert done.stderr == ""
    assert done.returncode in (0, 3)


@pytest.mark.several
@pytest.mark.tf
def test_bench_runs_nothing(script: list[str], tmp_path: Path) -> None:
    """The processes that measure run none either; this one gets to a damaged record."""
    pets = write_pets(tmp_path)
    for shard in pets.glob("*-train*"):
        flip_bit(shard, shard.stat().st_size - 20)
    here = plant(tmp_path / "here", sorted({*sys.stdlib_module_names, *LIBRARIES}))
    done = run([*script, "bench", str(pets), "--image-size", "32", "--rounds", "1"], here)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "skip damaged records with --on-error skip" in line


def test_the_package_may_lie_in_the_current_directory(shards: Path) -> None:
    """Who stands in the folder of the package runs that, in all processes."""
    home = Path(__file__).parents[2]
    done = run([sys.executable, "-m", "tfrtool", "verify", str(shards), "--workers", "2"], home)
    assert (done.returncode, done.stderr) == (3, "")


def test_a_script_needs_no_guard(shards: Path, tmp_path: Path) -> None:
    """A library user's own script is not run again in other processes."""
    script = tmp_path / "mine.py"
    script.write_text(
        "import sys, tfrtool\n"
        "print('once')\n"
        "print(len(tfrtool.verify([sys.argv[1]], workers=2).shards))\n"
    )
    done = run([sys.executable, str(script), str(shards)], tmp_path)
    assert (done.stdout, done.stderr) == ("once\n2\n", "")
