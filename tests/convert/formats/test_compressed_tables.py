"""Tables of text that are compressed: what they may decompress to."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import tfrtool
from tests.records.strategies import shard_of

BOMBS = {
    "a.csv.gz": (b"a\n" + b"1\n" * 300, "to more than 100 lines"),
    "b.csv.gz": (b"a\n1\n" + b"\n" * 300, "to more than 100 lines"),
    "c.csv.gz": (b"a\n" + b"x" * 4000 + b"\n", "to more than 3,000 bytes"),
    "d.jsonl.gz": (b'{"a": 1}\n' * 300, "to more than 100 lines"),
    "e.jsonl.gz": (b"[" + b'{"a":1},' * 300 + b"{}]", "more than 100 rows in a compressed file"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines, rows and bytes are limited before records are made of them."""
    monkeypatch.setattr("tfrtool.storage.limits.FREE_ROWS", 100)
    monkeypatch.setattr("tfrtool.storage.limits.FREE_TEXT_BYTES", 3000)
    monkeypatch.setattr("tfrtool.storage.limits.MAX_UNPACKED_RATIO", 10)
    content, words = BOMBS[name]
    (tmp_path / name).write_bytes(gzip.compress(content))
    with pytest.raises(tfrtool.SourceError, match=rf"{name}.*: .*{words}"):
        tfrtool.convert(tmp_path / name, tmp_path / "new")
    plain = name.removesuffix(".gz")
    (tmp_path / plain).write_bytes(content)
    assert tfrtool.convert(tmp_path / plain, tmp_path / "new").job.records_out


@pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.gz"])
def test_output_has_no_limit(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that are all alike become a table that is read back, however well it packs."""
    monkeypatch.setattr("tfrtool.storage.limits.FREE_ROWS", 100)
    payload = tfrtool.encode_example({"a": 1})
    (tmp_path / "a.tfrecord").write_bytes(shard_of([payload] * 300))
    tfrtool.convert(tmp_path / "a.tfrecord", tmp_path / name)
    with pytest.raises(tfrtool.SourceError, match="decompress it if you trust it"):
        tfrtool.convert(tmp_path / name, tmp_path / "back")
