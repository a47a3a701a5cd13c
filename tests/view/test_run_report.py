"""``tfrtool report --run``: one file that shows a training run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.view.test_report import Page
from tfrtool.errors import TfrtoolError
from tfrtool.view.run_report import run_report

Run = Callable[..., tuple[int, str, str]]

EPOCHS = [
    {"epoch": n, "seconds": 1.5, "loss": 1 / n, "val_loss": 2 / n, "accuracy": 0.5 + n / 20,
     "val_accuracy": None, "input_wait_fraction": 0.01 * n}
    for n in range(1, 6)
]  # fmt: skip


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """Return the folder of a run that was evaluated."""
    folder = tmp_path / "cnn"
    folder.mkdir()
    run = {"model": "cnn", "cache": "memory", "seconds": 7.5, "warnings": ["one <b>class</b>"]}
    (folder / "history.json").write_text(json.dumps({"epochs": EPOCHS, "run": run}))
    never = {"label": "dog", "precision": None, "recall": 0.0, "f1": 0.0, "images": 2}
    cat = {"label": "cat", "precision": 0.75, "recall": 1.0, "f1": 0.8571, "images": 3}
    classes = [never, cat]
    (folder / "evaluation.json").write_text(json.dumps({"accuracy": 0.875, "classes": classes}))
    Image.new("RGB", (200, 200), "red").save(folder / "confusion.png")
    return folder


def test_a_run_is_shown(finished: Path, tmp_path: Path, run: Run) -> None:
    """Curves, epochs, plan, and the evaluation with its picture."""
    out = tmp_path / "run.html"
    code, text, _ = run("report", "--run", finished, "--out", out, "--json")
    told = json.loads(text)
    assert code == 0
    assert told["epochs"] == 5
    assert told["evaluated"] is True
    page = Page(out)
    assert "loss: training from 1 to 0.2; validation from 2 to 0.4" in page.text
    assert "input wait: fraction from 0.01 to 0.05" in page.text
    assert "Val accuracy" not in page.text  # it was never known
    said = " ".join(" ".join(page.sections.values()).split())
    assert "Accuracy 0.875" in said or "Accuracy0.875" in said
    assert "one <b>class</b>" in said
    assert "<td>dog</td><td></td><td>0</td><td>0</td><td>2</td>" in page.text
    assert "<td>cat</td><td>0.75</td><td>1</td><td>0.8571</td><td>3</td>" in page.text
    assert "b" not in page.tags
    assert sum(map(len, page.pictures.values())) == 1
    assert page.asked == []


def test_a_run_without_evaluation(finished: Path, tmp_path: Path) -> None:
    """Then it shows the run alone."""
    (finished / "evaluation.json").unlink()
    (finished / "confusion.png").unlink()
    found = run_report(finished, tmp_path / "run.html")
    assert not found.evaluated
    assert "Evaluation" not in (tmp_path / "run.html").read_text()


def test_pictures_of_a_stranger(finished: Path, tmp_path: Path) -> None:
    """A link leads nowhere, a FIFO is not waited for, and a bomb is not unpacked."""
    private = tmp_path / "private.png"
    Image.new("RGB", (60, 60), "blue").save(private)
    for harm in ("link", "fifo", "bomb"):
        for name in ("confusion.png", "most_wrong.png"):
            (finished / name).unlink(missing_ok=True)
        place = finished / "confusion.png"
        if harm == "link":
            place.symlink_to(private)
        elif harm == "fifo":
            os.mkfifo(place)
        else:
            Image.new("1", (30_000, 30_000)).save(place)
        run_report(finished, tmp_path / "run.html", overwrite=True)
        assert Page(tmp_path / "run.html").pictures == {}, harm
    (finished / "history.json").rename(tmp_path / "history.json")
    (finished / "history.json").symlink_to(tmp_path / "history.json")
    with pytest.raises(TfrtoolError):
        run_report(finished, tmp_path / "run.html", overwrite=True)


def test_no_run(tmp_path: Path, run: Run) -> None:
    """A folder without a history is named, and what writes one."""
    code, _, error = run("report", "--run", tmp_path, "--out", tmp_path / "run.html")
    assert code == 1
    assert "no history.json" in error
    assert "output directory of a training run" in error


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["epochs", "run", "loss", "classes", "x"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@given(history=ANY, evaluation=ANY)
def test_any_json_gives_a_page_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, history: Any, evaluation: Any
) -> None:
    """Files that somebody else wrote never end in a traceback."""
    folder = tmp_path_factory.mktemp("run")
    for name, data in (("history.json", history), ("evaluation.json", evaluation)):
        (folder / name).write_text(json.dumps(data))
    try:
        run_report(folder, folder / "run.html")
    except TfrtoolError:
        assert not (folder / "run.html").exists()
