"""Arrays in archives, as they are published."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.photos import image_bytes
from tests.sources.trees import open_tree
from tfrtool.errors import SourceError

CIFAR = {
    "cifar-10-batches-py/readme.html": b"<p>",
    "cifar-10-batches-py/data_batch_1": pickle.dumps(
        {b"data": np.arange(24, dtype=np.uint8).reshape(2, 12), b"labels": [1, 0]}, 2
    ),
    "cifar-10-batches-py/test_batch": pickle.dumps(
        {b"data": np.zeros((1, 12), np.uint8), b"labels": [1]}, 2
    ),
    "cifar-10-batches-py/batches.meta": pickle.dumps({b"label_names": [b"cat", b"dog"]}, 2),
}


def _tar(path: Path, files: dict[str, bytes]) -> None:
    mode: Any = "w:gz" if path.suffix == ".gz" else "w"
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def _zip(path: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    ("name", "pack"), [("c.tar.gz", _tar), ("c.tgz", _tar), ("c.tar", _tar), ("c.zip", _zip)]
)
def test_cifar_as_it_is_published(
    name: str, pack: Callable[[Path, dict[str, bytes]], None], tmp_path: Path
) -> None:
    """An archive of pickles has the splits and the names of classes of its folder."""
    pack(tmp_path / name, CIFAR)
    source = open_tree(tmp_path / name)
    assert source.labels == ("cat", "dog")
    assert [(item.key, item.label) for item in source.items] == [
        ("test/00000000.png", "dog"),
        ("train/00000000.png", "dog"),
        ("train/00000001.png", "cat"),
    ]


def test_mnist_in_a_zip(tmp_path: Path) -> None:
    """Idx files in folders of an archive are found, and clutter of macOS is not."""
    images = b"\0\0\x08\x03" + struct.pack(">3I", 2, 2, 2) + bytes(8)
    labels = b"\0\0\x08\x01" + struct.pack(">I", 2) + b"\x07\x03"
    files = {"MNIST/raw/t10k-images-idx3-ubyte": images, "MNIST/raw/t10k-labels-idx1-ubyte": labels}
    files |= {f"__MACOSX/MNIST/raw/{name.rpartition('/')[2]}": b"x" for name in files}
    _zip(tmp_path / "mnist.zip", files)
    source = open_tree(tmp_path / "mnist.zip")
    assert [item.label for item in source.items] == ["7", "3"]


def test_archives_of_images_stay_trees(tmp_path: Path) -> None:
    """A pickle next to photographs doesn't make an archive one of arrays."""
    files = {"cat/1.jpg": image_bytes(), "cat/train.pkl": b"x", "dog/2.jpg": image_bytes()}
    _tar(tmp_path / "a.tar.gz", files)
    _zip(tmp_path / "a.zip", files)
    for name in ("a.tar.gz", "a.zip"):
        assert open_tree(tmp_path / name).labels == ("cat", "dog")


def test_hostile_archives(tmp_path: Path) -> None:
    """Damage, names that lead out and names that come twice are one error, or not followed."""
    _zip(tmp_path / "damaged.zip", CIFAR)
    data = (tmp_path / "damaged.zip").read_bytes()
    at = data.index(b"labels")
    (tmp_path / "damaged.zip").write_bytes(data[:at] + b"LABELS" + data[at + 6 :])
    with pytest.raises(SourceError, match="data_batch_1 can't be read"):
        open_tree(tmp_path / "damaged.zip")
    _zip(tmp_path / "list.zip", {"c/train": pickle.dumps([1], 2)})
    with pytest.raises(SourceError, match=r"list\.zip/train: unsupported pickle"):
        open_tree(tmp_path / "list.zip")
    batch = CIFAR["cifar-10-batches-py/data_batch_1"]
    _tar(tmp_path / "twice.tar.gz", {"a/train": batch, "b/train": batch})
    with pytest.raises(SourceError, match="several files are called train"):
        open_tree(tmp_path / "twice.tar.gz")
    _tar(tmp_path / "out.tar", {"../../train": batch})
    with pytest.raises(SourceError, match="path leads outside the archive"):
        open_tree(tmp_path / "out.tar")
    assert not (tmp_path.parent / "train").exists()
    cut = (tmp_path / "twice.tar.gz").read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(cut[:-20])
    with pytest.raises(SourceError, match="damaged"):
        open_tree(tmp_path / "cut.tar.gz")
