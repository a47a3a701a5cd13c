"""What TensorBoard shows of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from tfrtool.errors import WriteError
from tfrtool.training.run.train_report import EpochReport

__all__ = ["Logs"]

_TRAINING, _VALIDATION = "train", "validation"
"""The runs' names, and those of losses and accuracies below, are what Keras' callback calls them:
TensorBoard then draws both of a kind in one picture."""


class Logs:
    """Writes numbers of each epoch to event files; a context manager.

    It needs no TensorBoard, of which ``tf.summary.scalar`` is a part.
    """

    def __init__(self, directory: Path | None) -> None:
        """Get ready.

        Args:
            directory: where the files go, in a folder for each run; None writes nothing.
        """
        self._directory = directory
        self._writers: dict[str, Any] = {}

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    def write(self, epoch: EpochReport) -> None:
        """Write what an epoch brought.

        Raises:
            WriteError: the files can't be written.
        """
        if self._directory is None:
            return
        training = {
            "epoch_loss": epoch.loss,
            "epoch_accuracy": epoch.accuracy,
            "epoch_seconds": epoch.seconds,
            "images_per_second": epoch.images_per_second,
            "input_wait_fraction": epoch.input_wait_fraction,
        }
        self._write(_TRAINING, training, epoch.epoch)
        if epoch.val_loss is not None and epoch.val_accuracy is not None:
            validation = {"epoch_loss": epoch.val_loss, "epoch_accuracy": epoch.val_accuracy}
            self._write(_VALIDATION, validation, epoch.epoch)

    def _write(self, run: str, values: dict[str, float], step: int) -> None:
        metadata = tf.compat.v1.SummaryMetadata()
        metadata.plugin_data.plugin_name = "scalars"
        folder = str(self._directory and self._directory / run)
        try:
            if run not in self._writers:
                self._writers[run] = tf.summary.create_file_writer(folder)
            with self._writers[run].as_default():
                for tag, value in values.items():
                    number = tf.constant(value, tf.float32)
                    tf.summary.write(tag, number, step=step, metadata=metadata)
            self._writers[run].flush()
        except tf.errors.OpError as error:
            reason = " ".join(str(error.message).split())[:200]
            raise WriteError(f"can't be written: {reason}", path=folder) from error
