"""Keras callbacks of a run: checks, reports, checkpoints, TensorBoard's numbers, and a trace."""

import json
import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfrtool.errors import TrainingError, WriteError, reason_of
from tfrtool.storage.progress import Progress
from tfrtool.training.checkpoint import save_checkpoint, values_of
from tfrtool.training.preparation import Run
from tfrtool.training.scores import MEAN_AVERAGE_PRECISION
from tfrtool.training.train_report import EpochReport, best_epoch, is_over

_WARM_UP = 2
"""Steps before the trace: the first ones build graphs, and are like no others."""

_TRACED = 10
"""Steps in the trace, some hundred kB each."""

_SAME_IN_TENSORBOARD = ("images_per_second", "input_wait_fraction", MEAN_AVERAGE_PRECISION)
"""Figures that Keras' TensorBoard callback doesn't have. It writes all others as epoch_NAME, and so
do we, so that its runs are drawn in the same charts."""


class Reports(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
    """Reports each step as progress, and ends a run whose loss is not finite.

    It also makes a report of each epoch, whose figures later callbacks get as their logs.

    Attributes:
        epochs: all reports, with those before a resumed run.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.epochs, self._run = [*run.state.epochs], run

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Report a step; `TrainingError` if its loss is not finite."""
        options, done, loss = self._run.options, len(self.epochs), logs["loss"]
        if not math.isfinite(loss):
            hint = f"try a --learning-rate lower than {options.rate:g}"
            if options.out_dir is not None and done:
                hint += f"; the checkpoint of epoch {done} is kept"
            what = f"epoch {done + 1}: the loss became {loss} at step {batch + 1}"
            raise TrainingError(what, hint=hint)
        note = ", ".join(f"{name} {value:.4f}" for name, value in [*logs.items()][:3])
        what, total = f"epoch {done + 1}", self._run.data.epoch_steps
        options.on_progress(
            Progress(what=what, done=batch + 1, total=total, unit="steps", note=note)
        )

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Add the report of an epoch."""
        figures, known = {**logs, **self._run.model.meter.figures()}, EpochReport.__slots__
        values = {name: figures.pop(name) for name in known if name in figures}
        self.epochs.append(EpochReport(epoch=epoch + 1, metrics=figures, **values))
        logs.update(self.epochs[-1].logs)


class EpochEnd(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves a run after each epoch, passes on the epoch's report, and stops a run that is over.

    Keras' own files of a model leave out the state of random generators, such as that of
    ``Dropout``: a resumed run would become another one. They also take longer: 1.3 s for a frozen
    MobileNetV2, and 0.08 s for a head over its features, instead of 0.02 s. Keras'
    ``EarlyStopping`` doesn't count the epochs before a resumed run.

    Attributes:
        best_weights: values of `Run.weights` after the best epoch so far.
    """

    def __init__(self, run: Run, reports: Reports) -> None:
        super().__init__()
        self.best_weights, self._run, self._reports = run.best_weights, run, reports

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Replace the checkpoint, report the epoch, and stop or measure the next one."""
        del logs
        run, options, epochs = self._run, self._run.options, self._reports.epochs
        is_best = best_epoch(epochs) == epoch + 1
        if is_best:
            self.best_weights = values_of(run.weights)
        if options.out_dir is not None and options.recipe == "tfrtool":
            state, values = replace(run.state, epochs=epochs), values_of(run.variables)
            save_checkpoint(options.out_dir, state, values, [] if is_best else self.best_weights)
        options.on_epoch(epochs[-1])
        if is_over(epochs, options):
            self.model.stop_training = True
        run.model.meter.begin_epoch()


class TensorBoardLogs(keras.callbacks.Callback):  # type: ignore[misc]
    """Writes how a run is made, and the numbers of each step and epoch, to event files.

    Keras' own callback and ``tf.summary.scalar`` require the package tensorboard.
    """

    def __init__(self, folder: Path, record: Mapping[str, Any]) -> None:
        super().__init__()
        self._folder, self._record = folder, record
        self._writers: dict[str, Any] = {}
        self._steps = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Write how the run is made; TensorBoard shows text as Markdown."""
        del logs
        text = f"```\n{json.dumps(self._record, indent=2)}\n```"
        self._write("train", {"run": text}, 0, flush=True)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Write the numbers of a step."""
        del batch
        values = {f"batch_{name}": value for name, value in logs.items()}
        self._write("train", {**values, "batch_learning_rate": self._rate()}, self._steps)
        self._steps += 1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Number the steps of a resumed run as an uninterrupted one would."""
        del logs
        self._steps = epoch * self.params["steps"]

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Write the numbers of an epoch, so that they can be seen while the next one runs."""
        groups: dict[str, dict[str, float]] = {"train": {"learning_rate": self._rate()}}
        for name, value in logs.items():
            group = "validation" if name.startswith("val_") else "train"
            groups.setdefault(group, {})[name.removeprefix("val_")] = value
        for group, values in groups.items():
            named = {
                name if name in _SAME_IN_TENSORBOARD else f"epoch_{name}": value
                for name, value in values.items()
            }
            self._write(group, named, epoch + 1, flush=True)

    def on_train_end(self, logs: Any = None) -> None:
        """Close the files."""
        del logs
        for writer in self._writers.values():
            writer.close()

    def _rate(self) -> float:
        return float(self.model.optimizer.learning_rate)

    def _write(
        self, group: str, values: Mapping[str, float | str], step: int, *, flush: bool = False
    ) -> None:
        metadata = tf.compat.v1.SummaryMetadata()
        folder = str(self._folder / group)
        try:
            if group not in self._writers:
                self._writers[group] = tf.summary.create_file_writer(folder)
            with self._writers[group].as_default(step=step):
                for name, value in values.items():
                    is_text = isinstance(value, str)
                    metadata.plugin_data.plugin_name = "text" if is_text else "scalars"
                    tensor = tf.constant(value, tf.string if is_text else tf.float32)
                    tf.summary.write(name, tensor, metadata=metadata)
            if flush:
                self._writers[group].flush()
        except tf.errors.OpError as error:
            raise WriteError(f"can't be written: {reason_of(error)}", path=folder) from error


class StepTrace(keras.callbacks.Callback):  # type: ignore[misc]
    """Traces a few steps for TensorBoard's profiler: ``plugins/profile/TIME/HOST.xplane.pb``.

    Steps are marked with a number and ``_r=1``, as TensorFlow's guide to the profiler does and
    Keras' own callback doesn't: the profiler finds no step times otherwise. Waiting for the next
    batch is part of a step.
    """

    def __init__(self, folder: Path, steps: int) -> None:
        """Trace some of the first ``steps`` steps."""
        super().__init__()
        self._folder = str(folder)
        self._first = max(min(_WARM_UP, steps - 1), 0)
        self._done = 0
        self._open = ExitStack()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Start the trace when it is time, and mark a step."""
        del batch, logs
        if self._done == self._first:
            tf.profiler.experimental.start(self._folder)
            self._open.callback(tf.profiler.experimental.stop)
        if self._first <= self._done < self._first + _TRACED:
            self._mark = tf.profiler.experimental.Trace("train", step_num=self._done, _r=1)
            self._mark.__enter__()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count a step, and end the trace after some."""
        del batch, logs
        if self._first <= self._done < self._first + _TRACED:
            self._mark.__exit__(None, None, None)
        self._done += 1
        if self._done == self._first + _TRACED:
            self.stop()

    def stop(self) -> None:
        """End the trace, also if the run fails."""
        self._open.close()
