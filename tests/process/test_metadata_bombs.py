"""Metadata with absurd numbers, in every command that reads it: one line that names the number."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.datasets import write_pets
from tests.more import more
from tests.photos import image_bytes
from tfrtool.cli import main

pytestmark = pytest.mark.tf

_MEMORY = 1_500 * 1024 * 1024
"""Bytes of address space that a command may take that doesn't import TensorFlow."""

_SECONDS = 300


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, with little memory and time."""
    return subprocess.run(
        [sys.executable, "-m", "tfrtool", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY)),
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of two splits."""
    return write_pets(tmp_path_factory.mktemp("bombs"))


@pytest.fixture
def dataset(whole: Path, tmp_path: Path) -> Path:
    """Return a copy of it, by links, whose metadata may be replaced."""
    copy = tmp_path / "pets"
    copy.mkdir()
    for path in whole.iterdir():
        os.link(path, copy / path.name)
    return copy


def change(path: Path, edit: Callable[[Any], None]) -> None:
    """Change a JSON file, which gets a place of its own."""
    data = json.loads(path.read_text())
    edit(data)
    path.unlink()
    path.write_text(json.dumps(data))


@pytest.mark.more
def test_millions_of_shard_lengths(dataset: Path) -> None:
    """Three million lengths in dataset_info.json are a fault of it, found at once."""
    change(
        dataset / "dataset_info.json",
        lambda data: data["splits"][0].update(shardLengths=["1"] * 3_000_000),
    )
    for command in (["verify"], ["inspect", "dataset"]):
        done = run(*command, dataset)
        assert done.returncode == 3, done.stderr
        assert "3,000,0" in done.stdout
        assert "100,000" in " ".join(done.stdout.split())


_NESTED: Any = "x"
for _ in range(900):
    _NESTED = [_NESTED]

HOSTILE: list[tuple[str, Any]] = [
    ("a number of 5,000 digits", "1" * 5000),
    ("a fraction", 1.5),
    ("infinity", 1e999),
    ("negative", "-1"),
    ("nested", _NESTED),
    ("a text of lengths", "123"),
    ("beyond 64 bits", 2**63),
]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(key, value, id=f"{key}: {name}")
        for name, value in HOSTILE
        for key in ("numBytes", "shardLengths", "name")
        if (key, value) != ("name", "-1")
    ],
)
def test_absurd_values(
    dataset: Path, key: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """What can't be meant makes metadata that can't be used: a fault, and no traceback."""
    written = [value] if key == "shardLengths" and value != "123" else value
    change(dataset / "dataset_info.json", lambda data: data["splits"][0].update({key: written}))
    assert main(["verify", str(dataset)]) == 3
    output, errors = capsys.readouterr()
    assert errors == ""
    assert len(output) < 4000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        more("dataset_info.json", "[" * 10**6),
        more("dataset_info.json", "1" * 10**6),
        ("dataset_info.json", "[" + "[]," * 10**7 + "[]]"),
        ("dataset_info.json", "pipe"),
        more("write_report.json", "[" + "[]," * 10**7 + "[]]"),
        more("write_report.json", "pipe"),
    ],
    ids=["deep", "long", "many", "pipe", "many in a report", "pipe for a report"],
)
def test_files_that_are_bombs(dataset: Path, name: str, text: str) -> None:
    """Deep, long and endless JSON costs neither memory nor time."""
    (dataset / name).unlink()
    if text == "pipe":
        os.mkfifo(dataset / name)
    else:
        (dataset / name).write_text(text)
    done = run("verify", dataset)
    assert done.returncode == 3, done.stderr
    assert f"parse  {dataset / name}" in done.stdout


@pytest.mark.more
def test_a_long_report_is_no_fault(dataset: Path) -> None:
    """A report of a million images that were converted is as long as that; its shards are read."""
    path = dataset / "write_report.json"
    report = json.loads(path.read_text())
    report["converted"] = [{"key": f"{n}.png", "from": "PNG", "reason": "x" * 40} for n in range(9)]
    path.unlink()
    path.write_text(json.dumps(report, indent=2) + " " * 70 * 1024 * 1024)
    assert run("verify", dataset).returncode == 0
    digest = report["splits"]["train"]["shards"][0]["sha256"]
    path.write_text(path.read_text().replace(digest, "0" * 64))
    assert run("verify", dataset).returncode == 3


def test_a_vocabulary_without_end(dataset: Path) -> None:
    """Label names beyond what is read are left out of pictures, and are an error in training."""
    import tfrtool

    path = dataset / "label.labels.txt"
    path.unlink()
    path.write_text("a\n" * 150_000)
    with pytest.raises(tfrtool.DatasetError) as caught:
        tfrtool.dataset(dataset)
    assert "150,000 lines" in str(caught.value)
    assert run("verify", dataset, "--images").returncode == 0


def test_class_names_end_at_line_feeds(dataset: Path) -> None:
    """A name may hold what only Python takes for the end of a line, as TFDS reads it."""
    import tfrtool

    path = dataset / "label.labels.txt"
    path.unlink()
    path.write_text("ca\u2028t\r\ndo\x0bg\n", newline="")
    assert tfrtool.dataset(dataset).class_names == ("ca\u2028t", "do\x0bg")


def test_billions_of_classes(dataset: Path) -> None:
    """Two billion classes in features.json are an error that names the number."""
    import tfrtool

    (dataset / "label.labels.txt").unlink()
    change(
        dataset / "features.json",
        lambda data: data["featuresDict"]["features"]["label"]["classLabel"].update(
            numClasses="2000000000"
        ),
    )
    with pytest.raises(tfrtool.DatasetError) as caught:
        tfrtool.dataset(dataset)
    assert "2,000,000,000 classes; the limit is 100,000" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        more("item {" + "a:1 " * 80_000 + "}", "320,007 characters (limit 65,536)"),
        ("item {\n" * 500_000, "nested too deeply"),
        more("item { name: '" + "\\'" * 2_000_000, "characters (limit 65,536)"),
        more("item {" + "\n" * 5_000_000, 'Expected "}"'),
        more("item {\n id: 1\n}\n" * 150_000, "item 1 has no name"),
    ],
    ids=["one long line", "nested", "a long text", "empty lines", "many items"],
)
def test_label_maps_that_are_bombs(tmp_path: Path, text: str, reason: str) -> None:
    """A label map that is long in any way costs neither memory nor time."""
    (tmp_path / "a.csv").write_text("path,label\na.jpg,cat\n")
    (tmp_path / "a.jpg").write_bytes(image_bytes())
    (tmp_path / "map.pbtxt").write_text(text)
    done = run("write", tmp_path / "a.csv", tmp_path / "out", "--labels", tmp_path / "map.pbtxt")
    assert done.returncode == 1, done.stderr
    assert reason in done.stderr
