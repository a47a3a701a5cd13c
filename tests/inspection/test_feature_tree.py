"""``inspect dataset --features`` prints what the features of a dataset mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.examples.strategies import entry, float32, int64, raw_example, string
from tests.inspection.test_feature_check import ROOT, changed, features, write
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.examples.example import Feature, encode_example
from tfrtool.examples.fields import tree_from_json

Capture = pytest.CaptureFixture[str]
TREE = """\
  label: label (3 classes)
  title: text
  ok: bool
  box: float32[4]
  free: float32[*,2]
  packed: zlib:uint16[*,*]
  image: image[*,*,3]
  steps: list of structs
    small: int8
    action: float32[2]
    words: list of int64
"""


def printed(capsys: Capture, folder: Path, *words: str) -> str:
    """Return what the command prints."""
    assert main(["inspect", "dataset", str(folder), "--features", *words]) == 0
    return capsys.readouterr().out


def test_a_tree(tmp_path: Path, capsys: Capture) -> None:
    """Each field is a line with its type, below that of its struct; --json has the same."""
    write(tmp_path, [features()])
    out = printed(capsys, tmp_path)
    assert out == f"{tmp_path}\n  features   features.json\n\n{TREE}"
    found = json.loads(printed(capsys, tmp_path, "--json"))
    assert (found["source"], found["notes"]) == ("features.json", [])
    assert tree_from_json(found["features"]) == ROOT


def test_labels_have_their_number_of_classes(tmp_path: Path, capsys: Capture) -> None:
    """The classes of a label are those in the file with their names, if there is one."""
    write(tmp_path, [features()])
    (tmp_path / "label.labels.txt").write_text("cat\ndog\n")
    assert "\n  label: label (2 classes)\n" in printed(capsys, tmp_path)


def test_notes(tmp_path: Path, capsys: Capture) -> None:
    """What records have besides, and a description that most of them contradict, are notes."""
    write(tmp_path, [changed(extra=int64(1))] * 3)
    out = " ".join(printed(capsys, tmp_path).split())
    assert "note not shown: 1 feature not in features.json: extra" in out
    write(tmp_path, [changed(box=float32(1, 2))] * 3)
    out = " ".join(printed(capsys, tmp_path).split())
    assert "note records differ from features.json: its 'box' is" in out
    assert "run tfrtool verify to list them" in out


@pytest.mark.parametrize("workers", ["1", "2"])
def test_features_that_no_file_describes(workers: str, tmp_path: Path, capsys: Capture) -> None:
    """Without metadata, features are shown as records store them, inferred from all of them."""
    rows: list[dict[str, Feature]] = [
        {"n": int64(1), "mixed": int64(1), "list": float32(1, 2)},
        {"n": int64(2), "mixed": string(b"a"), "list": float32(1)},
    ]
    (tmp_path / "a.tfrecord").write_bytes(shard_of([encode_example(row) for row in rows]))
    out = printed(capsys, tmp_path, "--workers", workers)
    assert "  features   inferred from 2 records\n" in out
    assert "'mixed' is not shown: its values have several types" in " ".join(out.split())
    assert out.endswith("\n  list: list of float32\n  n: int64\n")


def test_feature_lists(tmp_path: Path, capsys: Capture) -> None:
    """SequenceExamples are a context and feature lists."""
    record = raw_example([entry(b"id", int64(1))], {b"steps": [float32(1, 2), float32(3)]})
    (tmp_path / "a.tfrecord").write_bytes(shard_of([record] * 2))
    out = printed(capsys, tmp_path)
    assert out.endswith(
        "\n  context:\n    id: int64\n  feature_lists:\n    steps: list of list of float32\n"
    )


def test_messages_of_ranking(shared_data: Path, tmp_path: Path, capsys: Capture) -> None:
    """Lists of Examples with a context are shown as a struct and a list of structs."""
    source = shared_data / "reports" / "read" / "08_elwc" / "elwc.tfrecord"
    (tmp_path / "elwc.tfrecord").write_bytes(source.read_bytes())
    out = printed(capsys, tmp_path)
    assert "  features   ExampleListWithContext messages\n" in out
    assert "\n  context:\n" in out
    assert "\n  examples: list of structs\n" in out


@pytest.mark.parametrize("words", [["--label", "a"], ["--emit", "croissant"]])
def test_options_that_exclude_it(words: list[str], tmp_path: Path, capsys: Capture) -> None:
    """Options of the summary are errors, and not ignored."""
    assert main(["inspect", "dataset", str(tmp_path), "--features", *words]) == 2
    assert "--features and --" in capsys.readouterr().err
