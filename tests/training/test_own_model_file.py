"""Files that Keras saved: evaluated and used as they are, with class names from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tfrtool
from tests.photos import image_bytes
from tfrtool.cli import main
from tfrtool.errors import UsageError, WeightsError

pytestmark = pytest.mark.tf

SIDE = 24


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with models that scale pixels, that don't, and that return logits."""
    import keras

    folder = tmp_path_factory.mktemp("models")
    layers = keras.layers
    kinds: dict[str, tuple[list[Any], str | None]] = {
        "scaling": ([layers.Rescaling(1 / 255)], "softmax"),
        "plain": ([], "softmax"),
        "logits": ([], None),
    }
    for name, (first, activation) in kinds.items():
        keras.utils.set_random_seed(1)
        tail = [layers.GlobalAveragePooling2D(), layers.Dense(2, activation=activation)]
        keras.Sequential([keras.Input((SIDE, SIDE, 3)), *first, *tail]).save(
            folder / f"{name}.keras"
        )
    (folder / "names.txt").write_text("cat\ndog\n")
    return folder


@pytest.mark.parametrize("kind", ["scaling", "plain", "logits"])
def test_predictions_are_those_of_keras(kind: str, models: Path, tmp_path: Path) -> None:
    """Pixels, and softmax for logits, are as the model's own layers need them."""
    import keras

    pixels = np.full((SIDE, SIDE, 3), (250, 40, 90), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    file = models / f"{kind}.keras"
    (found,) = tfrtool.predict(file, tmp_path / "a.png", labels=models / "names.txt", top=2)
    given = pixels[None].astype(np.float32) / (1 if kind == "scaling" else 255)
    expected = keras.models.load_model(file)(given).numpy()[0]
    if kind == "logits":
        expected = np.exp(expected) / np.exp(expected).sum()
    values = [found.classes["cat"], found.classes["dog"]]
    assert values == pytest.approx(expected.tolist(), abs=1e-6)


def test_evaluate_takes_names_from_the_dataset(
    models: Path, few: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures of a model that scales are those of the same one that gets scaled pixels."""
    reports = []
    for words in (["scaling"], ["plain"], ["scaling", "--rescale", "none"]):
        file = str(models / f"{words[0]}.keras")
        assert main(["evaluate", file, str(few), "--json", *words[1:]]) == 0
        reports.append(json.loads(capsys.readouterr().out))
    assert [one["label"] for one in reports[0]["classes"]] == ["cat", "dog"]
    for one in reports:
        assert one["loss"] == pytest.approx(reports[0]["loss"], abs=1e-6)


def test_what_an_own_file_needs(models: Path, few: Path, tmp_path: Path) -> None:
    """Names, one for each output; other formats, and options for other models, are refused."""
    image, file = tmp_path / "a.jpg", models / "plain.keras"
    image.write_bytes(image_bytes())
    with pytest.raises(UsageError, match="no class names; use --labels FILE"):
        list(tfrtool.predict(file, image))
    (tmp_path / "three.txt").write_text("a\nb\nc\n")
    with pytest.raises(UsageError, match="don't match the number of classes"):
        list(tfrtool.predict(file, image, labels=tmp_path / "three.txt"))
    (tmp_path / "twice.txt").write_text("a\na\n")
    with pytest.raises(UsageError, match="no usable class names"):
        list(tfrtool.predict(file, image, labels=tmp_path / "twice.txt"))
    with pytest.raises(WeightsError, match=r"m\.h5: .* save it as a \.keras file"):
        tfrtool.evaluate(tmp_path / "m.h5", few)
    with pytest.raises(UsageError, match=r"m\.h5.* save it as a \.keras file"):
        tfrtool.train(few, model="m.h5")
