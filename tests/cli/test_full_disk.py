"""A full disk: every command names the file that it can't write, and why, in the same words."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.inspecting import Capture
from tests.datasets import image_payload, write_foreign
from tests.photos import image_bytes, write_class_folders
from tfrtool import encode_example
from tfrtool.cli import main
from tfrtool.records.framing import frame

resource = pytest.importorskip("resource", reason="Windows has no limits on the size of files")

_MOST = 8 * 1024
_SAID = "can't be written: file too large"


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file become larger than some bytes, as if the disk were full then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _error(capsys: Capture, *words: str | Path) -> str:
    with full_disk():
        assert main([*map(str, words)]) == 1
    return capsys.readouterr().err.splitlines()[-1]


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a shard that is larger than what can be written."""
    path = tmp_path_factory.mktemp("in") / "in-train.tfrecord"
    records = [encode_example({"label": 1, "text": os.urandom(100)}) for _ in range(1000)]
    path.write_bytes(b"".join(map(frame, records)))
    return path


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("reshard SHARD OUT", "out-train.tfrecord-00000-of-00001"),
        ("filter SHARD OUT --where 'label = 1'", "out-train.tfrecord-00000-of-00001"),
        ("edit SHARD OUT --drop label", "out-train.tfrecord-00000-of-00001"),
        ("convert SHARD OUT --to parquet", "train-00000-of-00001.parquet"),
        ("convert SHARD OUT --to jsonl", "out-train-00000-of-00001.jsonl"),
        ("convert SHARD OUT --to webdataset", "out-train-000000.tar"),
        ("convert SHARD OUT.tfrecord", ""),
        ("repair SHARD OUT", ""),
        ("index SHARD --out OUT", "in-train.tfrecord.idx"),
        ("query SHARD 'SELECT * FROM records' --out OUT.csv", ""),
    ],
)
def test_the_file_is_named_and_nothing_else(
    command: str, file: str, shard: Path, tmp_path: Path, capsys: Capture
) -> None:
    """No temporary name is shown, and no word of a library; nothing is left there."""
    target = tmp_path / "out"
    words = [
        word.replace("SHARD", str(shard)).replace("OUT", str(target))
        for word in shlex.split(command)
    ]
    (name,) = (word for word in words if word.startswith(str(target)))
    error = _error(capsys, *words)
    assert re.sub(r"-0000\d-of-0000\d|-00000\d", "", error) == re.sub(
        r"-0000\d-of-0000\d|-00000\d", "", f"tfrtool: error: {Path(name, file)}: {_SAID}"
    )
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_image_that_is_taken_out(tmp_path: Path, capsys: Capture) -> None:
    """`extract` and `report` name the file."""
    payload = image_payload(1, data=image_bytes("PNG", mode="RGB", size=(2000, 2000)))
    folder = write_foreign(tmp_path / "in", [[payload]])
    assert len(payload) > _MOST
    target = tmp_path / "out"
    error = _error(capsys, "extract", folder, target)
    assert re.fullmatch(f"tfrtool: error: {target}/[^:]*: {_SAID}", error)
    report = tmp_path / "out.html"
    assert _error(capsys, "report", folder, "--out", report).endswith(f"{report}: {_SAID}")


@pytest.mark.tf
def test_write_says_the_same_of_tensorflows_file(tmp_path: Path, capsys: Capture) -> None:
    """What TensorFlow says of its own operations and files is not shown."""
    write_class_folders(tmp_path / "photos", count=30)
    error = _error(capsys, "write", tmp_path / "photos", tmp_path / "out", "--shards", "1")
    file = tmp_path / "out" / "out-train.tfrecord-00000-of-00001"
    assert error == f"tfrtool: error: {file}: {_SAID}"
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


@pytest.mark.tf
@pytest.mark.usefixtures("quick_cnn")
@pytest.mark.more
def test_train_says_the_same_of_its_checkpoint(tmp_path: Path, capsys: Capture) -> None:
    """It is the first large file of a run; TensorFlow's names for its parts are not shown."""
    write_class_folders(tmp_path / "photos", count=4)
    assert main(["write", str(tmp_path / "photos"), str(tmp_path / "pets")]) == 0
    words = ["--model", "cnn", "--image-size", "32", "--epochs", "1", "--validation", "0.5"]
    error = _error(capsys, "train", tmp_path / "pets", *words, "--out", tmp_path / "run")
    assert error == f"tfrtool: error: {tmp_path / 'run' / 'checkpoint'}: {_SAID}"
