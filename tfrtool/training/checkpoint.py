"""A run after its last epoch, in one file: ``checkpoint`` in ``--out``.

The length of a header, the header in msgpack, and the bytes of all variables that change: weights,
optimizer state, random generators, and the weights of the best epoch. It is replaced atomically
after each epoch, and is read as untrusted input.
"""

import functools
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from tfrtool.errors import DatasetError, WriteError, os_errors_as, os_reason, reason_of
from tfrtool.loading.options import Cache, Rescale
from tfrtool.records.crc import crc32c, extend_crc32c
from tfrtool.storage.atomic_files import new_file
from tfrtool.storage.limits import MAX_METADATA_BYTES
from tfrtool.storage.opening import open_regular
from tfrtool.training.train_report import EpochReport

CHECKPOINT = "checkpoint"
_MAGIC = b"tfrtool checkpoint 1\n"


@dataclass(slots=True, kw_only=True)
class RunState:
    """A run after an epoch, without its weights."""

    cache: Cache  # the order of images depends on it
    rescale: Rescale  # it may be that of the dataset's mean
    frozen: int  # CRC-32C of the weights that never change, which are not saved
    epochs: list[EpochReport]


class _Header(msgspec.Struct):
    run: RunState
    arrays: list[tuple[str, list[int]]]  # dtypes and shapes
    crc32c: int


def save_checkpoint(out: Path, run: RunState, state: Sequence[Any], best: Sequence[Any]) -> None:
    """Replace the checkpoint of a run; ``best`` is empty if the last epoch is the best."""
    data = [one.tobytes() for one in (*state, *best)]
    header = _Header(run, _kinds((*state, *best)), _crc_of(data))
    line = msgspec.msgpack.encode(header)
    path = out / CHECKPOINT
    with os_errors_as(WriteError, path, "can't be written"), new_file(path) as file:
        file.writelines([_MAGIC, len(line).to_bytes(8, "little"), line, *data])


def has_checkpoint(out: Path) -> bool:
    """Return whether a run has left a checkpoint, intact or not."""
    return os.path.lexists(out / CHECKPOINT)


def read_state(out: Path) -> RunState | None:
    """Read a checkpoint without its weights; None if there is none yet."""
    if not has_checkpoint(out):
        return None
    try:
        with open_regular(out / CHECKPOINT, follow=False) as file:
            run = _read_header(file).run
        numbers = [epoch.epoch for epoch in run.epochs]
        if not numbers or numbers != [*range(1, len(numbers) + 1)]:
            raise ValueError("its epochs are out of order")
        return run
    except (OSError, ValueError) as error:
        raise unusable(out, _reason(error)) from error


def read_arrays(
    out: Path, state: Sequence[Any], best: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Read the arrays, which must have the shapes and dtypes of these; ``best`` may be missing."""
    try:
        with open_regular(out / CHECKPOINT, follow=False) as file:
            header = _read_header(file)
            kinds = [(name, tuple(shape)) for name, shape in header.arrays]
            if header.arrays not in (_kinds(state), _kinds((*state, *best))):
                raise ValueError("it belongs to another model")
            size = sum(np.dtype(name).itemsize * math.prod(shape) for name, shape in kinds)
            data = file.read(size + 1)
        if len(data) != size or crc32c(data) != header.crc32c:
            raise ValueError("its weights are damaged")
    except (OSError, ValueError) as error:
        raise unusable(out, _reason(error)) from error
    arrays, start = [], 0
    for name, shape in kinds:
        arrays.append(np.frombuffer(data, name, math.prod(shape), start).reshape(shape))
        start += arrays[-1].nbytes
    return arrays[: len(state)], arrays[len(state) :]


def _kinds(arrays: Iterable[Any]) -> list[tuple[str, list[int]]]:
    return [(one.dtype.name, list(one.shape)) for one in arrays]


def _read_header(file: IO[bytes]) -> _Header:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("another version of tfrtool wrote it")
    length = int.from_bytes(file.read(8), "little")
    if length > MAX_METADATA_BYTES:
        raise ValueError("its header is too long")
    return msgspec.msgpack.decode(file.read(length), type=_Header)


def _reason(error: Exception) -> str:
    if isinstance(error, msgspec.MsgspecError):
        return f"it is damaged: {error}"
    return os_reason(error) if isinstance(error, OSError) else reason_of(error)


def unusable(out: Path, reason: str) -> DatasetError:
    """Return the error for a checkpoint that no run can be resumed from."""
    return DatasetError(
        f"unusable checkpoint: {reason}", path=out / CHECKPOINT, hint="delete it to start over"
    )


def crc_of(variables: Sequence[Any]) -> int:
    """Return the CRC-32C of variables that never change, which need not be saved."""
    return _crc_of(variable.numpy().tobytes() for variable in variables)


def _crc_of(parts: Iterable[bytes]) -> int:
    return functools.reduce(extend_crc32c, parts, 0)
