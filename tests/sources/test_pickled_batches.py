"""CIFAR's pickles as a source."""

from __future__ import annotations

import io
import os
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.sources.trees import open_tree
from tfrtool.errors import SourceError, UsageError
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions

DRAW = np.random.default_rng(0)
PROTOCOLS = (2, 3, 4, 5)


def _images(count: int) -> Any:
    return DRAW.integers(0, 256, (count, 4, 4, 3), np.uint8)


def _rows(images: Any) -> Any:
    """Return images as CIFAR has them: all of red, then green, then blue."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2).reshape(len(images), -1))


def _batch(images: Any, labels: Any, key: str = "labels", **more: Any) -> Mapping[bytes, Any]:
    return {b"data": _rows(images), key.encode(): labels} | {
        name.encode(): values for name, values in more.items()
    }


def _write(path: Path, content: object, protocol: int = 2) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol))


def _open(path: Path, **options: Any) -> Source:
    scratch = path.parent / ".scratch"
    scratch.mkdir(exist_ok=True)
    return open_source(str(path), LabelFrom.FOLDER, scratch, options=SourceOptions(**options))


def _pixels(source: Source) -> dict[str, Any]:
    read = source.reader.read
    return {i.key: np.asarray(Image.open(io.BytesIO(read(i)))) for i in source.items}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_cifar_10(protocol: int, tmp_path: Path) -> None:
    """Batches are joined in the order of their numbers; names come from batches.meta."""
    folder, images = tmp_path / "cifar-10-batches-py", _images(5)
    parts = {"data_batch_2": images[2:3], "data_batch_1": images[:2], "data_batch_10": images[3:4]}
    for name, part in parts.items():
        _write(folder / name, _batch(part, [1] * len(part)), protocol)
    _write(folder / "test_batch", _batch(images[4:], [0]), protocol)
    _write(folder / "batches.meta", {b"label_names": [b"airplane", b"automobile"]}, protocol)
    (folder / "readme.html").write_text("<p>CIFAR</p>")
    for path in (folder, tmp_path):
        source = _open(path)
        assert source.splits == ("train", "test")
        assert source.labels == ("airplane", "automobile")
        assert [(item.split, item.label) for item in source.items] == [
            ("test", "airplane"),
            *[("train", "automobile")] * 4,
        ]
        pixels = _pixels(source)
        for number in range(4):
            assert (pixels[f"train/{number:08d}.png"] == images[number]).all()
        assert (pixels["test/00000000.png"] == images[4]).all()
    assert len(_open(folder / "data_batch_1").items) == 2


def test_cifar_100(tmp_path: Path) -> None:
    """Fine labels are the classes unless coarse ones are chosen; others may be features."""
    images = _images(2)
    for name in ("train", "test"):
        batch = _batch(
            images, [2, 0], "fine_labels", coarse_labels=[1, 1], filenames=[b"a.png", b"b.png"]
        )
        _write(tmp_path / name, batch)
    names = {"fine_label_names": ["apple", "bee", "cat"], "coarse_label_names": ["fruit", "pet"]}
    _write(tmp_path / "meta", names)
    assert [item.label for item in _open(tmp_path).items] == ["cat", "apple"] * 2
    source = _open(tmp_path, label_column="coarse_labels", columns=("filenames",))
    assert source.labels == ("fruit", "pet")
    assert [item.label for item in source.items] == ["pet"] * 4
    assert [column.name for column in source.features.columns] == ["filenames"]
    with pytest.raises(UsageError, match="no column 'color'"):
        _open(tmp_path, label_column="color")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("module", ["numpy.core", "numpy._core"])
def test_both_names_of_numpy(protocol: int, module: str, tmp_path: Path) -> None:
    """NumPy 1 and 2 call their own functions by different names; labels may be an array, too."""
    images = _images(2)
    data = pickle.dumps(_batch(images, np.array([3, 300], "<i4")), protocol)
    mine = "numpy._core" if b"numpy._core" in data else "numpy.core"
    if protocol < 4:  # where names are lines, and may have any length
        data = data.replace(mine.encode(), module.encode())
    path = tmp_path / "data_batch_1"
    path.write_bytes(data)
    source = open_tree(path)
    assert [item.label for item in source.items] == ["3", "300"]
    assert (np.stack([*_pixels(source).values()]) == images).all()


def test_strings_of_python_2(tmp_path: Path) -> None:
    """The published files have strings of Python 2, whose characters are bytes."""
    images = _images(2)
    data = _rows(images).tobytes()
    text = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\n"
        b"q\x04K\x00\x85U\x01b\x87Rq\x05(K\x01K\x02K0\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87R"
        b"q\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + struct.pack("<i", len(data))
        + data
        + b"tbU\x06labelsq\x08]q\x09(K\x06K\x09eu."
    )
    assert (pickle.loads(text, encoding="latin1")["data"] == _rows(images)).all()
    (tmp_path / "data_batch_1").write_bytes(text)
    source = open_tree(tmp_path / "data_batch_1")
    assert [item.label for item in source.items] == ["6", "9"]
    assert (np.stack([*_pixels(source).values()]) == images).all()


class _Call:
    """Pickled as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> Any:
        return self._call


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "call",
    [
        lambda path: _Call(os.system, f"touch {path}"),
        lambda path: _Call(eval, f"open({str(path)!r}, 'w')"),
        lambda path: _Call(getattr, path, "touch"),
        lambda path: _Call(open, str(path), "w"),
        lambda path: np.array([_Call(os.system, f"touch {path}"), 1], object),
    ],
)
def test_nothing_is_run(call: Any, protocol: int, tmp_path: Path) -> None:
    """A pickle that calls anything is one error that names it."""
    ran = tmp_path / "ran"
    content = _batch(_images(1), [call(ran)])
    _write(tmp_path / "data_batch_1", content, protocol)
    with pytest.raises(SourceError, match=r"data_batch_1: pickle has .*; nothing in it was run"):
        open_tree(tmp_path / "data_batch_1")
    _write(tmp_path / "data_batch_1", _batch(_images(1), [0]))
    _write(tmp_path / "batches.meta", {b"label_names": call(ran)}, protocol)
    with pytest.raises(SourceError, match="nothing in it was run"):
        open_tree(tmp_path / "data_batch_1")
    assert not ran.exists()


def _machine_code(name: str) -> bytes:
    data = pickle.dumps(_batch(_images(2), [0, 1]))
    at = data.index(b"data")
    return {
        "cut": data[:-30],
        "memo": b"\x80\x02N" + b"r\xff\xff\xff\x7f" + b".",  # a memo of 2**31 entries
        "long": b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.",
        "stack": b"\x80\x020.",
        "marks": b"\x80\x02(((.",
        "persistent": b"\x80\x02K\x01Q.",
        "extension": b"\x80\x02\x82\x01.",
        "build": b"\x80\x02cnumpy\nndarray\n}b.",
        "key": b"\x80\x02}))s.",
        "memory": b"\x80\x02h\x09.",
        "noise": data[:at] + bytes(range(0x97, 0xFF)),
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        *("cut", "memo", "long", "stack", "marks", "persistent", "extension", "build", "key"),
        *("memory", "noise"),
    ],
)
def test_damaged_pickles(name: str, tmp_path: Path) -> None:
    """Instructions that make no sense, or would take all memory, are one error."""
    path = tmp_path / "data_batch_1"
    path.write_bytes(_machine_code(name))
    with pytest.raises(SourceError, match="data_batch_1"):
        open_tree(path)


def test_an_array_that_lies(tmp_path: Path) -> None:
    """An array must have the bytes that its shape declares."""
    data = pickle.dumps(_batch(_images(2), [0, 1]), 3)
    lies = data.replace(b"K\x02K0\x86", b"K\x09K0\x86")
    assert lies != data
    (tmp_path / "data_batch_1").write_bytes(lies)
    with pytest.raises(SourceError, match=r"an array of 96 bytes that claims to be"):
        open_tree(tmp_path / "data_batch_1")


def test_bytes_made_again_and_again(tmp_path: Path) -> None:
    """Text that becomes bytes many times would take more memory than the file."""
    text = b"x" * 1000
    again = b"h\x00h\x01X\x06\x00\x00\x00latin1\x86R0"
    head = b"\x80\x02c_codecs\nencode\nq\x000X" + struct.pack("<I", len(text)) + text + b"q\x010"
    (tmp_path / "data_batch_1").write_bytes(head + again * 100 + b"N.")
    with pytest.raises(SourceError, match="text that is repeated"):
        open_tree(tmp_path / "data_batch_1")


def test_scalars_made_again_and_again(tmp_path: Path) -> None:
    """Bytes that become values many times would take more memory than the file."""
    text = b"x" * 5000
    head = (
        b"\x80\x03cnumpy.core.multiarray\nscalar\nq\x000cnumpy\ndtype\nX\x05\0\0\0S5000K\0K\1\x87R"
    )
    head += b"q\x010B" + struct.pack("<I", len(text)) + text + b"q\x020"
    (tmp_path / "data_batch_1").write_bytes(head + b"h\0h\1h\2\x86R" * 100 + b".")
    with pytest.raises(SourceError, match="text that is repeated"):
        open_tree(tmp_path / "data_batch_1")


def test_huge_integers(tmp_path: Path) -> None:
    """An integer that could not be a label or a size is refused before it is used."""
    _write(tmp_path / "data_batch_1", _batch(_images(1), [10**5000]))
    with pytest.raises(SourceError, match="an integer of more than 64 bits"):
        open_tree(tmp_path / "data_batch_1")


def test_values_that_are_no_columns(tmp_path: Path) -> None:
    """Only numbers and texts can be columns, however often an object is shared."""
    shared = [["x"] * 1000] * 1000
    _write(tmp_path / "data_batch_1", _batch(_images(2), [0, 1], nested=[shared, shared]))
    assert len(_open(tmp_path / "data_batch_1", all_columns=True).items) == 2
    many: Any = {str(number): [1, 2] for number in range(100)}
    _write(tmp_path / "data_batch_1", _batch(_images(2), [0, 1], **many))
    with pytest.raises(SourceError, match="102 keys"):
        open_tree(tmp_path / "data_batch_1")


def test_names_of_classes_that_no_file_can_have(tmp_path: Path) -> None:
    """A name with a line break is refused, even if no image has it."""
    _write(tmp_path / "data_batch_1", _batch(_images(2), [0, 0]))
    _write(tmp_path / "batches.meta", {"label_names": ["cat", "a\nb"]})
    with pytest.raises(SourceError, match="not a list of different names"):
        open_tree(tmp_path / "data_batch_1")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "unsupported pickle.*a list"),
        ({}, "no array of pixels.*an empty dict"),
        ({"data": np.zeros((2, 48), np.float32), "labels": [0, 1]}, "float32 of shape"),
        ({"data": np.zeros((2, 47), np.uint8), "labels": [0, 1]}, r"shape \(2, 47\)"),
        ({"data": np.zeros((2, 48), np.uint8), "labels": [0]}, "1 labels for 2 images"),
        ({"data": np.zeros((2, 48), np.uint8)}, "no labels"),
    ],
)
def test_other_contents(content: object, message: str, tmp_path: Path) -> None:
    """What is in a pickle, and what should be, is in the error."""
    _write(tmp_path / "data_batch_1", content)
    with pytest.raises(SourceError, match=message):
        open_tree(tmp_path / "data_batch_1")


def test_a_label_without_a_name(tmp_path: Path) -> None:
    """It is listed, and the other images are read."""
    _write(tmp_path / "data_batch_1", _batch(_images(2), [0, 7]))
    _write(tmp_path / "batches.meta", {"label_names": ["cat"]})
    source = open_tree(tmp_path / "data_batch_1")
    assert [entry.reason for entry in source.rejected] == ["label 7 has no name"]
