"""Parquet files that are damaged, or unpack to far more than they hold."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tfrtool
from tests.more import more
from tests.photos import image_bytes
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.storage.child import Child

Capture = pytest.CaptureFixture[str]


def _error(capsys: Capture, *words: object) -> str:
    """Run a command that must fail with exit code 1; return the error."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = (one for one in captured.err.splitlines() if "error: " in one)
    return line


def test_a_file_that_crashes_the_library_is_an_error(
    shared_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The library aborts on it; the command names the file, and prints nothing else."""
    path = shared_data / "hostile" / "histogram-mismatch.parquet"
    assert main(["convert", str(path), str(tmp_path / "new")]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"tfrtool: error: {path}: ")
    assert line.endswith("found SIGABRT")
    assert not (tmp_path / "new").exists()


LONG = bytes(9000)
COUNT = 500
BOMBS: dict[str, tuple[Callable[[], pa.Array], dict[str, Any]]] = {
    "zstd": (lambda: pa.array([LONG] * COUNT), {"compression": "zstd", "use_dictionary": False}),
    "gzip": (lambda: pa.array([LONG] * COUNT), {"compression": "gzip", "use_dictionary": False}),
    "brotli": (lambda: pa.array([LONG] * COUNT), {
        "compression": "brotli", "use_dictionary": False,
    }),
    "lz4": (lambda: pa.array([LONG] * COUNT), {"compression": "lz4", "use_dictionary": False}),
    "a dictionary": (lambda: pa.array([LONG] * COUNT), {}),
    "a nested dictionary": (lambda: pa.array([[LONG.decode()]] * COUNT).cast(
        pa.list_(pa.dictionary(pa.int32(), pa.string()))
    ), {}),
    "run lengths": (lambda: pa.array([7] * 200_000), {}),
    "nulls": (lambda: pa.nulls(200_000, pa.int64()), {}),
    "nothing but rows": (lambda: pa.nulls(200_000), {}),
}  # fmt: skip


@pytest.mark.parametrize("kind", BOMBS)
def test_bombs_are_refused(
    kind: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a file unpacks to is limited however it is packed; packed less, it is converted."""
    monkeypatch.setattr("tfrtool.storage.limits.FREE_UNPACKED_BYTES", 1_000_000)
    make_column, options = BOMBS[kind]
    column = make_column()
    path, new = tmp_path / "bomb.parquet", tmp_path / "new"
    table = pa.table({"a": column, "n": pa.array([1] * len(column), pa.int8())})
    pq.write_table(table, path, **options)
    line = _error(capsys, "convert", path, new)
    assert "to more than 1," in line
    assert line.endswith("if you trust it, write it again without compression and dictionaries")
    assert not new.exists()
    if kind in ("zstd", "a dictionary"):
        pq.write_table(table, path, compression="none", use_dictionary=False)
        assert tfrtool.convert(path, new).job.records_out == COUNT


MANY = 2**31 - 1
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([MANY], pa.int32()), pa.array([7]))
ROWS: dict[str, pa.Array] = {
    "nulls": pa.nulls(MANY),
    "run ends": RUNS,
    "run ends in a list": pa.ListArray.from_arrays(pa.array([0, MANY], pa.int32()), RUNS),
    "nulls in a struct": pa.StructArray.from_arrays([pa.nulls(MANY)], ["a"]),
    "Parquet": pa.nulls(2_000_000, pa.bool_()),
    "a list in Parquet": pa.array([[None] * 1_100_000], pa.list_(pa.bool_())),
}


@pytest.mark.parametrize("kind", ROWS)
def test_rows_are_counted_before_they_are_made(kind: str, tmp_path: Path, capsys: Capture) -> None:
    """A few hundred bytes can claim billions of rows, which would take hours to convert."""
    table, path = pa.record_batch({"a": ROWS[kind]}), tmp_path / "bomb"
    if "Parquet" in kind:
        pq.write_table(pa.Table.from_batches([table]), path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_batch(table)
    line = _error(capsys, "convert", path, tmp_path / "new")
    assert f" rows or values in a file of only {path.stat().st_size:,} bytes" in line
    assert line.endswith("expected at most 1,000,000")


@pytest.mark.parametrize("name", ["image", "path"])
def test_write_refuses_them_too(
    name: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet with images in it, and Parquet with their paths, are read with the same limits."""
    monkeypatch.setattr("tfrtool.storage.limits.FREE_UNPACKED_BYTES", 1_000_000)
    value = LONG if name == "image" else LONG.decode()
    columns = {name: [value] * COUNT, "label": ["x"] * COUNT}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    words = "write", tmp_path / "a.parquet", tmp_path / "new"
    assert "to more than 1,000,000 bytes" in _error(capsys, *words)


@pytest.mark.more
def test_memory_is_limited(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that takes more memory than the reader has is an error, whatever the footer says."""
    monkeypatch.setattr("tfrtool.sources.formats.parquet_reader.MAX_PARQUET_MEMORY", 500 * 2**20)
    idle: list[Child] = []
    monkeypatch.setattr("tfrtool.sources.formats.parquet_reader._idle_readers", lambda _: idle)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [bytes(150 * 2**20)]}), path, compression="zstd")
    assert "500.0 MiB of memory" in _error(capsys, "convert", path, tmp_path / "new")
    assert idle == []


def test_what_was_written_is_proved_however_well_it_packs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of zeros become Parquet, though nobody else's file may unpack to as much."""
    monkeypatch.setattr("tfrtool.storage.limits.FREE_UNPACKED_BYTES", 1_000_000)
    payloads = [tfrtool.encode_example({"a": LONG, "n": n}) for n in range(COUNT)]
    (tmp_path / "a.tfrecord").write_bytes(shard_of(payloads))
    report = tfrtool.convert(tmp_path / "a.tfrecord", tmp_path / "a.parquet")
    assert report.job.records_out == COUNT
    assert (tmp_path / "a.parquet").stat().st_size < 100_000


@pytest.mark.parametrize("step", [5, more(1)])
def test_no_single_byte_kills_the_process(tmp_path: Path, step: int) -> None:
    """Whatever byte is changed, the file is converted, or it is an error."""
    source = io.BytesIO()
    table = pa.table({"a": [1, 2, None], "b": [["x"], [], ["y", "z"]]})
    pq.write_table(table, source, store_schema=False, write_page_index=True)
    data, path = source.getvalue(), tmp_path / "a.parquet"
    outcomes = set()
    for at in range(0, len(data), step):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        try:
            tfrtool.convert(path, tmp_path / "new.jsonl", verify="none", existing="overwrite")
            outcomes.add("converted")
        except tfrtool.TfrtoolError:
            outcomes.add("refused")
    assert outcomes == {"converted", "refused"}


def test_images_of_hugging_face_are_read_as_before(tmp_path: Path) -> None:
    """Structs of bytes and a path, class names and several row groups arrive whole."""
    images = [image_bytes(tint=tint) for tint in range(5)]
    rows = [{"bytes": one, "path": f"{n}.jpg"} for n, one in enumerate(images)]
    table = pa.table({"image": rows, "label": pa.array(list("abaab")).dictionary_encode()})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    tfrtool.convert(tmp_path / "a.parquet", tmp_path / "a.tfrecord")
    examples: list[Any] = [
        tfrtool.parse_example(one.payload)
        for one in tfrtool.read(tmp_path / "a.tfrecord")
        if isinstance(one, tfrtool.Record)
    ]
    assert [one["image"] for one in examples] == images
    assert [one["label"] for one in examples] == [b"a", b"b", b"a", b"a", b"b"]


def test_a_relative_path_means_the_same_after_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are read in another process, which lives longer than one call."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        pq.write_table(pa.table({"x": [1, 2, 3]}), "rows.parquet")
        assert tfrtool.convert("rows.parquet", "out").job.records_out == 3
        (tmp_path / name / "rows.parquet").unlink()
