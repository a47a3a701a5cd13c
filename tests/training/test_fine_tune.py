"""A second phase, in which more layers are trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.more import more
from tests.training.runs import planned, saved_variables, small_options
from tests.training.test_resume import numbers
from tfrtool.cli.commands.train_command import render_plan
from tfrtool.errors import UsageError
from tfrtool.training.train_report import EpochReport

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]

TUNED = {
    "model": "mobilenet",
    "weights": "none",
    "trainable": "head",
    "batch_size": 4,
    "epochs": 2,
    "fine_tune": "conv_pw_13:2",
}


@pytest.fixture(scope="module")
def whole(few: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return a run that was not left: its options, weights and rates of both phases.

    What was in its directory after each epoch is kept, too.
    """
    options = small_options(few, **TUNED, schedule="cosine", early_stopping=3)
    out = tmp_path_factory.mktemp("whole") / "run"

    def keep(epoch: EpochReport) -> None:
        # As it would be if the run were killed now.
        shutil.copytree(out, out.with_name(f"after{epoch.epoch}"))

    import keras

    weights: list[dict[str, Any]] = []
    rates: list[float] = []

    class Keep(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            del logs
            rates.append(float(self.model.optimizer.learning_rate))
            self.on_train_end()

        def on_train_end(self, logs: Any = None) -> None:
            del logs
            weights.append({one.path: np.array(one) for one in self.model.weights})

    report = tfrtool.train(**options, out=out, on_epoch=keep, callbacks=[Keep()])
    assert [epoch.phase for epoch in report.epochs] == [1, 1, 2, 2]
    return {"options": options | {"out": out}, "report": report, "weights": weights, "rates": rates}


@pytest.mark.parametrize("after", [more(n) for n in (1, 2, 3)])
def test_it_ends_where_an_uninterrupted_run_would(
    whole: dict[str, Any], tmp_path: Path, after: int
) -> None:
    """Left in the first phase, between both, or in the second."""
    options = whole["options"]
    out = shutil.copytree(options["out"].with_name(f"after{after}"), tmp_path / "left")
    resumed = tfrtool.train(**options | {"out": out, "resume": True})
    assert (resumed.plan.epochs_before, resumed.plan.phase) == (after, 1 + (after > 2))
    for one, other in zip(numbers(resumed.epochs), numbers(whole["report"].epochs), strict=True):
        assert one == pytest.approx(other, rel=1e-4)
    assert saved_variables(options["out"]) == saved_variables(out)
    history = json.loads((out / "history.json").read_text())
    found = [(epoch["epoch"], epoch["phase"]) for epoch in history["epochs"]]
    assert found == [(1, 1), (2, 1), (3, 2), (4, 2)]


@pytest.mark.more
def test_what_is_trained_in_each_phase(whole: dict[str, Any]) -> None:
    """First the head over kept features, then from the layer on, but for BatchNormalization."""
    kept, rates = whole["weights"], whole["rates"]
    assert whole["report"].plan.cache == "features"
    assert rates == pytest.approx([0.001, 0.0001])
    changed = [
        {name.split("/")[-2] for name in before if not np.array_equal(before[name], after[name])}
        for before, after in ((kept[0], kept[1]), (kept[2], kept[3]))
    ]
    assert changed == [{"probabilities"}, {"conv_pw_13", "probabilities"}]
    for name, value in kept[1].items():
        np.testing.assert_array_equal(value, kept[2][name])


@pytest.mark.more
def test_layers_of_a_function(few: Path) -> None:
    """They are those of the model that it returns."""

    def build(size: int, classes: int) -> Any:
        import keras

        model = keras.Sequential(
            [
                keras.Input((size, size, 3)),
                keras.layers.Conv2D(2, 3, name="early"),
                keras.layers.Conv2D(2, 3, name="late"),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(classes, activation="softmax"),
            ]
        )
        for layer in model.layers[:2]:
            layer.trainable = False
        return model

    changes = {"model": build, "trainable": "auto", "fine_tune": "late"}
    report = tfrtool.train(**small_options(few, epochs=1, **changes))
    assert [epoch.phase for epoch in report.epochs] == [1, 2]


@pytest.mark.more
def test_early_stopping_is_of_each_phase(few: Path) -> None:
    """A first phase that stops is followed by the second, which has epochs of its own."""
    options = small_options(few, **TUNED, early_stopping=1, learning_rate=1e-12)
    report = tfrtool.train(**options | {"epochs": 3})
    phases = [epoch.phase for epoch in report.epochs]
    assert phases.count(1) < 3
    assert phases[-1] == 2
    assert report.best_epoch is not None
    assert report.best_epoch > phases.count(1)


@pytest.mark.more  # test_training_callbacks.py has one that ends a phase alone
def test_a_callback_ends_the_run(few: Path) -> None:
    """And not the phase alone."""
    import keras

    def stop(epoch: int, logs: Any) -> None:
        del epoch, logs
        stopping.model.stop_training = True

    stopping = keras.callbacks.LambdaCallback(on_epoch_end=stop)
    report = tfrtool.train(**small_options(few, **TUNED), callbacks=[stopping])
    assert [epoch.phase for epoch in report.epochs] == [1]
    assert report.stopped_early


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"fine_tune": "nope"}, "has no layer 'nope'"),
        ({"fine_tune": "conv1:0"}, "--fine-tune 'conv1:0'"),
        ({"fine_tune": ":3"}, "--fine-tune ':3'"),
        ({"trainable": "all"}, "all layers are trained already"),
    ],
    ids=str,
)
def test_impossible_second_phases(few: Path, changes: dict[str, Any], problem: str) -> None:
    """Each is a usage error before the first phase is trained."""
    with pytest.raises(UsageError, match=problem):
        tfrtool.train(**small_options(few, **TUNED | changes))


def test_the_plan_names_the_phases(few: Path) -> None:
    """The plan has the epochs of each, and the layer."""
    plan = planned(**small_options(few, epochs=1, fine_tune="hidden"))
    line = "  phases   1 epoch, then 1 epoch fine-tuning from layer hidden, learning rate 0.0001\n"
    assert line in render_plan(plan)
