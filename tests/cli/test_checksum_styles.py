"""What ``tfrtool verify`` and ``repair`` show of files with other checksums than TensorFlow's."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.cli.inspecting import Capture
from tests.records.checksum_styles import file_of
from tests.records.strategies import shard_of
from tests.records.test_checksum_styles import PAYLOADS
from tfrtool.cli import main


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A file of 20 Examples whose checksums are zero."""
    path = tmp_path / "foreign.tfrecord"
    path.write_bytes(file_of("zero", PAYLOADS))
    return path


@pytest.mark.parametrize("command", [["verify"], ["inspect", "shard"]])
def test_the_remedy_is_shown(foreign: Path, command: list[str], capsys: Capture) -> None:
    """Both commands show the style and the option that recovers the records: code 3."""
    assert main([*command, str(foreign)]) == 3
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "likely: its checksums are zero; run tfrtool repair --accept-checksums zero to recover "
        "20 records"
    ) in shown


def test_records_are_recovered(foreign: Path, capsys: Capture) -> None:
    """The report says that payloads were not checked, in text and in JSON: code 0."""
    out, again = foreign.with_name("saved"), foreign.with_name("again")
    command = ["repair", str(foreign), "--accept-checksums", "zero"]
    assert main([*command, str(out)]) == 0
    shown = capsys.readouterr().out
    assert "20 records, read back and compared" in shown
    assert "zero in the source; damage inside payloads can't be detected" in shown
    assert out.read_bytes() == shard_of(PAYLOADS)
    assert main([*command, str(again), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["records"], data["accepted_checksums"]) == (20, "zero")


def test_without_the_option_the_report_is_as_before(tmp_path: Path, capsys: Capture) -> None:
    """The JSON of a usual repair has no key for checksums."""
    source = tmp_path / "a"
    source.write_bytes(shard_of(PAYLOADS))
    assert main(["repair", str(source), str(tmp_path / "b"), "--json"]) == 0
    assert "accepted_checksums" not in json.loads(capsys.readouterr().out)


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """A stream, which is read once, is checked for its style and recovered."""
    stdin = io.TextIOWrapper(io.BytesIO(file_of("zlib", PAYLOADS)))
    monkeypatch.setattr("sys.stdin", stdin)
    out = tmp_path / "saved"
    assert main(["repair", "-", str(out), "--accept-checksums", "zlib"]) == 0
    assert "valid in every recovered record" in capsys.readouterr().out
    assert out.read_bytes() == shard_of(PAYLOADS)
