"""Text with control characters: what makes bytes of a column, and what makes text of it again."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tfrtool
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.examples.tfds_metadata import connector

TEXTS = {
    "next line": ["one\u0085two", "a\u0080", "\u0099"],
    "form feed": ["page\x0cpage", "\x1b[31mred", "word"],
    "deleted": ["a\x7fb"],
    "long": ["x" * 2000 + "\x08", "\x0b" + "ä" * 2000],
}


def shard_of_values(path: Path, values: list[bytes]) -> Path:
    """Write a shard with a value in each record."""
    path.write_bytes(shard_of([tfrtool.encode_example({"t": value}) for value in values]))
    return path


@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS)
def test_control_characters_alone_make_no_bytes(tmp_path: Path, texts: list[str]) -> None:
    """UTF-8 is text, whatever characters are between the letters."""
    shard = shard_of_values(tmp_path / "a.tfrecord", [text.encode() for text in texts])
    table = tfrtool.read_table(shard).to_arrow()
    assert table.schema.field("t").type == pa.string()
    assert table["t"].to_pylist() == texts


@pytest.mark.parametrize("value", [b"\1\2\3", b"\0\0\0\0", b"a\0b", b"\x85", b"\0" * 2000])
def test_numbers_that_are_valid_utf8_stay_bytes(tmp_path: Path, value: bytes) -> None:
    """NUL, or more control characters than letters, is what stored arrays have."""
    shard = shard_of_values(tmp_path / "a.tfrecord", [b"text", value])
    table = tfrtool.read_table(shard).to_arrow()
    assert table.schema.field("t").type == pa.binary()
    assert table["t"].to_pylist() == [b"text", value]


def test_what_is_declared_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text in features.json, a cast and a schema make text of valid UTF-8 with NUL."""
    values = ["a\0b", "\1\2\3"]
    shard = shard_of_values(tmp_path / "a.tfrecord", [value.encode() for value in values])
    target = tmp_path / "a.parquet"
    words = ["convert", str(shard), str(target), "--overwrite"]
    assert main(words) == 0
    assert pq.read_schema(target).field("t").type != pa.string()
    assert main([*words, "--cast", "t:string"]) == 0
    assert pq.read_table(target)["t"].to_pylist() == values
    capsys.readouterr()
    assert main(["inspect", "schema", str(shard), "--emit", "json"]) == 0
    described = tmp_path / "described.json"
    described.write_text(capsys.readouterr().out)
    assert main([*words, "--schema", str(described)]) == 0
    assert pq.read_table(target)["t"].to_pylist() == values
    capsys.readouterr()
    features = connector(
        "FeaturesDict", featuresDict={"features": {"t": connector("Text", text={})}}
    )
    (tmp_path / "features.json").write_text(json.dumps(features))
    assert tfrtool.read_table(shard).to_arrow()["t"].to_pylist() == values
    sql = "SELECT typeof(t) AS kind, length(t) AS n FROM records"
    assert main(["query", str(shard), sql, "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ['{"kind": "VARCHAR", "n": 3}'] * 2
    (tmp_path / "features.json").write_text("[1, 2")
    assert tfrtool.read_table(shard).to_arrow().schema.field("t").type == pa.binary()


def test_a_cast_of_bytes_to_text_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not valid UTF-8 can't become text, and is not left as it is in silence."""
    shard = shard_of_values(tmp_path / "a.tfrecord", [b"text", b"\xff\xfe"])
    words = ["convert", str(shard), str(tmp_path / "a.parquet"), "--cast", "t:string"]
    assert main(words) == 1
    assert "column 't' can't be cast to string: some of its values are not UTF-8 text" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "a.parquet").exists()
