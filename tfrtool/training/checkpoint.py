"""A run on disk, after each of its epochs, to go on from.

``checkpoint.npz`` is an archive of arrays, which numpy reads without running any code: the weights,
the optimizer's state, and as JSON all else. A new one takes the old one's place when it is whole.
It stays when the run has ended, so that more epochs can follow.
"""

from __future__ import annotations

import dataclasses
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfrtool.errors import DatasetError, UsageError, WriteError, os_reason
from tfrtool.loading.options import Rescale
from tfrtool.training.files import replace_file
from tfrtool.training.report import EpochReport
from tfrtool.training.snapshots import Snapshot

__all__ = ["CHECKPOINT", "Checkpoint", "check_same", "read_checkpoint", "write_checkpoint"]

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

    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, **arrays)

    try:
        replace_file(out / CHECKPOINT, write)
    except OSError as error:
        raise WriteError(
            f"the checkpoint can't be written: {os_reason(error)}", path=out / CHECKPOINT
        ) from error


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
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        facts = json.loads(arrays.pop(_FACTS).tobytes())
        if facts["format"] != _FORMAT:
            raise ValueError("it is of another version of tfrtool")
        return Checkpoint(
            request=facts["request"],
            cache=facts["cache"],
            rescale=Rescale(**{name: _hashable(v) for name, v in facts["rescale"].items()}),
            epochs=tuple(EpochReport(**epoch) for epoch in facts["epochs"]),
            seconds=facts["seconds"],
            snapshot=Snapshot(
                weights=_group(arrays, "weights"),
                optimizer=_group(arrays, "optimizer"),
                frozen=facts["frozen"],
            ),
            best=_group(arrays, "best"),
        )
    except OSError as error:
        raise DatasetError(f"can't be read: {os_reason(error)}", path=path) from error
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise DatasetError(
            f"no checkpoint that can be used: {' '.join(str(error).split())[:200]}",
            path=path,
            hint="without it, the run can only begin anew",
        ) from error


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _group(arrays: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    count = sum(key.startswith(f"{name}.") for key in arrays)
    return tuple(arrays[f"{name}.{number}"] for number in range(count))


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
