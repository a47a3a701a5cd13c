"""Arrays of NumPy as a source."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tfrtool
from tests.sources.trees import open_tree
from tfrtool.errors import SourceError
from tfrtool.examples.objects.record_features import LabelKind
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions

DRAW = np.random.default_rng(0)


def _images(*shape: int) -> Any:
    return DRAW.integers(0, 256, shape, np.uint8)


def _pixels(source: Source) -> dict[str, Any]:
    """Return the pixels of each image, by its key."""
    read = source.reader.read
    return {i.key: np.asarray(Image.open(io.BytesIO(read(i)))) for i in source.items}


@pytest.mark.tf
def test_keras_arrays_are_written_as_png(tmp_path: Path) -> None:
    """Splits are those of the arrays; what TFDS reads are the very pixels, and the labels."""
    import tensorflow_datasets as tfds

    train, test = _images(7, 9, 8), _images(3, 9, 8)
    np.savez(
        tmp_path / "mnist.npz",
        x_train=train,
        y_train=np.arange(7, dtype=np.uint8),
        x_test=test,
        y_test=np.array([[2], [0], [1]]),
    )
    report = tfrtool.write(tmp_path / "mnist.npz", tmp_path / "d", shuffle=False)
    assert {name: split.records for name, split in report.splits.items()} == {"train": 7, "test": 3}
    assert report.options["encode"] == "png"
    assert not report.rejected
    builder = tfds.builder_from_directory(tmp_path / "d")
    assert builder.info.features["image"].get_tensor_info().dtype == np.uint8
    for split, images, labels in (("train", train, range(7)), ("test", test, (2, 0, 1))):
        rows = tfds.as_numpy(builder.as_dataset(split=split))
        for row, image, label in zip(rows, images, labels, strict=True):
            assert (row["image"] == image[..., None]).all()
            assert row["label"] == label
    again = tfrtool.write(tmp_path / "mnist.npz", tmp_path / "d", shuffle=False, existing="resume")
    assert again.complete


@pytest.mark.parametrize("sides", [(6, 5), (6, 5, 1), (6, 5, 3)])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_every_shape_of_images(sides: tuple[int, ...], save: Any, tmp_path: Path) -> None:
    """Grey and color, packed or not, are kept to the value; labels are of any width."""
    images = _images(4, *sides)
    save(tmp_path / "x.npz", X=images, y=np.array([-1, 5, 5, 2], "<i2"), other=np.zeros(3))
    source = open_tree(tmp_path / "x.npz")
    assert source.labels == ("-1", "2", "5")
    assert [item.label for item in source.items] == ["-1", "5", "5", "2"]
    for number, (key, pixels) in enumerate(_pixels(source).items()):
        assert key == f"x/{number:08d}.png"
        assert (pixels == images[number].squeeze()).all()


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"x": np.zeros((2, 4, 4), np.float32)}, r"float32 of shape \(2, 4, 4\)"),
        ({"x": np.zeros((2, 4, 4, 4), np.uint8)}, r"uint8 of shape \(2, 4, 4, 4\)"),
        ({"x": np.zeros((2, 0, 4), np.uint8)}, r"shape \(2, 0, 4\)"),
        ({"x": np.asfortranarray(np.zeros((2, 3, 4), np.uint8))}, "Fortran"),
        ({"y": np.zeros(2)}, "y.npy.*float64"),
        ({"y": np.full((2, 2), 7)}, r"y.npy.*shape \(2, 2\) with values other than 0 and 1"),
        ({"y": np.zeros((2, 2, 2), int)}, r"y.npy.*shape \(2, 2, 2\)"),
        ({"y": np.zeros(3, int)}, r"y.npy.*shape \(3,\)"),
        ({"y": np.array([{}, []], object)}, "y.npy.*object"),
        ({"x": np.array([Path(), 1], object)}, "x.npy.*object"),
    ],
)
def test_other_arrays_are_refused(arrays: dict[str, Any], told: str, tmp_path: Path) -> None:
    """The type and the shape are told; objects are not unpickled."""
    usual = {"x": np.zeros((2, 4, 4), np.uint8), "y": np.zeros(2, int)}
    np.savez(tmp_path / "x.npz", **usual | arrays, allow_pickle=True)
    with pytest.raises(SourceError, match=told):
        open_tree(tmp_path / "x.npz")


def test_medmnist_names_splits_first(tmp_path: Path) -> None:
    """Splits are those in the names; labels are the numbers; an array in no pair is reported."""
    sets = {"train": _images(3, 5, 5, 3), "val": _images(2, 5, 5, 3), "test": _images(1, 5, 5, 3)}
    arrays: dict[str, Any] = {"mean": np.zeros(3)}
    for name, images in sets.items():
        arrays |= {f"{name}_images": images, f"{name}_labels": np.full((len(images), 1), 7)}
    np.savez_compressed(tmp_path / "pathmnist.npz", **arrays)
    source = open_tree(tmp_path / "pathmnist.npz")
    assert source.splits == ("train", "validation", "test")
    assert [item.split for item in source.items] == ["test", *["train"] * 3, *["validation"] * 2]
    assert "arrays not written: mean" in source.notices
    pixels = _pixels(source)
    for name, images in (("train", sets["train"]), ("validation", sets["val"])):
        for number, image in enumerate(images):
            assert (pixels[f"{name}/{number:08d}.png"] == image).all()


def test_columns_of_zeros_and_ones(tmp_path: Path) -> None:
    """A single 1 in each row is a class; several or none are labels, whose numbers stay."""
    images, one_hot = _images(3, 4, 4), np.eye(4, dtype=np.float32)[[2, 0, 2]]
    several = np.array([[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]], np.uint8)
    np.savez(tmp_path / "one.npz", x=images, y=one_hot)
    source = open_tree(tmp_path / "one.npz")
    assert [item.label for item in source.items] == ["2", "0", "2"]
    assert source.labels == ("0", "1", "2", "3")
    np.savez(tmp_path / "several.npz", train_images=images, train_labels=several)
    source = open_tree(tmp_path / "several.npz")
    assert source.features.label is LabelKind.CLASSES
    names = [[*source.features.names(item.label)] for item in source.items]
    assert names == [["1", "3"], [], ["0"]]
    assert source.labels == ("0", "1", "2", "3")


def test_labels_that_are_names(tmp_path: Path) -> None:
    """Strings are classes."""
    np.savez(tmp_path / "x.npz", images=_images(2, 4, 4), labels=np.array(["dog", "cat"]))
    assert [item.label for item in open_tree(tmp_path / "x.npz").items] == ["dog", "cat"]


def _packed(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return path


def _npy(array: Any, header: bytes | None = None) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    if header is None:
        return file.getvalue()
    length = len(header).to_bytes(2, "little")
    return b"\x93NUMPY\x01\x00" + length + header + bytes(array.tobytes())


def test_headers_that_lie_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More values than there are, or fewer; nonsense, deep nesting; bombs; a cut file."""
    x, y = np.zeros((2, 4, 4), np.uint8), np.zeros(2, int)
    start = b"{'descr': '|u1', 'fortran_order': False, 'shape': "
    for header in (
        start + b"(2, 4, 5)}\n",
        start + b"(1, 4, 4)}\n",
        start + b"(99999999999999999999, 4, 4)}\n",
        start + b"(" * 9000 + b"\n",
        start + b"(2, -4, -4)}\n",
        b"__import__('os')\n",
    ):
        path = _packed(tmp_path / "x.npz", x=_npy(x, header), y=_npy(y))
        with pytest.raises(SourceError, match=r"x\.npz"):
            open_tree(path)
    with pytest.raises(SourceError, match="no pairs of arrays"):
        open_tree(_packed(tmp_path / "x.npz", x=_npy(x)))
    with pytest.raises(SourceError, match="no pairs of arrays"):
        open_tree(_packed(tmp_path / "x.npz", a=_npy(x)))
    path = _packed(tmp_path / "x.npz", x=_npy(_images(2, 40, 40)), y=_npy(y))
    data = bytearray(path.read_bytes())
    data[200:220] = bytes(20)
    path.write_bytes(data)
    with pytest.raises(SourceError, match="truncated or damaged"):
        open_tree(path)
    path.write_bytes(data[:1000])
    for all_columns in (False, True):
        options = SourceOptions(all_columns=all_columns)
        with pytest.raises(SourceError, match="truncated or damaged"):
            open_source(str(path), LabelFrom.FOLDER, tmp_path, options=options)
    monkeypatch.setattr("tfrtool.storage.limits.FREE_UNPACKED_BYTES", 1000)
    with pytest.raises(SourceError, match="at most"):
        open_tree(_packed(tmp_path / "x.npz", x=_npy(np.zeros((2, 999, 999), np.uint8)), y=_npy(y)))


def test_a_header_that_unpacks_to_gigabytes(tmp_path: Path) -> None:
    """A header is refused by its length, before it is read."""
    magic, size = b"\x93NUMPY\x02\x00", 50 * 2**20
    bomb = magic + size.to_bytes(4, "little") + b" " * size
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", _npy(_images(1, 4, 4)))
        archive.writestr("y.npy", bomb)
    tracemalloc.start()
    try:
        with pytest.raises(SourceError, match="header of 52,428,800 bytes"):
            open_tree(tmp_path / "x.npz")
        assert tracemalloc.get_traced_memory()[1] < size // 4
    finally:
        tracemalloc.stop()


def test_labels_of_megabytes(tmp_path: Path) -> None:
    """Labels that are longer than a class name can be are refused."""
    np.savez(tmp_path / "x.npz", x=_images(1, 4, 4), y=np.array(["a" * 5000]))
    with pytest.raises(SourceError, match="unsupported array y"):
        open_tree(tmp_path / "x.npz")
