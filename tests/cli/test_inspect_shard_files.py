"""Which files ``tfrtool inspect shard`` takes, and what it says of others."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from tests.cli.inspecting import CAT, Capture, failure, run, run_json
from tests.conftest import MakeShard
from tests.examples.strategies import int64, string
from tests.records.strategies import shard_of
from tfrtool.examples.example import encode_example


def test_directory(capsys: Capture, make_shard: MakeShard, tmp_path: Path) -> None:
    """A directory means the shard files in it, never its metadata."""
    for name in ("a-train.tfrecord-00000-of-00002", "a-train.tfrecord-00001-of-00002"):
        make_shard([CAT], name)
    for name in ("features.json", "dataset_info.json", "label.labels.txt"):
        (tmp_path / name).write_text("{}")
    code, found = run_json(capsys, tmp_path)
    assert code == 0
    assert [Path(item["path"]).name[-14:] for item in found] == ["00000-of-00002", "00001-of-00002"]


def test_glob(capsys: Capture, make_shard: MakeShard, tmp_path: Path) -> None:
    """A quoted glob means the files that match, in natural order."""
    for name in ("a-10.tfrecord", "a-9.tfrecord", "b.tfrecord"):
        make_shard([CAT], name)
    _, found = run_json(capsys, f"{tmp_path}/a-*")
    assert [Path(item["path"]).name for item in found] == ["a-9.tfrecord", "a-10.tfrecord"]


def test_awkward_paths(capsys: Capture, make_shard: MakeShard) -> None:
    """Paths with spaces and letters of any language are read, and told as they are."""
    path = make_shard([CAT], "Füße und Katzen/猫 1.tfrecord")
    code, (found,) = run_json(capsys, path)
    assert (code, found["path"]) == (0, str(path))
    assert run(path) == 0
    assert str(path) in capsys.readouterr().out
    assert "猫 2.tfrecord" in failure(capsys, 1, path.with_name("猫 2.tfrecord"))


@pytest.mark.parametrize("name", [b"a\x1b[31m\nb\r.tfrecord", b"caf\xe9.tfrecord"])
def test_paths_that_are_no_text(capsys: Capture, tmp_path: Path, name: bytes) -> None:
    """Control characters and bytes that are no UTF-8 never reach the terminal from a name."""
    path = tmp_path / os.fsdecode(name)
    path.write_bytes(shard_of([CAT]))
    assert run(path) == 0
    out = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in out)
    assert sum(".tfrecord" in line for line in out.splitlines()) == 1
    assert run_json(capsys, path)[0] == 0
    line = failure(capsys, 1, path.with_name(f"{path.name}.missing"))
    assert line.isprintable()


def test_control_characters_in_a_shard(capsys: Capture, make_shard: MakeShard) -> None:
    """Nothing that a shard holds reaches the terminal as a control character."""
    evil = "\x1b]0;title\x07\r\n\u202e"
    payload = encode_example(
        {evil: string(evil.encode(), b"\x1b[2J"), "b": string(b"line\nline\rline\ttab")}
    )
    number = encode_example({evil: int64(1)})
    odd = make_shard([payload, number, f"text {evil}".encode(), payload], "odd")
    plain = make_shard([CAT, encode_example({"image": string(evil.encode())})], "plain")
    for words in ([], ["--raw"], ["--feature", f"{evil}:int64=1"], ["--feature", f"{evil}:int64"]):
        run(odd, plain, *words)
        captured = capsys.readouterr()
        assert captured.out
        assert all(c.isprintable() or c == "\n" for c in captured.out)
        run(odd, plain, *words, "--json")
        assert capsys.readouterr().out.isascii()


def test_directory_in_place_of_a_shard(
    capsys: Capture, make_shard: MakeShard, tmp_path: Path
) -> None:
    """A directory with a shard's name in a directory is passed over."""
    make_shard([CAT], "a.tfrecord")
    (tmp_path / "b.tfrecord").mkdir()
    _, found = run_json(capsys, tmp_path)
    assert [Path(item["path"]).name for item in found] == ["a.tfrecord"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(capsys: Capture, make_shard: MakeShard) -> None:
    """A file that may not be read is named."""
    path = make_shard([CAT])
    path.chmod(0)
    assert "permission denied" in failure(capsys, 1, path)


DECOYS = {
    "git lfs pull": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    "HTML": b"<!DOCTYPE html>\n<html><head><title>404</title></head></html>\n",
    "gzip data containing plain text": gzip.compress(b"chr1\t10\t20\n" * 10, mtime=0),
}


@pytest.mark.parametrize(("word", "content"), DECOYS.items())
def test_decoy(capsys: Capture, tmp_path: Path, word: str, content: bytes) -> None:
    """What is no TFRecord is one fault, which says what it is; exit code 3."""
    path = tmp_path / "a.tfrecord"
    path.write_bytes(content)
    code, (found,) = run_json(capsys, path)
    assert code == 3
    assert (found["records"], found["payload"]) == (0, "empty")
    (fault,) = found["faults"]
    assert (fault["kind"], fault["offset"], fault["record"]) == ("not-tfrecord", 0, None)
    assert word in fault["message"]
