"""Records of shards, classified with or without labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.datasets import flip_bit
from tests.photos import image_bytes
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.training.models import build_classifier, rescale_for
from tfrtool.training.saved_model import ModelFacts, save_model

pytestmark = pytest.mark.tf

SIDE = 16
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a saved model of two classes."""
    folder = tmp_path_factory.mktemp("run")
    facts = ModelFacts(model="cnn", image_size=SIDE * 2, class_names=("cat", "dog"))
    core = build_classifier("cnn", SIDE * 2, 2, "none").core
    save_model(folder / "model.keras", core, rescale_for("cnn"), facts)
    return folder


def test_probabilities_are_those_of_evaluate(run: Path, few: Path, tmp_path: Path) -> None:
    """A record's pixels are those that the loader makes."""
    tfrtool.evaluate(run, few, split="train", out=tmp_path / "e")
    lines = (tmp_path / "e" / "predictions.jsonl").read_text().splitlines()
    expected = {(one["shard"], one["record"]): one["probability"] for one in map(json.loads, lines)}
    shards = sorted({shard for shard, _ in expected})
    found = {(one.path, one.record): one.probability for one in tfrtool.predict(run, shards)}
    assert found == pytest.approx(expected, abs=1e-6)


def test_shards_without_labels(run: Path, tmp_path: Path, capsys: Capture) -> None:
    """Files, directories and patterns are shards; each record has its number and its name."""
    folder = tmp_path / "shards"
    folder.mkdir()
    examples = [
        tfrtool.encode_example({"image": image_bytes(tint=9 * n), "image_name": f"n{n}", "age": n})
        for n in range(3)
    ]
    (folder / "test.tfrec").write_bytes(shard_of(examples))
    found = []
    for place in (folder / "test.tfrec", folder, folder / "t*.tfrec"):
        assert main(["predict", str(run), str(place), "--json", "--batch-size", "2"]) == 0
        found.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert found[0] == found[1] == found[2]
    named = [(one["path"], one["record"], one["name"]) for one in found[0]]
    assert named == [(str(folder / "test.tfrec"), n, f"n{n}") for n in range(3)]
    assert main(["predict", str(run), str(folder)]) == 0
    assert f"{folder}/test.tfrec:2  n2 " in capsys.readouterr().out


def test_records_that_cannot_be_used(run: Path, tmp_path: Path, capsys: Capture) -> None:
    """Damage, and records without a usable image, are reported in their places."""
    pixels = np.full((4, 5, 3), 77, np.uint8).tobytes()
    raw: dict[str, Any] = {"image": pixels, "height": 4, "width": 5, "depth": 3}
    records = [raw, {"label": 1}, {**raw, "height": 9}, raw, raw]
    payloads = [tfrtool.encode_example(one) for one in records]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard_of(payloads))
    flip_bit(path, path.stat().st_size - 30)
    assert main(["predict", str(run), str(path), "--json"]) == 3
    output = capsys.readouterr()
    lines = [json.loads(line) for line in output.out.splitlines()]
    assert [one["record"] for one in lines if one["error"] is None] == [0, 3]
    assert lines[0]["probability"] == lines[3]["probability"]
    assert [one["record"] for one in lines] == [0, 1, 2, 3, 4]
    assert "feature 'image' is not a single image" in lines[1]["error"]
    assert "can't be decoded" in lines[2]["error"]
    assert "payload-crc" in lines[4]["error"]
    assert f"{path}:1: feature" in output.err
    path.write_bytes(shard_of([tfrtool.encode_example({"label": 1})]))
    assert main(["predict", str(run), str(path)]) == 1
    assert "no images in its first records" in capsys.readouterr().err
