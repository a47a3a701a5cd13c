"""A run on disk, after each of its epochs, to be resumed from.

``checkpoint/`` has what `tf.train.CheckpointManager` writes: weights, the optimizer's state, the
weights of the best epoch, and as JSON all else. The manager's list of checkpoints changes in one
step, and the old one is deleted after that. It stays when the run has ended, so that more epochs
can follow. What is read is checked as something that anybody may have written.
"""

import dataclasses
import hashlib
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.errors import DatasetError, WriteError, os_errors_as, os_reason, reason_of
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.options import Cache, Rescale
from tfrtool.records.crc import crc32c
from tfrtool.storage.atomic_files import private_folder
from tfrtool.storage.limits import MAX_METADATA_BYTES
from tfrtool.storage.opening import read_bounded
from tfrtool.training.run.train_options import TrainOptions
from tfrtool.training.run.train_report import EpochReport

CHECKPOINTS = "checkpoint"
_LIST = "checkpoint"
_NUMBERED = re.compile(r"ckpt-([1-9]\d{0,8})")
_VALUE = ".ATTRIBUTES/VARIABLE_VALUE"
_RUN = f"run/0/{_VALUE}"
_FORMAT = 3


@dataclass(slots=True, kw_only=True)
class RunState:
    """A run up to the end of an epoch, but for its weights."""

    request: Mapping[str, Any]
    cache: Cache  # the order of images depends on it
    rescale: Rescale  # it may be that of the dataset's mean
    frozen: int  # the CRC-32C of all weights that never change, and are not kept
    epochs: list[EpochReport]

    def to_bytes(self) -> bytes:
        """Return it as JSON."""
        values = dataclasses.asdict(self) | {"cache": self.cache.value, "format": _FORMAT}
        return json.dumps(values).encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes, epochs: int) -> "RunState":
        """Make it again; any error is raised if it is not JSON of a run of so many epochs."""
        values = json.loads(data)
        if values["format"] != _FORMAT:
            raise ValueError("another version of tfrtool wrote it")
        scale, offset = (
            tuple(map(float, value)) if isinstance(value, list) else float(value)
            for value in (values["rescale"]["scale"], values["rescale"]["offset"])
        )
        reports = [EpochReport(**epoch) for epoch in values["epochs"]]
        numbers = [value for epoch in reports for value in epoch.logs.values()]
        if not all(isinstance(value, int | float) for value in numbers):
            raise ValueError("a figure of an epoch is not a number")
        if [report.epoch for report in reports] != list(range(1, epochs + 1)):
            raise ValueError("its epochs are not numbered from 1")
        phases = [report.phase for report in reports]
        if phases != sorted(phases) or not {1, 2}.issuperset(phases):
            raise ValueError("its phases are out of order")
        return cls(
            request=dict(values["request"]),
            cache=Cache(values["cache"]),
            rescale=Rescale(scale=scale, offset=offset, bgr=bool(values["rescale"]["bgr"])),  # type: ignore[arg-type]
            frozen=values["frozen"],
            epochs=reports,
        )


class Checkpoints:
    """Saves and restores the variables of a model in training."""

    def __init__(
        self, out: Path, state: Sequence[Any], best: Sequence[Any], *, saves: bool = True
    ) -> None:
        """Get ready; `read_run` has looked at what is in the directory of the run.

        Of several workers only one ``saves``; the others have the same variables, and only restore.
        """
        self._folder = out / CHECKPOINTS
        self._variables = {"state": list(state), "best": list(best)}
        self._run = tf.Variable(np.zeros(0, np.uint8), shape=[None])
        if not saves:
            return
        with os_errors_as(WriteError, self._folder, "can't be written"):
            private_folder(self._folder)
        checkpoint = tf.train.Checkpoint(**self._variables, run=[self._run])
        self._manager = tf.train.CheckpointManager(checkpoint, str(self._folder), max_to_keep=1)

    def save(self, run: RunState) -> None:
        """Save the variables as they are now, and then delete the checkpoint before."""
        self._run.assign(np.frombuffer(run.to_bytes(), np.uint8))
        try:
            self._manager.save(checkpoint_number=len(run.epochs))
        except (OSError, tf.errors.OpError) as error:
            reason = os_reason(error) if isinstance(error, OSError) else reason_of(error)
            raise WriteError(f"can't be written: {reason}", path=self._folder) from error

    def restore(self, epoch: int) -> None:
        """Make all variables what they were after an epoch, if they are this model's."""
        names = {
            f"{group}/{number}/{_VALUE}": variable
            for group, variables in self._variables.items()
            for number, variable in enumerate(variables)
        }
        expected = {name: (one.shape.as_list(), one.dtype) for name, one in names.items()}
        try:
            reader = tf.train.load_checkpoint(str(self._folder / f"ckpt-{epoch}"))
            dtypes = reader.get_variable_to_dtype_map()
            found = {
                name: (shape, dtypes[name])
                for name, shape in reader.get_variable_to_shape_map().items()
                if name.startswith(("state/", "best/"))
            }
            if found != expected:  # before they are read: a shape may claim more than the memory
                raise ValueError("it belongs to another model")
            values = {name: reader.get_tensor(name) for name in names}
            for value in values.values():
                if not np.isfinite(value).all():
                    raise ValueError("its weights are not finite")
                if value.dtype.kind == "i" and (value < 0).any():
                    raise ValueError("a counter is negative")
        except Exception as error:  # TensorFlow raises anything on a damaged file
            raise unusable(self._folder, _damage(error)) from error
        for name, variable in names.items():
            variable.assign(values[name])


def crc_of(variables: Sequence[Any]) -> int:
    """Return the CRC-32C of variables that never change, which need not be kept."""
    crc = 0
    for variable in variables:
        value = np.ascontiguousarray(variable.numpy())
        crc = crc32c(value.tobytes() + crc.to_bytes(4, "little"))
    return crc


def has_checkpoint(out: Path) -> bool:
    """Return whether a run has left a checkpoint, whole or not."""
    return os.path.lexists(out / CHECKPOINTS / _LIST)


def read_run(out: Path) -> RunState | None:
    """Read what a run has left, but for its weights; None if it has no checkpoint yet."""
    folder = out / CHECKPOINTS
    if not os.path.lexists(folder):
        return None
    try:
        private_folder(folder)
        for path in folder.iterdir():
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode) and path.name.startswith("ckpt-"):
                shutil.rmtree(path)  # left by a run that was killed while it saved
            elif not stat.S_ISREG(mode):
                raise ValueError(f"{path.name!r} is not a regular file")
        if not has_checkpoint(out):
            return None
        epoch = _last_epoch(folder)
        reader = tf.train.load_checkpoint(str(folder / f"ckpt-{epoch}"))
        if reader.get_variable_to_dtype_map().get(_RUN) != tf.uint8:
            raise ValueError("another version of tfrtool wrote it")
        if math.prod(reader.get_variable_to_shape_map()[_RUN]) > MAX_METADATA_BYTES:
            raise ValueError(f"its record of the run has more than {MAX_METADATA_BYTES:,} bytes")
        return RunState.from_bytes(reader.get_tensor(_RUN).tobytes(), epoch)
    except Exception as error:  # TensorFlow and json raise anything on a damaged file
        raise unusable(folder, _damage(error)) from error


def _last_epoch(folder: Path) -> int:
    """Return the number of the one checkpoint that the manager's list has.

    The manager deletes what is on its list: paths that lead elsewhere must not be.
    """
    read_bounded(folder / _LIST, follow=False)
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel("ERROR")  # it warns of a list that it can't parse, and so do we
    listed = tf.train.get_checkpoint_state(str(folder))
    logger.setLevel(level)
    if listed is None:
        raise ValueError("its list of checkpoints is damaged")
    for path in (listed.model_checkpoint_path, *listed.all_model_checkpoint_paths):
        if Path(path).parent != folder or not _NUMBERED.fullmatch(Path(path).name):
            raise ValueError(f"its list of checkpoints names {path[:100]!r}")
    return int(Path(listed.model_checkpoint_path).name.partition("-")[2])


def _damage(error: Exception) -> str:
    """Return why a checkpoint can't be used, in other words than those of TensorFlow and json."""
    if isinstance(error, OSError):
        return os_reason(error)
    if isinstance(error, tf.errors.NotFoundError):
        return "one of its files is missing"
    return reason_of(error) if type(error) is ValueError else "its files are damaged"


def unusable(path: Path, reason: str) -> DatasetError:
    """Return the one error for a checkpoint that no run can be resumed from."""
    return DatasetError(
        f"unusable checkpoint: {reason}",
        path=path,
        hint="delete it to start over",
    )


def request_of(options: TrainOptions, dataset: Dataset) -> dict[str, Any]:
    """Return all that a run's weights depend on, as JSON values by name."""
    facts = {
        name: [split.records, *((path.name, path.stat().st_size) for path in split.shards)]
        for name, split in dataset.splits.items()
    }
    text = json.dumps([facts, dataset.class_names], sort_keys=True)
    return options.request() | {"dataset": hashlib.sha256(text.encode("ascii")).hexdigest()[:16]}
