"""Callbacks: TensorBoard's logs, read back, and those of Keras and of users."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.training.runs import epoch_report, small_options
from tfrtool import WriteError, train
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_records
from tfrtool.training.run.train_report import EpochReport
from tfrtool.training.run.training_callbacks import EpochLogs

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
                assert value.metadata.plugin_data.plugin_name == "scalars"
                number = float(tf.make_ndarray(value.tensor))
                found.setdefault(value.tag, []).append((event.step, number))
    return found


def _write(folder: Path, *epochs: EpochReport) -> None:
    logs = EpochLogs(folder)
    for epoch in epochs:
        logs.on_epoch_end(epoch.epoch - 1, epoch.logs)
    logs.on_train_end()


def test_every_epoch_is_there(tf: Any, tmp_path: Path) -> None:
    """Losses and accuracies of both kinds have one name, in a run each; speed and waiting too."""
    _write(
        tmp_path,
        epoch_report(1, loss=0.5, val_loss=0.25, val_accuracy=0.875),
        epoch_report(2, loss=math.inf, images_per_second=64.0, input_wait_fraction=0.5),
    )
    training, validation = (_scalars(tf, tmp_path / name) for name in ("train", "validation"))
    assert training == {
        "epoch_loss": [(1, 0.5), (2, math.inf)],
        "epoch_accuracy": [(1, 0.75), (2, 0.75)],
        "epoch_seconds": [(1, 1.0), (2, 1.0)],
        "images_per_second": [(1, 100.0), (2, 64.0)],
        "input_wait_fraction": [(1, 0.0), (2, 0.5)],
    }
    assert validation == {"epoch_loss": [(1, 0.25)], "epoch_accuracy": [(1, 0.875)]}


def test_tensorboard_reads_them(tf: Any, tmp_path: Path) -> None:
    """TensorBoard's own reader finds the numbers."""
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs TensorBoard"
    )
    _write(tmp_path, epoch_report(1, loss=0.5))
    events = accumulator.EventAccumulator(str(tmp_path / "train"))
    events.Reload()
    (event,) = events.Tensors("epoch_loss")
    assert (event.step, float(tf.make_ndarray(event.tensor_proto))) == (1, 0.5)


def test_what_is_written_is_there_at_once(tf: Any, tmp_path: Path) -> None:
    """An epoch can be looked at while the next one runs."""
    EpochLogs(tmp_path).on_epoch_end(0, epoch_report(1).logs)
    assert _scalars(tf, tmp_path / "train")["epoch_loss"] == [(1, 0.5)]


def test_a_place_that_is_none_is_an_error(tmp_path: Path) -> None:
    """Where there is a file in the place of the directory, one error names it."""
    (tmp_path / "logs").write_text("")
    with pytest.raises(WriteError) as caught:
        _write(tmp_path / "logs", epoch_report(1))
    assert caught.value.path == str(tmp_path / "logs" / "train")


def test_callbacks_are_called_as_fit_calls_them(few: Path) -> None:
    """Epochs and steps come in order with their numbers; the model is the one that is trained."""
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

    options = small_options(few, batch_size=8)
    train(**options, callbacks=[Spy()])
    steps = [("step", 0), ("step", 1), ("test", 0)]
    one, two = [("epoch", 0), *steps, ("end", 0)], [("epoch", 1), *steps, ("end", 1)]
    assert told == [*one, *two, ("over", 0)]


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
    assert (len(report.epochs), report.stopped_early, report.best_epoch) == (3, True, None)
    header, *rows = (tmp_path / "log.csv").read_text().splitlines()
    assert {"epoch", "loss", "accuracy", "val_loss"} <= set(header.split(","))
    assert len(rows) == 3
    assert (tmp_path / "run" / "model.keras").is_file()
