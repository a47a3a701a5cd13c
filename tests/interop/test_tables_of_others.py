"""Tables that pandas, polars, pyarrow and Hugging Face's ``datasets`` write and read."""

from __future__ import annotations

import gzip
import io
import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import tfrtool
from tests.convert.formats.test_conversion import payloads_in
from tests.photos import image_bytes
from tfrtool.cli import main
from tfrtool.examples.example import decode_example

Capture = pytest.CaptureFixture[str]

ROWS: dict[str, list[Any]] = {"n": [1, -2, 3], "x": [0.5, 1.5, 2.5], "s": ["a", "é", "c, d"]}
EXPECTED = [
    {"n": (1,), "x": (0.5,), "s": (b"a",)},
    {"n": (-2,), "x": (1.5,), "s": ("é".encode(),)},
    {"n": (3,), "x": (2.5,), "s": (b"c, d",)},
]


def run(*words: object) -> int:
    """Run the command, and return its exit code."""
    return main([str(word) for word in words])


def records(folder: Path) -> list[dict[str, Any]]:
    """Return the values of each record's features."""
    examples = map(decode_example, payloads_in(folder))
    return [{name: tuple(one.values) for name, one in ex.features.items()} for ex in examples]


def _polars(**options: Any) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        polars = pytest.importorskip("polars")
        polars.DataFrame(ROWS).write_ipc(path, **options)

    return make


def _stream(path: Path) -> None:
    table = pa.table(ROWS)
    table = table.set_column(2, "s", table["s"].combine_chunks().dictionary_encode())
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table, max_chunksize=2)


MAKERS: dict[str, Callable[[Path], object]] = {
    "pandas.feather": lambda path: pd.DataFrame(ROWS).to_feather(path),
    "polars.arrow": _polars(),
    "polars.ipc": _polars(compression="zstd"),
    "pyarrow.arrow": _stream,
    "no-suffix": _stream,
    "a.tsv": lambda path: pd.DataFrame(ROWS).to_csv(path, sep="\t", index=False),
    "a.csv.gz": lambda path: pd.DataFrame(ROWS).to_csv(path, index=False),
    "a.tsv.gz": lambda path: pd.DataFrame(ROWS).to_csv(path, sep="\t", index=False),
    "a.jsonl.gz": lambda path: pd.DataFrame(ROWS).to_json(path, orient="records", lines=True),
    "a.json": lambda path: pd.DataFrame(ROWS).to_json(path, orient="records"),
    "indented.json": lambda path: pd.DataFrame(ROWS).to_json(path, orient="records", indent=2),
}


@pytest.mark.parametrize("name", MAKERS)
def test_tables_are_read(tmp_path: Path, name: str) -> None:
    """The same rows are the same records, whatever file they come from and who made it."""
    MAKERS[name](tmp_path / name)
    report = tfrtool.convert(tmp_path / name, tmp_path / "out", shards=2)
    assert records(tmp_path / "out") == EXPECTED
    assert sum(split.records for split in report.job.splits.values()) == 3


def test_saved_datasets(tmp_path: Path) -> None:
    """Folders of ``save_to_disk`` are read with their splits, class names and images."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    features = datasets.Features(
        image=datasets.Image(), label=datasets.ClassLabel(names=["cat", "dog"])
    )
    images = [image_bytes(size=(8 + at, 6)) for at in range(5)]
    rows = {"image": [{"bytes": one, "path": None} for one in images], "label": [0, 1, 0, 1, 1]}
    made = datasets.Dataset.from_dict(rows, features=features)
    made.save_to_disk(tmp_path / "one", num_shards=2)
    some = made.select([4, 0])
    datasets.DatasetDict({"train": made, "test": some}).save_to_disk(tmp_path / "two")
    tfrtool.convert(tmp_path / "one", tmp_path / "out")
    assert [row["image"] for row in records(tmp_path / "out")] == [(one,) for one in images]
    labels = (tmp_path / "out" / "label.labels.txt").read_text()
    assert labels.split() == ["cat", "dog"]
    report = tfrtool.convert(tmp_path / "two", tmp_path / "splits")
    assert {name: one.records for name, one in report.job.splits.items()} == {"train": 5, "test": 2}
    written = tfrtool.write(tmp_path / "two", tmp_path / "written", dry_run=True)
    assert {name: one.records for name, one in written.splits.items()} == {"train": 5, "test": 2}
    assert written.splits["train"].labels == {"cat": 2, "dog": 3}


def test_write_reads_the_same_tables(tmp_path: Path) -> None:
    """Paths and labels, or images themselves, are found in every kind of table."""
    image = image_bytes()
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / name).write_bytes(image)
    paths = pd.DataFrame({"path": ["1.jpg", "2.jpg"], "label": ["cat", "dog"]})
    paths.to_feather(tmp_path / "paths.feather")
    paths.to_csv(tmp_path / "paths.csv.gz", index=False)
    paths.to_json(tmp_path / "paths.json", orient="records")
    paths.to_json(tmp_path / "paths.jsonl.gz", orient="records", lines=True)
    images = pd.DataFrame({"image": [image, image], "label": ["cat", "dog"]})
    images.to_feather(tmp_path / "images.feather")
    for source in sorted({*tmp_path.iterdir()} - {*tmp_path.glob("*.jpg")}):
        report = tfrtool.write(source, tmp_path / "out", dry_run=True)
        assert report.splits["train"].labels == {"cat": 1, "dog": 1}, source.name


@pytest.mark.parametrize("place", ["../a.arrow", "/etc/passwd", 7])
def test_saved_datasets_that_lead_elsewhere(tmp_path: Path, capsys: Capture, place: Any) -> None:
    """A file name in the JSON of such a folder is the name of a file in it."""
    folder = tmp_path / "one"
    folder.mkdir()
    _stream(tmp_path / "a.arrow")
    (folder / "dataset_info.json").write_text("{}")
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": place}]}))
    assert run("convert", folder, tmp_path / "out") == 1
    assert "state.json: invalid file name" in capsys.readouterr().err


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    "a.feather": pd.read_feather,
    "a.csv.gz": pd.read_csv,
    "a.tsv": lambda path: pd.read_csv(path, sep="\t"),
    "a.tsv.gz": lambda path: pd.read_csv(path, sep="\t"),
    "a.jsonl.gz": lambda path: pd.read_json(path, lines=True),
    "a.arrow": lambda path: pa.ipc.open_file(path).read_pandas(),
    "a.arrows": lambda path: pa.ipc.open_stream(path).read_pandas(),
}


@pytest.mark.parametrize("name", READERS)
def test_tables_are_written(tmp_path: Path, name: str) -> None:
    """Others read the rows; the same records come back, and the same bytes are written again."""
    pd.DataFrame(ROWS).to_json(tmp_path / "a.json", orient="records")
    tfrtool.convert(tmp_path / "a.json", tmp_path / "rows")
    tfrtool.convert(tmp_path / "rows", tmp_path / name)
    frame = READERS[name](tmp_path / name)
    assert frame["n"].tolist() == ROWS["n"]
    texts = [one.decode() if isinstance(one, bytes) else one for one in frame["s"]]
    assert texts == ROWS["s"]
    first = (tmp_path / name).read_bytes()
    tfrtool.convert(tmp_path / "rows", tmp_path / name, existing="overwrite")
    assert (tmp_path / name).read_bytes() == first
    tfrtool.convert(tmp_path / name, tmp_path / "again")
    assert payloads_in(tmp_path / "again") == payloads_in(tmp_path / "rows")


def test_a_compressed_web_dataset(tmp_path: Path) -> None:
    """A .tar.gz is read as the tar in it, also over the edge of a sample, and written."""
    members = {f"{at}.{end}": b"%d" % at for at in range(40) for end in ("cls", "txt")}
    for name in ("a.tar", "b.tar.gz"):
        is_packed = name.endswith(".gz")
        with tarfile.open(tmp_path / name, "w:gz" if is_packed else "w") as tar:
            for member, data in members.items():
                info = tarfile.TarInfo(member)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    tfrtool.convert(tmp_path / "a.tar", tmp_path / "plain", shards=3)
    tfrtool.convert(tmp_path / "b.tar.gz", tmp_path / "packed", shards=3)
    assert payloads_in(tmp_path / "packed") == payloads_in(tmp_path / "plain")
    tfrtool.convert(tmp_path / "plain", tmp_path / "c.tar.gz")
    with tarfile.open(tmp_path / "c.tar.gz", "r:gz") as tar:
        assert len(tar.getmembers()) >= 80


def test_views_and_dictionaries(tmp_path: Path) -> None:
    """Layouts that only Arrow has hold the same values."""
    texts = pa.array(["a", "b"])
    columns = {
        "view": texts.cast(pa.string_view()),
        "dictionary": texts.dictionary_encode(),
        "runs": pa.RunEndEncodedArray.from_arrays([2], ["a"]),
    }
    table = pa.table(columns)
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table)
    tfrtool.convert(tmp_path / "a.arrow", tmp_path / "out")
    assert records(tmp_path / "out") == [
        {"view": (b"a",), "dictionary": (b"a",), "runs": (b"a",)},
        {"view": (b"b",), "dictionary": (b"b",), "runs": (b"a",)},
    ]


def test_options_of_csv(tmp_path: Path, capsys: Capture) -> None:
    """Quotation marks, headers and missing values are as the options say; defaults stay."""
    path = tmp_path / "a.csv"
    path.write_text("1;'a;b';NA\n2;'c';3\n")
    words = ("--delimiter", ";", "--quote", "'", "--no-header", "--null", "NA", "--null", "c")
    assert run("convert", path, tmp_path / "out", *words) == 0
    assert records(tmp_path / "out") == [
        {"column1": (1,), "column2": (b"a;b",)},
        {"column1": (2,), "column3": (3,)},
    ]
    path.write_text('a,b\n1,"x\n2,y"\n')
    assert run("convert", path, tmp_path / "raw", "--quote", "none") == 0
    assert records(tmp_path / "raw") == [{"a": (1,), "b": (b'"x',)}, {"a": (2,), "b": (b'y"',)}]
    for option in (("--quote", "'"), ("--no-header",), ("--null", "NA")):
        assert run("convert", tmp_path / "out", tmp_path / "x.parquet", *option) == 2
        assert f"{option[0]} applies to CSV, not to tfrecord" in capsys.readouterr().err
    assert run("convert", path, tmp_path / "x", "--quote", "ab") == 2
    assert "invalid --quote 'ab'" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["csv", "jsonl", "arrow"])
def test_standard_input_and_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any, form: str
) -> None:
    """What goes through pipes is what goes through files."""
    pd.DataFrame(ROWS).to_json(tmp_path / "a.json", orient="records")
    tfrtool.convert(tmp_path / "a.json", tmp_path / "rows")
    assert run("convert", tmp_path / "rows", "-", "--to", form) == 0
    out = capfdbinary.readouterr().out
    if form == "arrow":
        assert pa.ipc.open_stream(out).read_all().num_rows == 3
    else:
        tfrtool.convert(tmp_path / "rows", tmp_path / f"a.{form}")
        assert out == (tmp_path / f"a.{form}").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(out)))
    assert run("convert", "-", tmp_path / "again", "--from", form) == 0
    assert payloads_in(tmp_path / "again") == payloads_in(tmp_path / "rows")


def test_streams_that_can_not_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Errors name the stream, and not the file that its content was copied to."""
    (tmp_path / "a.csv").write_text("a\n1\n")
    for words, code, what in (
        (("a.csv", "-"), 2, "-: standard output requires --to arrow, jsonl"),
        (("a.csv", "-", "--to", "parquet"), 2, "-: standard output requires --to"),
        (("a.csv", "-", "--to", "csv", "--json"), 2, "--json can't be used with standard output"),
        (("-", "a.csv", "out"), 2, "-: standard input can't be used together with"),
        (("-", "out", "--from", "jsonl"), 1, "error: -: line 1: not valid JSON"),
        (("-", "out"), 1, "error: -: unknown format"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{a}\n")))
        monkeypatch.chdir(tmp_path)
        assert run("convert", *words) == code
        assert what in capsys.readouterr().err


DAMAGE: dict[str, tuple[str, bytes, str]] = {
    "cut gzip": ("a.csv.gz", gzip.compress(b"a\n" + b"1234\n" * 9999)[:-20], "damaged gzip data"),
    "cut list": ("a.json", b'[{"a": 1}, {"a": 2}', "input data was truncated"),
    "behind a list": ("a.json", b'[{"a": 1}] {}', "offset 10: invalid JSON: text after the list"),
    "not an object": ("a.json", b'[{"a": 1}, [2]]', "the list[1] is not an object"),
    "no comma": ("a.json", b'[{"a": 1} {"a": 2}]', "invalid JSON"),
    "cut Arrow": ("a.arrow", b"ARROW1\0\0" + bytes(64), "not an Arrow file, or truncated"),
    "Feather 1": ("a.feather", b"FEA1" + bytes(64), "Feather version 1 is not supported"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_tables(tmp_path: Path, capsys: Capture, case: str) -> None:
    """Each is an error that names the file, and nothing is written."""
    name, data, what = DAMAGE[case]
    (tmp_path / name).write_bytes(data)
    assert run("convert", tmp_path / name, tmp_path / "out") == 1
    err = capsys.readouterr().err
    assert f"error: {tmp_path / name}" in err
    assert what in err
    assert not (tmp_path / "out").exists()


def test_no_damaged_arrow_file_ends_the_process(tmp_path: Path, capsys: Capture) -> None:
    """Whatever byte is wrong, the command ends with records or an error of its own."""
    whole = io.BytesIO()
    table = pa.table(ROWS)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(whole, table.schema, options=options) as file:
        file.write_table(table)
    data = whole.getvalue()
    for at in range(8, len(data), max(1, len(data) // 12)):
        path = tmp_path / "a.arrow"
        path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        code = run("convert", path, tmp_path / f"out{at}")
        assert code in (0, 1, 3)
        assert "Traceback" not in capsys.readouterr().err
