"""A run after its last epoch, in one file: ``checkpoint`` in ``--out``.

The length of a header, the header in msgpack, and the bytes of all variables that change: weights,
optimizer state, random generators, and the weights of the best epoch. It is replaced atomically
after each epoch, and is read as untrusted input.
"""

import functools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from tfrtool.errors import DatasetError, WriteError, os_errors_as, os_reason, reason_of
from tfrtool.loading.options import Cache, Rescale
from tfrtool.records.framing import crc32c, extend_crc32c
from tfrtool.storage.atomic_files import new_file
from tfrtool.storage.limits import MAX_METADATA_BYTES
from tfrtool.storage.opening import open_regular
from tfrtool.training.train_report import EpochReport

CHECKPOINT = "checkpoint"
_MAGIC = b"tfrtool checkpoint 1\n"


@dataclass(frozen=True, slots=True, kw_only=True)
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


def values_of(variables: Iterable[Any]) -> list[Any]:
    """Return copies of the values of variables."""
    return [variable.numpy() for variable in variables]


def assign_values(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Give variables these values."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def save_checkpoint(out: Path, run: RunState, state: Sequence[Any], best: Sequence[Any]) -> None:
    """Replace the checkpoint of a run; ``best`` is empty if the last epoch is the best."""
    arrays, path = [*state, *best], out / CHECKPOINT
    header = msgspec.msgpack.encode(_Header(run, _kinds(arrays), crc_of(arrays)))
    with os_errors_as(WriteError, path, "can't be written"), new_file(path) as file:
        file.writelines([_MAGIC, len(header).to_bytes(8, "little"), header])
        file.writelines(array.tobytes() for array in arrays)


def read_state(out: Path) -> RunState | None:
    """Read a checkpoint without its values; None if there is none yet."""
    if not os.path.lexists(out / CHECKPOINT):
        return None
    with _opened(out) as (header, _):
        numbers = [epoch.epoch for epoch in header.run.epochs]
        if not numbers or numbers != [*range(1, len(numbers) + 1)]:
            raise ValueError("its epochs are out of order")
        return header.run


def restore(out: Path, frozen: int, variables: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
    """Give variables their values of a checkpoint, and return the weights of the best epoch.

    ``frozen`` is the CRC-32C of the frozen weights, which must be those of the checkpoint.
    """
    with _opened(out) as (header, file):
        if header.run.frozen != frozen:
            raise ValueError("its frozen weights differ from the run's weights")
        if header.arrays not in (_kinds(variables), _kinds((*variables, *weights))):
            raise ValueError("the file belongs to another model")
        size = sum(np.dtype(name).itemsize * math.prod(shape) for name, shape in header.arrays)
        data = file.read(size + 1)
        if len(data) != size or crc32c(data) != header.crc32c:
            raise ValueError("its weights are damaged")
    arrays, start = [], 0
    for name, shape in header.arrays:
        arrays.append(np.frombuffer(data, name, math.prod(shape), start).reshape(shape))
        start += arrays[-1].nbytes
    assign_values(variables, arrays[: len(variables)])
    return arrays[len(variables) :] or values_of(weights)


@contextmanager
def _opened(out: Path) -> Iterator[tuple[_Header, IO[bytes]]]:
    """Read the header of a checkpoint; what is wrong with it, here or later, is one error."""
    path = out / CHECKPOINT
    try:
        with open_regular(path, follow=False) as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ValueError("another version of tfrtool wrote it")
            length = int.from_bytes(file.read(8), "little")
            if length > MAX_METADATA_BYTES:
                raise ValueError("its header is too long")
            yield msgspec.msgpack.decode(file.read(length), type=_Header), file
    except (OSError, ValueError) as error:
        reason = os_reason(error) if isinstance(error, OSError) else reason_of(error)
        if isinstance(error, msgspec.MsgspecError):
            reason = f"it is damaged: {error}"
        what, hint = f"unusable checkpoint: {reason}", "delete it to start over"
        raise DatasetError(what, path=path, hint=hint) from error


def _kinds(arrays: Iterable[Any]) -> list[tuple[str, list[int]]]:
    return [(array.dtype.name, list(array.shape)) for array in arrays]


def crc_of(values: Iterable[Any]) -> int:
    """Return the CRC-32C of arrays, one after the other."""
    return functools.reduce(extend_crc32c, (value.tobytes() for value in values), 0)
