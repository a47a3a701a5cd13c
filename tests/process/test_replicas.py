"""Training on two devices of one process gives what training on one gives."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.datasets import write_foreign
from tests.more import more
from tests.process import replica_runs
from tests.process.forking import Forking
from tfrtool.examples.example import encode_example

pytestmark = [pytest.mark.tf, pytest.mark.skipif(os.name != "posix", reason="needs forks")]

SIDE, COUNT = 8, 21
"""One device has no image of the last batch of 5."""

OPTIONS: dict[str, Any] = {"image_size": SIDE, "batch_size": 5, "epochs": 2}
# Adam would hide a loss that is a multiple of the right one.
OPTIONS |= {"optimizer": "sgd", "learning_rate": 0.002, "seed": 1, "cache": "none"}

SOURCE = replica_runs.__file__

RUNS: dict[str, dict[str, Any]] = {
    "class numbers": {
        "model": f"{SOURCE}:small_model",
        "decode_function": f"{SOURCE}:decode",
        "augment": "flip,brightness=0.3",
        "balance_classes": True,
        "validation": 0.24,
    },
    "class vectors": {
        "model": f"{SOURCE}:small_model",
        "augment": "mixup=0.4",
        "balance_classes": True,
        "label_smoothing": 0.2,
    },
    "several classes": {
        "model": f"{SOURCE}:multi_label_model",
        "label_smoothing": 0.2,
        "learning_rate": 0.1,
    },
    "numbers": {
        "model": f"{SOURCE}:linear_model",
        "label_feature": "label",
        "task": "regression",
        "validation": 0.24,
    },
    # With this seed, a step overflows on the second device alone.
    "float16": {
        "model": f"{SOURCE}:steep_model",
        "precision": "mixed_float16",
        "learning_rate": 1e-6,
        "seed": 4,
    },
}


def write_noise(directory: Path, *, multi: bool) -> Path:
    """Write images of noise with one of four classes, or with any of them."""
    draw, payloads = np.random.default_rng(0), []
    for _ in range(COUNT):
        pixels = draw.integers(0, 256, (SIDE, SIDE, 3), np.uint8)
        label: Any = int(draw.choice([0, 0, 0, 1, 2, 3]))
        if multi:
            label = [int(draw.random() < 0.5) for _ in range(4)]
        sides = {"height": SIDE, "width": SIDE, "depth": 3}
        payloads.append(encode_example({"image": pixels.tobytes(), "label": label, **sides}))
    return write_foreign(directory, [payloads[:9], payloads[9:]])


@pytest.fixture(scope="module")
def epochs(
    request: pytest.FixtureRequest, forking: Forking, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Any]:
    """Return the epochs of each run that is tested: on one device, and on two."""
    tested = {item.name for item in request.session.items if item.path == request.path}
    folder = tmp_path_factory.mktemp("replicas")
    datasets = [write_noise(folder / name, multi=name == "multi") for name in ("single", "multi")]
    runs = {
        name: {**OPTIONS, **options, "dataset": str(datasets[name == "several classes"])}
        for name, options in RUNS.items()
        if f"{test_two_devices_train_as_one.__name__}[{name}]" in tested
    }
    (folder / "runs.json").write_text(json.dumps(runs))
    program = f"from tests.process.replica_runs import compare_devices as run; run({str(folder)!r})"
    forking.start(["--version"], folder / "out", folder / "errors", first=program)
    assert forking.wait() == 0, (folder / "errors").read_text()
    found: Mapping[str, Any] = json.loads((folder / "epochs.json").read_text())
    return found


@pytest.mark.parametrize(
    "name", [more(name) if name in ("class vectors", "numbers") else name for name in RUNS]
)
def test_two_devices_train_as_one(epochs: Mapping[str, Any], name: str) -> None:
    """Losses and scores of training and validation are the same with these options."""
    single, mirrored = epochs[name]
    assert len(single) == len(mirrored) == OPTIONS["epochs"]
    for expected, found in zip(single, mirrored, strict=True):
        assert expected["loss"] > 0
        assert found == pytest.approx(expected, rel=1e-2 if name == "float16" else 1e-5)
    scores = {"several classes": "mean_average_precision", "class numbers": "val_accuracy"}
    scores["numbers"] = "val_rmse"
    assert scores.get(name, "accuracy") in mirrored[0]
