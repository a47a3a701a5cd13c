"""The models and their weights."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.runs import planned, small_options
from tfrtool.errors import UsageError, WeightsError
from tfrtool.training.models import Classifier, build_classifier, rescale_for
from tfrtool.training.saved_model import ModelFacts, save_model
from tfrtool.training.train_options import TrainOptions

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]

SIZE = 32
MODEL = "mobilenet"


@pytest.fixture(scope="module")
def keras() -> Any:
    """Return the keras module."""
    import keras

    return keras


def test_cnn_has_five_convolutions(keras: Any) -> None:
    """The cnn is the horses_or_humans example's: 16, 32, 64, 64, 64 filters, 512 hidden units."""
    layers = build_classifier("cnn", 300, 2, "none").core.layers
    convolutions = [layer for layer in layers if isinstance(layer, keras.layers.Conv2D)]
    assert [layer.filters for layer in convolutions] == [16, 32, 64, 64, 64]
    assert [layer.units for layer in layers if isinstance(layer, keras.layers.Dense)] == [512, 2]


def test_cnn_with_a_sigmoid_is_the_published_network(keras: Any) -> None:
    """The horses_or_humans example has 1,704,097 parameters; small images need padding."""
    layers = keras.layers
    published = keras.Sequential([keras.Input((300, 300, 3))])
    for filters in (16, 32, 64, 64, 64):
        published.add(layers.Conv2D(filters, (3, 3), activation="relu"))
        published.add(layers.MaxPooling2D(2, 2))
    for layer in (layers.Flatten(), layers.Dense(512, "relu"), layers.Dense(1, "sigmoid")):
        published.add(layer)
    core = build_classifier("cnn", 300, 2, "none", head="sigmoid").core
    shapes = [weight.shape for weight in core.weights]
    assert core.count_params() == published.count_params() == 1_704_097
    assert shapes == [weight.shape for weight in published.weights]
    core.set_weights(published.get_weights())
    pixels = np.random.default_rng(0).random((2, 300, 300, 3), np.float32)
    np.testing.assert_allclose(core([pixels])[:, 1:], published(pixels), atol=1e-6)
    assert TrainOptions("d", model="cnn", head="sigmoid").rate == 0.001
    for side, padding in ((94, "valid"), (93, "same")):
        small = build_classifier("cnn", side, 2, "none", head="sigmoid").core
        assert small.get_layer("conv1").padding == padding


def test_small_images_get_padding(few: Path) -> None:
    """A line says so, as the network is then another."""
    (warning,) = planned(**small_options(few, trainable="all", head="sigmoid")).warnings
    assert "images below 94 pixels are too small for the cnn without padding" in warning


@pytest.mark.parametrize("rescale", ["model", "unit"])
def test_a_model_that_is_not_there_has_no_range(rescale: Any) -> None:
    """An unknown name is told before anything is loaded, whatever the range."""
    with pytest.raises(UsageError):
        rescale_for("resnet51", rescale)


def _save(path: Path, core: Any, model: str, classes: int = 2) -> Path:
    names = tuple(f"class {number}" for number in range(classes))
    facts = ModelFacts(model=model, image_size=SIZE, class_names=names)
    save_model(path, core, rescale_for(model), facts)
    return path


def _same(first: Any, second: Any) -> bool:
    pairs = zip(first.get_weights(), second.get_weights(), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_a_cnn_has_no_parts() -> None:
    """There is nothing in the cnn that could be frozen and left out of training."""
    built = build_classifier("cnn", SIZE, 2, "none")
    assert (built.base, built.head) == (None, None)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Classifier]:
    """Return a saved MobileNet whose features are not all the same, and its parts."""
    built = build_classifier(MODEL, SIZE, 2, "none", "head")
    generator = np.random.default_rng(1)
    for layer in built.base.layers:
        shapes = [weight.shape for weight in layer.get_weights()]
        if len(shapes) == 4:  # of a BatchNormalization: small variances, so that signals live on
            layer.set_weights([0.5 + generator.random(shape) / 10 for shape in shapes])
    path = tmp_path_factory.mktemp("saved") / "m.keras"
    return _save(path, built.core, MODEL), built


def test_the_parts_are_the_whole(saved: tuple[Path, Classifier]) -> None:
    """The head on the base's pooled features is the core, and shares its weights."""
    built = saved[1]
    images = np.random.default_rng(0).random((3, SIZE, SIZE, 3), np.float32)
    features = built.base(images, training=False)
    assert features.shape == (3, 1024)
    assert np.asarray(features).std() > 1e-3
    before = np.asarray(built.core(images, training=False))
    assert np.allclose(np.asarray(built.head(features)), before, atol=1e-6)
    weights = built.head.get_weights()
    built.head.set_weights([weights[0], np.array([0.0, 100.0])])
    assert np.allclose(np.asarray(built.core(images)), [[0.0, 1.0]] * 3)
    built.head.set_weights(weights)


def test_weights_of_a_whole_model(saved: tuple[Path, Classifier]) -> None:
    """A saved model is gone on from, base and head, at another size of images too."""
    path, first = saved
    again = build_classifier(MODEL, 64, 2, str(path), "head")
    assert again.core.input_shape == (None, 64, 64, 3)
    assert _same(first.base, again.base)
    assert _same(first.head, again.head)
    assert again.head is not None


def test_weights_of_a_base(saved: tuple[Path, Classifier], tmp_path: Path) -> None:
    """A file of a base's weights is loaded into the base, which is frozen then."""
    path = tmp_path / "base.weights.h5"
    saved[1].base.save_weights(path)
    again = build_classifier(MODEL, SIZE, 2, str(path), "head")
    assert _same(saved[1].base, again.base)
    assert len(again.core.trainable_weights) == 2


BLOCK = ["conv_pw_13", "conv_pw_13_bn"]
"""The last layers of MobileNet that have weights."""


@pytest.mark.parametrize(
    ("loaded", "trainable", "learning", "changing"),
    [
        (True, "head", [], []),
        (True, "all", ["conv1", ..., "conv_pw_13"], []),
        (True, "conv_pw_13", BLOCK[:1], []),
        (False, "head", [], []),
        (False, "all", ["conv1", "conv1_bn", ..., *BLOCK], ["conv1_bn", ..., "conv_pw_13_bn"]),
        (False, "conv_pw_13", BLOCK, BLOCK[1:]),
    ],
)
def test_what_learns(
    loaded: bool,
    trainable: str,
    learning: list[Any],
    changing: list[Any],
    saved: tuple[Path, Classifier],
) -> None:
    """Weights learn as asked for; statistics that were loaded stay, while the model is trained."""
    weights = str(saved[0]) if loaded else "none"
    built = build_classifier(MODEL, SIZE, 2, weights, trainable)
    layers = next(layer for layer in built.core.layers if hasattr(layer, "layers")).layers
    assert _abridged([layer.name for layer in layers if layer.trainable_weights]) == learning
    assert (built.base is not None) == (not learning)
    before = {layer.name: layer.get_weights() for layer in layers}
    built.core(np.random.default_rng(0).random((4, SIZE, SIZE, 3), np.float32), training=True)
    changed = [
        layer.name
        for layer in layers
        if not all(map(np.array_equal, before[layer.name], layer.get_weights()))
    ]
    assert _abridged(changed) == changing


def _abridged(names: list[str]) -> list[Any]:
    """Leave out the middle of a long list."""
    kept = 2 if "conv1" in names and "conv1_bn" in names else 1
    return names if len(names) <= 4 else [*names[:kept], ..., *names[-kept:]]


@pytest.mark.more
def test_a_frozen_base_always_gives_the_same_features() -> None:
    """Nothing is dropped at random in a base that doesn't learn."""
    model = "efficientnetb0"
    built = build_classifier(model, SIZE, 2, "none", "head")
    images = np.random.default_rng(0).random((4, SIZE, SIZE, 3), np.float32)
    for layer in built.base.layers:
        if len(layer.get_weights()) == 4:
            layer.set_weights([*layer.get_weights()[:3], layer.get_weights()[3] / 10])
    features = np.asarray(built.base(images, training=False))
    assert features.std() > 1e-3
    assert np.array_equal(np.asarray(built.base(images, training=True)), features)


@pytest.mark.parametrize(
    ("model", "asked", "near"),
    [("mobilenet", "conv_pw_14", "conv_pw_13"), ("cnn", "conv6", "conv5")],
)
def test_unknown_layer_tells_near_ones(model: str, asked: str, near: str) -> None:
    """A layer that isn't there is a usage error that tells those that may be meant."""
    with pytest.raises(UsageError) as caught:
        build_classifier(model, SIZE, 2, "none", asked)
    assert near in str(caught.value.expected)


def test_cnn_weights_from_a_saved_model(tmp_path: Path) -> None:
    """A cnn goes on from a model.keras."""
    first = build_classifier("cnn", SIZE, 2, "none").core
    path = _save(tmp_path / "m.keras", first, "cnn")
    second = build_classifier("cnn", SIZE, 2, str(path), "head").core
    images = np.random.default_rng(0).random((2, SIZE, SIZE, 3), np.float32)
    assert np.allclose(np.asarray(second(images)), np.asarray(first(images)), atol=1e-6)


@pytest.mark.parametrize(("size", "classes"), [(64, 2), (SIZE, 3)])
def test_a_saved_cnn_fits_its_own_size_and_classes(size: int, classes: int, tmp_path: Path) -> None:
    """Weights for other images or other classes are an error, and not a part of them taken."""
    first = build_classifier("cnn", SIZE, 2, "none").core
    path = _save(tmp_path / "m.keras", first, "cnn")
    with pytest.raises(WeightsError):
        build_classifier("cnn", size, classes, str(path), "head")


@pytest.mark.parametrize("kind", ["missing", "text.h5", "text.keras", "other.keras"])
def test_unusable_weights_are_named(kind: str, tmp_path: Path) -> None:
    """A file that isn't there, is no model, or is of another model, is an error that names it."""
    path = tmp_path / kind
    if kind.startswith("text"):
        path.write_text("no weights")
    elif kind == "other.keras":
        _save(path, build_classifier("cnn", SIZE, 2, "none").core, "cnn")
    with pytest.raises(WeightsError) as caught:
        build_classifier(MODEL, SIZE, 2, str(path))
    assert caught.value.path == str(path)


@pytest.fixture
def weights_server(tmp_path: Path, keras: Any) -> Iterator[tuple[str, Any]]:
    """Serve a base's weights, under the names of Keras' own, on this machine."""
    import h5py
    from keras.src.legacy.saving import legacy_h5_format

    base = keras.applications.MobileNetV2(
        input_shape=(224, 224, 3), include_top=False, weights=None
    )
    name = "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_224_no_top.h5"
    folder = tmp_path / "server"
    folder.mkdir()
    # The published file is in the older HDF5 layout, which Keras can still write.
    with h5py.File(folder / name, "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, base)
    handler = functools.partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/", base
    server.shutdown()
    thread.join()
    server.server_close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _imagenet_from(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    from keras.src.applications import mobilenet_v2

    monkeypatch.setattr(mobilenet_v2, "BASE_WEIGHT_PATH", url)
    home = tmp_path / "home"
    home.mkdir()  # Keras goes elsewhere if it isn't there
    monkeypatch.setattr("keras.src.utils.file_utils.config.keras_home", lambda: str(home))
    return build_classifier("mobilenet_v2", 224, 2, "imagenet", "head").core


@pytest.mark.more
def test_imagenet_is_downloaded_and_frozen(
    weights_server: tuple[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    keras: Any,
) -> None:
    """Keras' own download path is taken; stdout stays clean; only the head learns."""
    url, served = weights_server
    built = _imagenet_from(url, tmp_path, monkeypatch)
    assert len(built.trainable_weights) == 2
    assert capsys.readouterr().out == ""
    base = next(layer for layer in built.layers if isinstance(layer, keras.Model))
    assert _same(base, served)


def test_no_network_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where imagenet can't be downloaded, the error says why, and names the ways on."""
    with pytest.raises(WeightsError) as caught:
        _imagenet_from("http://127.0.0.1:9/", tmp_path, monkeypatch)
    assert all(way in str(caught.value.hint) for way in ("none", "FILE", "cnn"))
    assert "\n" not in str(caught.value)
    assert "refused" in str(caught.value)
    assert capsys.readouterr().err == ""
