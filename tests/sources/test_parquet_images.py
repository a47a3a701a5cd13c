"""Parquet that holds images: as Hugging Face's datasets writes it, and others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tfrtool
from tests.photos import image_bytes
from tests.sources.trees import open_tree
from tfrtool.errors import SourceError
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions

IMAGES = [image_bytes(tint=tint) for tint in range(5)]


def _contents(source: Source) -> dict[bytes, tuple[str, str | None]]:
    """Return the label and the split of each image, by its bytes."""
    return {source.reader.read(item): (item.label, item.split) for item in source.items}


def test_what_datasets_writes_is_read(tmp_path: Path) -> None:
    """Files in a folder are splits by their names; labels have the names of the classes."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "photo": datasets.Image(),
            "kind": datasets.ClassLabel(names=["dog", "bird", "cat"]),
            "note": datasets.Value("string"),
        }
    )
    where = {"train": range(3), "test": range(3, 5)}
    for split, numbers in where.items():
        rows = {
            "photo": [{"bytes": IMAGES[n], "path": f"{n}.jpg"} for n in numbers],
            "kind": [2 * (n % 2) for n in numbers],
            "note": ["x"] * len(numbers),
        }
        made = datasets.Dataset.from_dict(rows, features=features)
        (tmp_path / "set" / "data").mkdir(parents=True, exist_ok=True)
        made.to_parquet(tmp_path / "set" / "data" / f"{split}-00000-of-00001.parquet")
    (tmp_path / "set" / "README.md").write_text("about")
    for argument in (tmp_path / "set", tmp_path / "set" / "data" / "*.parquet"):
        scratch = tmp_path / argument.name.replace("*", "_")
        scratch.mkdir(exist_ok=True)
        source = open_source(str(argument), LabelFrom.FOLDER, scratch)
        assert source.labels == ("dog", "bird", "cat")
        assert source.splits == ("train", "test")
        assert _contents(source) == {
            data: ("cat" if n % 2 else "dog", "train" if n < 3 else "test")
            for n, data in enumerate(IMAGES)
        }
        assert source.items[0].key == "test-00000-of-00001/00000001/3.jpg"
        assert source.notices == ("columns not written: 'note'",)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_plain_bytes_are_read(kind: Any, tmp_path: Path) -> None:
    """A column of bytes beside names or integers; the order of row groups does not matter."""
    path = tmp_path / "x.parquet"
    columns = {"img": pa.array([*IMAGES, None], kind), "label": ["a", "b", " a", "b", "", "a"]}
    pq.write_table(pa.table(columns), path, row_group_size=2)
    source = open_tree(path)
    assert _contents(source) == {data: ("ab"[n % 2], None) for n, data in enumerate(IMAGES[:4])}
    assert [(left.key, left.reason) for left in source.rejected] == [
        ("x/00000005", "no label"),
        ("x/00000006", "row 6: no image bytes in the table"),
    ]


@pytest.mark.tf
def test_columns_and_groups_are_those_of_the_table(tmp_path: Path) -> None:
    """What --column names is in the records; a patient is in one split; integers are kept."""
    rows = {
        "image": [image_bytes(size=(20 + n, 20)) for n in range(12)],
        "label": [7 * (n % 2) for n in range(12)],
        "patient": [n // 3 for n in range(12)],
        "boxes": [[0.5, n] for n in range(12)],
        "note": ["x"] * 12,
    }
    pq.write_table(pa.table(rows), tmp_path / "x.parquet", row_group_size=5)
    report = tfrtool.write(
        tmp_path / "x.parquet",
        tmp_path / "d",
        columns=["boxes"],
        labels="keep",
        splits={"a": 0.5, "b": 0.5},
        stratify=True,
        group_by="patient",
    )
    assert report.notices == ("columns not written: 'note'",)
    found: dict[int, str] = {}
    for split, told in report.splits.items():
        assert told.records == 6
        assert abs(told.labels["7"] - told.labels["0"]) <= 2
        for record in tfrtool.read(next((tmp_path / "d").glob(f"d-{split}.*"))):
            assert isinstance(record, tfrtool.Record)
            example: Any = tfrtool.parse_example(record.payload)
            share, number = example["boxes"]
            assert (share, example["label"]) == (0.5, 7 * (number % 2))
            assert found.setdefault(number // 3, split) == split
    assert len(found) == 4


def test_columns_of_boxes_are_told_once(tmp_path: Path) -> None:
    """Of all columns one that no feature holds is told with its reason, and how boxes are read."""
    path = tmp_path / "t.parquet"
    objects = [{"bbox": [[0.0, 0.0, 1.0, 1.0]]}] * len(IMAGES)
    columns = {"image": [*IMAGES], "label": ["a"] * len(IMAGES), "objects": objects}
    pq.write_table(pa.table(columns), path)
    source = open_source(
        str(path), LabelFrom.FOLDER, tmp_path, options=SourceOptions(all_columns=True)
    )
    assert source.notices == (
        "columns not written: 'objects'",
        "boxes in column 'objects' are not read; use --annotations for boxes",
    )


def test_what_cannot_be_used_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables without labels, cut ones, bombs, and metadata that makes no sense."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"image": IMAGES}), path)
    with pytest.raises(SourceError, match="no label column"):
        open_tree(path)
    whole = pa.table({"image": IMAGES, "label": [0, 1, 2, 1, 7]})
    for told in (b"[", b"[]", b'{"info": 3}', b'{"info": {"features": {"label": 1, "x": {}}}}'):
        pq.write_table(whole.replace_schema_metadata({b"huggingface": told}), path)
        assert len(open_tree(path).items) == 5
    names = {"info": {"features": {"label": {"_type": "ClassLabel", "names": ["a", "b", "c"]}}}}
    told = json.dumps(names).encode()
    pq.write_table(whole.replace_schema_metadata({b"huggingface": told}), path)
    source = open_tree(path)
    assert source.labels == ("a", "b", "c")
    assert [left.reason for left in source.rejected] == ["no label"]
    data = bytearray(path.read_bytes())
    data[20:200] = bytes(180)
    path.write_bytes(data)
    with pytest.raises(SourceError, match="truncated or damaged"):
        open_tree(path)
    pq.write_table(pa.table({"image": [bytes(9000)] * 400, "label": [1] * 400}), path)
    monkeypatch.setattr("tfrtool.storage.limits.FREE_UNPACKED_BYTES", 1_000_000)
    with pytest.raises(SourceError, match="to more than 1,000,000 bytes"):
        open_tree(path)
