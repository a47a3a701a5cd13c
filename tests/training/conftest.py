"""A dataset and a run that tests of training share, and may only read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.datasets import write_pets
from tests.training.runs import small_options, write_drawings
from tests.training.small_base import small_cnn, small_mobilenet
from tfrtool.storage.progress import Progress
from tfrtool.training.train_report import EpochReport, TrainPlan, TrainReport

AS_IT_IS = ("test_features", "test_demo")
"""Files whose graphs are optimized as they are for users."""

WHOLE = (
    *("test_demo", "test_devices", "test_models"),
    *("test_predict", "test_saved_model", "test_train_options", "test_workers"),
)
"""Files that have the cnn as it is for users: its layers, what it learns, and other processes."""


@pytest.fixture(autouse=True, scope="module")
def quick_cnn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have a small cnn where it stands for any model."""
    if Path(request.node.path).stem in WHOLE or "not tf" in str(request.config.option.markexpr):
        yield
        return
    with small_cnn():
        yield


@pytest.fixture(autouse=True, scope="module")
def quick_graphs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave out TensorFlow's optimizer, which takes longer than it saves in a few small steps."""
    name = Path(request.node.path).stem
    if name in AS_IT_IS or "not tf" in str(request.config.getoption("markexpr")):
        yield
        return
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


@pytest.fixture(scope="module")
def quick_base() -> Iterator[None]:
    """Have a small base for MobileNet, where it only stands for any that can be frozen."""
    import keras

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(keras.applications, "MobileNet", small_mobilenet)
        yield


@pytest.fixture(scope="session")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the drawings of the fixtures as a dataset."""
    return write_drawings(tmp_path_factory.mktemp("pets") / "pets")


@pytest.fixture(scope="session")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of 14 images to train on, and 6 to validate on."""
    return write_pets(tmp_path_factory.mktemp("few"))


@dataclass
class Told:
    """A whole model's run of two epochs, with all that it can leave, and what callbacks heard."""

    options: dict[str, Any]
    report: TrainReport
    plans: list[TrainPlan] = field(default_factory=list)
    epochs: list[EpochReport] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)

    @property
    def out(self) -> Path:
        """The directory of the run."""
        out: Path = self.options["out"]
        return out


@pytest.fixture(scope="session")
def finished(pets: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Return a run of the cnn on the drawings, with logs and a trace."""
    import tfrtool

    root = tmp_path_factory.mktemp("finished")
    options = small_options(
        pets, trainable="all", out=root / "run", tensorboard=root / "logs", profile=True
    )
    told = Told(options, report=None)  # type: ignore[arg-type]
    with small_cnn():
        told.report = tfrtool.train(
            **options,
            on_plan=told.plans.append,
            on_epoch=told.epochs.append,
            on_progress=told.progress.append,
        )
    return told
