"""What each option of a run does to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.datasets import flip_bit, image_payload, write_foreign
from tests.photos import image_bytes
from tests.training.runs import small_options, write_drawings
from tfrtool.errors import UsageError
from tfrtool.loading.augment.augment_options import parse_augment
from tfrtool.loading.dataset.corrupt_report import OnCorrupt
from tfrtool.loading.pipeline.load_options import Cache, Recipe
from tfrtool.loading.pipeline.pipeline import load
from tfrtool.training.features.features_precision import Precision
from tfrtool.training.models.model_choice import ModelName, Trainable
from tfrtool.training.models.models import build_classifier
from tfrtool.training.models.saved_model import load_saved
from tfrtool.training.run.listener import Phase
from tfrtool.training.run.train import train
from tfrtool.training.run.train_options import RescaleTo, TrainOptions
from tfrtool.training.run.training_data import find_material

pytestmark = pytest.mark.tf

MOBILENET: dict[str, Any] = {"model": ModelName.MOBILENET_V2, "weights": "none"}
HEAD: dict[str, Any] = {**MOBILENET, "trainable": Trainable.HEAD}


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the drawings of the fixtures as a dataset."""
    return write_drawings(tmp_path_factory.mktemp("pets") / "pets")


@pytest.fixture(scope="module")
def weights(pets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return weights of a base whose statistics are those of the drawings.

    With those that it is built with, its features are about 1e-11.
    """
    import keras

    keras.utils.set_random_seed(0)
    base = build_classifier(ModelName.MOBILENET_V2, 32, 2, "none", Trainable.ALL).base
    for layer in base.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.3
    images, _ = _part(small_options(pets), tmp_path_factory.mktemp("x"), training=True)
    for _ in range(5):
        base(images / 127.5 - 1.0, training=True)
    path = tmp_path_factory.mktemp("weights") / "base.weights.h5"
    base.save_weights(path)
    return path


def _part(options: TrainOptions, tmp_path: Path, *, training: bool) -> tuple[Any, Any]:
    """Return all images that a run trains or validates on, as pixels, and their labels."""
    material = find_material(options, tmp_path, lambda _: None)
    part = material.training if training else material.validation
    assert part is not None
    whole = replace(part, batch_size=1000, training=False, epochs=1)
    ((images, labels),) = load(material.dataset, whole)
    return images.numpy(), labels.numpy()


def test_early_stopping_takes_the_best_weights(pets: Path, tmp_path: Path) -> None:
    """A run that only gets worse ends after its patience, with the model of its best epoch."""
    import keras

    options = small_options(pets, epochs=9, early_stopping=2, learning_rate=0.05, out=tmp_path)
    report = train(options)
    assert report.stopped_early
    assert report.best_epoch is not None
    losses = [epoch.val_loss for epoch in report.epochs]
    assert len(losses) == report.best_epoch + 2
    best = losses[report.best_epoch - 1]
    assert best == min(loss for loss in losses if loss is not None)
    images, labels = _part(options, tmp_path, training=False)
    told = load_saved(tmp_path / "model.keras").whole(images.astype("float32"))
    loss = float(keras.losses.SparseCategoricalCrossentropy()(labels, told))
    assert loss == pytest.approx(best, rel=1e-3)
    assert loss != pytest.approx(losses[-1], rel=1e-3)


def test_normalization_is_that_of_the_images_trained_on(pets: Path, tmp_path: Path) -> None:
    """Each channel has mean 0 and deviation 1 over the training part, in the saved model too."""
    options = small_options(
        pets, rescale=RescaleTo.DATASET, validation=0.25, epochs=1, out=tmp_path / "run"
    )
    rescale = train(options).plan.rescale
    pixels, _ = _part(options, tmp_path, training=True)
    rescaled = pixels.astype(np.float64) * rescale.scale + rescale.offset
    np.testing.assert_allclose(rescaled.mean((0, 1, 2)), 0, atol=1e-6)
    np.testing.assert_allclose(rescaled.std((0, 1, 2)), 1, atol=1e-6)
    layer = load_saved(tmp_path / "run").whole.get_layer("rescaling")
    assert tuple(layer.scale) == pytest.approx(rescale.scale)


def test_a_layer_and_all_after_it_learn(pets: Path) -> None:
    """From a layer on there is more to learn than in the head, and less than in all."""
    learnt = [
        train(
            small_options(pets, model=ModelName.CNN, trainable=Trainable(name), epochs=1)
        ).plan.trainable_parameters
        for name in ("probabilities", "hidden", "all")
    ]
    assert learnt == sorted(set(learnt))
    assert learnt[0] == 512 * 2 + 2


@pytest.mark.parametrize(
    ("side", "image_size", "expected"), [(28, None, 32), (100, None, 128), (28, 64, 64)]
)
def test_small_images_are_not_blown_up(
    tmp_path: Path, side: int, image_size: int | None, expected: int
) -> None:
    """Without a size, the cnn's is the images' own, as far as it can be, and 300 at most."""
    data = image_bytes("PNG", mode="L", size=(side, side - 8))
    payloads = [image_payload(number % 2, data=data) for number in range(4)]
    directory = write_foreign(tmp_path / "d", [payloads])
    options = replace(small_options(directory, epochs=1), image_size=image_size)
    assert find_material(options, tmp_path, lambda _: None).training.image_size == expected


def test_the_loader_is_told_what_was_asked_for(pets: Path, tmp_path: Path) -> None:
    """Every knob reaches the loader; what is validated on is neither augmented nor mixed."""
    augment = parse_augment("flip")
    knobs: dict[str, Any] = {
        "cycle_length": 2,
        "block_length": 3,
        "parallel_calls": 4,
        "shuffle_buffer": 5,
        "prefetch": 0,
        "deterministic": False,
        "cache_directory": tmp_path / "cache",
        "seed": 6,
        "batch_size": 7,
    }
    options = small_options(pets, augment=augment, **knobs)
    material = find_material(options, tmp_path, lambda _: None)
    assert material.validation is not None
    for name, value in knobs.items():
        assert getattr(material.training, name) == value
        assert getattr(material.validation, name) == value
    assert (material.training.augment, material.validation.augment) == (augment, None)
    assert (material.training.training, material.validation.training) == (True, False)


def test_features_are_made_once(pets: Path, weights: Path) -> None:
    """A frozen base is run once an image, whatever the epochs, and the losses stay the same.

    The graph for inference multiplies in another order than Keras does: float32 has 24 bits.
    """
    phases: list[Phase] = []
    options = small_options(
        pets,
        model=ModelName.MOBILENET_V2,
        weights=str(weights),
        trainable=Trainable.HEAD,
        epochs=3,
        learning_rate=0.01,
    )
    kept = train(options, on_phase=phases.append)
    uncached = train(replace(options, cache=Cache.MEMORY))
    assert (kept.plan.cache, uncached.plan.cache) == ("features", "memory")
    features = [phase for phase in phases if phase.name == "features"]
    assert features[-1].done == features[-1].total == 155 + 44
    assert sorted({phase.done for phase in features}) == [phase.done for phase in features]
    for one, other in zip(kept.epochs, uncached.epochs, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=1e-3)
        assert one.accuracy == pytest.approx(other.accuracy, abs=0.02)
        assert one.val_loss == pytest.approx(other.val_loss, abs=1e-3)
    assert abs(kept.epochs[0].loss - kept.epochs[-1].loss) > 0.01


@pytest.mark.parametrize(
    "changes",
    [
        {**MOBILENET, "trainable": Trainable.ALL},
        {**HEAD, "augment": parse_augment("flip")},
        {**HEAD, "cache": Cache.MEMORY},
        {**HEAD, "recipe": Recipe.NAIVE},
        {},
    ],
    ids=str,
)
def test_bfloat16_is_for_features(changes: dict[str, Any]) -> None:
    """Where no features are kept, there is nothing to gain, and it is refused."""
    with pytest.raises(UsageError, match="bfloat16"):
        small_options(Path("d"), precision=Precision.BFLOAT16, **changes)


def test_augmented_images_have_no_features(pets: Path) -> None:
    """Features that were asked for are not kept where they differ every epoch, and it is said."""
    augment = parse_augment("flip")
    plan = train(small_options(pets, **HEAD, epochs=1, cache=Cache.FEATURES, augment=augment)).plan
    assert plan.cache != "features"
    assert "augment" in plan.cache_reason


def test_damage_is_left_out(tmp_path: Path) -> None:
    """One damaged record of ten is named and left out, and nine are trained on."""
    payloads = [image_payload(number % 2) for number in range(10)]
    directory = write_foreign(tmp_path / "d", [payloads[:5], payloads[5:]])
    shard = sorted(directory.iterdir())[1]
    offset = len(payloads[5]) + 16
    flip_bit(shard, offset + 60)
    report = train(small_options(directory, on_corrupt=OnCorrupt.SKIP))
    assert (report.plan.train_images, report.plan.n_left_out) == (9, 1)
    (line,) = report.plan.left_out
    assert f"{shard}, record 1, offset {offset}" in line
    assert report.to_json()["left_out"] == 1


def test_logs_and_trace_are_where_they_were_asked_for(pets: Path, tmp_path: Path) -> None:
    """Event files and a trace lie in the directory for TensorBoard."""
    report = train(small_options(pets, epochs=1, tensorboard=tmp_path, profile=True))
    assert report.plan.profile == tmp_path
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plugins", "train", "validation"]
    assert len(list(tmp_path.glob("plugins/profile/*/*.xplane.pb"))) == 1
