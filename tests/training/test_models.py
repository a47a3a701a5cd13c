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

from tfrtool.errors import WeightsError
from tfrtool.training.models import build_model, rescale_for, whole_model
from tfrtool.training.options import ModelName, RescaleTo, Trainable, TrainOptions

SIZE = 32


@pytest.fixture(scope="module")
def keras() -> Any:
    """Return the keras module."""
    import keras

    return keras


def _mobilenet(weights: str = "none", trainable: Trainable = Trainable.AUTO) -> Any:
    return build_model(ModelName.MOBILENET_V2, SIZE, 2, weights, trainable)


@pytest.mark.parametrize("model", ModelName)
@pytest.mark.parametrize("classes", [2, 5])
def test_probabilities_come_out(model: ModelName, classes: int) -> None:
    """For each image there is a probability for each class, and they add up to 1."""
    built = build_model(model, SIZE, classes, "none", Trainable.AUTO)
    images = np.random.default_rng(0).random((3, SIZE, SIZE, 3), np.float32)
    output = np.asarray(built(images))
    assert output.shape == (3, classes)
    assert np.allclose(output.sum(axis=1), 1, atol=1e-5)


def test_cnn_has_five_convolutions(keras: Any) -> None:
    """The cnn is the horses_or_humans example's: 16, 32, 64, 64, 64 filters, 512 hidden units."""
    layers = build_model(ModelName.CNN, 300, 2, "none", Trainable.AUTO).layers
    convolutions = [layer for layer in layers if isinstance(layer, keras.layers.Conv2D)]
    assert [layer.filters for layer in convolutions] == [16, 32, 64, 64, 64]
    assert [layer.units for layer in layers if isinstance(layer, keras.layers.Dense)] == [512, 2]


def test_rescaling_is_keras_own(keras: Any) -> None:
    """Pixels for MobileNetV2 become what its preprocess_input makes of them."""
    pixels = np.arange(256, dtype=np.float32)
    rescale = rescale_for(ModelName.MOBILENET_V2, RescaleTo.MODEL)
    expected = keras.applications.mobilenet_v2.preprocess_input(pixels.copy())
    assert np.allclose(pixels * rescale.scale + rescale.offset, expected, atol=1e-6)
    unit = rescale_for(ModelName.MOBILENET_V2, RescaleTo.UNIT)
    assert unit.scale * 255 == pytest.approx(1)
    assert unit.offset == 0


@pytest.mark.parametrize(
    ("trainable", "frozen"),
    [(Trainable.AUTO, False), (Trainable.ALL, False), (Trainable.HEAD, True)],
)
def test_what_learns_without_weights(trainable: Trainable, frozen: bool) -> None:
    """Where no weights are loaded, everything learns; unless the head alone is asked for."""
    trained = len(_mobilenet(trainable=trainable).trainable_weights)
    assert (trained == 2) == frozen


@pytest.mark.parametrize(
    ("changes", "rate"),
    [
        ({}, 1e-3),
        ({"weights": "none"}, 3e-4),
        ({"weights": "none", "trainable": Trainable.HEAD}, 1e-3),
        ({"trainable": Trainable.ALL}, 3e-4),
        ({"model": ModelName.CNN}, 3e-4),
        ({"model": ModelName.CNN, "learning_rate": 0.5}, 0.5),
    ],
)
def test_learning_rate_goes_by_what_learns(changes: dict[str, Any], rate: float) -> None:
    """A head takes larger steps than a whole network, unless a rate is given."""
    assert TrainOptions(dataset=Path("d"), **changes).rate == rate


@pytest.mark.parametrize("to", RescaleTo)
def test_whole_model_takes_pixels(to: RescaleTo) -> None:
    """The model that is saved gives for pixels what the core gives for rescaled ones."""
    core = build_model(ModelName.CNN, SIZE, 2, "none", Trainable.AUTO)
    rescale = rescale_for(ModelName.MOBILENET_V2, to)
    whole = whole_model(core, SIZE, rescale)
    pixels = np.random.default_rng(0).integers(0, 256, (2, SIZE, SIZE, 3)).astype(np.float32)
    expected = np.asarray(core(pixels * rescale.scale + rescale.offset))
    assert np.allclose(np.asarray(whole(pixels)), expected, atol=1e-5)
    # Were pixels not rescaled on the way, this would come out.
    assert not np.allclose(np.asarray(core(pixels)), expected, atol=1e-5)


def test_weights_from_a_file(tmp_path: Path, keras: Any) -> None:
    """Weights of a base and of a saved model are loaded; the base is frozen then."""
    first = _mobilenet()
    base = next(layer for layer in first.layers if isinstance(layer, keras.Model))
    base.save_weights(tmp_path / "base.weights.h5")
    rescale = rescale_for(ModelName.MOBILENET_V2, RescaleTo.MODEL)
    whole_model(first, SIZE, rescale).save(tmp_path / "whole.keras")
    images = np.random.default_rng(0).random((2, SIZE, SIZE, 3), np.float32)
    from_base = _mobilenet(str(tmp_path / "base.weights.h5"))
    assert len(from_base.trainable_weights) == 2
    again = next(layer for layer in from_base.layers if isinstance(layer, keras.Model))
    assert all(
        np.array_equal(a, b) for a, b in zip(base.get_weights(), again.get_weights(), strict=True)
    )
    from_whole = _mobilenet(str(tmp_path / "whole.keras"))
    assert np.allclose(np.asarray(from_whole(images)), np.asarray(first(images)), atol=1e-6)


def test_cnn_weights_from_a_saved_model(tmp_path: Path) -> None:
    """A cnn goes on from a model.keras."""
    first = build_model(ModelName.CNN, SIZE, 2, "none", Trainable.AUTO)
    whole_model(first, SIZE, rescale_for(ModelName.CNN, RescaleTo.MODEL)).save(tmp_path / "m.keras")
    second = build_model(ModelName.CNN, SIZE, 2, str(tmp_path / "m.keras"), Trainable.AUTO)
    images = np.random.default_rng(0).random((2, SIZE, SIZE, 3), np.float32)
    assert np.allclose(np.asarray(second(images)), np.asarray(first(images)), atol=1e-6)


@pytest.mark.parametrize("kind", ["missing", "text.h5", "text.keras", "other.keras"])
def test_unusable_weights_are_named(kind: str, tmp_path: Path) -> None:
    """A file that isn't there, is no model, or is of another model, is an error that names it."""
    path = tmp_path / kind
    if kind.startswith("text"):
        path.write_text("no weights")
    elif kind == "other.keras":
        other = build_model(ModelName.CNN, SIZE, 3, "none", Trainable.AUTO)
        whole_model(other, SIZE, rescale_for(ModelName.CNN, RescaleTo.MODEL)).save(path)
    with pytest.raises(WeightsError) as caught:
        _mobilenet(str(path))
    assert caught.value.path == str(path)


@pytest.fixture
def weights_server(tmp_path: Path, keras: Any) -> Iterator[str]:
    """Serve weights that this test makes, under the names of Keras' own, on this machine."""
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
    yield f"http://127.0.0.1:{server.server_address[1]}/"
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
    return build_model(ModelName.MOBILENET_V2, 224, 2, "imagenet", Trainable.AUTO)


def test_imagenet_is_downloaded_and_frozen(
    weights_server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    keras: Any,
) -> None:
    """Keras' own download path is taken; stdout stays clean; only the head learns."""
    built = _imagenet_from(weights_server, tmp_path, monkeypatch)
    assert len(built.trainable_weights) == 2
    assert capsys.readouterr().out == ""
    base = next(layer for layer in built.layers if isinstance(layer, keras.Model))
    saved = keras.applications.MobileNetV2(
        input_shape=(224, 224, 3), include_top=False, weights=None
    )
    saved.load_weights(next((tmp_path / "server").iterdir()))
    assert all(
        np.array_equal(a, b) for a, b in zip(base.get_weights(), saved.get_weights(), strict=True)
    )


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
