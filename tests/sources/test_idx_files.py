"""MNIST's idx files as a source."""

from __future__ import annotations

import gzip
import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.sources.trees import open_tree
from tfrtool.errors import SourceError
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source

DRAW = np.random.default_rng(0)


def _idx(array: Any) -> bytes:
    """Return an array as LeCun describes the format."""
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return head + bytes(array.tobytes())


def _write_set(
    folder: Path, prefix: str, count: int, *, packed: bool = False, dot: str = "-"
) -> Any:
    """Write a pair of files; return the images, whose labels are their numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    images = DRAW.integers(0, 256, (count, 6, 5), np.uint8)
    for role, array in (("images", images), ("labels", np.arange(count, dtype=np.uint8))):
        name = f"{prefix}-{role}{dot}idx{array.ndim}-ubyte"
        data = gzip.compress(_idx(array)) if packed else _idx(array)
        (folder / (name + ".gz" * packed)).write_bytes(data)
    return images


def _open(path: Path, scratch: Path) -> Source:
    return open_source(str(path), LabelFrom.FOLDER, scratch)


def _pixels(source: Source, split: str | None) -> Any:
    read = source.reader.read
    items = [item for item in source.items if item.split == split]
    assert [item.label for item in items] == [str(n) for n in range(len(items))]
    return np.stack([np.asarray(Image.open(io.BytesIO(read(item)))) for item in items])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dot", ["-", "."])
def test_both_splits(packed: bool, dot: str, tmp_path: Path) -> None:
    """Train and t10k are the splits, compressed or not; the pixels are exact."""
    train = _write_set(tmp_path / "raw", "train", 4, packed=packed, dot=dot)
    test = _write_set(tmp_path / "raw", "t10k", 2, packed=packed, dot=dot)
    for path in (tmp_path, tmp_path / "raw"):  # what torchvision's root has, and the folder itself
        scratch = tmp_path / ".scratch"
        scratch.mkdir(exist_ok=True)
        source = _open(path, scratch)
        assert source.splits == ("train", "test")
        assert (_pixels(source, "train") == train).all()
        assert (_pixels(source, "test") == test).all()


def test_copies_of_files(tmp_path: Path) -> None:
    """Of a file and its compressed original, as torchvision leaves them, one is read."""
    _write_set(tmp_path / "raw", "train", 3, packed=True)
    train = _write_set(tmp_path / "raw", "train", 3)
    source = _open(tmp_path / "raw", tmp_path)
    assert (_pixels(source, None) == train).all()
    (notice,) = source.notices
    assert notice == (
        "files not read, because others are their copies by name: "
        "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz"
    )


def test_a_single_file_brings_its_labels(tmp_path: Path) -> None:
    """The file of labels is found by its name; without it, the error names the file."""
    train = _write_set(tmp_path, "train", 3)
    _write_set(tmp_path, "t10k", 2)
    path = tmp_path / "train-images-idx3-ubyte"
    assert (_pixels(open_tree(path), None) == train).all()
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(SourceError, match="no file of labels for train-images-idx3-ubyte"):
        open_tree(path)


def test_emnist_has_characters(tmp_path: Path) -> None:
    """Several datasets in a folder need a pattern; the mapping next to them names the classes."""
    letters = _write_set(tmp_path, "emnist-letters-train", 2)
    _write_set(tmp_path, "emnist-digits-train", 2)
    (tmp_path / "emnist-letters-mapping.txt").write_text("0 65 97\n1 66 98\n2 67 99\n")
    with pytest.raises(SourceError, match=r"files of several datasets.*emnist-letters"):
        _open(tmp_path, tmp_path)
    source = _open(tmp_path / "emnist-letters-*", tmp_path)
    assert source.labels == ("A", "B", "C")
    assert [item.label for item in source.items] == ["A", "B"]
    assert len(source.items) == len(letters)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 2**32 - 1, 28), None, "declares .* bytes"),
        (struct.pack(">HBB3I", 0, 8, 3, 2, 3, 3) + bytes(17), None, "declares 18 bytes.*17"),
        (struct.pack(">HBB3I", 0, 8, 3, 2, 3, 3) + bytes(19), None, "declares 18 bytes.*19"),
        (b"\0\0\x0d\x03" + bytes(12), None, "invalid idx header"),
        (b"\0\0\x08\x03\0\0", None, "truncated idx header"),
        (b"", None, "invalid idx header"),
        (_idx(np.zeros((0, 3, 3), np.uint8)), _idx(np.zeros(0, np.uint8)), "no usable images"),
        (_idx(np.zeros((2, 0, 3), np.uint8)), None, r"shape \(2, 0, 3\)"),
        (None, _idx(np.zeros(3, np.uint8)), "a label for each of 2 images"),
        (None, _idx(np.zeros((2, 8), np.uint8)), "a label for each of 2 images"),
    ],
)
def test_files_that_lie(
    images: bytes | None, labels: bytes | None, message: str, tmp_path: Path
) -> None:
    """Sizes and counts that disagree are one error, whatever a header declares."""
    usual = _idx(np.zeros((2, 3, 3), np.uint8)), _idx(np.zeros(2, np.uint8))
    for name, data in (
        ("train-images-idx3-ubyte", usual[0] if images is None else images),
        ("train-labels-idx1-ubyte", usual[1] if labels is None else labels),
    ):
        (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError, match=message):
        _open(tmp_path, tmp_path)


def test_a_compressed_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a small file may decompress to is bounded; a damaged one is an error."""
    monkeypatch.setattr("tfrtool.storage.limits.FREE_UNPACKED_BYTES", 10_000)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(_idx(np.zeros(9, np.uint8)))
    )
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(_idx(np.zeros((9, 500, 500), np.uint8))))
    with pytest.raises(SourceError, match="decompresses to more than"):
        _open(tmp_path, tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(SourceError, match=r"decompresses|damaged gzip"):
        _open(tmp_path, tmp_path)
