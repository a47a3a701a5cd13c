"""Keras' ``fit``, and callbacks: how long steps wait for input, TensorBoard's numbers, a trace."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

import keras
import tensorflow as tf

from tfrtool.errors import DatasetError, WriteError, reason_of
from tfrtool.loading.labels import Task
from tfrtool.training.scores import MEAN_AVERAGE_PRECISION, EpochScores
from tfrtool.training.tasks import TASKS

_WARM_UP = 2
"""Steps before the trace: the first ones build graphs, and are like no others."""

_TRACED = 10
"""Steps in the trace, some hundred kB each."""

_TENSORBOARD_NAMES = {
    "loss": "epoch_loss",
    "accuracy": "epoch_accuracy",
    "seconds": "epoch_seconds",
    "learning_rate": "epoch_learning_rate",
}
"""Names of Keras' TensorBoard callback, so that its runs are drawn in the same charts."""

_LABELS, _SCORES = "_labels", "_scores"


class EpochMeter:
    """The time that steps of an epoch wait for input, and multi-label scores."""

    def __init__(self, images: list[int], task: Task) -> None:
        """Measure training, and validation if ``images`` has a second number."""
        self._images, self._is_ranked = images, TASKS[task].is_ranked
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Forget the epoch before."""
        self.start, self.waited = time.perf_counter(), 0.0
        self.scores = [EpochScores(count) for count in self._images] if self._is_ranked else []
        self._sums = [[0.0, 0.0, 0.0] for _ in self._images]

    def mean(self, part: int, loss: float, accuracy: float, images: float) -> dict[str, float]:
        """Add the means of a step; return those of the epoch so far."""
        sums = self._sums[part]
        sums[:] = sums[0] + loss * images, sums[1] + accuracy * images, sums[2] + images
        return {"loss": sums[0] / sums[2], "accuracy": sums[1] / sums[2]}

    def batches(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches of an iterator."""
        while True:
            before = time.perf_counter()
            batch = next(iterator, None)
            self.waited += time.perf_counter() - before
            if batch is None:
                return
            yield batch

    def take(self, iterator: Iterator[Any]) -> Any:
        """Return the next batch of an iterator."""
        for batch in self.batches(iterator):
            return batch
        raise DatasetError("the split has fewer records than counted")

    def figures(self) -> Mapping[str, float]:
        """Return the figures of the epoch that Keras doesn't know."""
        seconds = time.perf_counter() - self.start
        prefixes = zip(("", "val_"), self.scores, strict=False)
        return {
            "seconds": seconds,
            "images_per_second": sum(self._images) / seconds,
            "input_wait_fraction": min(self.waited / seconds, 1.0),
            **{f"{prefix}{MEAN_AVERAGE_PRECISION}": one.mean() for prefix, one in prefixes},
        }


class MeasuredModel(keras.Model):  # type: ignore[misc]  # keras has no types
    """A functional model whose ``fit`` uses a `EpochMeter`."""

    meter: EpochMeter
    train_function: Any
    test_function: Any

    def make_train_function(self, force: bool = False) -> None:
        """Make what ``fit`` calls for each step."""
        if force or self.train_function is None:
            self.train_function = self._measured(self.train_step, 0)

    def make_test_function(self, force: bool = False) -> None:
        """Make what ``fit`` calls for each validation step."""
        if force or self.test_function is None:
            self.test_function = self._measured(self.test_step, 1)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return a step's metrics, and what mean average precision needs."""
        found = super().compute_metrics(x, y, y_pred, sample_weight)
        return {**found, _LABELS: y, _SCORES: y_pred} if self.meter.scores else found

    def _measured(self, step: Callable[[Any], Any], part: int) -> Callable[[Iterator[Any]], Any]:
        function: Any = None

        def run(iterator: Any) -> Any:
            nonlocal function
            batch = self.meter.take(iterator)
            if function is None:
                # Of any batch size: the last batch of an epoch needs no graph of its own.
                signature = [iterator.element_spec]
                function = tf.function(step, input_signature=signature, autograph=False)
            logs = function(batch)
            if self.meter.scores:
                self.meter.scores[part].add(logs.pop(_LABELS), logs.pop(_SCORES))
            return logs

        return run


def take_compile_arguments(model: Any) -> Mapping[str, Any]:
    """Return the arguments with which a user compiled a model, if any, and leave it uncompiled.

    Otherwise, a model that it is part of would be saved with its loss and the optimizer's state.
    """
    config = getattr(model, "_compile_config", None)  # the public one has functions as text only
    if config is None or not model.compiled:
        return {}
    model.compiled, model.optimizer = False, None
    return dict(config.config)


def needs_vectors(compiled: Mapping[str, Any], units: int) -> bool:
    """Return whether a compiled loss of some outputs takes one-hot labels, as Keras' losses do."""
    loss = compiled.get("loss")
    name = loss if isinstance(loss, str) else getattr(loss, "name", None) or loss_name(loss)
    return loss is not None and units > 1 and "sparse" not in name.lower()


def loss_name(loss: Any) -> str:
    """Return the name of a loss: of its class, of a function, or the text that stands for it."""
    return loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)


def compile_model(
    model: Any,
    optimizer: Any,
    task: Task,
    smoothing: float = 0.0,
    compiled: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Compile a model with a user's loss and metrics, or with those of its task."""
    if compiled.get("loss") is not None:
        names = ("loss", "loss_weights", "metrics", "weighted_metrics")
        model.compile(optimizer, **{name: compiled[name] for name in names})
        return
    kind = TASKS[task]

    def loss(labels: Any, outputs: Any) -> Any:
        return kind.losses(labels, outputs, smoothing)

    model.compile(optimizer, loss, metrics=kind.metrics())


class TensorBoardLogs(keras.callbacks.Callback):  # type: ignore[misc]
    """Writes how a run is made, and the numbers of each step and epoch, to event files.

    Keras' own callback and ``tf.summary.scalar`` require the package tensorboard.
    """

    def __init__(self, folder: Path, made: Mapping[str, Any]) -> None:
        super().__init__()
        self._folder, self._made = folder, made
        self._writers: dict[str, Any] = {}
        self._steps = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Write how the run is made; TensorBoard shows text as Markdown."""
        del logs
        text = f"```\n{json.dumps(self._made, indent=2)}\n```"
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
            named = {_TENSORBOARD_NAMES.get(name, name): one for name, one in values.items()}
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
