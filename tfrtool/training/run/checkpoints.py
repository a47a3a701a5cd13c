"""A run on disk, after each of its epochs, to be resumed from.

``checkpoint/`` has what `tf.train.CheckpointManager` writes: the weights, the optimizer's state and
the weights of the best epoch; and ``run.json`` with all else. The manager's list of checkpoints
changes in one step, and the old one is deleted after that. It stays when the run has ended, so
that more epochs can follow. What is read is checked as something that anybody may have written.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.errors import DatasetError, UsageError, WriteError, os_reason
from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.loading.pipeline.load_options import Cache, Rescale
from tfrtool.records.crc import crc32c
from tfrtool.storage.appearing import new_file, private_folder
from tfrtool.storage.opening import read_bounded
from tfrtool.training.run.train_options import TrainOptions
from tfrtool.training.run.train_report import EpochReport

CHECKPOINTS = "checkpoint"
_LIST, _FACTS = "checkpoint", "run.json"
_PREFIX = re.compile(r"ckpt-([1-9]\d{0,8})")
_VALUE = ".ATTRIBUTES/VARIABLE_VALUE"
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_FORMAT = 2
_MAY_RISE = "epochs"

_FREE = frozenset(
    {"dataset", "cache_directory", "parallel_calls", "prefetch", "recipe", "out", "resume"}
    | {"tensorboard", "profile"}
)
"""What may differ where a run is resumed: it changes where files are, or how fast it goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run up to the end of an epoch, but for its weights.

    It keeps the plan for the cache, on which the order of images depends, and the rescaling, which
    may be that of the dataset's mean; the CRC-32C of all weights that never change; and how long
    the run took up to the end of each epoch.
    """

    request: Mapping[str, Any]
    cache: str
    rescale: Rescale
    frozen: int
    epochs: tuple[EpochReport, ...]
    seconds: tuple[float, ...]
    stopped: bool = False

    def __post_init__(self) -> None:
        numbers = [value for epoch in self.epochs for value in epoch.logs.values()]
        if not all(isinstance(value, int | float) for value in (*numbers, *self.seconds)):
            raise ValueError("what an epoch brought is no number")
        if [epoch.epoch for epoch in self.epochs] != list(range(1, len(self.epochs) + 1)):
            raise ValueError("its epochs are not numbered from 1 on")
        if len(self.seconds) != len(self.epochs) or not all(
            0 <= seconds < math.inf for seconds in self.seconds
        ):
            raise ValueError("its times are no numbers of seconds")

    def first(self, epochs: int) -> RunState:
        """Return the run up to the end of an earlier epoch."""
        if not 1 <= epochs <= len(self.epochs):
            raise ValueError("it has no such epoch")
        stopped = self.stopped and epochs == len(self.epochs)
        return dataclasses.replace(
            self, epochs=self.epochs[:epochs], seconds=self.seconds[:epochs], stopped=stopped
        )


class Checkpoints:
    """Saves and restores the variables of a model in training."""

    def __init__(self, out: Path, state: Sequence[Any], best: Sequence[Any]) -> None:
        """Get ready; `read_run` has looked at what is in the directory of the run."""
        self._folder = out / CHECKPOINTS
        self._variables = {"state": list(state), "best": list(best)}
        try:
            private_folder(self._folder)
        except OSError as error:
            raise _unwritable(self._folder, os_reason(error)) from error
        checkpoint = tf.train.Checkpoint(**self._variables)
        self._manager = tf.train.CheckpointManager(checkpoint, str(self._folder), max_to_keep=1)

    def save(self, run: RunState) -> None:
        """Save the variables as they are now, and then delete the checkpoint before."""
        facts = dataclasses.asdict(run) | {"format": _FORMAT}
        try:
            # First, as it has all of the run that the checkpoint before needs, too.
            with new_file(self._folder / _FACTS) as file:
                file.write(json.dumps(facts).encode("ascii"))
            self._manager.save(checkpoint_number=len(run.epochs))
        except OSError as error:
            raise _unwritable(self._folder, os_reason(error)) from error
        except tf.errors.OpError as error:
            raise _unwritable(self._folder, " ".join(error.message.split())[:200]) from error

    def restore(self, epoch: int) -> None:
        """Make all variables what they were after an epoch, if they are this model's."""
        names = {
            f"{group}/{number}/{_VALUE}": variable
            for group, variables in self._variables.items()
            for number, variable in enumerate(variables)
        }
        expected = {name: (one.shape.as_list(), one.dtype) for name, one in names.items()}
        expected |= {f"save_counter/{_VALUE}": ([], tf.int64), _GRAPH: ([], tf.string)}
        try:
            reader = tf.train.load_checkpoint(str(self._folder / f"ckpt-{epoch}"))
            dtypes = reader.get_variable_to_dtype_map()
            found = reader.get_variable_to_shape_map().items()
            # Before anything is read: a shape may claim more than the memory.
            if {name: (shape, dtypes[name]) for name, shape in found} != expected:
                raise ValueError("it is of another model")
            values = {name: reader.get_tensor(name) for name in expected}
            for name in names:
                if not np.isfinite(values[name]).all():
                    raise ValueError("its weights are not finite")
                if values[name].dtype.kind == "i" and (values[name] < 0).any():
                    raise ValueError("it counts below zero")
        except Exception as error:  # TensorFlow raises anything on a damaged file
            raise unusable(self._folder, _words(error)) from error
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
                raise ValueError(f"{path.name!r} is no regular file")
        if not any(folder.iterdir()):
            return None
        run = _parse(read_bounded(folder / _FACTS, follow=False))
        if not has_checkpoint(out):
            if len(run.epochs) > 1:
                raise ValueError("the list of its checkpoints is missing")
            return None
        return run.first(_last_epoch(folder))
    except OSError as error:
        raise unusable(folder, os_reason(error)) from error
    except Exception as error:  # json and protobuf raise anything on a damaged file
        raise unusable(folder, _words(error)) from error


def _last_epoch(folder: Path) -> int:
    """Return the number of the one checkpoint that the manager's list has.

    The manager deletes what is on its list: paths that lead elsewhere must not be.
    """
    read_bounded(folder / _LIST, follow=False)
    listed = tf.train.get_checkpoint_state(str(folder))
    if listed is None:
        raise ValueError("the list of its checkpoints is damaged")
    for path in (listed.model_checkpoint_path, *listed.all_model_checkpoint_paths):
        if Path(path).parent != folder or not _PREFIX.fullmatch(Path(path).name):
            raise ValueError(f"its list of checkpoints has {path[:100]!r}")
    return int(Path(listed.model_checkpoint_path).name.partition("-")[2])


def _parse(data: bytes) -> RunState:
    facts = json.loads(data)
    if facts.pop("format") != _FORMAT:
        raise ValueError("it is of another version of tfrtool")
    rescale: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in facts.pop("rescale").items()
    }
    return RunState(
        request=dict(facts.pop("request")),
        cache=Cache(facts.pop("cache")).value,
        rescale=Rescale(**rescale),
        epochs=tuple(EpochReport(**epoch) for epoch in facts.pop("epochs")),
        seconds=tuple(facts.pop("seconds")),
        **facts,
    )


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _unwritable(folder: Path, reason: str) -> WriteError:
    return WriteError(f"the checkpoint can't be written: {reason}", path=folder)


def unusable(path: Path, reason: str) -> DatasetError:
    """Return the one error for a checkpoint that no run can be resumed from."""
    return DatasetError(
        f"no checkpoint that can be used: {reason}",
        path=path,
        hint="without it, the run can only begin anew",
    )


def request_of(options: TrainOptions, dataset: Dataset) -> Mapping[str, Any]:
    """Return all that a run's weights depend on, as JSON values by name."""
    request = {
        field.name.replace("_", " "): getattr(options, field.name)
        for field in fields(options)
        if field.name not in _FREE
    }
    facts = {
        name: [split.records, *((path.name, path.stat().st_size) for path in split.shards)]
        for name, split in dataset.splits.items()
    }
    text = json.dumps([facts, dataset.class_names], sort_keys=True)
    request["dataset"] = hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
    request["weights"], request["learning rate"] = options.initial_weights, options.rate
    plain: dict[str, Any] = json.loads(
        json.dumps(request, default=lambda value: getattr(value, "value", str(value)))
    )
    return plain


def check_same(
    out: Path, before: Mapping[str, Any], epochs: int, request: Mapping[str, Any]
) -> None:
    """Check that a run that is resumed is the one that was begun; there may be more epochs.

    Raises:
        UsageError: something differs; names it.
    """
    differ = [
        name
        for name in sorted(before.keys() | request.keys())
        if name != _MAY_RISE and before.get(name) != request.get(name)
    ]
    if differ:
        expected, found = (
            ", ".join(f"{name} {json.dumps(one.get(name))}" for name in differ)
            for one in (before, request)
        )
        raise UsageError(
            "the run that is here was asked for with another " + ", ".join(differ),
            path=out,
            expected=expected,
            found=found,
            hint="choose another directory for another run",
        )
    if request[_MAY_RISE] < epochs:
        raise UsageError(
            "the run that is here is longer than that",
            path=out,
            expected=f"at least {epochs} epochs",
            found=request[_MAY_RISE],
        )
