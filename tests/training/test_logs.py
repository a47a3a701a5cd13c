"""TensorBoard's logs, read back."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.training.runs import epoch_report
from tfrtool.errors import WriteError
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_records
from tfrtool.training.run.logs import Logs

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


def test_every_epoch_is_there(tf: Any, tmp_path: Path) -> None:
    """Losses and accuracies of both kinds have one name, in a run each; speed and waiting too."""
    with Logs(tmp_path) as logs:
        logs.write(epoch_report(1, loss=0.5, val_loss=0.25, val_accuracy=0.875))
        logs.write(epoch_report(2, loss=math.inf, images_per_second=64.0, input_wait_fraction=0.5))
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
    with Logs(tmp_path) as logs:
        logs.write(epoch_report(1, loss=0.5))
    events = accumulator.EventAccumulator(str(tmp_path / "train"))
    events.Reload()
    (event,) = events.Tensors("epoch_loss")
    assert (event.step, float(tf.make_ndarray(event.tensor_proto))) == (1, 0.5)


def test_what_is_written_is_there_at_once(tf: Any, tmp_path: Path) -> None:
    """An epoch can be looked at while the next one runs."""
    with Logs(tmp_path) as logs:
        logs.write(epoch_report(1))
        assert _scalars(tf, tmp_path / "train")["epoch_loss"] == [(1, 0.5)]


def test_without_a_directory_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for no logs gets no files."""
    monkeypatch.chdir(tmp_path)
    with Logs(None) as logs:
        logs.write(epoch_report(1))
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_none_is_an_error(tmp_path: Path) -> None:
    """Where there is a file in the place of the directory, one error names it."""
    (tmp_path / "logs").write_text("")
    with pytest.raises(WriteError) as caught, Logs(tmp_path / "logs") as logs:
        logs.write(epoch_report(1))
    assert caught.value.path == str(tmp_path / "logs" / "train")
