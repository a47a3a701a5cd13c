"""Training on several devices, in processes of their own, held against one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.process.several_devices import difference, free_ports, mirrored_run, worker
from tests.training.runs import write_drawings

pytestmark = [pytest.mark.tf, pytest.mark.slow]

OPTIONS: dict[str, Any] = {"model": "cnn", "image_size": 32, "epochs": 2, "batch_size": 16}
OPTIONS |= {"optimizer": "sgd", "learning_rate": 0.05}


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
def test_two_workers_end_with_the_weights_of_one_process(drawings: Path, tmp_path: Path) -> None:
    """Only the chief prints and writes."""
    ports, out = free_ports(2), tmp_path / "two"
    workers = [worker(index, ports, _arguments(drawings, out)) for index in range(2)]
    tfrtool.train(drawings, **OPTIONS, shares=2, out=tmp_path / "one")
    printed = [one.communicate(timeout=100) for one in workers]
    assert [one.returncode for one in workers] == [0, 0]
    assert "devices  2, multi-worker, 2 workers" in printed[0][0]
    assert printed[1] == ("", "")
    assert difference(out, tmp_path / "one")[2] < 1e-5
    # The weights of one process that shuffles all images together are others.
    tfrtool.train(drawings, **OPTIONS, out=tmp_path / "other")
    assert difference(tmp_path / "other", tmp_path / "one")[2] > 1e-3


@pytest.mark.several
def test_two_devices_end_with_the_weights_of_one(drawings: Path, tmp_path: Path) -> None:
    """They see the same images in the same steps."""
    mirrored = mirrored_run(_arguments(drawings, tmp_path / "two"))
    tfrtool.train(drawings, **OPTIONS, out=tmp_path / "one")
    assert "devices  2, mirrored" in mirrored.communicate(timeout=100)[0]
    assert mirrored.returncode == 0
    assert difference(tmp_path / "two", tmp_path / "one")[2] < 1e-5
