"""Training on several devices, in processes of their own, held against one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.process.several_devices import mirrored_run
from tests.training.runs import small_options, write_drawings
from tfrtool.cli import main

pytestmark = [pytest.mark.tf, pytest.mark.slow]

OPTIONS: dict[str, Any] = {"model": "cnn", "image_size": 32, "epochs": 2, "batch_size": 16}
# With some seeds rounding decides what a pooling takes of flat drawings: weights are then
# 1e-3 apart on two devices, and as far on one whose weights begin 1e-7 apart.
OPTIONS |= {"optimizer": "sgd", "learning_rate": 0.05, "seed": 1}


@pytest.fixture(scope="module")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the drawings as a dataset of 155 images to train on and 44 to validate on."""
    return write_drawings(tmp_path_factory.mktemp("d"))


def _arguments(drawings: Path, out: Path, **more: Any) -> list[str]:
    words = {**OPTIONS, "out": out, **more}
    return [
        str(drawings),
        *(f"--{name.replace('_', '-')}={value}" for name, value in words.items()),
    ]


@pytest.mark.several
def test_two_devices_train_as_one(drawings: Path, tmp_path: Path) -> None:
    """They see the same images in the same steps."""
    out = tmp_path / "two"
    mirrored = mirrored_run(_arguments(drawings, out))
    whole = tfrtool.train(drawings, **OPTIONS)
    printed, error = mirrored.communicate(timeout=300)
    assert mirrored.returncode == 0, error
    assert "devices  2, mirrored" in printed
    epochs = json.loads((out / "history.json").read_text())["epochs"]
    losses = [epoch.val_loss for epoch in whole.epochs]
    assert [epoch["val_loss"] for epoch in epochs] == pytest.approx(losses, rel=1e-4)


@pytest.mark.parametrize(
    ("config", "strategy", "facts"),
    [
        (None, "multi-worker", ["one machine", "how-to/several-machines.md"]),
        ('{"cluster": {"worker": ["a:1", "b:1"]}}', "auto", ["2 workers", "--strategy one"]),
        ('{"cluster": 1}', "auto", ["TF_CONFIG is invalid"]),
    ],
)
def test_several_machines_are_refused(
    drawings: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    config: str | None,
    strategy: str,
    facts: list[str],
) -> None:
    """The error names what to do; no worker of TF_CONFIG trains a model of its own in silence."""
    if config is not None:
        monkeypatch.setenv("TF_CONFIG", config)
    assert main(["train", str(drawings), "--model", "cnn", "--strategy", strategy]) == 2
    error = capfd.readouterr().err
    assert all(fact in error for fact in facts)
    assert error.count("\n") == 1


def test_one_device_in_spite_of_workers(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --strategy one, a worker of TF_CONFIG trains alone."""
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}}')
    report = tfrtool.train(**small_options(few, epochs=1), strategy="one")
    assert (report.plan.strategy, report.plan.replicas) == ("one", 1)
