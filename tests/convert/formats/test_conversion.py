"""`tfrtool.convert` on whole datasets: splits, class names, images, and what other readers see."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tfrtool
from tests.examples.strategies import UNSET, float32, int64
from tests.photos import image_bytes
from tests.records.strategies import read_strictly, shard_of
from tfrtool.convert.formats.parquet import ParquetFormat
from tfrtool.errors import WriteError
from tfrtool.examples.arrow.decode_batch import decode_batch

CLASSES = {"label": ("cat", "dog")}


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return shards of images in two splits, with class names and TFDS' files."""
    folder = tmp_path_factory.mktemp("pets") / "pets"
    folder.mkdir()
    for split, count in (("train", 5), ("validation", 2)):
        payloads = [
            tfrtool.encode_example(
                {
                    "image": image_bytes(tint=number),
                    "image/filename": f"{split}/ä{number}.jpg",
                    "label": number % 2,
                    "score": float32(*[0.5] * number),
                    **({"note": "x"} if number % 2 else {}),
                }
            )
            for number in range(count)
        ]
        for part, held in enumerate((payloads[:1], payloads[1:])):
            name = f"pets-{split}.tfrecord-{part:05d}-of-00002"
            (folder / name).write_bytes(shard_of(held))
    (folder / "label.labels.txt").write_text("cat\ndog\n")
    (folder / "features.json").write_text('{"pythonClassName": "mine"}')
    return folder


def payloads_in(folder: Path, split: str = "") -> list[bytes]:
    """Return the payloads of the shards in a folder, in order."""
    found = []
    for path in sorted(folder.glob(f"*-{split}*.tfrecord-*")):
        held = read_strictly(path.read_bytes())
        assert held is not None
        found += held
    return found


@pytest.mark.parametrize("to", ["parquet", "hf", "jsonl", "csv"])
def test_datasets_go_there_and_back(pets: Path, to: str, tmp_path: Path) -> None:
    """Splits, records, their order, class names and features.json come back from each format."""
    there, back = tmp_path / "there", tmp_path / "pets"
    report = tfrtool.convert(pets, there, to=to, exact=True, verify="bytes", shards=2)  # type: ignore[arg-type]
    assert {name: split.records for name, split in report.job.splits.items()} == {
        "train": 5,
        "validation": 2,
    }
    assert len(list(there.glob("*-of-00002.*"))) == 4
    again = tfrtool.convert(there, back, shards=1)
    assert again.source == to.replace("hf", "parquet")
    for split in ("train", "validation"):
        assert payloads_in(back, split) == payloads_in(pets, split)
    assert again.job.digest_out == report.job.digest_in
    assert (back / "label.labels.txt").read_text() == "cat\ndog\n"
    assert json.loads((back / "features.json").read_text()) == {"pythonClassName": "mine"}


@pytest.mark.slow
def test_hugging_face_shows_images_and_class_names(
    pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`datasets.load_dataset` opens the folder without a network: splits, images, class names."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets = pytest.importorskip("datasets")
    tfrtool.convert(pets, tmp_path / "pets", to="hf")
    found = datasets.load_dataset(str(tmp_path / "pets"), cache_dir=str(tmp_path / "cache"))
    assert {name: len(split) for name, split in found.items()} == {"train": 5, "validation": 2}
    assert found["train"].features["label"].names == ["cat", "dog"]
    first = found["train"][3]
    assert first["image"].format == "JPEG"
    assert first["score"] == [0.5, 0.5, 0.5]
    found = found.cast_column("image", datasets.Image(decode=False))
    assert found["train"][3]["image"]["path"] == "train/ä3.jpg"


def test_other_readers_read_the_parquet(pets: Path, tmp_path: Path) -> None:
    """pandas, polars and DuckDB's own reader find the same values."""
    pandas, polars, duckdb = map(pytest.importorskip, ("pandas", "polars", "duckdb"))
    tfrtool.convert(pets, tmp_path / "pets", to="parquet")
    path = str(tmp_path / "pets" / "train-00000-of-00001.parquet")
    frame = pandas.read_parquet(path)
    assert list(frame["label"]) == [0, 1, 0, 1, 0]
    assert polars.read_parquet(path)["note"].to_list() == [None, "x", None, "x", None]
    query = f"SELECT sum(len(score)), min(octet_length(image.bytes)) FROM '{path}'"
    shortest = min(len(image["bytes"]) for image in frame["image"])
    assert duckdb.sql(query).fetchall() == [(10, shortest)]


def test_files_of_others_become_records(tmp_path: Path) -> None:
    """Types without a schema: JSON Lines and CSV are inferred over all rows."""
    (tmp_path / "rows.jsonl").write_text(
        '{"a": 1, "b": [1, 2.5], "c": "ü", "d": true}\n\n'
        '{"a": 2.5, "c": null, "b": 3, "d": false}\n'
    )
    (tmp_path / "rows.csv").write_text('n,x,t\n1,1.5,"a, b"\n-2,,c\n')
    (tmp_path / "schema.json").write_text('{"title": "of somebody else"}')
    notes: list[str] = []
    tfrtool.convert(tmp_path / "rows.jsonl", tmp_path / "j", on_note=notes.append)
    assert payloads_in(tmp_path / "j") == [
        tfrtool.encode_example(one)
        for one in (
            {"a": 1.0, "b": [1.0, 2.5], "c": "ü", "d": 1},
            {"a": 2.5, "b": 3.0, "d": 0},
        )
    ]
    assert notes == [f"column '{name}': numbers become float32; no value changes" for name in "ab"]
    tfrtool.convert(tmp_path / "rows.csv", tmp_path / "c")
    assert payloads_in(tmp_path / "c") == [
        tfrtool.encode_example(one)
        for one in ({"n": 1, "x": 1.5, "t": "a, b"}, {"n": -2, "t": "c"})
    ]


def test_hugging_face_tables_become_records(tmp_path: Path) -> None:
    """Structs of images and ClassLabel become image features and class names."""
    image = pa.array([{"bytes": image_bytes(), "path": "1.jpg"}])
    features = {"label": {"_type": "ClassLabel", "names": ["no", "yes"]}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.table({"image": image, "label": pa.array([1])}).replace_schema_metadata(metadata)
    pq.write_table(table, tmp_path / "test-00000-of-00001.parquet")
    tfrtool.convert(tmp_path / "test-00000-of-00001.parquet", tmp_path / "shards", name="mine")
    shards = tmp_path / "shards"
    (payload,) = payloads_in(shards, "test")
    assert tfrtool.parse_example(payload) == {
        "image": image_bytes(),
        "image/filename": b"1.jpg",
        "label": 1,
    }
    assert (shards / "label.labels.txt").read_text() == "no\nyes\n"


@pytest.mark.parametrize("cast", [None, {"m": "string"}])
def test_nulls_of_several_kinds(cast: dict[str, str] | None, tmp_path: Path) -> None:
    """A feature without values, or without a kind, comes back as such from one table or several."""
    value: Any = 1 if cast is None else "1"

    def records(value: Any) -> dict[str, list[bytes]]:
        others: dict[str, dict[str, Any]] = {"empty": {"n": int64()}, "unset": {"n": UNSET}}
        others["absent"] = {}
        return {
            name: [tfrtool.encode_example({"m": value, **one}) for one in ({"n": 1}, other)]
            for name, other in others.items()
        }

    for name, payloads in records(1).items():
        (tmp_path / f"{name}.tfrecord").write_bytes(shard_of(payloads))
        tfrtool.convert(tmp_path / f"{name}.tfrecord", tmp_path / f"{name}.parquet", cast=cast)
    together = [["absent", "empty"]] if cast is None else []
    for names in (["empty"], ["unset"], ["absent"], *together):
        target = tmp_path / "-".join(names)
        tfrtool.convert([tmp_path / f"{name}.parquet" for name in names], target)
        assert payloads_in(target) == [one for name in names for one in records(value)[name]]


def test_nulls_are_missing_features(tmp_path: Path) -> None:
    """A null in a table is a feature that is missing, also in a second file without the column."""
    dates = pa.array([1, None], pa.timestamp("ms"))
    pq.write_table(pa.table({"n": [None, 2], "t": ["a", "b"], "d": dates}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"t": ["c"], "n": [3]}), tmp_path / "b.parquet")
    notes: list[str] = []
    shards = tmp_path / "shards"
    tfrtool.convert([tmp_path / "a.parquet", tmp_path / "b.parquet"], shards, on_note=notes.append)
    assert payloads_in(shards) == [
        tfrtool.encode_example(one)
        for one in ({"t": "a", "d": 1000}, {"n": 2, "t": "b"}, {"t": "c", "n": 3})
    ]
    assert notes == ["column 'd': timestamps become int64, in microseconds"]


BAD: list[tuple[str, Any, tuple[str, ...]]] = [
    ("null list", pa.array([[[1, 2]], [[1], None], [[1]]]), ("'column'", "row 1")),
    ("null in structs", pa.array([[{"x": 1}], [{"x": 1}, {"x": None}]]), ("'column'", "row 1")),
    ("null struct", pa.array([[{"x": 1}], [None]]), ("'column'", "row 1")),
    ("no fields", pa.array([[{"x": 1}], [{"x": None}]]), ("'column'", "row 1")),
    ("null in a list", pa.array([[1], [1, None]]), ("column", "row 1")),
    ("map", pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), ("'column'",)),
]


@pytest.mark.parametrize(("held", "said"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_what_no_feature_holds_is_named(held: Any, said: tuple[str, ...], tmp_path: Path) -> None:
    """Types and values that no Example can hold are errors that name the column and the row."""
    pq.write_table(pa.table({"column": held}), tmp_path / "a.parquet")
    with pytest.raises(tfrtool.SchemaError) as caught:
        tfrtool.convert(tmp_path / "a.parquet", tmp_path / "new")
    assert all(text in str(caught.value) for text in said)
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_files_in_conflict(tmp_path: Path) -> None:
    """Tables with other types for one name are an error that names it, both files and types.

    Of records, the column has a value of each type.
    """
    for name, value in (("a", 1), ("b", "x")):
        payload = tfrtool.encode_example({"same": 1, "other": value})
        (tmp_path / f"{name}.tfrecord").write_bytes(shard_of([payload]))
    files = [tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"]
    report = tfrtool.convert(files, tmp_path / "new", to="parquet")
    assert report.columns["other"].startswith("struct<")
    for name in ("a", "b"):
        tfrtool.convert(tmp_path / f"{name}.tfrecord", tmp_path / f"{name}.parquet")
    tables = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    with pytest.raises(tfrtool.SchemaError, match=r"'other'.*a\.parquet.*b\.parquet") as caught:
        tfrtool.convert(tables, tmp_path / "rows", to="csv")
    assert re.search("int64 in .*string in ", str(caught.value))
    report = tfrtool.convert(tables, tmp_path / "rows", to="csv", select=["same"])
    assert report.job.records_out == 2


def test_shards_whose_names_show_no_format(tmp_path: Path) -> None:
    """The compressed shards of TFX, a folder per split, are all read, also next to JSON files."""
    for split, labels in (("train", (1, 2)), ("eval", (3,))):
        folder = tmp_path / "data" / f"Split-{split}"
        folder.mkdir(parents=True)
        for number, label in enumerate(labels):
            shard = shard_of([tfrtool.encode_example({"label": label})])
            name = f"data_tfrecord-{number:05d}-of-{len(labels):05d}.gz"
            (folder / name).write_bytes(gzip.compress(shard))
    (tmp_path / "data" / "about.json").write_text("{}")
    report = tfrtool.convert(tmp_path / "data", tmp_path / "rows", to="csv")
    assert {name: split.records for name, split in report.job.splits.items()} == {
        "train": 2,
        "eval": 1,
    }


@pytest.mark.parametrize("name", ["part-00000", "data_tfrecord-00000-of-00001", "a.tfrecord"])
def test_shards_next_to_tables(
    name: str, tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    """In a folder with a table, the shards are read, a note names the table, --from reads it."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / name).write_bytes(shard_of([tfrtool.encode_example({"label": 1})] * 3))
    (folder / "labels.csv").write_text("a\n1\n")
    code, _, errors = run("convert", folder, tmp_path / "a.jsonl")
    assert (code, (tmp_path / "a.jsonl").read_text().count("label")) == (0, 3)
    assert "skipped 1 file in another format, such as labels.csv (--from csv reads it)" in errors
    code, _, errors = run("convert", folder, tmp_path / "b.jsonl", "--from", "csv")
    assert (code, errors) == (0, "")
    assert json.loads((tmp_path / "b.jsonl").read_text()) == {"a": 1}


def test_select_and_rename(pets: Path, tmp_path: Path) -> None:
    """Columns that are left have their new names, with class names and images."""
    tfrtool.convert(
        pets, tmp_path / "new", to="hf", select=["label", "image"], rename={"label": "animal"}
    )
    schema = pq.read_schema(tmp_path / "new" / "train-00000-of-00001.parquet")
    assert schema.names == ["animal", "image"]
    features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert features == {
        "image": {"_type": "Image"},
        "animal": {"_type": "ClassLabel", "names": ["cat", "dog"]},
    }
    with pytest.raises(tfrtool.UsageError, match="label"):
        tfrtool.convert(pets, tmp_path / "other", to="csv", select=["lable"])


def test_the_card_of_hugging_face(pets: Path, tmp_path: Path) -> None:
    """The card of a folder lists the files and the number of rows of each split."""
    tfrtool.convert(pets, tmp_path / "pets", to="hf")
    card = (tmp_path / "pets" / "README.md").read_text()
    assert "path: train-*.parquet" in card


@pytest.mark.parametrize("to", ["jsonl", "parquet"])
def test_other_class_names_are_refused(pets: Path, to: str, tmp_path: Path) -> None:
    """Sources that name classes in another order would give labels another meaning."""
    for name, order in (("a", "cat\ndog\n"), ("b", "dog\ncat\n")):
        (tmp_path / name).mkdir()
        shard = pets / "pets-train.tfrecord-00001-of-00002"
        (tmp_path / name / shard.name).write_bytes(shard.read_bytes())
        (tmp_path / name / "label.labels.txt").write_text(order)
        tfrtool.convert(tmp_path / name, tmp_path / f"{name}.parquet")
    sources = [tmp_path / "a", tmp_path / "b"]
    if to == "parquet":
        sources = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    with pytest.raises(tfrtool.TfrtoolError, match="class names"):
        tfrtool.convert(sources, tmp_path / "new", to="tfrecord")


def test_a_single_file(pets: Path, tmp_path: Path) -> None:
    """A target with an ending is one file, with its schema beside it, and is not overwritten."""
    shard = pets / "pets-train.tfrecord-00001-of-00002"
    tfrtool.convert(shard, tmp_path / "one.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.csv", "one.csv.schema.json"]
    with (tmp_path / "one.csv").open(encoding="utf-8", newline="") as file:
        assert next(csv.DictReader(file))["image/filename"] == "train/ä1.jpg"
    with pytest.raises(tfrtool.UsageError, match="overwrite"):
        tfrtool.convert(shard, tmp_path / "one.csv")
    tfrtool.convert(tmp_path / "one.csv", tmp_path / "one.tfrecord")
    back = read_strictly((tmp_path / "one.tfrecord").read_bytes())
    assert back == read_strictly(shard.read_bytes())


@pytest.mark.more
def test_row_groups_and_batches_are_bounded(tmp_path: Path) -> None:
    """Images are in row groups by bytes, and read in batches; those rows come back in order."""
    held = [tfrtool.encode_example({"n": n, "data": bytes([n]) * 3_000_000}) for n in range(30)]
    (tmp_path / "a.tfrecord").write_bytes(shard_of(held))
    tfrtool.convert(tmp_path / "a.tfrecord", tmp_path / "a.parquet", verify="none")
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    assert metadata.num_row_groups == 2
    tfrtool.convert(tmp_path / "a.parquet", tmp_path / "b.tfrecord")
    assert (tmp_path / "b.tfrecord").read_bytes() == (tmp_path / "a.tfrecord").read_bytes()


def test_short_shards_are_decoded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of batches depends on the records, and not on the files that they are in."""
    folder, count, batches = tmp_path / "many", 60, list[int]()
    folder.mkdir()
    for number in range(count):
        payload = tfrtool.encode_example({"n": number})
        name = f"many-train.tfrecord-{number:05d}-of-{count:05d}"
        (folder / name).write_bytes(shard_of([payload]))

    def decode(payloads: list[bytes], *arguments: Any, **options: Any) -> pa.RecordBatch:
        batches.append(len(payloads))
        return decode_batch(payloads, *arguments, **options)

    monkeypatch.setattr("tfrtool.inspection.rows.batches.decode_batch", decode)
    tfrtool.convert(folder, tmp_path / "a.parquet", workers=1, verify="none")
    assert batches == [count]
    assert pq.read_table(tmp_path / "a.parquet")["n"].to_pylist() == [*range(count)]


@pytest.mark.parametrize("changed", [0, 7, 19])
def test_a_value_that_comes_back_otherwise_is_found(
    changed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is published, and the error names the row, wherever it is in a batch."""
    values = [{"n": number, "f": float32(0.5)} for number in range(20)]
    shard = tmp_path / "some.tfrecord"
    shard.write_bytes(shard_of([tfrtool.encode_example(one) for one in values]))
    written = ParquetFormat._written

    def damaged(self: ParquetFormat, path: Path) -> Iterator[pa.RecordBatch]:
        for batch in written(self, path):
            rows = batch.to_pylist()
            rows[changed]["n"] += 1
            yield pa.RecordBatch.from_pylist(rows, batch.schema)

    monkeypatch.setattr(ParquetFormat, "_written", damaged)
    with pytest.raises(WriteError, match="differs from the source") as error:
        tfrtool.convert(shard, tmp_path / "out", to="parquet", workers=1)
    assert error.value.record == changed
    assert not [*tmp_path.glob("out/*.parquet")]


def test_faults_in_short_shards_name_their_file(tmp_path: Path) -> None:
    """A record that isn't an Example is reported with its own shard and place; others are kept."""
    folder, good, bad = tmp_path / "few", tfrtool.encode_example({"n": 1}), b"\xff\xff"
    folder.mkdir()
    for index, payloads in enumerate([[good], [good, bad], [bad, good, good], [good]]):
        name = f"few-train.tfrecord-{index:05d}-of-00004"
        (folder / name).write_bytes(shard_of(payloads))
    job = tfrtool.convert(folder, tmp_path / "a.jsonl").job
    found = [
        (Path(one.path).name[-14:-9], one.fault.record, one.fault.offset) for one in job.faults
    ]
    assert found == [("00001", 1, len(shard_of([good]))), ("00002", 0, 0)]
    assert (job.records_out, job.corrupt) == (5, 2)
    assert (tmp_path / "a.jsonl").read_text() == '{"n": 1}\n' * 5
