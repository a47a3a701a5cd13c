"""Large shards become tables in one pass; whatever the first records don't show changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tfrtool.convert.formats import assumed_scan
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.records.framing import frame

ROW = {"id": 7, "text": "a word", "price": 0.5, "tags": [b"a", b"b"], "image": b"\xff\xd8\xff"}

DAMAGED = bytearray(frame(encode_example(ROW)))
DAMAGED[20] ^= 1


def _frame(**changed: object) -> bytes:
    row = {name: value for name, value in {**ROW, **changed}.items() if value is not None}
    return frame(encode_example(row))


MIDDLE = {
    "the same": [_frame(id=8), _frame(id=-1, tags=Feature(dtype=DType.STRING, values=()))],
    "no list": [_frame(tags=None)],
    "no number": [_frame(id=None)],
    "no value": [_frame(id=Feature(dtype=DType.INT64, values=()))],
    "no type": [frame(b"\x0a\x08\x0a\x06\x0a\x02id\x12\x00")],
    "several values": [_frame(id=[1, 2])],
    "another type": [_frame(id=0.5)],
    "another feature": [_frame(width=640)],
    "bytes instead of text": [_frame(text=b"\xff")],
    "control characters": [_frame(text="a\0b")],
    "text instead of bytes": [_frame(image="a word")],
    "an empty record": [frame(b"")],
    "not an Example": [frame(b"something else")],
    "lists of features": [frame(b"\x12\x00")],
    "damage": [_frame(), bytes(DAMAGED), _frame()],
    "damage behind many records": [*[_frame()] * 70, bytes(DAMAGED), _frame()],
    "a cut record": [_frame(), _frame()[:30]],
    "nothing": [],
}


def _write(folder: Path, middle: Sequence[bytes]) -> Path:
    folder.mkdir()
    for index, frames in enumerate(([_frame()] * 3, middle, [_frame(id=9)])):
        path = folder / f"data-train.tfrecord-{index:05}-of-00003"
        path.write_bytes(b"".join(frames))
    return folder


def _converted(source: Path, target: Path, **choices: Any) -> object:
    """Return all that a user sees: the files, columns, faults and notes, or the error."""
    notes = list[str]()
    try:
        report = tfrtool.convert(source, target, on_note=notes.append, workers=1, **choices)
    except tfrtool.TfrtoolError as error:
        assert not target.exists()
        return type(error), str(error), notes
    found = report.job.to_json()
    files = {
        path.name: path.read_bytes()
        for path in target.iterdir()
        if path.name != "write_report.json"
    }
    return files, report.columns, found["faults"], found["plan"], notes


FAULTS = ("not an Example", "damage", "damage behind many records")


@pytest.mark.parametrize(
    ("name", "on_error", "to"),
    [
        *((one, "stop", "parquet") for one in MIDDLE),
        *((one, "skip", "parquet") for one in FAULTS),
        ("another type", "stop", "csv"),  # a note says which columns are JSON
    ],
)
def test_records_in_the_middle_decide_as_in_a_scan(
    name: str, on_error: str, to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, reports, notes and errors are those of a conversion that scans everything first."""
    source = _write(tmp_path / "source", MIDDLE[name])
    choices: dict[str, Any] = {"to": to, "shards": 2, "on_error": on_error}
    scanned = _converted(source, tmp_path / "target", **choices)
    if isinstance(scanned, tuple) and isinstance(scanned[0], dict):
        (tmp_path / "target").rename(tmp_path / "scanned")
    monkeypatch.setattr(assumed_scan, "_MIN_BYTES", 0)
    assert _converted(source, tmp_path / "target", **choices) == scanned


@pytest.mark.parametrize("types", [{}, {"price": "float32"}], ids=["features.json", "types"])
def test_declared_columns_are_those_of_a_scan(
    types: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A feature that only a later shard has, and that nothing declares, is noted."""
    for name, middle in (("known", [_frame(id=8)]), ("other", [_frame(width=640)])):
        source = _write(tmp_path / name, middle)
        if not types:
            (source / "features.json").write_text(FEATURES)
        monkeypatch.setattr(assumed_scan, "_MIN_BYTES", sys.maxsize)
        choices: dict[str, Any] = {"to": "parquet"} | ({"types": types} if types else {})
        scanned = _converted(source, tmp_path / "target", **choices)
        (tmp_path / "target").rename(tmp_path / f"{name}-scanned")
        monkeypatch.setattr(assumed_scan, "_MIN_BYTES", 0)
        assert _converted(source, tmp_path / "target", **choices) == scanned
        (tmp_path / "target").rename(tmp_path / f"{name}-assumed")


FEATURES = """{
 "pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
 "featuresDict": {"features": {
  "id": {"pythonClassName": "tensorflow_datasets.core.features.class_label_feature.ClassLabel",
   "classLabel": {"numClasses": "10"}},
  "text": {"pythonClassName": "tensorflow_datasets.core.features.text_feature.Text", "text": {}},
  "price": {"pythonClassName": "tensorflow_datasets.core.features.tensor_feature.Tensor",
   "tensor": {"shape": {"dimensions": ["1"]}, "dtype": "float32", "encoding": "none"}},
  "tags": {"pythonClassName": "tensorflow_datasets.core.features.sequence_feature.Sequence",
   "sequence": {"feature": {
    "pythonClassName": "tensorflow_datasets.core.features.text_feature.Text", "text": {}},
    "length": "-1"}},
  "image": {"pythonClassName": "tensorflow_datasets.core.features.image_feature.Image",
   "image": {"shape": {"dimensions": ["-1", "-1", "3"]}, "dtype": "uint8",
    "encodingFormat": "jpeg"}}}}}
"""
