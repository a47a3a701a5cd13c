"""`tfrtool predict`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.datasets import write_pets
from tests.emulators import Bucket
from tests.photos import image_bytes, write_class_folders
from tfrtool.cli import main
from tfrtool.training.models import build_classifier, rescale_for
from tfrtool.training.saved_model import ModelFacts, save_model

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_graphs", "quick_cnn")]

SIZE = 32

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a saved model of two classes and nothing else."""
    directory = tmp_path_factory.mktemp("run")
    core = build_classifier("cnn", SIZE, 2, "none").core
    facts = ModelFacts(model="cnn", image_size=SIZE, class_names=("cat", "dog"))
    rescale = rescale_for("cnn")
    save_model(directory / "model.keras", core, rescale, facts)
    return directory


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return a directory of six photographs."""
    return write_class_folders(tmp_path / "photos", count=3)


def test_json(run: Path, photos: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """--json prints an object an image, in order, with the promised keys, and nothing else."""
    words = ["predict", str(run / "model.keras"), str(photos), "--json", "--top", "50"]
    assert main(words) == 0
    output = capfd.readouterr()
    lines = [json.loads(line) for line in output.out.splitlines()]
    assert [line["path"] for line in lines] == sorted(map(str, photos.rglob("*.jpg")))
    for line in lines:
        assert set(line["classes"]) == {"cat", "dog"}
        assert sum(line["classes"].values()) == pytest.approx(1, abs=1e-5)
        assert (
            line["probability"] == line["classes"][line["label"]] == max(line["classes"].values())
        )
    assert output.err == ""


def test_images_in_a_store(run: Path, photos: Path, bucket: Bucket, capfd: Capture) -> None:
    """A folder, a pattern and a file of a store give what the same give here."""
    bucket.put_folder(photos, "photos/")
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.jpg"))
    found = []
    for place in (str(photos), f"{bucket.url}/photos"):
        words = [f"{place}/{names[0]}", f"{place}/*/*.jpg", place, f"{place}/missing.jpg"]
        assert main(["predict", str(run), "--json", *words]) == 3
        lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        found.append([{**line, "path": line["path"].removeprefix(f"{place}/")} for line in lines])
    assert [line["path"] for line in found[0]] == [*names, "missing.jpg"]
    assert found[0][:-1] == found[1][:-1]
    assert "no such object" in found[1][-1]["error"]


def test_text(run: Path, photos: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """People read a line an image: where it is, its label, and how probable that is."""
    assert main(["predict", str(run), str(photos)]) == 0
    text = capfd.readouterr().out.splitlines()
    assert main(["predict", str(run), str(photos), "--json"]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert len(text) == len(lines) == 6
    for shown, line in zip(text, lines, strict=True):
        path, label, probability = shown.split()
        assert (path, label) == (line["path"], line["label"])
        assert float(probability) == pytest.approx(line["probability"], abs=1e-4)
    assert len(set(map(len, text))) == 1


def test_unreadable_images_are_told(
    run: Path, photos: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What can't be read is told with its reason, in its place and on stderr; exit code 3."""
    (photos / "text.jpg").write_bytes(b"no image")
    assert main(["predict", str(run), str(photos), str(photos / "missing.jpg"), "--json"]) == 3
    output = capfd.readouterr()
    lines = [json.loads(line) for line in output.out.splitlines()]
    assert len(lines) == 8
    unread = {line["path"]: line["error"] for line in lines if line["error"] is not None}
    assert set(unread) == {str(photos / "text.jpg"), str(photos / "missing.jpg")}
    assert unread[str(photos / "missing.jpg")].startswith("no such file")
    assert all((line["label"] is None) is (line["path"] in unread) for line in lines)
    first, second = output.err.splitlines()
    assert "text.jpg: not an image" in first
    assert "missing.jpg: no such file" in second


def test_nothing_readable_is_a_failure(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where not one image can be read, the command has failed."""
    assert main(["predict", str(run), str(tmp_path / "no.jpg"), str(tmp_path)]) == 1
    output = capfd.readouterr()
    assert output.out == ""
    assert str(tmp_path / "no.jpg") in output.err
    assert "no images" in output.err


@pytest.mark.parametrize("content", [None, b"no model"])
def test_no_model_is_one_line(
    content: bytes | None, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A model that isn't there, or is none, ends with 1 and one line that names it."""
    path = tmp_path / "other.keras"
    if content is not None:
        path.write_bytes(content)
    assert main(["predict", str(path), str(photos)]) == 1
    output = capfd.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert str(path) in line


def test_names_can_not_write_to_the_terminal(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A file's name with a line break or an escape sequence in it stays on its line."""
    path = tmp_path / "a\n\x1b[2Jb.jpg"
    path.write_bytes(image_bytes())
    assert main(["predict", str(run), str(path)]) == 0
    output = capfd.readouterr().out
    assert len(output.splitlines()) == 1
    assert "\x1b" not in output


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_that_is_not_finite(
    value: float, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither `predict` nor `evaluate` nor `train --weights` takes it; the error names a weight."""
    core = build_classifier("cnn", SIZE, 2, "none").core
    kernel = core.layers[-1].kernel
    kernel.assign(kernel * value)
    facts = ModelFacts(model="cnn", image_size=SIZE, class_names=("cat", "dog"))
    model = tmp_path / "model.keras"
    save_model(model, core, rescale_for("cnn"), facts)
    pets = write_pets(tmp_path / "pets")
    train = ["train", str(pets), "--model", "cnn", "--image-size", str(SIZE)]
    for words in (
        ["predict", str(model), str(photos)],
        ["evaluate", str(model), str(pets)],
        [*train, "--weights", str(model)],
    ):
        assert main(words) == 1
        output = capfd.readouterr()
        (line,) = output.err.splitlines()
        assert f"{model}: the weight probabilities/kernel has values that are not finite" in line
