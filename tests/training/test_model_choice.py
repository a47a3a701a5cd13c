"""Names of models, what learns, and how fast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfrtool.errors import UsageError
from tfrtool.training.models.model_choice import model_name
from tfrtool.training.run.train_options import TrainOptions

pytestmark = pytest.mark.tf


@pytest.mark.parametrize(
    ("spelt", "value"),
    [
        ("EfficientNetB0", "efficientnetb0"),
        ("efficientnet_b0", "efficientnetb0"),
        ("efficientnet-b0", "efficientnetb0"),
        ("MOBILENETV2", "mobilenet_v2"),
        ("mobilenet_v2", "mobilenet_v2"),
        ("CNN", "cnn"),
    ],
)
def test_spelling_does_not_matter(spelt: str, value: str) -> None:
    """A model has one name, however it is spelt, and naming it again changes nothing."""
    assert model_name(spelt) == model_name(value) == value


@pytest.mark.parametrize("text", ["", "_", "../model", "2fast", "resnet 50\n"])
def test_what_is_no_name_is_refused(text: str) -> None:
    """Text that can't be a name at all is a usage error, before Keras is asked."""
    with pytest.raises(UsageError):
        model_name(text)


def test_nothing_is_no_layer() -> None:
    """An empty value says nothing of what learns."""
    with pytest.raises(UsageError):
        TrainOptions(dataset=Path("d"), trainable="")


@pytest.mark.parametrize(
    ("trainable", "weights", "trained"),
    [
        ("auto", "none", "all"),
        ("auto", "imagenet", "head"),
        ("auto", "file.h5", "head"),
        ("head", "none", "head"),
        ("all", "imagenet", "all"),
        ("conv5_block1_out", "none", "conv5_block1_out"),
    ],
)
def test_which_layers_are_trained(trainable: str, weights: str, trained: str) -> None:
    """All are where it is asked for, and by default where there are no weights to begin with."""
    options = TrainOptions(dataset=Path("d"), trainable=trainable, weights=weights)
    assert options.trained == trained


@pytest.mark.parametrize(
    ("changes", "rate"),
    [
        ({}, 1e-3),
        ({"weights": "none"}, 3e-4),
        ({"weights": "none", "trainable": "head"}, 1e-3),
        ({"weights": "none", "trainable": "block_12"}, 3e-4),
        ({"trainable": "all"}, 1e-4),
        ({"trainable": "block_12"}, 1e-4),
        ({"weights": "file.keras", "trainable": "all"}, 1e-4),
        ({"model": "cnn"}, 3e-4),
        ({"model": "cnn", "trainable": "head"}, 1e-3),
        ({"model": "cnn", "weights": "file.keras"}, 1e-3),
        ({"model": "cnn", "trainable": "hidden"}, 3e-4),
        ({"model": "cnn", "learning_rate": 0.5}, 0.5),
    ],
)
def test_learning_rate_goes_by_what_learns(changes: dict[str, Any], rate: float) -> None:
    """Loaded layers take smaller steps than random ones, and those smaller ones than a head."""
    assert TrainOptions(dataset=Path("d"), **changes).rate == pytest.approx(rate)


@pytest.mark.parametrize(
    ("model", "size", "weights"),
    [("cnn", 300, "none"), ("mobilenet_v2", 224, "imagenet"), ("efficientnet_b3", 300, "imagenet")],
)
def test_defaults_are_the_models_own(model: str, size: int, weights: str) -> None:
    """Size and weights come from the model, unless they are given."""
    options = TrainOptions(dataset=Path("d"), model=model)
    assert (options.size, options.initial_weights) == (size, weights)
    given = TrainOptions(dataset=Path("d"), model=model, image_size=64, weights="w.h5")
    assert (given.size, given.initial_weights) == (64, "w.h5")
