"""Callbacks for Keras' list: TensorBoard's numbers, and a trace of some steps."""

from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfrtool.errors import WriteError, reason_of

_WARM_UP = 2
"""Steps before the trace: the first ones build graphs, and are like no others."""

_TRACED = 10
"""Steps in the trace. Each takes some hundred kB in it."""

_SHARED_NAMES = {"loss": "epoch_loss", "accuracy": "epoch_accuracy", "seconds": "epoch_seconds"}
"""As Keras' TensorBoard callback calls them, so that one picture has both runs."""


class EpochLogs(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
    """Writes numbers of each epoch to event files, in a folder for each run of TensorBoard's.

    Keras' own callback needs the package tensorboard, of which ``tf.summary.scalar`` is a part.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._writers: dict[str, Any] = {}

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Write what an epoch brought, so that it can be looked at while the next one runs."""
        metadata = tf.compat.v1.SummaryMetadata()
        metadata.plugin_data.plugin_name = "scalars"
        for name, value in logs.items():
            folder = str(self._folder / ("validation" if name.startswith("val_") else "train"))
            tag = name.removeprefix("val_")
            try:
                if folder not in self._writers:
                    self._writers[folder] = tf.summary.create_file_writer(folder)
                with self._writers[folder].as_default(step=epoch + 1):
                    number = tf.constant(value, tf.float32)
                    tf.summary.write(_SHARED_NAMES.get(tag, tag), number, metadata=metadata)
                self._writers[folder].flush()
            except tf.errors.OpError as error:
                raise WriteError(f"can't be written: {reason_of(error)}", path=folder) from error

    def on_train_end(self, logs: Any = None) -> None:
        """Close the files."""
        del logs
        for writer in self._writers.values():
            writer.close()


class StepTrace(keras.callbacks.Callback):  # type: ignore[misc]
    """Traces a few of all steps, those in which a base makes features included.

    Steps are marked with a number and ``_r=1``, as TensorFlow's guide to the profiler says, and as
    Keras' own callback doesn't: without that, TensorBoard's profiler finds no step times. Waiting
    for the next batch is part of a step. The trace is ``plugins/profile/TIME/HOST.xplane.pb``.
    """

    def __init__(self, folder: Path, steps: int) -> None:
        """Get ready for a trace in a folder; it ends with the steps if there are only a few."""
        super().__init__()
        self._folder = folder
        self._first = max(min(_WARM_UP, steps - 1), 0)
        self._done = 0
        self._running = False
        self._mark: Any = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Start the trace, if it is time, and mark a step."""
        del batch, logs
        if self._done == self._first:
            tf.profiler.experimental.start(str(self._folder))
            self._running = True
        if self._running:
            self._mark = tf.profiler.experimental.Trace("train", step_num=self._done, _r=1)
            self._mark.__enter__()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count a step, and end the trace after some."""
        del batch, logs
        self._done += 1
        self._unmark()
        if self._done == self._first + _TRACED:
            self.stop()

    on_predict_batch_begin, on_predict_batch_end = on_train_batch_begin, on_train_batch_end

    def stop(self) -> None:
        """End the trace; also where a run fails."""
        self._unmark()
        if self._running:
            self._running = False
            tf.profiler.experimental.stop()

    def _unmark(self) -> None:
        if self._mark is not None:
            self._mark.__exit__(None, None, None)
            self._mark = None
