"""What works where TensorFlow isn't installed: in `.venv/base`, which ``make test-base`` makes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

BASE = Path(sys.prefix) / "base" / "bin" / "python"
ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
GOLDEN = ROOT / "tests" / "golden" / "write_folders.txt"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BASE.exists(), reason="`make test-base` makes .venv/base"),
]

WORK = """
write photos shards/pets --split train=0.5 --split test=0.5 --seed 3 --shards 2
write photos/labels.csv resized --resize 32 --dedupe
inspect shard damaged.tfrecord
inspect schema shards/pets --emit pbtxt
inspect schema shards/pets --emit tfds
inspect stats shards/pets
inspect images shards/pets --out sheet.png
inspect dataset shards/pets
cat shards/pets
count shards/pets
query shards/pets "SELECT label, count(*) FROM records GROUP BY label"
verify shards/pets --images
index shards/pets
repair damaged.tfrecord repaired.tfrecord
reshard shards/pets resharded/pets --shards 1 --shuffle
diff shards/pets resharded/pets
filter shards/pets cats/pets --where "label = 0"
append shards/pets cats/pets --out both
edit shards/pets edited/pets --drop image/filename
extract shards/pets files
convert shards/pets parquet --to parquet
convert parquet back --to tfrecord
convert shards/pets array --to arrayrecord
convert array again --to tfrecord
report shards/pets --out pets.html
"""
"""Commands that work, run in order in one process."""

DAMAGED = ("inspect shard damaged", "repair")
"""The beginnings of those that end with exit code 3."""

NEEDS = """
train shards/pets --model cnn --image-size 32 --out run
evaluate run shards/pets
predict run photos
bench shards/pets
write tfds:mnist digits
"""
"""Commands that need TensorFlow."""

PROGRAM = """
import shlex, sys
from tfrtool.cli import main
for line in sys.argv[1].strip().splitlines():
    code = main(shlex.split(line))
    sys.stderr.write(f"\\0{code}\\0")
"""


class Done(NamedTuple):
    """What a command came to."""

    line: str
    code: int
    errors: str


def run(program: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program where TensorFlow isn't installed, on the package of this repository."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [str(BASE), "-c", program, *arguments]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)


def run_commands(lines: str, folder: Path) -> list[Done]:
    """Run commands, one per line, in one process."""
    done = run(PROGRAM, lines, folder=folder)
    *parts, rest = done.stderr.split("\0")
    assert done.returncode == 0, rest
    codes = map(int, parts[1::2])
    return list(map(Done, lines.strip().splitlines(), codes, parts[::2]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with photos as in the golden files, and two shards."""
    root = tmp_path_factory.mktemp("base")
    for label in ("cat", "dog"):
        (root / "photos" / label).mkdir(parents=True)
        for number in range(6):
            name = f"{label}/{label}-{number:03}.jpg"
            shutil.copy(FIXTURES / "pets" / name, root / "photos" / name)
    (root / "photos" / "labels.csv").write_text("file,label\ncat/cat-000.jpg,cat\n")
    shutil.copy(FIXTURES / "damaged" / "payload-bit.tfrecord", root / "damaged.tfrecord")
    return root


@pytest.fixture(scope="module")
def work(folder: Path) -> list[Done]:
    """Return what the commands that work came to."""
    return run_commands(WORK, folder)


def test_commands_work(work: list[Done]) -> None:
    """Every command that needs no TensorFlow works without it."""
    failed = [one for one in work if one.code != 3 * one.line.startswith(DAMAGED)]
    assert not failed


def test_the_bytes_are_those_of_tensorflow(work: list[Done], folder: Path) -> None:
    """`write` writes the shards that the golden file has of TensorFlow, and reports how."""
    report = json.loads((folder / "shards" / "pets" / "write_report.json").read_text())
    written = [one["sha256"] for split in report["splits"].values() for one in split["shards"]]
    golden = re.findall(r'"sha256": "(\w+)"', GOLDEN.read_text())
    assert len(written) == 4
    assert written == golden[:4]
    (notice,) = report["notices"]
    assert notice in work[0].errors
    assert notice.startswith("TensorFlow is not installed, so tfrtool's own writer")


def test_what_needs_tensorflow_names_the_extra(work: list[Done], folder: Path) -> None:
    """A command that needs TensorFlow ends with one line that names the extra."""
    assert all(one.code in (0, 3) for one in work)  # there are shards to read
    for one in run_commands(NEEDS, folder):
        assert one.code == 2, one
        (line,) = one.errors.splitlines()
        assert line.startswith("tfrtool: error: ")
        assert line.endswith(
            'require TensorFlow, which is not installed; run pip install "tfrtool[tensorflow]"'
        )
    assert not (folder / "run").exists()
    assert not (folder / "digits").exists()


def test_functions_in_python(work: list[Done], folder: Path) -> None:
    """All public names can be imported; a call that needs TensorFlow names the extra."""
    assert work[0].code == 0
    program = """
from tfrtool import *
import tfrtool
pets = dataset("shards/pets")
calls = [
    lambda: train("shards/pets", model="cnn", image_size=32),
    lambda: evaluate("run", "shards/pets"),
    lambda: load_model("run"),
    lambda: list(predict("run", "photos")),
    lambda: bench("shards/pets"),
    lambda: pets.load(image_size=32),
    lambda: pets.drop_corrupt("scratch"),
]
for call in calls:
    try:
        call()
    except tfrtool.UsageError as error:
        assert 'pip install "tfrtool[tensorflow]"' in str(error), error
    else:
        raise AssertionError(call)
print(sorted(pets.splits), len(open_records("shards/pets", split="train")))
"""
    done = run(program, folder=folder)
    assert (done.stdout, done.stderr) == ("['test', 'train'] 5\n", "")
