"""``tfrtool inspect schema``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.inspecting import Capture
from tests.conftest import MakeShard
from tests.contracts.test_import_budget import HEAVY, loaded_by
from tests.examples.strategies import UNSET, entry, float32, int64, raw_example, string
from tfrtool.cli import main
from tfrtool.examples.example import encode_example
from tfrtool.examples.schema import Schema
from tfrtool.records.framing import frame

PNG = b"\x89PNG\r\n\x1a\n"
RECORDS = [
    encode_example({"image": string(PNG), "label": int64(n % 2), "ids": int64(*range(n))})
    for n in range(4)
]


def run(*words: str | Path) -> int:
    """Run the command, and return its exit code."""
    return main(["inspect", "schema", *map(str, words)])


@pytest.fixture
def shard(make_shard: MakeShard) -> Path:
    """Return a shard of four records."""
    return make_shard(RECORDS)


def test_table_tells_what_is_odd(make_shard: MakeShard, capsys: Capture) -> None:
    """Conflicts, names that come twice, and missing kinds stand below."""
    x = entry(b"x", int64(1))
    path = make_shard(
        [
            raw_example([x, x, entry(b"caf\xe9", int64(1)), entry(b"u", UNSET)]),
            raw_example([entry(b"x", string(b"a")), entry(b"u", UNSET)]),
        ]
    )
    assert run(path) == 0
    notes = " ".join(capsys.readouterr().out.partition("\nnotes\n")[2].split())
    assert f"x: conflicting types: int64 in 1 record (first in {path}:0)" in notes
    assert f"string in 1 record (first in {path}:1)" in notes
    assert "repeated in 1 record, where the last value is used" in notes
    assert "treated as missing: u 2" in notes


def test_names_are_never_cut(make_shard: MakeShard, capsys: Capture) -> None:
    """Names that begin alike can be told apart."""
    stem = "preprocessed/camera_front/very/long/" * 3
    record = {stem + str(n): float32(n / 7) for n in range(3)}
    payloads = [encode_example(record)] * 4
    assert run(make_shard(payloads)) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in record)
    assert main(["inspect", "shard", str(make_shard(payloads, "b.tfrecord"))]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in record)


def test_a_huge_name_costs_no_columns(make_shard: MakeShard, capsys: Capture) -> None:
    """A name of a megabyte is shown once, and does not pad the lines of all others."""
    record = {f"{n}": int64(n) for n in range(500)} | {"x" * 1_000_000: int64(1)}
    assert run(make_shard([encode_example(record)])) == 0
    assert len(capsys.readouterr().out) < 1_200_000


def test_python(tf: Any, shard: Path, capsys: Capture) -> None:
    """The source says what it rests on, runs, and parses."""
    assert run(shard, "--emit", "python") == 0
    source = capsys.readouterr().out
    comment, rest = source.split("\n", 1)
    assert comment.startswith("# ")
    assert "4 records of 1 shard" in comment
    assert rest.startswith("import ")
    held: dict[str, Any] = {}
    exec(source, held)
    for record in RECORDS:
        parsed = tf.io.parse_single_example(record, held["feature_description"])
        assert parsed["image"].numpy() == PNG


DIGITS = {"shape": {"dimensions": ["28", "28", "1"]}}
CLASS = "tensorflow_datasets.core.features"


def test_shapes_of_features_json(tf: Any, tmp_path: Path, capsys: Capture) -> None:
    """Shapes that TFDS declares are those of the table, the JSON and the code, if records fit."""
    tensor: dict[str, Any] = {"pythonClassName": f"{CLASS}.tensor_feature.Tensor"}
    image = {"image": DIGITS, "pythonClassName": f"{CLASS}.image_feature.Image"}
    features = {
        "image": image,
        "pixels": tensor | {"tensor": DIGITS | {"dtype": "float32", "encoding": "none"}},
        "other": tensor | {"tensor": DIGITS | {"dtype": "float32", "encoding": "none"}},
    }
    content: dict[str, Any] = {"featuresDict": {"features": features}}
    content |= {"pythonClassName": f"{CLASS}.features_dict.FeaturesDict"}
    record = encode_example(
        {"image": string(PNG), "pixels": float32(*range(784)), "other": float32(1, 2)}
    )
    shard = tmp_path / "digits-train.tfrecord-00000-of-00001"
    shard.write_bytes(frame(record))
    assert run(shard, "--json") == 0
    assert [one["shape"] for one in json.loads(capsys.readouterr().out)["features"]][2] == [784]
    (tmp_path / "features.json").write_text(json.dumps(content))
    assert run(shard, "--json") == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["features"]}
    shapes = {name: (one["shape"], one["image_shape"]) for name, one in found.items()}
    digits = [28, 28, 1]
    assert shapes == {"image": ([], digits), "other": ([2], None), "pixels": (digits, None)}
    assert run(shard) == 0
    table = capsys.readouterr().out
    assert "image/png [28,28,1]" in table
    assert "[28,28,1]  all" in table
    assert run(shard, "--emit", "python") == 0
    names: dict[str, Any] = {}
    exec(capsys.readouterr().out, names)
    parsed = tf.io.parse_single_example(record, names["feature_description"])
    assert parsed["pixels"].shape == digits
    assert main(["inspect", "dataset", str(tmp_path), "--features"]) == 0
    tree = capsys.readouterr().out
    assert "image: image[28,28,1]" in tree
    assert "pixels: float32[28,28,1]" in tree


def test_json_goes_back_in(shard: Path, tmp_path: Path, capsys: Capture) -> None:
    """`--emit json` is what `--description` takes, and every record fits it."""
    assert run(shard, "--emit", "json") == 0
    text = capsys.readouterr().out
    assert [str(spec) for spec in Schema.from_json(text)] == [
        "ids:int64:[*]",
        "image:string",
        "label:int64",
    ]
    file = tmp_path / "description.json"
    file.write_text(text)
    assert main(["inspect", "shard", str(shard), "--description", str(file)]) == 0


def test_json_of_sequences_goes_back_in(
    make_shard: MakeShard, tmp_path: Path, capsys: Capture
) -> None:
    """The same where a name stands for a feature and for a feature list."""
    records = [raw_example([entry(b"x", int64(1))], {b"x": [float32(n)] * n}) for n in (1, 2)]
    path, file = make_shard(records), tmp_path / "description.json"
    assert run(path, "--emit", "json") == 0
    file.write_text(capsys.readouterr().out)
    assert main(["inspect", "shard", str(path), "--description", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["faults"] == []


def test_tfds(shard: Path, capsys: Capture) -> None:
    """`--emit tfds` is features.json."""
    assert run(shard, "--emit", "tfds") == 0
    data = json.loads(capsys.readouterr().out)
    label = data["featuresDict"]["features"]["label"]
    assert label["classLabel"] == {"numClasses": "2"}


def test_tfds_leaves_out(make_shard: MakeShard, capsys: Capture) -> None:
    """What TFDS can't hold is named on stderr, with exit code 3; nothing at all is an error."""
    sequence = raw_example([entry(b"x", int64(1))], {b"steps": [int64(1)]})
    assert run(make_shard([sequence]), "--emit", "tfds") == 3
    out, err = capsys.readouterr()
    assert list(json.loads(out)["featuresDict"]["features"]) == ["x"]
    assert "'steps': a feature list" in err
    assert run(make_shard([raw_example([], {b"steps": [int64(1)]})]), "--emit", "tfds") == 1
    assert capsys.readouterr().out == ""


def test_many_distinct_values_are_null(make_shard: MakeShard, capsys: Capture) -> None:
    """Beyond the limit, the number of distinct values is not known."""
    path = make_shard([encode_example({"x": int64(*range(101)), "name": string(b"\xff")})])
    assert run(path, "--json") == 0
    name, x = json.loads(capsys.readouterr().out)["features"]
    assert (x["distinct"], x["values"], x["max"]) == (None, None, 100)
    assert name["distinct"] == 1


def test_sample_is_told(shard: Path, capsys: Capture) -> None:
    """A sample is called one, in each form of output."""
    assert run(shard, "--sample", "2") == 0
    assert "a sample of 2 records" in capsys.readouterr().out
    assert run(shard, "--sample", "2", "--emit", "python") == 0
    out, err = capsys.readouterr()
    assert "a sample of 2 records" in out
    assert "a sample of 2 records" in err
    assert run(shard, "--sample", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["sampled"] is True


def test_usage(shard: Path, capsys: Capture) -> None:
    """Two forms at once, and a sample of nothing, are refused."""
    assert run(shard, "--json", "--emit", "python") == 2
    assert run(shard, "--sample", "0") == 2
    assert run(shard, "--emit", "yaml") == 2
    assert capsys.readouterr().out == ""


def test_nothing_heavy_is_loaded(shard: Path) -> None:
    """What is written for TensorFlow is written without TensorFlow and numpy."""
    for form in ("python", "tfds"):
        assert loaded_by(["inspect", "schema", str(shard), "--emit", form], HEAVY) == (0, [])
