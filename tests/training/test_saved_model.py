"""Whole models in one file."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfrtool.errors import WeightsError
from tfrtool.loading.decoding import rescaler
from tfrtool.loading.options import Rescale
from tfrtool.training.models import build_classifier
from tfrtool.training.saved_model import ModelFacts, load_model, save_model

pytestmark = pytest.mark.tf

SIZE = 32
NAMES = ("cat", "dög", "a\nb")
FACTS = ModelFacts(model="cnn", image_size=SIZE, class_names=NAMES)
UNIT = Rescale(scale=1 / 255, offset=0.0)

RESCALES = {
    "unit": UNIT,
    "tf": Rescale(scale=1 / 127.5, offset=-1.0),
    "torch": Rescale(scale=(0.017, 0.018, 0.019), offset=(-2.1, -2.0, -1.8)),
    "caffe": Rescale(scale=1.0, offset=(-103.939, -116.779, -123.68), bgr=True),
}


@pytest.fixture(scope="module")
def core() -> Any:
    """Return a model of rescaled images, of which no two channels mean the same."""
    import keras

    keras.utils.set_random_seed(0)
    return build_classifier("cnn", SIZE, 3, "none").core


@pytest.fixture(scope="module")
def once(core: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a saved model, which is only to be read."""
    path = tmp_path_factory.mktemp("once") / "model.keras"
    save_model(path, core, UNIT, FACTS)
    return path


@pytest.fixture
def saved(once: Path, tmp_path: Path) -> Path:
    """Return a copy of it."""
    return shutil.copyfile(once, tmp_path / "model.keras")


@pytest.mark.parametrize("rescale", RESCALES.values(), ids=RESCALES)
def test_pixels_go_in(rescale: Rescale, core: Any, tmp_path: Path) -> None:
    """The saved model gives for pixels, uint8 or float, what the core gives for rescaled ones."""
    save_model(tmp_path / "m.keras", core, rescale, FACTS)
    whole = load_model(tmp_path / "m.keras").whole
    pixels = np.random.default_rng(0).integers(0, 256, (2, SIZE, SIZE, 3)).astype(np.uint8)
    expected = np.asarray(core(rescaler(rescale)(pixels)))
    assert np.allclose(whole.predict_on_batch(pixels), expected, atol=1e-5)
    assert np.allclose(np.asarray(whole(pixels.astype(np.float32))), expected, atol=1e-5)
    # Were channels in another order, or pixels not rescaled, this would come out.
    assert not np.allclose(np.asarray(whole(pixels[..., ::-1])), expected, atol=1e-5)
    assert not np.allclose(np.asarray(core(pixels)), expected, atol=1e-5)


def test_facts_are_in_the_file(saved: Path) -> None:
    """Class names, size and resizing are in the file itself, and a directory means its model."""
    for path in (saved, saved.parent):
        loaded = load_model(path)
        assert (loaded.facts, loaded.path) == (FACTS, saved)
    with zipfile.ZipFile(saved) as archive:
        data = json.loads(archive.read("tfrtool.json"))
    assert data["class_names"] == list(NAMES)
    assert data["resize"]["method"] == "bilinear"


def _rewrite(path: Path, change: Any) -> None:
    """Write a saved model again, with its facts changed, or without any where there are none."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    facts = members.pop("tfrtool.json")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        if change is not None:
            archive.writestr("tfrtool.json", change(facts))


@pytest.mark.parametrize(
    "change",
    [
        None,
        lambda _: b"{",
        lambda _: b"[" * 100_000,
        lambda _: b"\xff",
        lambda facts: facts.replace(b'"cat",', b""),
        lambda facts: facts.replace(b"32", b"64"),
        lambda facts: facts.replace(b'"format":1', b'"format":2'),
        lambda facts: facts.replace(b"32", b'"32"'),
        lambda facts: facts.replace(b"bilinear", b"nearest"),
        lambda facts: facts.replace(b'"a\\nb"', b"7"),
    ],
)
def test_facts_that_do_not_fit_are_an_error(change: Any, saved: Path) -> None:
    """A model without its facts, or with those of another, is not used; the file is named."""
    _rewrite(saved, change)
    with pytest.raises(WeightsError) as caught:
        load_model(saved)
    assert caught.value.path == str(saved)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["missing", "empty", "text", "cut", "directory"])
def test_what_is_no_model_is_an_error(kind: str, saved: Path) -> None:
    """A file that isn't there, is none, or is cut, is an error that names it."""
    data = saved.read_bytes()
    saved.unlink()
    if kind == "directory":
        saved.mkdir()
    elif kind != "missing":
        content = {"empty": b"", "text": b"no model", "cut": data[: len(data) // 2]}[kind]
        saved.write_bytes(content)
    with pytest.raises(WeightsError) as caught:
        load_model(saved)
    assert str(saved) in str(caught.value.path)


def test_damaged_weights_are_an_error(saved: Path) -> None:
    """Weights that were changed on the disk are not believed."""
    data = bytearray(saved.read_bytes())
    data[len(data) // 2] ^= 0xFF
    saved.write_bytes(data)
    with pytest.raises(WeightsError):
        load_model(saved)


@pytest.mark.parametrize("member", ["config.json", "other", "model.weights.h5"])
def test_a_file_that_inflates_is_refused_before_it_does(saved: Path, member: str) -> None:
    """A small file whose members unpack to much more is named, with both sizes."""
    with zipfile.ZipFile(saved) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members[member] = b"0" * 80_000_000
    with zipfile.ZipFile(saved, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    tracemalloc.start()
    try:
        with pytest.raises(WeightsError, match=r"unpack to more than [^0-9]*[0-9,]+ bytes"):
            load_model(saved)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_description_of_the_model_is_bounded(saved: Path) -> None:
    """Stored as it is, a member of metadata has a limit of its own."""
    with zipfile.ZipFile(saved, "a") as archive, archive.open("more.json", "w") as file:
        for _ in range(65):
            file.write(bytes(2**20))
    with pytest.raises(WeightsError, match=r"more\.json.*more than 67,108,864"):
        load_model(saved)


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    """What is no regular file is refused, and not waited for."""
    os.mkfifo(tmp_path / "model.keras")
    with pytest.raises(WeightsError, match="is a pipe"):
        load_model(tmp_path / "model.keras")


@pytest.mark.parametrize("package", ["keras_cv", "someone"])
def test_a_model_imports_no_package(
    package: str, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer of another package, which Keras itself would import, is named, and nothing is run."""
    (tmp_path / f"{package}.py").write_text("raise SystemExit('it was imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with zipfile.ZipFile(saved) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    config = members["config.json"]
    members["config.json"] = config.replace(b'"keras.layers"', f'"{package}"'.encode())
    assert members["config.json"] != config
    with zipfile.ZipFile(saved, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(WeightsError, match=f"module '{package}'") as caught:
        load_model(saved)
    assert caught.value.path == str(saved)
    assert package not in sys.modules
