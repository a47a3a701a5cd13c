"""What commands say of directories that hold more than they read, or less."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.inspecting import CAT, Capture
from tests.conftest import MakeShard
from tests.datasets import image_payload
from tfrtool.cli import main
from tfrtool.records.framing import frame

COMMANDS = [
    "count {}",
    "index {}",
    "verify {}",
    "cat {}",
    "query {} 'SELECT count(*) FROM records'",
    "inspect shard {}",
    "inspect schema {}",
    "inspect stats {}",
    "inspect dataset {}",
    "extract {} images",
    "report {} --out page.html",
    "diff {} {}",
    "reshard {} new --shards 1",
    "filter {} some --sample 1",
    "convert {} rows.jsonl",
]


@pytest.fixture
def data(make_shard: MakeShard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with a shard, and three more below it."""
    make_shard([image_payload(0)], "data/a.tfrecord")
    make_shard([image_payload(1)], "data/more/b.tfrecord")
    make_shard([image_payload(2)], "data/more/deep/c.tfrecord")
    make_shard([image_payload(3), image_payload(4)], "data/more/deep/d.tfrecord")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("data")
def test_shards_that_are_not_included_are_counted(command: str, capsys: Capture) -> None:
    """Every command says how many there are, where, and which pattern includes them."""
    assert main(shlex.split(command.format("data", "data"))) == 0
    out, err = capsys.readouterr()
    said = " ".join((out + err).split())
    assert "1 shard in 1 subfolder is not included (more)" in said
    assert "quote a pattern to read all files: 'data/**'" in said


def test_the_pattern_includes_them(data: Path, capsys: Capture) -> None:
    """What the note advises does what it says, and is silent."""
    assert main(["count", "--json", str(data)]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    pattern = shlex.split(err)[-1]
    assert main(["count", "--json", pattern]) == 0
    out, err = capsys.readouterr()
    assert sum(json.loads(line)["records"] for line in out.splitlines()) == 5
    assert err == ""


@pytest.mark.usefixtures("data")
def test_programs_are_told(capsys: Capture) -> None:
    """Where JSON has notes, it is among them."""
    for command in ("verify --json data", "inspect dataset --json data", "diff --json data data"):
        main(command.split())
        last = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert any("1 shard in 1 subfolder" in note for note in last["notes"]), command


def test_versions_are_never_mixed(make_shard: MakeShard, tmp_path: Path, capsys: Capture) -> None:
    """Older versions are counted, but no pattern that reads them all is advised."""
    for version in ("1.0.0", "1.1.0"):
        make_shard([CAT], f"pets/{version}/pets-train.tfrecord-00000-of-00001")
    assert main(["count", str(tmp_path / "pets")]) == 0
    err = capsys.readouterr().err
    assert "1 shard in 1 subfolder is not included (1.0.0); name a folder to read it\n" in err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("where", ["pets", "pets/1.0.0"])
def test_an_interrupted_write_is_named(
    command: str,
    where: str,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A killed first write leaves a hidden folder: every command says so, and what ends it."""
    staging = tmp_path / where / ".tfrtool-incomplete"
    staging.mkdir(parents=True)
    (staging / "pets-train.tfrecord-00000-of-00002").write_bytes(frame(CAT))
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command.format("pets", "pets"))) == 1
    err = capsys.readouterr().err
    assert f"{where}: a write was interrupted here, or is still running" in err
    assert "--resume to finish it" in err


def test_a_pattern_of_an_interrupted_write(tmp_path: Path, capsys: Capture) -> None:
    """A pattern that matches nothing yet says so, too."""
    (tmp_path / ".tfrtool-incomplete").mkdir()
    assert main(["count", f"{tmp_path}/*.tfrecord*"]) == 1
    assert "a write was interrupted here" in capsys.readouterr().err


@pytest.mark.usefixtures("data")
def test_folders_that_a_pattern_matches_are_included_as_advised(capsys: Capture) -> None:
    """What a note or an error about a pattern advises does what it says, and is silent."""
    for words in (["data/**"], ["data/*", "data/*/**"], ["data/*.tfrecord"]):
        assert main(["count", *words]) == 0
        assert "not included" not in capsys.readouterr().err
    assert main(["count", "data/mo*"]) == 1
    err = capsys.readouterr().err
    assert "no shard matches; data/mo*: 1 shard in 1 folder is not included" in err
    assert "quote a pattern to read all files: 'data/mo*/**'" in err
    assert main(["count", "--json", "data/mo*/**"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
