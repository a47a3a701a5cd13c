"""Statistics of each component of tensors whose shape features.json describes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tfrtool
from tests.features.robot import write_robot
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.examples.tfds_metadata import connector


def _write(folder: Path, shape: tuple[int, ...], *records: list[float]) -> Path:
    """Write records of one tensor with a features.json."""
    folder.mkdir()
    features = {"x": connector("Tensor", "float32", shape)}
    content = connector("FeaturesDict", featuresDict={"features": features})
    (folder / "features.json").write_text(json.dumps(content))
    shard = folder / "a-train.tfrecord-00000-of-00001"
    shard.write_bytes(shard_of([tfrtool.encode_example({"x": values}) for values in records]))
    return shard


def test_components_are_those_of_numpy(tmp_path: Path) -> None:
    """The last dimension counts; records of another size are only in the whole feature."""
    values = np.arange(12, dtype=np.float32).reshape(2, 2, 3) ** 2
    shard = _write(tmp_path / "a", (2, 3), *values.reshape(2, 6).tolist(), [100.0])
    features = {one["name"]: one for one in tfrtool.stats(shard).features}
    assert [*features] == ["x", "x[0]", "x[1]", "x[2]"]
    assert features["x"]["values"]["max"] == 121
    for number in range(3):
        found, expected = features[f"x[{number}]"], values[..., number]
        assert (found["component"], found["present"]) == (number, 2)
        assert found["values"]["mean"] == pytest.approx(expected.mean())
        assert found["values"]["std"] == pytest.approx(expected.std())
        assert found["values"]["histogram"]["edges"][-1] == expected.max()
        assert found["lengths"]["max"] == 2


def test_components_of_steps_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A component that moved is found, though all values together look the same."""
    here = write_robot(tmp_path / "a")
    swapped = [1.0, 0.0, 3.0, 2.0, 5.0, 4.0]
    there = write_robot(tmp_path / "b", **{"steps/action": swapped})
    against = tfrtool.stats(here, against=there).against
    assert against is not None
    distances = {
        one["feature"]: one["distance"] for one in against["distances"] if one["of"] == "values"
    }
    assert distances["steps/action[0]"] > 2 * distances["steps/action"]
    assert (against["only_here"], against["only_there"]) == ([], [])
    assert main(["inspect", "stats", str(here)]) == 0
    out = capsys.readouterr().out
    assert out.count("steps/action[1]") == 1
    assert "steps/reward[" not in out


@pytest.mark.parametrize(("shape", "count"), [((64,), 64), ((65,), 0), ((3, 1), 0)])
def test_most_components(shape: tuple[int, ...], count: int, tmp_path: Path) -> None:
    """There are at most 64, and a single one is the feature itself."""
    shard = _write(tmp_path / "a", shape, [0.5] * int(np.prod(shape)))
    assert len(tfrtool.stats(shard).features) == 1 + count


def test_components_of_a_chosen_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``--type`` says the shape where no features.json does."""
    shard = tmp_path / "a.tfrecord"
    shard.write_bytes(shard_of([tfrtool.encode_example({"x": [1.0, 2.0, 3.0, 4.0]})]))
    assert main(["inspect", "stats", str(shard), "--type", "x:float32[*,2]", "--json"]) == 0
    features = {one["name"]: one for one in json.loads(capsys.readouterr().out)["features"]}
    assert {name: one["values"]["mean"] for name, one in features.items()} == {
        "x": 2.5,
        "x[0]": 2.0,
        "x[1]": 3.0,
    }
    assert main(["inspect", "stats", str(shard), "--type", "y:float32[2]"]) == 2
    assert "no feature 'y'" in capsys.readouterr().err
