"""Checkpoints on disk, and what is refused for one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.conftest import Told
from tests.training.runs import epoch_report, saved_variables, small_options
from tfrtool import DatasetError, UsageError, WriteError, train
from tfrtool.loading.options import Cache, Rescale
from tfrtool.training.run.checkpoints import (
    CHECKPOINTS,
    Checkpoints,
    RunState,
    read_run,
)
from tfrtool.training.run.train_options import check_same

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]

DATA = "ckpt-2.data-00000-of-00001"


def _state(epochs: int = 2) -> RunState:
    return RunState(
        request={"epochs": 3, "seed": 0, "augment": None},
        cache=Cache.MEMORY,
        rescale=Rescale(scale=(0.1, 0.2, 0.3), offset=-1.0, bgr=True),
        frozen=7,
        epochs=[
            epoch_report(1, val_loss=0.25),
            epoch_report(2, loss=float("inf")),
            epoch_report(3),
        ][:epochs],
    )


def _variables(tf: Any) -> tuple[list[Any], list[Any]]:
    state = [
        tf.Variable(np.arange(6, dtype=np.float32).reshape(2, 3)),
        tf.Variable(np.array([1, 2], np.int64)),
        tf.Variable(np.float32(4.0)),
    ]
    return state, [tf.Variable(np.ones((2, 3), np.float32))]


@pytest.fixture
def out(tf: Any, tmp_path: Path) -> Path:
    """Return the directory of a run with the checkpoint of its second epoch."""
    checkpoints = Checkpoints(tmp_path, *_variables(tf))
    checkpoints.save(_state(1))
    checkpoints.save(_state())
    return tmp_path


def _restore(tf: Any, out: Path) -> tuple[list[Any], list[Any]]:
    """Read a run's state, and its variables into others of the same kind."""
    run = read_run(out)
    assert run is not None
    variables = _variables(tf)
    for variable in (*variables[0], *variables[1]):
        variable.assign(variable * 0)
    Checkpoints(out, *variables).restore(len(run.epochs))
    return variables


def test_what_is_written_is_read(tf: Any, out: Path) -> None:
    """Numbers keep their bits and order; only the last checkpoint is kept, in one folder."""
    assert [path.name for path in out.iterdir()] == [CHECKPOINTS]
    assert {path.name for path in (out / CHECKPOINTS).iterdir()} == {
        "checkpoint",
        "ckpt-2.index",
        DATA,
    }
    assert read_run(out) == _state()
    pairs = zip(_restore(tf, out), _variables(tf), strict=True)
    for found, expected in pairs:
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_there_may_be_none(tf: Any, tmp_path: Path) -> None:
    """A directory without one has none, which is no error; nor is a run that was killed early."""
    assert read_run(tmp_path) is None
    checkpoints = Checkpoints(tmp_path, *_variables(tf))
    assert read_run(tmp_path) is None
    checkpoints.save(_state(1))
    (tmp_path / CHECKPOINTS / "checkpoint").unlink()  # killed before the list was written
    assert read_run(tmp_path) is None


def test_a_run_killed_while_it_saves_has_the_one_before(
    tf: Any, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the list of checkpoints changes, the older checkpoint counts, and it is whole."""
    state, best = _variables(tf)
    checkpoints = Checkpoints(out, state, best)
    monkeypatch.setattr(
        checkpoints._manager, "save", lambda **_: (out / CHECKPOINTS / "ckpt-3_temp").mkdir()
    )
    checkpoints.save(_state(3))
    assert read_run(out) == _state()
    assert not (out / CHECKPOINTS / "ckpt-3_temp").exists()
    _restore(tf, out)


def test_failing_to_write_keeps_the_one_before(
    tf: Any, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the disk is full, what was there is still whole."""
    checkpoints = Checkpoints(out, *_variables(tf))

    def full(*_: Any, **__: Any) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(checkpoints._manager, "save", full)
    with pytest.raises(WriteError, match="no space left"):
        checkpoints.save(_state())
    _restore(tf, out)


def test_other_requests_are_told_apart(tmp_path: Path) -> None:
    """What differs is named, with both values; more epochs are the same request."""
    before = _state()
    check_same(tmp_path, before.request, {**before.request, "epochs": 9})
    with pytest.raises(UsageError) as caught:
        check_same(tmp_path, before.request, {"epochs": 3, "seed": 1, "augment": "flip"})
    error = caught.value
    assert (error.expected, error.found) == (
        "--augment null, --seed 0",
        '--augment "flip", --seed 1',
    )
    with pytest.raises(UsageError, match="expected --epochs 2, found --epochs 1"):
        check_same(tmp_path, before.request, {**before.request, "epochs": 1}, len(before.epochs))


def _written(
    tf: Any, folder: Path, state: Any = None, best: Any = None, run: Any = None, **more: Any
) -> None:
    """Write the checkpoint with other numbers; of the state, those of its first."""
    given, given_best = _variables(tf)
    if state is not None:
        given[0] = tf.Variable(state)
    if best is not None:
        given_best = [tf.Variable(best)]
    given += [tf.Variable(value) for value in more.values()]
    kept = tf.Variable(np.frombuffer(_state().to_bytes(), np.uint8) if run is None else run)
    checkpoint = tf.train.Checkpoint(state=given, best=given_best, run=[kept])
    checkpoint.write(str(folder / "ckpt-2"))


def _text(data: bytes) -> Callable[[Any, Path], None]:
    """Return what puts other text into a checkpoint in the place of its JSON."""
    return lambda tf, folder: _written(tf, folder, run=np.frombuffer(data, np.uint8))


def _facts(change: Callable[[dict[str, Any]], Any]) -> Callable[[Any, Path], None]:
    """Return what changes the JSON of a checkpoint."""
    facts = json.loads(_state().to_bytes())
    change(facts)
    return _text(json.dumps(facts).encode())


def _numbers(state: Any = None, best: Any = None, **more: Any) -> Callable[[Any, Path], None]:
    """Return what puts other numbers into a checkpoint."""
    return lambda tf, folder: _written(tf, folder, state, best, **more)


def _cut(name: str, keep: float) -> Callable[[Any, Path], None]:
    def forge(_tf: Any, folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * keep)])

    return forge


def _changed_bit(_tf: Any, folder: Path) -> None:
    data = bytearray((folder / DATA).read_bytes())
    data[data.index(np.array([5], np.float32).tobytes())] ^= 1
    (folder / DATA).write_bytes(bytes(data))


def _huge_index(_tf: Any, folder: Path) -> None:
    """Have the footer of the index claim a block of 64 TiB."""
    data = (folder / "ckpt-2.index").read_bytes()
    huge = b"\0\5\x64" + b"\x80" * 6 + b"\x10"
    (folder / "ckpt-2.index").write_bytes(data[:-48] + huge.ljust(40, b"\0") + data[-8:])


def _listed(text: str) -> Callable[[Any, Path], None]:
    def forge(_tf: Any, folder: Path) -> None:
        (folder / "checkpoint").write_text(text)

    return forge


def _replaced(name: str, make: Callable[[Path], Any]) -> Callable[[Any, Path], None]:
    def forge(_tf: Any, folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return forge


def _instead(make: Callable[[Path], Any]) -> Callable[[Any, Path], None]:
    def forge(_tf: Any, folder: Path) -> None:
        shutil.rmtree(folder)
        make(folder)

    return forge


def _linked(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _elsewhere(_tf: Any, folder: Path) -> None:
    moved = folder.rename(folder.parent / "elsewhere")
    folder.symlink_to(moved)


NAN = np.full((2, 3), np.nan, np.float32)
BAD: dict[str, Callable[[Any, Path], None]] = {
    "NaN": _numbers(NAN),
    "NaN in the best": _numbers(best=NAN),
    "another shape": _numbers(np.zeros((3, 2), np.float32)),
    "petabytes of another shape": _numbers(np.zeros((1, 4000), np.float32)),
    "another dtype": _numbers(np.zeros((2, 3), np.float64)),
    "complex": _numbers(np.zeros((2, 3), np.complex64)),
    "text": _numbers(np.full((2, 3), b"text")),
    "best of another": _numbers(best=np.zeros(5, np.float32)),
    "more variables": _numbers(more=np.zeros(5, np.float32)),
    "negative numbers": _numbers(np.full((2, 3), -1, np.int64)),
    "no epochs": _facts(lambda facts: facts.update(epochs=[])),
    "fewer epochs": _facts(lambda facts: facts["epochs"].pop()),
    "epochs out of order": _facts(lambda facts: facts["epochs"].reverse()),
    "an epoch of words": _facts(lambda facts: facts["epochs"][0].update(loss="low")),
    "an epoch of more": _facts(lambda facts: facts["epochs"][0].update(more=1)),
    "unknown cache": _facts(lambda facts: facts.update(cache="attic")),
    "another version": _facts(lambda facts: facts.update(format=2)),
    "another rescaling": _facts(lambda facts: facts.update(rescale={"scale": "x"})),
    "rescaling by words": _facts(lambda facts: facts["rescale"].update(offset="x")),
    "nothing": _facts(lambda facts: facts.clear()),
    "no JSON": _text(b"{"),
    "deep": _text(b"[" * 100_000),
    "no text": _text(b"\xff\x00"),
    "no facts": lambda tf, folder: tf.train.Checkpoint().write(str(folder / "ckpt-2")),
    "facts of another kind": _numbers(run=np.zeros(5, np.float32)),
    "facts without end": _numbers(run=np.zeros(2**26 + 1, np.uint8)),
    "no data": lambda _, folder: (folder / DATA).unlink(),
    "no index": lambda _, folder: (folder / "ckpt-2.index").unlink(),
    "another list": _listed("no list"),
    "an empty list": _listed(""),
    "a list of another folder": _listed('model_checkpoint_path: "/tmp/ckpt-2"'),
    "a list of what is above": _listed('model_checkpoint_path: "../ckpt-2"'),
    "a list to delete elsewhere": _listed(
        'model_checkpoint_path: "ckpt-2"\nall_model_checkpoint_paths: "/tmp/precious/ckpt-1"'
    ),
    "a list of another epoch": _listed('model_checkpoint_path: "ckpt-9"'),
    "a changed bit": _changed_bit,
    "a huge block": _huge_index,
    "empty data": _cut(DATA, 0.0),
    "half of the data": _cut(DATA, 0.5),
    "an empty index": _cut("ckpt-2.index", 0.0),
    "half of the index": _cut("ckpt-2.index", 0.5),
    "nearly all of the index": _cut("ckpt-2.index", 0.99),
    "half of the facts": _text(_state().to_bytes()[:-50]),
    "half of the list": _cut("checkpoint", 0.1),
    "a pipe for data": _replaced(DATA, os.mkfifo),
    "a pipe for an index": _replaced("ckpt-2.index", os.mkfifo),
    "a pipe for a list": _replaced("checkpoint", os.mkfifo),
    "a folder for data": _replaced(DATA, Path.mkdir),
    "a link for data": _replaced(DATA, _linked),
    "a link for a list": _replaced("checkpoint", _linked),
    "a link for what comes next": _replaced("ckpt-3_temp", _linked),
    "a link": _elsewhere,
    "a file": _instead(Path.touch),
    "a pipe": _instead(os.mkfifo),
    "a folder of all": lambda _, folder: folder.chmod(0o777),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_no_run_has_left_is_one_error(tf: Any, out: Path, kind: str) -> None:
    """Whatever is wrong with a checkpoint, one error names it and says why; nothing is changed."""
    folder = out / CHECKPOINTS
    BAD[kind](tf, folder)
    before = sorted(path.lstat().st_mtime_ns for path in out.rglob("*") if path.is_file())
    with pytest.raises(DatasetError, match=r"unusable checkpoint: .+") as caught:
        _restore(tf, out)
    assert caught.value.path == str(folder)
    assert "\n" not in str(caught.value)
    after = sorted(path.lstat().st_mtime_ns for path in out.rglob("*") if path.is_file())
    if "folder for" not in kind:  # what looks like the rest of a save that was killed is deleted
        assert after == before


def test_a_checkpoint_of_another_model_is_refused(finished: Told, tmp_path: Path) -> None:
    """A run whose files were changed for those of another is not resumed, nor written to."""
    run = read_run(finished.out)
    assert run is not None
    larger = saved_variables(finished.out)
    hidden = next(name for name, value in larger.items() if value.shape[-1:] == (32,))
    larger[hidden] = np.repeat(larger[hidden], 4, axis=0)
    _forge(tmp_path / "swapped", run, larger)
    before = saved_variables(tmp_path / "swapped").keys()
    changes = {"out": tmp_path / "swapped", "epochs": 3, "resume": True}
    with pytest.raises(DatasetError, match="another model"):
        train(**dict(finished.options, tensorboard=None, profile=False, **changes))
    assert saved_variables(tmp_path / "swapped").keys() == before


def test_other_frozen_weights_are_refused(few: Path, tmp_path: Path) -> None:
    """Weights that never change are in no checkpoint, and must be those that the run began with."""
    head = small_options(few, model="mobilenet", weights="none", epochs=1, out=tmp_path / "head")
    train(**head)
    state = saved_variables(tmp_path / "head")
    assert sum(value.size for name, value in state.items() if name.startswith("state/")) < 10_000
    run = read_run(tmp_path / "head")
    assert run is not None
    run.frozen ^= 1
    _forge(tmp_path / "head", run, state)
    with pytest.raises(DatasetError, match="frozen weights"):
        train(**dict(head, epochs=2, resume=True))


def _forge(out: Path, run: RunState, values: dict[str, Any]) -> None:
    """Write a checkpoint of a run with such variables."""
    import tensorflow as tf

    out.mkdir(exist_ok=True)
    numbered = sorted(values.items(), key=lambda item: int(item[0].split("/")[1]))
    Checkpoints(out, [tf.Variable(value) for _, value in numbered], []).save(run)
