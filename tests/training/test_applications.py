"""The models of keras.applications, against Keras itself: every one of them."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from tfrtool.errors import UsageError, WeightsError
from tfrtool.loading.decoding import rescaler
from tfrtool.training.models import (
    application_names,
    build_classifier,
    find_application,
    rescale_for,
)
from tfrtool.training.train_options import TrainOptions, canonical_name

pytestmark = pytest.mark.tf

NAMES = application_names()
MODULES = {  # of Keras' documentation
    "ConvNeXt": "convnext",
    "DenseNet": "densenet",
    "EfficientNetB": "efficientnet",
    "EfficientNetV2": "efficientnet_v2",
    "InceptionResNetV2": "inception_resnet_v2",
    "InceptionV3": "inception_v3",
    "MobileNet": "mobilenet",
    "MobileNetV2": "mobilenet_v2",
    "MobileNetV3": "mobilenet_v3",
    "NASNet": "nasnet",
    "ResNet": "resnet",
    "V2": "resnet_v2",
    "VGG16": "vgg16",
    "VGG19": "vgg19",
    "Xception": "xception",
}


def _module(name: str) -> Any:
    """Return the public module that Keras documents for a constructor."""
    if name.startswith("ResNet") and name.endswith("V2"):
        key = "V2"
    else:
        key = max((start for start in MODULES if name.startswith(start)), key=len)
    return importlib.import_module(f"keras.applications.{MODULES[key]}")


def test_the_list_is_keras_own() -> None:
    """The names are those of Keras, and helpers are not among them."""
    assert {"EfficientNetB0", "MobileNetV3Small", "NASNetLarge", "ResNet50", "VGG16"} <= set(NAMES)
    assert all(name[0].isupper() for name in NAMES)
    assert len(NAMES) >= 38


@pytest.mark.parametrize("name", NAMES)
def test_preprocessing_is_keras_own(name: str) -> None:
    """Pixels become what the model's own preprocess_input makes of them, in the loader too."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3)).astype(np.uint8)
    expected = _module(name).preprocess_input(pixels.astype(np.float32))
    rescale = rescale_for(canonical_name(name))
    assert np.allclose(rescaler(rescale)(pixels), expected, atol=2e-5)


class _AskedError(Exception):
    """Ends a constructor where it asks for its input shape."""


@pytest.mark.parametrize("name", [name for name in NAMES if "MobileNetV3" not in name])
def test_size_is_keras_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's size is the default that its constructor has."""
    from keras.src.applications import imagenet_utils

    def ask(*_: object, default_size: int, **__: object) -> None:
        raise _AskedError(default_size)

    monkeypatch.setattr(imagenet_utils, "obtain_input_shape", ask)
    with pytest.raises(_AskedError) as caught:
        find_application(canonical_name(name))(weights=None)
    assert caught.value.args == (TrainOptions("d", model=name).size,)


@pytest.mark.parametrize("name", ["MobileNetV3Large", "MobileNetV3Small"])
def test_size_is_the_documented_one(name: str) -> None:
    """These two take images of any size; their documentation has a default."""
    size = TrainOptions("d", model=name).size
    assert f"`({size}, {size}, 3)`" in str(find_application(canonical_name(name)).__doc__)


@pytest.mark.parametrize("name", NAMES)
def test_found_however_it_is_spelt(name: str) -> None:
    """The constructor that is found is the one of that name."""
    import keras

    for spelt in (name, name.lower(), f"{name[:3]}_{name[3:]}".upper()):
        assert find_application(canonical_name(spelt)) is getattr(keras.applications, name)


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("resnet", "ResNet50"),
        ("efficientnet_b8", "EfficientNetB7"),
        ("vgg", "VGG16"),
        ("mobilnet_v2", "MobileNetV2"),
        ("zzz", "Xception"),
        ("imagenet_utils", "VGG16"),
    ],
)
def test_unknown_name_tells_near_ones(asked: str, near: str) -> None:
    """A name that Keras doesn't have is a usage error that tells those that are meant."""
    with pytest.raises(UsageError) as caught:
        find_application(canonical_name(asked))
    assert near in str(caught.value.expected)


@pytest.mark.parametrize("imagenet", [False, True])
def test_too_small_images_are_a_usage_error(imagenet: bool) -> None:
    """A size below what a model can take is told before anything is downloaded."""
    weights = "imagenet" if imagenet else "none"
    with pytest.raises(UsageError) as caught:
        build_classifier("inceptionv3", 64, 2, weights)
    assert "75" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_download_is_no_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only the weights are at fault, the error says that, and names the ways on."""

    def construct(*, weights: str | None, **_: object) -> object:
        if weights is not None:
            raise ValueError("Incomplete or corrupted file detected.")
        return object()

    monkeypatch.setattr("keras.applications.VGG16", construct)
    with pytest.raises(WeightsError) as caught:
        build_classifier("vgg16", 32, 2, "imagenet")
    assert all(way in str(caught.value.hint) for way in ("none", "FILE", "cnn"))
