"""Training runs that are killed or interrupted."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.datasets import write_pets
from tests.process.forking import Forking
from tests.training.runs import small_options
from tfrtool.training.checkpoint import CHECKPOINT, read_state

pytestmark = [pytest.mark.tf, pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")]

EPOCHS = 10_000


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of two classes and two splits."""
    return write_pets(tmp_path_factory.mktemp("pets"))


def _words(pets: Path, out: Path, epochs: int) -> list[str]:
    options = ["--model", "cnn", "--image-size", "32", "--batch-size", "16"]
    return ["train", str(pets), *options, "--out", str(out), "--epochs", str(epochs), "--json"]


def _end_by(forking: Forking, number: signal.Signals, pets: Path, out: Path) -> tuple[int, str]:
    """Run in a process, and send it a signal as soon as it has a checkpoint."""
    errors = out.with_suffix(".errors")
    process = forking.start(_words(pets, out, EPOCHS), Path(os.devnull), errors)
    deadline = time.monotonic() + 300
    while not (out / CHECKPOINT).exists():
        os.kill(process, 0)  # fails if the run ended before it could be interrupted
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(process, number)
    return forking.wait(), errors.read_text()


@pytest.mark.several
def test_a_killed_run_goes_on(forking: Forking, pets: Path, tmp_path: Path) -> None:
    """After SIGKILL at any moment the checkpoint is whole, and the run ends as if nothing was."""
    from tfrtool.cli import main

    out = tmp_path / "killed"
    code, _ = _end_by(forking, signal.SIGKILL, pets, out)
    assert code == -signal.SIGKILL
    checkpoint = read_state(out)
    assert checkpoint is not None
    done = len(checkpoint.epochs)
    assert 1 <= done < EPOCHS
    assert main([*_words(pets, out, done + 1), "--resume"]) == 0
    history = json.loads((out / "history.json").read_text())
    from tfrtool import train

    whole = train(**small_options(pets, trainable="all", epochs=done + 1))
    losses = [epoch["loss"] for epoch in history["epochs"]]
    assert losses == pytest.approx([epoch.loss for epoch in whole.epochs], rel=1e-3)
    assert not list(out.glob(".tfrtool-*"))


def test_ctrl_c_leaves_a_checkpoint(forking: Forking, pets: Path, tmp_path: Path) -> None:
    """Interrupted, a run ends with 130, one line, and its last checkpoint whole."""
    out = tmp_path / "interrupted"
    code, errors = _end_by(forking, signal.SIGINT, pets, out)
    assert code == 130
    assert errors.split("\n")[-2:] == ["tfrtool: interrupted; continue with --resume", ""]
    assert "Traceback" not in errors
    assert {path.name for path in out.iterdir()} == {CHECKPOINT, "run.json"}
    checkpoint = read_state(out)
    assert checkpoint is not None
    assert checkpoint.epochs
