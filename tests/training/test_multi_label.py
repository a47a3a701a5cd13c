"""Models of images that may be of several classes, held against Keras and scikit-learn."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.datasets import write_foreign
from tests.photos import image_bytes
from tests.training.runs import small_options
from tfrtool.cli import main
from tfrtool.cli.commands.train_command import render_epoch, render_plan
from tfrtool.errors import WeightsError
from tfrtool.examples.example import encode_example
from tfrtool.loading.labels import Task
from tfrtool.training.saved_model import load_model
from tfrtool.training.scores import EpochScores
from tfrtool.training.tasks import TASKS

pytestmark = pytest.mark.tf

NAMES = ("red", "green", "blue")
COUNT, EPOCHS = 48, 16
LEARNED = {"trainable": "all", "learning_rate": 0.01}


@pytest.fixture(scope="module")
def lights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of images of one color each, with the lights that it is made of."""
    payloads, draw = [], np.random.default_rng(0)
    for _ in range(COUNT):
        lit = np.flatnonzero(draw.random(3) < 0.5)
        pixels = np.zeros((8, 8, 3), np.uint8)
        pixels[..., lit] = 255
        names = tuple(NAMES[channel].encode() for channel in lit)
        sides = {"height": 8, "width": 8, "depth": 3}
        record = {"image": pixels.tobytes(), **sides, **({"labels": names} if names else {})}
        payloads.append(encode_example(record))
    return write_foreign(tmp_path_factory.mktemp("lights") / "d", [payloads[:9], payloads[9:]])


def _options(dataset: Path, **changes: Any) -> dict[str, Any]:
    options = small_options(dataset, validation=0.25, cache="memory", batch_size=8)
    return {**options, "epochs": EPOCHS, **changes}


@pytest.fixture(scope="module")
def run(lights: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a run that has learned the colors, and its directory."""
    out = tmp_path_factory.mktemp("run") / "run"
    return tfrtool.train(**_options(lights, **LEARNED), out=out), out


def test_a_run_learns_and_tells_its_task(run: Any) -> None:
    """Plan, epochs, history and model say what was decided; what was learned is right."""
    report, out = run
    assert report.plan.task is Task.MULTI
    assert report.plan.forms == ("lists of class names",)
    assert report.plan.class_names == ("blue", "green", "red")
    last = report.epochs[-1]
    assert last.val_accuracy == last.val_mean_average_precision == 1.0
    assert 0.9 < last.mean_average_precision <= 1.0
    history = json.loads((out / "history.json").read_text())
    assert history["run"]["task"] == "multi-label"
    assert history["run"]["forms"] == ["lists of class names"]
    assert history["epochs"][-1]["val_mean_average_precision"] == 1.0
    assert load_model(out).facts.task is Task.MULTI


def test_predictions_are_of_each_class(run: Any, tmp_path: Path) -> None:
    """Probabilities add up to more than one where an image is of several classes."""
    from PIL import Image

    path = tmp_path / "yellow.png"
    Image.new("RGB", (8, 8), (255, 255, 0)).save(path)
    (found,) = tfrtool.predict(run[1], path, top=3)
    probable = {name for name, value in found.classes.items() if value > 0.5}
    assert probable == {"red", "green"}
    assert found.label in probable


def test_text_tells_the_task(run: Any) -> None:
    """The plan says what the labels are, and the table has the mean average precision."""
    report, _ = run
    plan = render_plan(report.plan)
    assert "3 (blue, green, red), multi-label: sigmoid" in plan
    assert "  data     lists of class names" in plan
    _, head, line = render_epoch(report.epochs[-1], head=True).splitlines()
    assert head.endswith("mAP  val mAP")
    assert (len(line), line.split()[-1]) == (len(head), "1.0000")


def test_command_names_features(lights: Path, capfd: Any) -> None:
    """With --json each epoch has the mean average precision, and the last object the task."""
    words = ["train", str(lights), "--model", "cnn", "--image-size", "32", "--epochs", "1"]
    words += ["--image-feature", "image", "--label-feature", "labels", "--trainable", "head"]
    assert main([*words, "--json"]) == 0
    epoch, last = map(json.loads, capfd.readouterr().out.splitlines())
    assert 0 <= epoch["mean_average_precision"] <= 1
    assert epoch["val_mean_average_precision"] is None
    assert (last["task"], last["forms"]) == ("multi-label", ["lists of class names"])


@pytest.mark.more
def test_a_run_is_resumed(run: Any, tmp_path: Path) -> None:
    """The mean average precision of the epochs before is in the checkpoint."""
    before, out = run
    shutil.copytree(out, tmp_path / "run")
    options = before.plan.options
    after = tfrtool.train(
        **_options(options.dataset, **LEARNED, epochs=EPOCHS + 1),
        out=tmp_path / "run",
        resume=True,
    )
    assert after.epochs[:-1] == before.epochs
    assert after.epochs[-1].val_mean_average_precision == 1.0


def test_weights_of_another_task_are_refused(run: Any, tmp_path: Path) -> None:
    """A model for several classes an image is no start for one class an image."""
    payloads = [
        encode_example({"image": image_bytes(tint=9 * n), "label": n % 3}) for n in range(6)
    ]
    single = write_foreign(tmp_path / "d", [payloads])
    with pytest.raises(WeightsError, match="single-label, found cnn with 3, multi-label"):
        tfrtool.train(**small_options(single, weights=run[1] / "model.keras"))


def test_models_from_before_are_single_label(run: Any, tmp_path: Path) -> None:
    """A model whose facts have no task was for one class an image; an unknown task is refused."""
    for number, task in enumerate((None, "ranking")):
        path = tmp_path / f"{number}.keras"
        with zipfile.ZipFile(run[1] / "model.keras") as old, zipfile.ZipFile(path, "w") as new:
            for name in old.namelist():
                data = old.read(name)
                if name == "tfrtool.json":
                    facts = json.loads(data) | {"task": task}
                    data = json.dumps({k: v for k, v in facts.items() if v}).encode()
                new.writestr(name, data)
        if task is None:
            assert load_model(path).facts.task is Task.SINGLE
        else:
            with pytest.raises(WeightsError, match="ranking"):
                load_model(path)


def _by_hand(truths: Any, scores: Any) -> float:
    """Return the mean average precision, by counting at each threshold."""
    found = []
    for truth, score in zip(truths.T, scores.T, strict=True):
        total, before, area = int(truth.sum()), 0, 0.0
        for threshold in sorted(set(score.tolist()), reverse=True):
            taken = score >= threshold
            right = int((truth & taken).sum())
            area += (right - before) * right / int(taken.sum())
            before = right
        found += [area / total] if total else []
    return float(np.mean(found)) if found else float("nan")


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_mean_average_precision_by_hand(images: int, classes: int, seed: int) -> None:
    """Ties, classes without images and single images are as the definition says."""
    draw = np.random.default_rng(seed)
    truths = draw.random((images, classes)) < 0.4
    scores = np.round(draw.random((images, classes)), 1).astype(np.float32)
    expected = _by_hand(truths, scores)
    assert _mean(truths, scores) == pytest.approx(expected, nan_ok=True)
    scores[0, 0] = np.nan
    assert np.isnan(_mean(truths, scores))


def _mean(truths: Any, scores: Any) -> float:
    found = EpochScores(len(truths))
    found.add(truths, scores)
    return found.mean()


def test_every_task_says_how_it_is_trained() -> None:
    """None is missing, which would show at its first use only."""
    assert {*TASKS} == {*Task}


def test_too_many_scores_are_not_kept(monkeypatch: pytest.MonkeyPatch, tf: Any) -> None:
    """Above the limit nothing is kept, and the figure is none."""
    for limit, expected in ((8, 1.0), (7, float("nan"))):
        monkeypatch.setattr("tfrtool.training.scores.MAX_SCORES", limit)
        scores = EpochScores(4)
        for _ in range(2):
            scores.add(tf.constant([[1.0, 0.0], [0.0, 1.0]]), tf.constant([[0.9, 0.1], [0.2, 0.8]]))
        assert scores.mean() == pytest.approx(expected, nan_ok=True)
