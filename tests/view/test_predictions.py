"""Predictions of a model next to the labels: which are wrong, and how wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.datasets import image_payload, write_foreign
from tests.photos import image_bytes
from tests.view.test_pages import EVIL, Viewer
from tfrtool.errors import UsageError
from tfrtool.view.live import Live

SHARD = "part-00000-of-00001.tfrecord"


def line(record: int | None, label: str, predicted: str, probability: float, **more: Any) -> str:
    """Return a line as ``evaluate`` writes it."""
    right = probability if predicted == label else 1 - probability
    fields = {"shard": SHARD, "record": record, "label": label, "predicted": predicted}
    return json.dumps(fields | {"probability": probability, "label_probability": right} | more)


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of six images, of cats and dogs in turn."""
    payloads = [image_payload(n % 2, data=image_bytes(size=(48, 32), tint=n)) for n in range(6)]
    folder = write_foreign(tmp_path_factory.mktemp("pets") / "pets", [payloads])
    folder.joinpath("label.labels.txt").write_text("cat\ndog\n")
    return folder


def open_with(shards: Path, predictions: Path) -> Viewer:
    """Return a viewer that has read the records and predictions."""
    live = Live(shards, predictions=predictions)
    live.found.fill(workers=1)
    live.done = True
    return Viewer(live)


@pytest.fixture(scope="module")
def viewer(pets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    """Return a viewer with predictions of five records, two of them wrong, and of another shard."""
    file = tmp_path_factory.mktemp("run") / "predictions.jsonl"
    file.write_text(
        "\n".join(
            [
                line(0, "cat", "cat", 0.9),
                line(1, "dog", "cat", 0.75),
                line(2, "cat", "dog", 0.99),
                line(3, "dog", "dog", 0.55),
                line(4, "cat", "cat", 0.95),
                line(0, "cat", "cat", 0.9, shard="other.tfrecord"),
                line(None, "cat", "dog", 0.9),
            ]
        )
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(pets.parent / "data"))
        opened = open_with(pets, file)
    yield opened
    opened.live.close()


def test_the_worst_mistakes_come_first(viewer: Viewer) -> None:
    """Records are sorted by loss; what has no prediction comes last, and another order is there."""
    page = viewer.get("/")
    assert page.values["seen"] == ["0/2", "0/1", "0/3", "0/0", "0/4", "0/5"]
    assert "0 cat" in page.text
    assert "\u2718 wrong: dog 99 %".replace("\u2718", "\u2717") in page.text
    assert "2 lines without a prediction" in " ".join(viewer.live.found.notes)
    assert viewer.get("/", sort="_shard").values["seen"] == [f"0/{n}" for n in range(6)]
    table = viewer.get("/", view="table", where="loss > 1")
    assert table.values["seen"] == ["0/2", "0/1"]
    assert "4.61" in table.text  # -ln(0.01)


def test_facets_of_predictions(viewer: Viewer) -> None:
    """Right and wrong, the predicted class and the confidence are counted and chosen."""
    page = viewer.get("/")
    for name, seen in (
        ("\u2717 wrong", ["0/2", "0/1"]),
        ("\u2713 right", ["0/3", "0/0", "0/4"]),
        ("no prediction", ["0/5"]),
        ("90 to 100 %", ["0/2", "0/0", "0/4"]),
        ("dog", ["0/2", "0/3"]),
    ):
        assert viewer.get(page.links[name]).values["seen"] == seen, name
    assert viewer.get("/", prediction="wrong", label="dog").values["seen"] == ["0/1"]
    assert viewer.get("/", prediction="x'").values.get("seen") is None
    assert viewer.get("/", confidence="x").status == 400


def test_the_page_of_a_record_has_its_prediction(viewer: Viewer) -> None:
    """With the label, the confidence and the loss; also in the order of the list."""
    page = viewer.record(0, 2, n="0")
    assert "Predicted dog (99 %), label cat, loss 4.61" in page.text
    assert page.links["Next"] == "/record/part-00000-of-00001.tfrecord:1?n=1"
    assert "Predicted" not in viewer.record(0, 5).text


def test_lines_of_predict_are_compared_with_the_records(pets: Path, tmp_path: Path) -> None:
    """They have no true label; their loss is the least that the probability allows."""
    file = tmp_path / "predicted.jsonl"
    rows = [(0, "cat", 0.9), (1, "cat", 0.8), (2, None, None)]
    fields = ("record", "label", "probability")
    lines = [{"path": str(pets / SHARD), **dict(zip(fields, row, strict=True))} for row in rows]
    file.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    viewer = open_with(pets, file)
    try:
        page = viewer.get("/", prediction="wrong")
        assert page.values["seen"] == ["0/1"]
        assert "Predicted cat (80 %), label dog, loss 1.61" in viewer.record(0, 1).text
        assert viewer.get("/", prediction="right").values["seen"] == ["0/0"]
    finally:
        viewer.live.close()


def test_hostile_predictions_are_text(pets: Path, tmp_path: Path) -> None:
    """Classes that are markup, and numbers that are none; long ones are cut."""
    file = tmp_path / "p.jsonl"
    lines = [line(n, text, EVIL[n + 1] * 90, 0.5) for n, text in enumerate(EVIL[:5])]
    lines.append(f'{{"shard": "{SHARD}", "record": 5, "value": {{"a": 1e300}}, "loss": 1e300, '
                 '"predicted_value": [1, {"b": [[[]]]}]}')  # fmt: skip
    file.write_text("\n".join(lines))
    viewer = open_with(pets, file)
    try:
        for page in (viewer.get("/"), viewer.get("/", view="table"), viewer.record(0, 0)):
            assert page.status == 200
            assert page.tags.count("script") == 1
            assert "style" not in page.tags
            assert len(page.text) < 20_000
    finally:
        viewer.live.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "none of 0 predictions is for these shards"),
        (line(0, "a", "b", 0.5, shard="x"), "none of 1 predictions"),
        ("{", r"line 1: expected a line of predictions.jsonl, .* found text that is not JSON"),
        ("7", r"line 1: expected a line of .* found JSON with other keys or types"),
        (f'\n{{"shard": "{SHARD}", "record": -1}}', "line 2: expected"),
        (f'{{"shard": "{SHARD}", "record": {10**30}}}', "line 1: expected"),
        ("[" * 2000, "line 1: expected"),
    ],
)
def test_files_that_are_no_predictions(
    pets: Path, tmp_path: Path, content: str, message: str
) -> None:
    """The error names the file and the line."""
    (tmp_path / "p.jsonl").write_text(content)
    with pytest.raises(UsageError, match=f"p.jsonl: {message}"):
        Live(pets, predictions=tmp_path / "p.jsonl")
