"""Features in the terms of TensorFlow Metadata, which TFX uses, and as Python code for TFDS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.features.robot import ROOT, write_robot
from tests.features.test_tfds_tree import PRESENT
from tests.records.strategies import shard_of
from tfrtool import Features
from tfrtool.cli import main
from tfrtool.examples.tfds_metadata import connector, dimensions
from tfrtool.features.tfds_source import tfds_source
from tfrtool.features.tfds_tree import tree_of_tfds

FLAT = connector(
    "FeaturesDict",
    featuresDict={
        "features": {
            "matrix": connector("Tensor", "float32", (2, 3)),
            "flag": connector("Scalar", "bool"),
            "small": connector("Scalar", "uint8"),
            "label": connector("ClassLabel", classLabel={"numClasses": "3"}),
            "text": connector("Text", text={}),
            "image": connector("Image", image={"dtype": "uint8", "shape": dimensions(-1, -1, 3)}),
            "ids": connector(
                "Sequence", sequence={"feature": connector("Scalar", "int64"), "length": "-1"}
            ),
        }
    },
)


def _write(folder: Path, labels: tuple[int, ...] = (0, 2)) -> Path:
    """Write records of these features with their features.json."""
    folder.mkdir()
    (folder / "features.json").write_text(json.dumps(FLAT))
    rows = [
        {
            "matrix": [0.5] * 6,
            "flag": number % 2,
            "small": 255,
            "label": label,
            "text": f"text {number}",
            "image": b"\xff\xd8\xff",
            "ids": [1] * number,
        }
        for number, label in enumerate(labels, 1)
    ]
    shard = folder / "a-train.tfrecord-00000-of-00001"
    shard.write_bytes(shard_of([tfrtool.encode_example(row) for row in rows]))
    return shard


def _emitted(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main(["inspect", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_schema_of_typed_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Shapes and domains of features.json are in the schema, from which the same tree is read."""
    shard, file = _write(tmp_path / "a"), tmp_path / "schema.pbtxt"
    file.write_text(_emitted(capsys, "schema", shard, "--emit", "pbtxt"))
    assert Features.from_tfx(file) == Features.from_tfds(FLAT)
    assert main(["verify", str(shard), "--schema", str(file)]) == 0
    assert "not checked" not in capsys.readouterr().out
    file.write_text(Features.from_tfds(FLAT).to_tfx())
    assert Features.from_tfx(file) == Features.from_tfds(FLAT)
    row = {"matrix": [0.5] * 6, "flag": 2, "small": 256, "label": 3, "text": "", "image": b""}
    shard.write_bytes(shard_of([tfrtool.encode_example({**row, "ids": [1]})]))
    (shard.parent / "features.json").unlink()
    found = tfrtool.verify(shard, schema=file).anomalies
    assert found is not None
    assert {one.feature for one in found} == {"flag", "small", "label"}


def test_schema_holds_for_all_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A label of -1, which features.json allows, is outside of its domain, which is left out."""
    shard, file = _write(tmp_path / "a", labels=(-1, 2)), tmp_path / "schema.json"
    file.write_text(_emitted(capsys, "schema", shard, "--emit", "schema"))
    by_name = {one["name"]: one for one in json.loads(file.read_text())["feature"]}
    assert "int_domain" not in by_name["label"]
    assert by_name["small"]["int_domain"] == {"min": 0, "max": 255}
    assert main(["verify", str(shard), "--schema", str(file), "--json"]) == 0


def test_structs_of_a_schema(tmp_path: Path) -> None:
    """TFX' structs are structs and lists of structs; domains are shared by name."""
    path = tmp_path / "schema.pbtxt"
    path.write_text(
        """
        int_domain { name: "kinds" min: 0 max: 4 is_categorical: true }
        feature { name: "steps" type: STRUCT value_count { min: 0 } struct_domain {
          feature { name: "kind" type: INT domain: "kinds" presence { min_fraction: 1 } }
          feature { name: "x" type: FLOAT shape { dim { size: 3 } } presence { min_fraction: 1 } }
        } }
        feature { name: "words" type: BYTES string_domain { value: "a" } value_count { min: 0 } }
        feature { name: "unknown" }
        """
    )
    features = Features.from_tfx(path)
    lines = ["steps: list of structs", "  kind: label (5 classes)", "  x: float32[3]"]
    assert str(features).splitlines() == [*lines, "words: list of text"]
    assert features.notes == ("'unknown' is not shown: it has no type",)


@pytest.mark.parametrize(
    "text",
    ["nonsense", 'feature { name: "a" type: INT } feature { name: "a" type: INT }', "{1}"],
)
def test_invalid_schemas(text: str, tmp_path: Path) -> None:
    """What is no schema is an error with the file's name."""
    path = tmp_path / "schema.pbtxt"
    path.write_text(text)
    with pytest.raises(tfrtool.SchemaError, match=r"schema\.pbtxt: invalid schema"):
        Features.from_tfx(path)


@pytest.mark.parametrize("content", [PRESENT, ROOT, FLAT])
def test_python_code_is_the_same_features(tf: Any, content: Any) -> None:  # noqa: ARG001
    """The code makes TFDS features that mean the same."""
    root, _ = tree_of_tfds(json.loads(json.dumps(content)))
    names: dict[str, Any] = {}
    exec(tfds_source(root), names)
    assert Features.from_tfds(names["features"]) == Features.from_tfds(content)


def test_features_of_a_dataset_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both commands give what features.json says: as Python code, and as the same file."""
    folder = write_robot(tmp_path / "robot")
    code = _emitted(capsys, "dataset", folder, "--emit", "python")
    assert '"steps": tfds.features.Dataset(tfds.features.FeaturesDict({' in code
    assert '        "action": tfds.features.Tensor(shape=(2,), dtype=np.float32),' in code
    (shard,) = folder.glob("*.tfrecord*")
    content = json.loads(_emitted(capsys, "schema", shard, "--emit", "tfds"))
    assert Features.from_tfds(content) == Features.from_tfds(ROOT)
    for words in (["--json"], ["--label-feature", "x"]):
        assert main(["inspect", "dataset", str(folder), "--emit", "python", *words]) == 2
