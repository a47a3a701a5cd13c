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
from tests.photos import image_bytes
from tests.training.runs import planned, small_options
from tfrtool.cli import main
from tfrtool.errors import DatasetError, UsageError
from tfrtool.examples.example import DType, Feature, encode_example

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]


def _payload(value: float, dtype: DType = DType.FLOAT32) -> bytes:
    data = image_bytes(tint=20 * int(min(abs(value), 10)))
    return encode_example(
        {
            "image": Feature(dtype=DType.STRING, values=(data,)),
            "price": Feature(dtype=dtype, values=(value,)),
        }
    )


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of 16 images whose brightness is their price."""
    folder = tmp_path_factory.mktemp("prices") / "prices"
    return write_foreign(folder, [[_payload(n / 2) for n in range(k, 16, 2)] for k in (0, 1)])


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
        ({"label_feature": "image"}, "'image' can't be the label: expected one int64 or float32"),
        ({"head": "sigmoid"}, "--head cannot be used with --task regression"),
        ({"class_weights": "balanced"}, "--class-weights cannot be used with --task regression"),
        ({"label_smoothing": 0.1}, "--label-smoothing cannot be used with --task regression"),
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
    with pytest.raises(DatasetError, match=r"record 1.*'price': expected one finite float32"):
        tfrtool.train(**options)
    clean = planned(**options, on_error="skip")
    assert (clean.train_images, clean.skipped) == (2, 2)
