"""A run on disk, after each of its epochs, to go on from.

``checkpoint.npz`` is an archive of arrays, which numpy reads without running any code: the weights,
the optimizer's state, and as JSON all else. A new one takes the old one's place when it is whole.
It stays when the run has ended, so that more epochs can follow.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tfrtool.errors import DatasetError, UsageError, WriteError, os_errors_as, os_reason
from tfrtool.loading.pipeline.load_options import Cache, Rescale
from tfrtool.storage.appearing import new_file
from tfrtool.storage.opening import open_regular
from tfrtool.training.run.snapshots import Snapshot
from tfrtool.training.run.train_report import EpochReport

__all__ = [
    "CHECKPOINT",
    "Checkpoint",
    "check_same",
    "read_checkpoint",
    "unusable",
    "write_checkpoint",
]

CHECKPOINT = "checkpoint.npz"
_FORMAT = 1
_FACTS = "facts"
_MAY_RISE = "epochs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A run up to the end of an epoch.

    Attributes:
        request: what was asked for, as far as the weights depend on it: JSON values by name.
        cache: what the plan was, in words of the CLI. The order of images depends on it, and the
            memory that is free may have changed.
        rescale: what pixels become, so that a dataset's mean need not be taken again.
        epochs: what each epoch brought, at least one.
        seconds: how long the run took so far.
        snapshot: the weights after the last epoch.
        best: the weights after the best epoch; empty where nobody wants them.
    """

    request: Mapping[str, Any]
    cache: str
    rescale: Rescale
    epochs: tuple[EpochReport, ...]
    seconds: float
    snapshot: Snapshot
    best: tuple[Any, ...] = ()


def write_checkpoint(out: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint in the place of the one before.

    Raises:
        WriteError: the disk is full, or fails otherwise.
    """
    facts = {
        "format": _FORMAT,
        "request": dict(checkpoint.request),
        "cache": checkpoint.cache,
        "rescale": dataclasses.asdict(checkpoint.rescale),
        "epochs": [dataclasses.asdict(epoch) for epoch in checkpoint.epochs],
        "seconds": checkpoint.seconds,
        "frozen": checkpoint.snapshot.frozen,
    }
    arrays: dict[str, Any] = {_FACTS: np.frombuffer(json.dumps(facts).encode(), np.uint8)}
    for name, values in _groups(checkpoint).items():
        arrays |= {f"{name}.{number}": value for number, value in enumerate(values)}

    path = out / CHECKPOINT
    with os_errors_as(WriteError, path, "the checkpoint can't be written"), new_file(path) as file:
        np.savez(file, **arrays)


def _groups(checkpoint: Checkpoint) -> dict[str, Sequence[Any]]:
    return {
        "weights": checkpoint.snapshot.weights,
        "optimizer": checkpoint.snapshot.optimizer,
        "best": checkpoint.best,
    }


def read_checkpoint(out: Path) -> Checkpoint | None:
    """Read the checkpoint of a run; None if there is none.

    Raises:
        DatasetError: it can't be read, or is no checkpoint.
    """
    path = out / CHECKPOINT
    if not os.path.lexists(path):
        return None
    try:
        with open_regular(path, follow=False) as file:
            return _read(file)
    except OSError as error:
        raise DatasetError(f"can't be read: {os_reason(error)}", path=path) from error
    except Exception as error:  # zipfile, numpy and json raise anything on a damaged file
        raise unusable(path, " ".join(str(error).split())[:200] or type(error).__name__) from error


def unusable(path: Path, reason: str) -> DatasetError:
    """Return the one error for a checkpoint that a run can't go on from."""
    return DatasetError(
        f"no checkpoint that can be used: {reason}",
        path=path,
        hint="without it, the run can only begin anew",
    )


def _read(file: BinaryIO) -> Checkpoint:
    size = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        # What is stored as it is can't be larger than the file.
        if sum(member.file_size for member in archive.infolist()) > size:
            raise ValueError("its arrays are larger than the file")
        arrays = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        facts = json.loads(_array(archive, arrays.pop(_FACTS)).tobytes())
        if facts["format"] != _FORMAT:
            raise ValueError("it is of another version of tfrtool")
        epochs = tuple(EpochReport(**epoch) for epoch in facts["epochs"])
        _check_epochs(epochs)
        if not _is_number(facts["seconds"]) or facts["seconds"] < 0:
            raise ValueError("its time is no number of seconds")
        groups = {
            name: tuple(
                _array(archive, arrays.pop(f"{name}.{number}"))
                for number in range(sum(key.startswith(f"{name}.") for key in arrays))
            )
            for name in ("weights", "optimizer", "best")
        }
    shapes = [[array.shape for array in groups[name]] for name in ("weights", "best")]
    if groups["best"] and shapes[0] != shapes[1]:
        raise ValueError("the weights of its best epoch are of another model")
    return Checkpoint(
        request=dict(facts["request"]),
        cache=Cache(facts["cache"]).value,
        rescale=Rescale(**{name: _hashable(v) for name, v in facts["rescale"].items()}),
        epochs=epochs,
        seconds=facts["seconds"],
        snapshot=Snapshot(
            weights=groups["weights"], optimizer=groups["optimizer"], frozen=facts["frozen"]
        ),
        best=groups["best"],
    )


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    """Read an array, whose size is held against that of its bytes before it is made."""
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError("its arrays are compressed")
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError("its arrays have headers of another version")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=1024)
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > member.file_size:
            raise ValueError("an array claims to be larger than its bytes")
        file.seek(0)
        array = np.lib.format.read_array(file, allow_pickle=False)
        file.read(1)  # the end, where zipfile compares the CRC
    if array.dtype.kind not in "fiu":
        raise ValueError("an array has no real numbers")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("its weights are not finite")
    if array.dtype.kind == "i" and array.size and array.min() < 0:
        raise ValueError("it counts below zero")
    return array


def _check_epochs(epochs: Sequence[EpochReport]) -> None:
    if not epochs or [epoch.epoch for epoch in epochs] != list(range(1, len(epochs) + 1)):
        raise ValueError("its epochs are not numbered from 1 on")
    for epoch in epochs:
        values = dataclasses.asdict(epoch)
        absent = {"val_loss", "val_accuracy"}
        if not all(
            isinstance(value, int | float) or (value is None and name in absent)
            for name, value in values.items()
        ):
            raise ValueError("what an epoch brought is no number")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def check_same(out: Path, checkpoint: Checkpoint, request: Mapping[str, Any]) -> None:
    """Check that a run that goes on is the run that was begun; there may be more epochs.

    Raises:
        UsageError: something differs; names it.
    """
    before = checkpoint.request
    differ = [
        name
        for name in sorted(before.keys() | request.keys())
        if name != _MAY_RISE and before.get(name) != request.get(name)
    ]
    if differ:
        raise UsageError(
            "the run that is here was asked for with another " + ", ".join(differ),
            path=out,
            expected=_told(before, differ),
            found=_told(request, differ),
            hint="choose another directory for another run",
        )
    if request[_MAY_RISE] < len(checkpoint.epochs):
        raise UsageError(
            "the run that is here is longer than that",
            path=out,
            expected=f"at least {len(checkpoint.epochs)} epochs",
            found=request[_MAY_RISE],
        )


def _told(request: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{name} {json.dumps(request.get(name))}" for name in names)
