"""Checkpoints on disk."""

from __future__ import annotations

import io
import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.runs import epoch_report
from tfrtool.errors import DatasetError, UsageError, WeightsError, WriteError
from tfrtool.loading.pipeline.load_options import Rescale
from tfrtool.training.models.trainable import Learner
from tfrtool.training.run.checkpoint import (
    CHECKPOINT,
    Checkpoint,
    check_same,
    read_checkpoint,
    write_checkpoint,
)
from tfrtool.training.run.snapshots import Snapshot, Snapshots

pytestmark = pytest.mark.tf


def _checkpoint(**changes: Any) -> Checkpoint:
    whole = Checkpoint(
        request={"epochs": 3, "seed": 0, "augment": None},
        cache="memory",
        rescale=Rescale(scale=(0.1, 0.2, 0.3), offset=-1.0, bgr=True),
        epochs=(epoch_report(1, val_loss=0.25), epoch_report(2, loss=float("inf"))),
        seconds=2.5,
        snapshot=Snapshot(
            weights=(np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2], np.uint32)),
            optimizer=tuple(np.float32(number) for number in range(12)),
            frozen=7,
        ),
        best=(np.ones((2, 3), np.float32), np.array([3, 4], np.uint32)),
    )
    return replace(whole, **changes)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Numbers keep their bits, dtypes and order; there is one file, and nothing beside it."""
    written = _checkpoint()
    write_checkpoint(tmp_path, _checkpoint(seconds=1.0, best=()))
    write_checkpoint(tmp_path, written)
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT]
    read = read_checkpoint(tmp_path)
    assert read is not None
    for name in ("request", "cache", "rescale", "epochs", "seconds"):
        assert getattr(read, name) == getattr(written, name)
    assert read.snapshot.frozen == 7
    pairs = [
        (read.snapshot.weights, written.snapshot.weights),
        (read.snapshot.optimizer, written.snapshot.optimizer),
        (read.best, written.best),
    ]
    for found, expected in pairs:
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_there_may_be_none(tmp_path: Path) -> None:
    """A directory without one has none, which is no error."""
    assert read_checkpoint(tmp_path) is None


def test_failing_to_write_keeps_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the disk is full, what was there is still whole, and nothing half-written is left."""
    write_checkpoint(tmp_path, _checkpoint())

    def full(file: Any, **_arrays: Any) -> None:
        file.write(b"half of")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numpy.savez", full)
    with pytest.raises(WriteError, match="no space left"):
        write_checkpoint(tmp_path, _checkpoint(seconds=9.0))
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT]
    read = read_checkpoint(tmp_path)
    assert read is not None
    assert read.seconds == 2.5


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_a_part_of_one_is_no_checkpoint(tmp_path: Path, keep: float) -> None:
    """A file that was cut is an error that names it."""
    write_checkpoint(tmp_path, _checkpoint())
    path = tmp_path / CHECKPOINT
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(DatasetError) as caught:
        read_checkpoint(tmp_path)
    assert caught.value.path == str(path)


def test_a_changed_bit_is_seen(tmp_path: Path) -> None:
    """A weight that is not what was written is never trained on."""
    write_checkpoint(tmp_path, _checkpoint())
    path = tmp_path / CHECKPOINT
    data = bytearray(path.read_bytes())
    data[data.index(np.array([5], np.float32).tobytes())] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(DatasetError):
        read_checkpoint(tmp_path)


def test_nothing_is_run_that_is_in_one(tmp_path: Path) -> None:
    """An archive with pickled objects is refused."""
    np.savez(tmp_path / CHECKPOINT, facts=np.array([{"format": 1}], dtype=object))
    with pytest.raises(DatasetError):
        read_checkpoint(tmp_path)


def test_other_requests_are_told_apart(tmp_path: Path) -> None:
    """What differs is named, with both values; more epochs are the same request."""
    checkpoint = _checkpoint()
    check_same(tmp_path, checkpoint, {**checkpoint.request, "epochs": 9})
    with pytest.raises(UsageError) as caught:
        check_same(tmp_path, checkpoint, {"epochs": 3, "seed": 1, "augment": "flip"})
    error = caught.value
    assert (error.expected, error.found) == ("augment null, seed 0", 'augment "flip", seed 1')
    with pytest.raises(UsageError, match="longer"):
        check_same(tmp_path, checkpoint, {**checkpoint.request, "epochs": 1})


def _learner(units: int = 2) -> Learner:
    import keras

    keras.utils.set_random_seed(units)
    layers = [
        keras.Input((3,)),
        keras.layers.Dense(4),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(units, "softmax"),
    ]
    return Learner(keras.Sequential(layers), 0.1, (3,))


def test_snapshots_bring_back_all_that_a_step_depends_on() -> None:
    """After a way back, the same step leads to the same weights: moments and dropout are back."""
    learner = _learner()
    snapshots = Snapshots(learner, [])
    batch = np.ones((5, 3), np.float32), np.array([0, 1, 0, 1, 1])
    learner.train(*batch)
    kept = snapshots.take()
    learner.train(*batch)
    first = learner.model.get_weights()
    learner.train(*batch)
    snapshots.restore(kept)
    learner.train(*batch)
    for one, other in zip(first, learner.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_snapshots_of_other_models_are_refused() -> None:
    """Neither other shapes nor other frozen weights are taken."""
    learner = _learner()
    frozen = learner.model.layers[0].variables
    snapshots = Snapshots(learner, frozen)
    kept = snapshots.take()
    assert [value.shape for value in kept.weights] == [(2,), (4, 2), (2,)]
    with pytest.raises(WeightsError):
        Snapshots(_learner(3), []).restore(replace(kept, frozen=0))
    frozen[0].assign(frozen[0] + 1)
    with pytest.raises(WeightsError, match="frozen"):
        Snapshots(learner, frozen).restore(kept)


def _members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _forge(path: Path, kind: str) -> None:
    """Change a whole checkpoint into one that no run has left."""
    members = _members(path)
    facts = json.loads(np.load(io.BytesIO(members["facts.npy"])).tobytes())
    weights: Any = np.arange(6, dtype=np.float32).reshape(2, 3)
    method = zipfile.ZIP_STORED
    if kind == "nan":
        weights[0, 0] = np.nan
    elif kind == "complex":
        weights = weights.astype(np.complex64)
    elif kind == "text":
        weights = weights.astype("U8")
    elif kind == "no epochs":
        facts["epochs"] = []
    elif kind == "epochs out of order":
        facts["epochs"].reverse()
    elif kind == "an epoch of words":
        facts["epochs"][0]["loss"] = "low"
    elif kind == "unknown cache":
        facts["cache"] = "attic"
    elif kind == "seconds":
        facts["seconds"] = -1
    elif kind == "negative steps":
        members["optimizer.0.npy"] = _npy(np.int64(-5))
    elif kind == "best of another":
        members["best.0.npy"] = _npy(np.zeros(5, np.float32))
    elif kind in ("lzma", "bzip2", "deflate"):
        method = {
            "lzma": zipfile.ZIP_LZMA,
            "bzip2": zipfile.ZIP_BZIP2,
            "deflate": zipfile.ZIP_DEFLATED,
        }[kind]
    members["weights.0.npy"] = _npy(weights)
    members["facts.npy"] = _npy(np.frombuffer(json.dumps(facts).encode(), np.uint8))
    if kind == "deep":
        members["facts.npy"] = _npy(np.frombuffer(b"[" * 100_000, np.uint8))
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def _npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "kind",
    [
        "nan",
        "complex",
        "text",
        "no epochs",
        "epochs out of order",
        "an epoch of words",
        "unknown cache",
        "seconds",
        "negative steps",
        "best of another",
        "lzma",
        "bzip2",
        "deflate",
        "deep",
    ],
)
def test_what_no_run_has_left_is_one_error(tmp_path: Path, kind: str) -> None:
    """Whatever is wrong with a checkpoint, the error says that it can't be used, and why."""
    write_checkpoint(tmp_path, _checkpoint())
    _forge(tmp_path / CHECKPOINT, kind)
    with pytest.raises(DatasetError, match=r"no checkpoint that can be used: .+") as caught:
        read_checkpoint(tmp_path)
    assert caught.value.path == str(tmp_path / CHECKPOINT)


def test_a_shape_of_petabytes_takes_no_memory(tmp_path: Path) -> None:
    """A header is held against the bytes that follow before an array is made for it."""
    write_checkpoint(tmp_path, _checkpoint())
    path = tmp_path / CHECKPOINT
    members = _members(path)
    data = members["weights.0.npy"]
    assert b"(2, 3), }" in data
    members["weights.0.npy"] = data.replace(b"(2, 3), }" + b" " * 12, b"(2000000000, 300000),}")
    with zipfile.ZipFile(path, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    with pytest.raises(DatasetError, match="larger than its bytes"):
        read_checkpoint(tmp_path)


def test_a_pipe_is_no_checkpoint(tmp_path: Path) -> None:
    """What is no regular file is refused, and not waited for."""
    os.mkfifo(tmp_path / CHECKPOINT)
    with pytest.raises(DatasetError, match="is a pipe"):
        read_checkpoint(tmp_path)


def test_weights_of_another_dtype_are_another_models() -> None:
    """A shape alone does not make weights fit."""
    learner = _learner()
    snapshots = Snapshots(learner, [])
    kept = snapshots.take()
    wide = tuple(value.astype(np.float64) for value in kept.weights)
    with pytest.raises(WeightsError, match="another model"):
        snapshots.restore(replace(kept, weights=wide))
