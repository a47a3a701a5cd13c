"""Models that predict a number: their loss, metrics, predictions and evaluation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.datasets import write_foreign
from tests.more import more
from tests.photos import image_bytes
from tests.training.runs import planned, small_options
from tfrtool.cli import main
from tfrtool.errors import DatasetError, UsageError
from tfrtool.examples.example import DType, Feature, encode_example

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]


def _payload(value: float, dtype: DType = DType.FLOAT32, **others: tuple[float, ...]) -> bytes:
    data = image_bytes(tint=20 * int(min(abs(value), 10)))
    kinds = {name: Feature(dtype=DType.FLOAT32, values=values) for name, values in others.items()}
    return encode_example(
        {
            "image": Feature(dtype=DType.STRING, values=(data,)),
            "price": Feature(dtype=dtype, values=(value,)),
            **kinds,
        }
    )


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of 16 images whose brightness is their price."""
    folder = tmp_path_factory.mktemp("prices") / "prices"
    return write_foreign(folder, [[_payload(n / 2) for n in range(k, 16, 2)] for k in (0, 1)])


@pytest.mark.more
def test_regression(prices: Path, tmp_path: Path, capfd: Any) -> None:
    """Training, evaluation and prediction agree with each other and with scikit-learn."""
    metrics = pytest.importorskip("sklearn.metrics")
    out, found = tmp_path / "run", tmp_path / "found"
    words = ["--model", "mobilenet", "--weights", "none", "--trainable", "head", "--epochs", "2"]
    words += ["--task", "regression", "--label-feature", "price", "--image-size", "32"]
    words += ["--validation", "0.5", "--early-stopping", "2", "--out", str(out), "--json"]
    assert main(["train", str(prices), *words]) == 0
    first, last, run = map(json.loads, capfd.readouterr().out.splitlines())
    assert (run["task"], run["cache"]) == ("regression", "features")
    assert first["val_loss"] > last["val_loss"]
    assert last["val_rmse"] == pytest.approx(last["val_loss"] ** 0.5, rel=1e-4)
    assert "accuracy" not in last
    assert json.loads((out / "history.json").read_text())["epochs"][1] == last
    held = tfrtool.dataset(prices, label_feature="price", task="regression").load(
        image_size=32, rescale=None, training=False, holdout=0.5, held_out=True
    )
    ((images, labels),) = held
    scores = tfrtool.load_model(out).whole(np.asarray(images, np.float32)).numpy()[:, 0]
    assert last["val_mae"] == pytest.approx(np.abs(scores - labels).mean(), rel=1e-4)

    words = ["evaluate", str(out), str(prices), "--label-feature", "price", "--out", str(found)]
    assert main(words) == 0
    shown, report = capfd.readouterr().out, json.loads((found / "evaluation.json").read_text())
    lines = [json.loads(line) for line in (found / "predictions.jsonl").read_text().splitlines()]
    truths, guesses = ([one[name] for one in lines] for name in ("value", "predicted_value"))
    assert sorted(truths) == [n / 2 for n in range(16)]
    for name, expected in (
        ("loss", metrics.mean_squared_error(truths, guesses)),
        ("mae", metrics.mean_absolute_error(truths, guesses)),
        ("rmse", metrics.root_mean_squared_error(truths, guesses)),
        ("r2", metrics.r2_score(truths, guesses)),
    ):
        assert report[name] == pytest.approx(expected, rel=1e-4)
    assert not {"accuracy", "classes", "confusion"} & report.keys()
    assert f"{report['mae']:.4g}" in shown

    (tmp_path / "one.jpg").write_bytes(image_bytes(tint=0))
    (tmp_path / "two.jpg").write_bytes(b"no image")
    paths = [str(tmp_path / name) for name in ("one.jpg", "two.jpg")]
    assert main(["predict", str(out), *paths, "--json"]) == 3
    one, two = map(json.loads, capfd.readouterr().out.splitlines())
    place = truths.index(0)
    assert one == {
        "path": paths[0],
        "value": pytest.approx(guesses[place], rel=1e-5),
        "error": None,
    }
    assert (two["value"], sorted(two)) == (None, ["error", "path", "value"])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"label_feature": None}, "regression requires --label-feature"),
        ({"label_feature": "image"}, "'image' can't be the label: expected int64 or float32"),
        ({"label_feature": "price,image"}, "'image' can't be the label: expected int64 or float32"),
        ({"label_feature": "price,cost"}, "no feature 'cost'"),
        ({"label_feature": "price, price"}, "names a feature twice"),
        ({"label_feature": ","}, "--label-feature , has an empty name"),
        ({"label_feature": "price,image", "task": None}, "or float32 for --task regression"),
        ({"head": "sigmoid"}, "--head can't be used with --task regression"),
        ({"balance_classes": True}, "--balance-classes can't be used with --task regression"),
        ({"label_smoothing": 0.1}, "--label-smoothing can't be used with --task regression"),
        ({"augment": "mixup=1"}, "mixup and cutmix require one class per image"),
        ({"task": None}, "feature 'price' can't be the label"),
    ],
)
def test_options_without_meaning(prices: Path, changes: dict[str, Any], problem: str) -> None:
    """Options about classes, and labels that are not one number, are refused."""
    options = small_options(prices, task="regression", label_feature="price") | changes
    with pytest.raises((UsageError, DatasetError), match=problem):
        tfrtool.train(**options)


def test_values(prices: Path, tmp_path: Path) -> None:
    """Integers and a user's function give numbers, too; infinity is an error with its record."""
    whole = write_foreign(tmp_path / "whole", [[_payload(n, DType.INT64) for n in (7, -3)]])
    data = tfrtool.dataset(whole, label_feature="price", task="regression")
    ((_, labels),) = data.load(image_size=8, training=False)
    assert (labels.dtype.name, labels.numpy().tolist()) == ("float32", [7, -3])
    with pytest.raises(UsageError, match="one_hot requires classes"):
        data.load(image_size=8, one_hot=True)

    def decode(record: Any) -> Any:
        import tensorflow as tf

        kind = tf.io.FixedLenFeature([], tf.int64)
        label = tf.io.parse_single_example(record, {"price": kind})["price"]
        return tf.zeros([8, 8, 3], tf.uint8), tf.cast(label, tf.float32) / 2

    own = tfrtool.dataset(whole, decode_function=decode, task="regression")
    assert [v for _, one in own.load(image_size=8, training=False) for v in one] == [3.5, -1.5]
    bad = shutil.copytree(prices, tmp_path / "bad")
    payloads = [_payload(1.0), _payload(float("inf"))]
    write_foreign(bad, [payloads, payloads])
    options = small_options(bad, task="regression", label_feature="price", epochs=1)
    with pytest.raises(DatasetError, match=r":1, .*'price': expected one finite float32"):
        tfrtool.train(**options)
    clean = planned(**options, on_error="skip")
    assert (clean.train_images, clean.skipped) == (2, 2)


_SEVERAL: dict[str, Any] = {"task": "regression", "label_feature": "price,corner"}


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of 16 images with three numbers: a price, and a vector of two."""
    folder = tmp_path_factory.mktemp("boards") / "boards"
    numbers = [range(k, 16, 2) for k in (0, 1)]
    return write_foreign(
        folder, [[_payload(n / 2, corner=(n % 3, -n / 8)) for n in shard] for shard in numbers]
    )


def _linear(image_size: Any, outputs: int) -> Any:
    import keras

    layers = [keras.Input((image_size, image_size, 3)), keras.layers.Flatten()]
    return keras.Sequential([*layers, keras.layers.Dense(outputs, kernel_initializer="zeros")])


@pytest.mark.more
def test_several_targets(boards: Path, tmp_path: Path, capfd: Any) -> None:
    """Weights equal those of fit on arrays, also resumed; figures are those of scikit-learn."""
    import keras

    metrics = pytest.importorskip("sklearn.metrics")
    data = tfrtool.dataset(boards, **_SEVERAL)
    assert data.targets == ("price", "corner[0]", "corner[1]")
    options = {**_SEVERAL, "image_size": 8, "batch_size": 4, "optimizer": "sgd"}
    options |= {"learning_rate": 0.01, "model": _linear}
    out, found = tmp_path / "run", tmp_path / "found"
    tfrtool.train(boards, **options, epochs=1, out=out)
    report = tfrtool.train(boards, **options, epochs=3, out=out, resume=True, export="tflite")
    assert report.plan.targets == data.targets
    assert report.exported[0].difference < 1e-3

    fitted = _linear(8, 3)
    fitted.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
    load: dict[str, Any] = {"image_size": 8, "batch_size": 4, "cache": report.plan.cache}
    for images, labels in data.load(**load, epochs=3):
        assert labels.shape == (4, 3)
        fitted.train_on_batch(images, labels)
    saved = tfrtool.load_model(out)
    assert saved.facts.targets == data.targets
    ((images, labels),) = data.load(image_size=8, training=False, rescale=None)
    expected = fitted.predict(images.numpy() / 255, verbose=0)
    scores = saved.whole(images.numpy().astype("float32")).numpy()
    np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-4)

    words = [str(out), str(boards), "--label-feature", "corner,price", "--out", str(found)]
    assert main(["evaluate", *words]) == 0
    assert "corner[1]" in capfd.readouterr().out
    figures = json.loads((found / "evaluation.json").read_text())
    for n, one in enumerate(figures["targets"]):
        truth, guess = labels[:, n], expected[:, n]
        assert one["target"] == data.targets[n]
        assert one["mae"] == pytest.approx(metrics.mean_absolute_error(truth, guess), rel=1e-3)
        assert one["r2"] == pytest.approx(metrics.r2_score(truth, guess), rel=1e-3)
    assert figures["loss"] == pytest.approx(metrics.mean_squared_error(labels, expected), rel=1e-3)
    assert figures["r2"] == pytest.approx(metrics.r2_score(labels, expected), rel=1e-3)
    line = json.loads((found / "predictions.jsonl").read_text().splitlines()[1])
    assert line["value"] == {"price": 1.0, "corner[0]": 2.0, "corner[1]": -0.25}
    with pytest.raises(UsageError, match="don't match those that the model predicts"):
        tfrtool.evaluate(out, boards, label_feature="price")

    (tmp_path / "one.jpg").write_bytes(image_bytes(tint=0))
    (one,) = tfrtool.predict(out, tmp_path / "one.jpg")
    assert isinstance(one.value, dict)
    assert [*one.value] == list(data.targets)
    assert main(["predict", str(out), str(tmp_path / "one.jpg")]) == 0
    assert f"corner[0] {one.value['corner[0]']:.6g}" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        more(_payload(1.0, corner=(1.0,)), ":1, "),
        (_payload(1.0, corner=(1.0, 2.0, 3.0)), ":1, "),
        more(_payload(1.0), ":1, .*corner"),
        (
            _payload(1.0, corner=(1.0, float("nan"))),
            ":1, .*'corner': expected 2 finite float32",
        ),
        more(_payload(1, DType.INT64, corner=(1.0, 2.0)), ":1, .*price"),
    ],
)
def test_damaged_targets(tmp_path: Path, bad: bytes, problem: str) -> None:
    """A target that is missing, not finite, or has another length or type is an error."""
    good = _payload(1.0, corner=(1.0, 2.0))
    data = tfrtool.dataset(write_foreign(tmp_path / "bad", [[good, bad, good]]), **_SEVERAL)
    options = small_options(data, epochs=1, model=_linear, trainable="all", image_size=8)
    with pytest.raises(DatasetError, match=problem):
        tfrtool.train(**options)
    clean = planned(**options, on_error="skip")
    assert (clean.train_images, clean.skipped) == (2, 1)


def test_vector_of_a_function(boards: Path) -> None:
    """A user's function may return a vector of numbers."""
    import tensorflow as tf

    def decode(record: Any) -> Any:
        kind = tf.io.FixedLenFeature([2], tf.float32)
        corner = tf.io.parse_single_example(record, {"corner": kind})["corner"]
        return tf.zeros([8, 8, 3], tf.uint8), corner

    data = tfrtool.dataset(boards, decode_function=decode, task="regression")
    ((_, labels),) = data.load(image_size=8, training=False)
    assert data.targets == ("value[0]", "value[1]")
    assert sorted(labels.numpy()[:, 1]) == [-n / 8 for n in range(15, -1, -1)]
