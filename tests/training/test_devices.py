"""Training on several devices, in processes of their own, held against one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.process.several_devices import free_ports, mirrored_run, worker
from tests.training.runs import write_drawings

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
def test_two_workers_train_one_model(drawings: Path, tmp_path: Path) -> None:
    """Only the chief prints and writes; the losses are near those of one process."""
    ports, out = free_ports(2), tmp_path / "two"
    workers = [worker(index, ports, _arguments(drawings, out)) for index in range(2)]
    printed = [one.communicate(timeout=300) for one in workers]
    assert [one.returncode for one in workers] == [0, 0], printed
    assert "devices  2, multi-worker, 2 workers" in printed[0][0]
    assert printed[1] == ("", "")
    epochs = json.loads((out / "history.json").read_text())["epochs"]
    whole = tfrtool.train(drawings, **OPTIONS, out=tmp_path / "one")
    for epoch, other in zip(epochs, whole.epochs, strict=True):
        assert epoch["val_loss"] == pytest.approx(other.val_loss, rel=0.1)
    assert {path.name for path in out.iterdir()} == {
        path.name for path in (tmp_path / "one").iterdir()
    }


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
