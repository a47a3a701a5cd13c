"""Datasets with columns, captions, several labels, kept integers and the API's layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.photos import write_class_folders
from tfrtool.errors import SourceError, UsageError
from tfrtool.writing.write_report import WriteReport

pytestmark = pytest.mark.tf

ROWS = [
    {"label": "cat", "text": "größer", "tags": ["a", "b"], "score": 1.5, "count": 3},
    {"label": "dog", "text": "b", "tags": [], "score": 2, "count": 4},
    {"label": "cat", "text": "c", "tags": ["c"], "score": 0.25, "count": -(2**63)},
    {"label": "dog", "text": "d", "score": -1, "count": 2**63 - 1},
]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of photographs of two classes."""
    return write_class_folders(tmp_path_factory.mktemp("photos") / "photos", count=2)


def _table(photos: Path, folder: Path, rows: list[dict[str, Any]], name: str = "t.jsonl") -> Path:
    """Write a table of photographs, which lie beside it."""
    if not (folder / "photos").exists():
        (folder / "photos").symlink_to(photos, target_is_directory=True)
    keys = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.jpg"))
    lines = [json.dumps({"path": f"photos/{k}", **row}) for k, row in zip(keys, rows, strict=False)]
    (folder / name).write_text("\n".join(lines))
    return folder / name


def _write(photos: Path, folder: Path, rows: list[dict[str, Any]], **options: Any) -> WriteReport:
    table = _table(photos, folder, rows)
    return tfrtool.write(table, folder / "d", root=photos.parent, shuffle=False, **options)


def _read(folder: Path) -> tuple[Any, list[dict[str, Any]]]:
    """Return what TFDS says of a dataset, and its records."""
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(folder)
    read = builder.as_dataset(split="train", shuffle_files=False)
    return builder.info, [*tfds.as_numpy(read)]


def test_columns_are_features_of_tfds(photos: Path, tmp_path: Path) -> None:
    """Each value comes out of TFDS as it was, of its type, with lists of any length."""
    _write(photos, tmp_path, ROWS, all_columns=True)
    info, records = _read(tmp_path / "d")
    kinds = {name: repr(info.features[name]) for name in ("text", "tags", "score", "count")}
    assert kinds == {
        "text": "Text(shape=(), dtype=string)",
        "tags": "Sequence(Text(shape=(), dtype=string))",
        "score": "Tensor(shape=(), dtype=float32)",
        "count": "Tensor(shape=(), dtype=int64)",
    }
    assert info.features["label"].names == ["cat", "dog"]
    for record, row in zip(records, ROWS, strict=True):
        assert record["text"].decode() == row["text"]
        assert [tag.decode() for tag in record["tags"]] == row.get("tags", [])
        assert (record["score"], record["count"]) == (row["score"], row["count"])
        assert record["image"].ndim == 3


def test_captions_need_no_label(photos: Path, tmp_path: Path) -> None:
    """A dataset of captions, or of targets, has no label, and no file of class names."""
    rows = [{key: row[key] for key in ("text", "score")} for row in ROWS]
    _write(photos, tmp_path, rows, columns=["text", "score:float32"])
    info, records = _read(tmp_path / "d")
    assert sorted(info.features) == ["image", "image/filename", "score", "text"]
    assert [record["text"].decode() for record in records] == [row["text"] for row in rows]
    assert not (tmp_path / "d" / "label.labels.txt").exists()
    assert info.supervised_keys is None


def test_several_labels(photos: Path, tmp_path: Path) -> None:
    """Labels are lists of class numbers, empty where an image has none."""
    labels = ["cat;dog", "", "dog", "fur;cat"]
    _write(photos, tmp_path, [{"label": label} for label in labels], multi_label=";")
    info, records = _read(tmp_path / "d")
    assert info.features["label"].feature.names == ["cat", "dog", "fur"]
    assert [list(record["label"]) for record in records] == [[0, 1], [], [1], [2, 0]]
    (split,) = tfrtool.inspect_dataset(tmp_path / "d").splits.values()
    assert (split.labels, split.unlabelled) == ({"cat": 2, "dog": 2, "fur": 1}, 1)


def test_integers_that_are_kept(photos: Path, tmp_path: Path) -> None:
    """They come out of TFDS as they were, without names."""
    numbers = [-5, 2**63 - 1, 7, 7]
    _write(photos, tmp_path, [{"label": n} for n in numbers], labels="keep")
    info, records = _read(tmp_path / "d")
    assert repr(info.features["label"]) == "Tensor(shape=(), dtype=int64)"
    assert [record["label"] for record in records] == numbers
    assert [*tmp_path.glob("d/*.txt")] == []
    assert info.supervised_keys == ("image", "label")


def test_records_that_were_written_alike_can_be_appended(photos: Path, tmp_path: Path) -> None:
    """A new version has the same class names; the error about images names their file."""
    rows = [{"label": row["label"], "text": row["text"]} for row in ROWS]
    table = _table(photos, tmp_path, rows)
    options: list[dict[str, Any]] = [
        {"columns": ["text"]}, {"layout": "tfod"}, {"labels": "keep"}, {"multi_label": ";"},
    ]  # fmt: skip
    for number, option in enumerate(options):
        if option.get("labels"):
            table = _table(photos, tmp_path, [{"label": n} for n in range(4)])
        old = tmp_path / str(number) / "1.0.0"
        tfrtool.write(table, old, root=photos.parent, **option)
        with pytest.raises(tfrtool.UsageError, match="not TFRecord files") as caught:
            tfrtool.append(old, photos)
        for names in old.glob("label*"):
            assert f"--labels {names}" in str(caught.value.hint)
        made = tfrtool.append(old, old)
        assert made.splits["train"].records == 2 * len(rows)
        texts = [[*folder.glob("label*")] for folder in (old, old.parent / "1.1.0")]
        assert [[p.read_text() for p in some] for some in texts[:1]] == [
            [p.read_text() for p in some] for some in texts[1:]
        ]
    edited = tfrtool.edit(tmp_path / "1" / "1.0.0", tmp_path / "edited", drop=["image/height"])
    assert (Path(edited.dataset) / "label_map.pbtxt").exists()


@pytest.mark.parametrize("several", [False, True])
def test_the_layout_of_the_object_detection_api(
    photos: Path, tmp_path: Path, several: bool
) -> None:
    """Labels are numbers of label_map.pbtxt with their names beside them."""
    (tmp_path / "map.pbtxt").write_text("item{id:7 name:'cat'} item{id:2 name:'dog'}")
    rows = [{"label": row["label"]} for row in ROWS]
    options = {"multi_label": ";"} if several else {}
    _write(photos, tmp_path, rows, layout="tfod", labels=tmp_path / "map.pbtxt", **options)
    info, records = _read(tmp_path / "d")
    assert info.supervised_keys == ("image/encoded", "image/class/label")
    made = [(r["image/class/label"], r["image/class/text"]) for r in records]
    if several:
        made = [(numbers[0], texts[0]) for numbers, texts in made]
    assert made == [(7, b"cat"), (2, b"dog"), (7, b"cat"), (2, b"dog")]
    assert records[0]["image/encoded"].shape[:2] == (
        records[0]["image/height"],
        records[0]["image/width"],
    )
    text = (tmp_path / "d" / "label_map.pbtxt").read_text()
    assert text.index('"dog"') < text.index('"cat"')


def test_other_metadata_is_replaced_and_resumed(photos: Path, tmp_path: Path) -> None:
    """What an earlier write left beside the shards goes, and what is complete is left alone."""
    rows = [{"label": row["label"]} for row in ROWS]
    folder = tmp_path / "d"

    def write(existing: str, **options: Any) -> set[str]:
        _write(photos, tmp_path, rows, existing=existing, **options)
        return {path.name for path in folder.iterdir() if path.suffix in (".txt", ".pbtxt")}

    assert write("refuse") == {"label.labels.txt"}
    assert write("overwrite", layout="tfod") == {"label_map.pbtxt"}
    stamps = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert write("resume", layout="tfod") == {"label_map.pbtxt"}
    assert stamps == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    with pytest.raises(tfrtool.UsageError, match="written with other options"):
        write("resume")
    assert write("overwrite", multi_label=";") == {"label.labels.txt"}


def test_labels_are_never_silently_empty(photos: Path, tmp_path: Path) -> None:
    """Several labels an image need a column of labels; the error lists the columns there are."""
    rows = [{"price": at, "tags": "cat;dog"} for at in range(4)]
    several: dict[str, Any] = {"multi_label": ";", "columns": ["price"]}
    with pytest.raises(SourceError, match="found 'path', 'price', 'tags'") as caught:
        _write(photos, tmp_path, rows, **several)
    assert "--label-column NAME" in str(caught.value)
    with pytest.raises(UsageError, match=r"no column 'tag' for --label-column.*'tags'"):
        _write(photos, tmp_path, rows, label_column="tag", **several)
    report = _write(photos, tmp_path, rows, label_column="tags", **several)
    assert report.splits["train"].labels == {"cat": 4, "dog": 4}
    assert not any("without a label" in notice for notice in report.notices)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_column_of_labels_can_be_chosen(photos: Path, tmp_path: Path, suffix: str) -> None:
    """It is the label even where another column has a usual name, in any kind of table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"label": "x", "breed": breed} for breed in ("corgi", "husky", "husky", "corgi")]
    _table(photos, tmp_path, rows)
    told = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    lines = ["path,label,breed", *(",".join(row.values()) for row in told)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    pq.write_table(pa.Table.from_pylist(told), tmp_path / "t.parquet")
    report = tfrtool.write(
        tmp_path / f"t.{suffix}", tmp_path / "d", root=photos.parent, label_column="breed"
    )
    assert report.splits["train"].labels == {"corgi": 2, "husky": 2}


def test_images_in_parquet_have_a_chosen_label(photos: Path, tmp_path: Path) -> None:
    """Parquet with the images in it takes a column of labels, too, and needs one for lists."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(photos.rglob("*.jpg"))
    told = [{"image": path.read_bytes(), "tags": "a;b", "n": 1} for path in files]
    pq.write_table(pa.Table.from_pylist(told), tmp_path / "t.parquet")
    several: dict[str, Any] = {"multi_label": ";", "columns": ["n"]}
    with pytest.raises(SourceError, match=r"no label column.*found 'tags', 'n'"):
        tfrtool.write(tmp_path / "t.parquet", tmp_path / "d", **several)
    report = tfrtool.write(tmp_path / "t.parquet", tmp_path / "d", label_column="tags", **several)
    assert report.splits["train"].labels == {"a": 4, "b": 4}


def test_empty_lists_of_labels_are_counted(photos: Path, tmp_path: Path) -> None:
    """Images without a label are written and counted; none with a label is an error."""
    rows = [{"label": text} for text in ("cat;dog", "", " ; ", "dog")]
    report = _write(photos, tmp_path, rows, multi_label=";")
    assert "images without a label: 2 of 4" in report.notices
    with pytest.raises(SourceError, match="no image has a label"):
        _write(photos, tmp_path, [{"label": ""}] * 4, multi_label=";", existing="overwrite")
