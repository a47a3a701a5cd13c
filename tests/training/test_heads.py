"""Last layers: one output per class, a single sigmoid, and logits; and what the loss is then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tfrtool
from tests.more import more
from tests.training.runs import planned, small_options
from tfrtool.errors import UsageError
from tfrtool.images.sheet import SheetLayout

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]


def _validation(few: Path) -> tuple[Any, Any]:
    """Return the validation images, from 0 to 1, and their labels."""
    ((images, labels),) = tfrtool.dataset(few).load("validation", image_size=32, training=False)
    return images, labels.numpy()


@pytest.mark.parametrize(
    ("units", "activation", "outputs"),
    [more(1, "sigmoid", "probabilities"), (1, None, "logits"), more(2, None, "logits")],
)
def test_outputs_of_own_models(
    few: Path, tmp_path: Path, units: int, activation: str | None, outputs: Any
) -> None:
    """The loss is that of Keras for such outputs, and the saved model returns probabilities."""
    import keras

    built: list[Any] = []

    def build(size: int, _classes: int) -> Any:
        layers = [keras.Input((size, size, 3)), keras.layers.GlobalAveragePooling2D()]
        # Far from 0.5, where all losses are alike.
        head = keras.layers.Dense(
            units, activation, bias_initializer=keras.initializers.Constant(2)
        )
        built.append(keras.Sequential([*layers, head]))
        return built[-1]

    changes = {"model": build, "outputs": outputs, "trainable": "all", "image_size": 16}
    options = small_options(few, epochs=1, learning_rate=1e-9, out=tmp_path / "run", **changes)
    report = tfrtool.train(**options)
    ((images, labels),) = tfrtool.dataset(few).load("validation", image_size=16, training=False)
    kind = keras.losses.SparseCategoricalCrossentropy
    if units == 1:
        kind, labels = keras.losses.BinaryCrossentropy, labels[:, None]
    expected = kind(from_logits=activation is None)(labels, built[0](images))
    assert report.epochs[0].val_loss == pytest.approx(float(expected), rel=1e-4)
    probabilities = tfrtool.load_model(tmp_path / "run").whole(images * 255).numpy()
    assert probabilities.shape == (len(labels), 2)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    if activation is not None:
        np.testing.assert_allclose(probabilities[:, 1], built[0](images)[:, 0], rtol=1e-4)


@pytest.mark.parametrize("model", ["cnn", more("mobilenet")])
def test_a_single_sigmoid(few: Path, tmp_path: Path, model: str) -> None:
    """It is one output, trained with binary cross-entropy, also over cached features."""
    import keras

    changes = {"model": model, "weights": "none", "trainable": "head", "head": "sigmoid"}
    report = tfrtool.train(**small_options(few, epochs=1, out=tmp_path / "run", **changes))
    assert report.plan.cache == "features"
    saved = tfrtool.load_model(tmp_path / "run")
    assert saved.core.get_layer("probabilities").units == 1
    images, labels = _validation(few)
    scores = saved.whole(images * 255).numpy()
    loss = float(keras.losses.BinaryCrossentropy()(labels[:, None], scores[:, 1:]))
    assert report.epochs[0].val_loss == pytest.approx(loss, rel=1e-3)
    again = small_options(few, epochs=1, **changes | {"weights": tmp_path / "run" / "model.keras"})
    assert planned(**again).trainable_parameters > 0


def test_warm_up_and_label_smoothing(few: Path, tmp_path: Path) -> None:
    """The rate rises to its value in the first epoch; losses are those of smoothed labels."""
    import keras

    rates: list[float] = []

    def note(batch: int, logs: Any) -> None:
        del batch, logs
        rates.append(float(noting.model.optimizer.learning_rate))

    noting = keras.callbacks.LambdaCallback(on_train_batch_end=note)
    changes = {"warm_up": 1, "label_smoothing": 0.2, "learning_rate": 0.01, "batch_size": 7}
    options = small_options(few, epochs=2, out=tmp_path / "run", **changes)
    report = tfrtool.train(**options, callbacks=[noting])
    assert rates == pytest.approx([0.005, 0.01, 0.01, 0.01])
    images, labels = _validation(few)
    scores = tfrtool.load_model(tmp_path / "run").whole(images * 255)
    smoothed = keras.losses.CategoricalCrossentropy(label_smoothing=0.2)
    expected = float(smoothed(np.eye(2)[labels], scores))
    assert report.epochs[-1].val_loss == pytest.approx(expected, rel=1e-3)


def _check_sheet(path: Path, images: Any) -> None:
    """Check that a sheet shows images of 32 pixels, five times as large."""
    layout = SheetLayout(images=len(images), thumb=160)
    with Image.open(path) as sheet:
        for number, pixels in enumerate(images):
            left, top = layout.corner(number)
            tile = np.asarray(sheet.crop((left, top, left + 160, top + 160)))
            np.testing.assert_array_equal(tile[::5, ::5], pixels)


@pytest.mark.more
def test_shown_images_of_a_cached_run(pets: Path, tmp_path: Path) -> None:
    """The first batch is that of the run, whose cache has an order of its own."""
    changes: dict[str, Any] = {"cache": "disk", "augment": "flip", "seed": 3}
    changes["cache_directory"] = tmp_path / "cache"
    tfrtool.train(**small_options(pets, **changes, show_augment=tmp_path / "some.png"))
    batches = tfrtool.dataset(pets).load(
        batch_size=16, image_size=32, rescale=None, epochs=2, **changes
    )
    _check_sheet(tmp_path / "some.png", next(iter(batches))[0].numpy())


@pytest.mark.more
def test_the_mean_of_the_dataset_covers_images(few: Path, tmp_path: Path) -> None:
    """It is the mean that pixels are normalized with, and the drawing has its color."""
    changes: dict[str, Any] = {"augment": "cutout=9:dataset-mean:inside", "rescale": "dataset"}
    changes["show_augment"] = tmp_path / "some.png"
    rescale = tfrtool.train(**small_options(few, epochs=1, **changes)).plan.rescale
    mean = -np.array(rescale.offset) / np.array(rescale.scale)
    with Image.open(tmp_path / "some.png") as sheet:
        left, top = SheetLayout(images=1, thumb=160).corner(0)
        tile = np.asarray(sheet.crop((left, top, left + 160, top + 160)))
    covered = np.all(tile == np.rint(mean).astype(np.uint8), -1)
    assert covered.sum() >= 45 * 45


@pytest.mark.more
def test_mixed_images(few: Path, tmp_path: Path) -> None:
    """Training images are mixed, the loss takes their shares; validation images stay."""
    import keras

    changes: dict[str, Any] = {"augment": "flip,mixup=0.4,cutmix=1", "balance_classes": True}
    changes |= {"show_augment": tmp_path / "some.png", "out": tmp_path / "run"}
    report = tfrtool.train(**small_options(few, epochs=1, **changes))
    assert report.plan.cache == "none"
    ((first, _),) = tfrtool.dataset(few).load(
        batch_size=16, image_size=32, rescale=None, one_hot=True, augment="flip,mixup=0.4,cutmix=1"
    )
    _check_sheet(tmp_path / "some.png", first.numpy())
    assert "show_augment" not in json.loads((tmp_path / "run" / "run.json").read_text())["options"]
    images, labels = _validation(few)
    scores = tfrtool.load_model(tmp_path / "run").whole(images * 255)
    loss = float(keras.losses.SparseCategoricalCrossentropy()(labels, scores))
    assert report.epochs[0].val_loss == pytest.approx(loss, rel=1e-3)
    right = float(np.mean(np.argmax(scores, 1) == labels))
    assert report.epochs[0].val_accuracy == pytest.approx(right)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"augment": "mixup=1", "recipe": "naive"}, "mixup and cutmix require --recipe tfrtool"),
        ({"augment": "mixup"}, "invalid --augment 'mixup': expected mixup=ALPHA, above 0"),
        ({"augment": "hue=0.1:before-resize", "cache": "memory"}, "before-resize requires"),
        ({"augment": "cutout=4:dataset-mean"}, "with dataset-mean requires --rescale dataset"),
        ({"show_augment": "some.jpg"}, "--show-augment requires a .png file"),
        ({"outputs": "logits"}, "requires a model of your own"),
        ({"image_size": 31}, "--image-size must be at least 32 for --model cnn, got 31"),
        ({"warm_up": 3}, "--warm-up 3 must not exceed --epochs 2"),
        ({"label_smoothing": 1}, "--label-smoothing must be from 0 to 0.9"),
        ({"label_smoothing": float("nan")}, "--label-smoothing must be from 0 to 0.9, got nan"),
        ({"image_size": (32, 33000)}, "invalid --image-size 32x33000: expected N"),
    ],
)
def test_impossible_heads(changes: dict[str, Any], problem: str) -> None:
    """Each is refused before the dataset is opened."""
    with pytest.raises(UsageError, match=problem):
        tfrtool.train(**small_options(Path("nowhere"), **changes))
