"""Images told apart by a saved model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tfrtool
from tests.photos import image_bytes, many_scans, write_class_folders
from tfrtool.errors import UsageError
from tfrtool.training.evaluate_options import PredictOptions
from tfrtool.training.models import build_classifier, rescale_for
from tfrtool.training.prediction import ImageFile, Prediction, find_images, predict, predict_files
from tfrtool.training.saved_model import ModelFacts, SavedModel, load_model, save_model

pytestmark = pytest.mark.tf

SIZE = 32


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    """Return a saved model for three classes, whose output depends on every pixel."""
    core = build_classifier("cnn", SIZE, 3, "none").core
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    facts = ModelFacts(model="cnn", image_size=SIZE, class_names=("ant", "bee", "cat"))
    save_model(path, core, rescale_for("cnn"), facts)
    return load_model(path)


@pytest.fixture
def eyes(saved: SavedModel) -> tuple[SavedModel, list[Any]]:
    """Return a model that keeps the batches of pixels that it is shown."""
    seen: list[Any] = []

    def look(pixels: Any, training: bool) -> Any:
        import tensorflow as tf

        tf.py_function(lambda shown: seen.append(shown.numpy()), [pixels], [])
        return saved.whole(pixels, training=training)

    return replace(saved, whole=look), seen


def _files(*paths: Path | str) -> tuple[ImageFile, ...]:
    return tuple(ImageFile(str(path)) for path in paths)


def _told(results: Sequence[Prediction]) -> list[Prediction]:
    return [result for result in results if result.problem is None]


def test_pixels_are_the_loaders(eyes: tuple[SavedModel, list[Any]], tmp_path: Path) -> None:
    """A photograph is decoded and resized to the very pixels that training would have seen."""
    source = write_class_folders(tmp_path / "photos")
    tfrtool.write(source, tmp_path / "d", shuffle=False)
    dataset = tfrtool.dataset(tmp_path / "d")
    batches = dataset.load(image_size=SIZE, training=False, rescale=None)
    trained = np.concatenate([images.numpy() for images, _ in batches])
    model, seen = eyes
    assert len(list(predict(model, str(source)))) == 12
    assert np.array_equal(np.concatenate(seen), trained)


def test_predictions_are_the_models(saved: SavedModel, tmp_path: Path) -> None:
    """Each image comes with the model's probabilities, the highest first, in the order asked."""
    photos = sorted(write_class_folders(tmp_path / "photos").rglob("*.jpg"), reverse=True)
    results = _told(
        list(predict_files(saved, _files(*photos), PredictOptions(top=3, batch_size=5)))
    )
    assert [result.path for result in results] == [str(path) for path in photos]
    for result in results:
        pixels = _by_hand(Path(result.path))
        expected = dict(zip(("ant", "bee", "cat"), saved.whole(pixels).numpy()[0], strict=True))
        assert result.classes == pytest.approx(expected, abs=1e-5)
        assert list(result.classes) == sorted(expected, key=lambda name: -expected[name])
        assert result.label == max(expected, key=lambda name: expected[name])
        assert result.probability == max(result.classes.values())


def _by_hand(path: Path) -> Any:
    import tensorflow as tf

    image = tf.io.decode_image(path.read_bytes(), channels=3)
    return tf.floor(tf.image.resize(image, (SIZE, SIZE)) + 0.5)[None]


@pytest.mark.parametrize("format_", ["PNG", "GIF", "BMP", "WEBP", "TIFF", "JPEG"])
def test_every_format_is_the_same_picture(
    format_: str, eyes: tuple[SavedModel, list[Any]], tmp_path: Path
) -> None:
    """A picture is the same to the model in any format, whatever the file is called."""
    path = tmp_path / "picture.jpg"
    path.write_bytes(image_bytes(format_, size=(40, 30)))
    model, seen = eyes
    assert _told(list(predict_files(model, _files(path), PredictOptions())))
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"), np.float32)
    import tensorflow as tf

    expected = tf.image.resize(pixels, (SIZE, SIZE)).numpy()
    assert np.abs(seen[0][0] - expected).max() <= (2 if format_ == "JPEG" else 0.5)


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP"])
def test_images_are_turned_upright(
    format_: str, eyes: tuple[SavedModel, list[Any]], tmp_path: Path
) -> None:
    """An image that EXIF says lies on its side is set upright first, as write does it."""
    for name, orientation in (("stored", None), ("turned", 3)):
        data = image_bytes(format_, size=(32, 32), orientation=orientation)
        (tmp_path / name).write_bytes(data)
    model, seen = eyes
    list(predict_files(model, _files(tmp_path / "stored", tmp_path / "turned"), PredictOptions()))
    stored, turned = seen[0]
    assert np.abs(turned - stored[::-1, ::-1]).max() <= 3
    assert np.abs(turned - stored).max() > 20


def test_what_is_transparent_is_white(eyes: tuple[SavedModel, list[Any]], tmp_path: Path) -> None:
    """Pixels that can't be seen don't count, as in what write makes of them."""
    Image.new("RGBA", (8, 8), (255, 0, 0, 0)).save(tmp_path / "a.png")
    Image.new("I;16", (8, 8), 0xFFFF).save(tmp_path / "b.png")
    model, seen = eyes
    list(predict_files(model, _files(tmp_path / "a.png", tmp_path / "b.png"), PredictOptions()))
    assert (seen[0] == 255).all()


def test_unreadable_images_have_a_reason(saved: SavedModel, tmp_path: Path) -> None:
    """What can't be read is told in its place, and the rest is told nevertheless."""
    good = image_bytes(size=(64, 64))
    contents = {
        "good.jpg": good,
        "cut.jpg": good[: len(good) * 2 // 3],
        "empty.jpg": b"",
        "text.jpg": b"no image",
        "cut.png": image_bytes("PNG", size=(64, 64))[:-30],
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "link.jpg").symlink_to("nowhere.jpg")
    names = [*contents, "pipe.jpg", "link.jpg", "missing.jpg", "good.jpg"]
    results = list(
        predict_files(saved, _files(*(tmp_path / name for name in names)), PredictOptions())
    )
    assert [Path(result.path).name for result in results] == names
    bad = [result for result in results if result.problem is not None]
    assert [Path(result.path).name for result in bad] == names[1:-1]
    assert all(result.problem and "\n" not in result.problem for result in bad)


def test_a_batch_may_have_no_image(saved: SavedModel, tmp_path: Path) -> None:
    """Batches of unreadable images, and a short last one, go through like others."""
    (tmp_path / "good.jpg").write_bytes(image_bytes())
    names = ["no"] * 4 + ["good.jpg"] * 3
    files = _files(*(tmp_path / name for name in names))
    results = list(predict_files(saved, files, PredictOptions(batch_size=2)))
    assert [result.problem is None for result in results] == [False] * 4 + [True] * 3
    assert len({result.probability for result in _told(results)}) == 1


def test_memory_is_bounded(saved: SavedModel, tmp_path: Path) -> None:
    """No more than two batches are read ahead of what is asked for."""
    names = [tmp_path / f"{number}.jpg" for number in range(40)]
    for path in names[:20]:
        path.write_bytes(image_bytes())
    results = predict_files(saved, _files(*names), PredictOptions(batch_size=4))
    for _ in range(4):
        assert next(results).problem is None
    for path in names[20:]:  # not there yet when the first batch was told
        path.write_bytes(image_bytes())
    assert len(_told(list(results))) == 36


@pytest.mark.parametrize("changes", [{"top": 0}, {"batch_size": 0}])
def test_impossible_options_are_refused(changes: dict[str, Any]) -> None:
    """Nothing can't be told, and no image at a time can't either."""
    with pytest.raises(UsageError):
        predict("nowhere", [], **changes)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with images and other files, which is the current one."""
    for name in ("p/2.jpg", "p/10.PNG", "p/sub/x.webp", "p/notes.txt", "p/.hidden.jpg", "q.jpg"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["q.jpg", "p/notes.txt"], ["q.jpg", "p/notes.txt"]),
        (["p"], ["p/2.jpg", "p/10.PNG", "p/sub/x.webp"]),
        (["./p/"], ["p/2.jpg", "p/10.PNG", "p/sub/x.webp"]),
        (["p/*"], ["p/2.jpg", "p/10.PNG", "p/sub/x.webp"]),
        (["**/*.jpg"], ["p/2.jpg", "q.jpg"]),
        (["p/*.jpg", "p", "p/2.jpg"], ["p/2.jpg", "p/10.PNG", "p/sub/x.webp"]),
        (["missing.jpg"], ["missing.jpg"]),
    ],
)
def test_files_directories_and_patterns(arguments: list[str], found: list[str], tree: Path) -> None:
    """Directories and patterns mean the images in them, once each, in natural order."""
    assert tree == Path.cwd()
    assert find_images(arguments) == _files(*found)


def test_images_that_cannot_be_read_are_listed(tree: Path) -> None:
    """Photographs of formats that aren't supported are results with a problem."""
    (tree / "p" / "IMG_3.jxl").write_bytes(b"")
    found = {image.path: image.problem for image in find_images(["p"])}
    assert found["p/IMG_3.jxl"] == "JPEG XL images are not supported"
    assert "p/notes.txt" not in found


@pytest.mark.parametrize("argument", ["", "nothing*", "p/*.txt", "empty"])
def test_what_means_nothing_says_so(argument: str, tree: Path) -> None:
    """A pattern or a directory without images stands for itself, with a reason."""
    (tree / "empty").mkdir()
    (image,) = find_images([argument])
    assert image.path == argument
    assert image.problem


def test_a_file_may_be_called_like_a_pattern(tree: Path) -> None:
    """A file whose name has wildcards in it is that file."""
    (tree / "a[1].jpg").write_bytes(b"")
    assert find_images(["a[1].jpg"]) == _files("a[1].jpg")


def test_image_over_a_limit_is_given_to_no_decoder(saved: SavedModel, tmp_path: Path) -> None:
    """A JPEG of 501 scans, which TensorFlow would decode for as long as that takes, is refused."""
    (tmp_path / "bomb.jpg").write_bytes(many_scans(501))
    (result,) = predict_files(saved, _files(tmp_path / "bomb.jpg"), PredictOptions())
    assert result.problem is not None
    assert "501 or more" in result.problem
