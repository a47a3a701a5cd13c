"""Callbacks: TensorBoard's logs, read back, and those of Keras and of users."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.more import more
from tests.training.runs import small_options
from tfrtool import WriteError, train
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_records

pytestmark = pytest.mark.tf


def _scalars(tf: Any, run: Path) -> dict[str, list[tuple[int, float]]]:
    """Return what TensorBoard would draw of a run, with our own reader and TensorFlow's protos."""
    found: dict[str, list[tuple[int, float]]] = {}
    (path,) = run.iterdir()
    with path.open("rb") as file:
        for item in read_records(file):
            assert isinstance(item, Record)
            event = tf.compat.v1.Event.FromString(item.payload)
            for value in event.summary.value:
                kind, tensor = value.metadata.plugin_data.plugin_name, tf.make_ndarray(value.tensor)
                assert kind == ("text" if value.tag == "run" else "scalars")
                number = float(b'"batch_size": 8' in tensor.item() if kind == "text" else tensor)
                found.setdefault(value.tag, []).append((event.step, number))
    return found


@pytest.mark.parametrize(
    "loader",
    [{}, more({"cache": "none"}), more({"recipe": "notebook"})],
    ids=["features", "images", "recipe"],
)
def test_tensorboard_and_callbacks_get_steps_and_epochs(
    tf: Any, few: Path, tmp_path: Path, loader: dict[str, Any]
) -> None:
    """Callbacks are called as ``fit`` calls them, for all images once an epoch.

    TensorBoard gets each step and epoch.
    """
    import keras

    told: list[tuple[str, int]] = []

    class Spy(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
            assert self.params["epochs"] == 2
            self.before = self.model.get_weights()

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            told.append(("epoch", epoch))

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            assert set(logs) == {"loss", "accuracy"}
            told.append(("step", batch))

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            told.append(("test", batch))

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            told.append(("end", epoch))
            assert logs["val_loss"] > 0

        def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
            pairs = zip(self.before, self.model.get_weights(), strict=True)
            assert not all((one == other).all() for one, other in pairs)
            told.append(("over", 0))

    options = small_options(few, batch_size=8, schedule="cosine", tensorboard=tmp_path, **loader)
    report = train(**options, callbacks=[Spy()])
    steps = [("step", 0), ("step", 1), ("test", 0)]
    one, two = [("epoch", 0), *steps, ("end", 0)], [("epoch", 1), *steps, ("end", 1)]
    assert told == [*one, *two, ("over", 0)]
    training, validation = (_scalars(tf, tmp_path / name) for name in ("train", "validation"))
    for part, tag, name in (
        (training, "epoch_loss", "loss"),
        (training, "epoch_seconds", "seconds"),
        (training, "images_per_second", "images_per_second"),
        (validation, "epoch_accuracy", "val_accuracy"),
    ):
        assert [step for step, _ in part[tag]] == [1, 2]
        expected = [getattr(epoch, name) for epoch in report.epochs]
        assert [value for _, value in part[tag]] == pytest.approx(expected)
    assert training["run"] == [(0, 1.0)]  # how it was made
    assert [step for step, _ in training["batch_loss"]] == [0, 1, 2, 3]
    rates = [rate for _, rate in training["batch_learning_rate"]]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == training["epoch_learning_rate"][-1][1] == pytest.approx(0, abs=1e-6)


def test_a_metric_called_acc(tf: Any, few: Path, tmp_path: Path) -> None:
    """A model compiled with "acc" reports acc and val_acc, and callbacks can monitor them."""
    import keras

    def build(size: int, classes: int) -> Any:
        layers = [keras.Input((size, size, 3)), keras.layers.GlobalAveragePooling2D()]
        model = keras.Sequential([*layers, keras.layers.Dense(classes, activation="softmax")])
        model.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy", metrics=["acc"])
        return model

    options = small_options(
        few, epochs=9, trainable="all", tensorboard=tmp_path, out=tmp_path / "run"
    )
    options["callbacks"] = [keras.callbacks.EarlyStopping("val_acc", patience=1)]
    report = train(**options | {"model": build})
    assert len(report.epochs) == 2  # nothing is learned, so the second is not better
    assert {*report.epochs[0].metrics} == {"acc", "val_acc"}
    assert report.epochs[0].accuracy is None
    (first, _) = json.loads((tmp_path / "run" / "history.json").read_text())["epochs"]
    assert first["val_acc"] == pytest.approx(report.epochs[0].metrics["val_acc"], abs=1e-6)
    assert "val_accuracy" not in first
    scalars = _scalars(tf, tmp_path / "validation")
    assert [value for _, value in scalars["epoch_acc"]] == [report.epochs[0].metrics["val_acc"]] * 2


def test_a_directory_that_is_a_file_is_an_error(few: Path, tmp_path: Path) -> None:
    """One error names it."""
    (tmp_path / "logs").write_text("")
    with pytest.raises(WriteError) as caught:
        train(**small_options(few, tensorboard=tmp_path / "logs"))
    assert caught.value.path == str(tmp_path / "logs" / "train")


@pytest.mark.more
def test_callbacks_of_keras_do_their_work(few: Path, tmp_path: Path) -> None:
    """A schedule changes the steps, a log is written, and a stop ends the run with its model."""
    import keras

    options = small_options(few, epochs=9, out=tmp_path / "run")
    rates: list[float] = []

    def schedule(epoch: int, rate: float) -> float:  # noqa: ARG001
        rates.append(rate)
        return rate / 2

    class Stop(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            self.model.stop_training = epoch == 2

    given = [
        keras.callbacks.LearningRateScheduler(schedule),
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        Stop(),
    ]
    report = train(**options, callbacks=given)
    assert rates == pytest.approx([1e-3, 0.5e-3, 0.25e-3])
    assert (len(report.epochs), report.stopped_early, report.saved_epoch) == (3, True, 3)
    header, *rows = (tmp_path / "log.csv").read_text().splitlines()
    assert {"epoch", "loss", "accuracy", "val_loss"} <= set(header.split(","))
    assert len(rows) == 3
    assert (tmp_path / "run" / "model.keras").is_file()
