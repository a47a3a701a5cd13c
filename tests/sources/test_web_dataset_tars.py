"""WebDataset's tars as a source; tars of class folders stay what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.photos import image_bytes
from tests.sources.trees import open_tree, write_tar
from tfrtool.errors import SourceError, UsageError
from tfrtool.examples.example import DType
from tfrtool.examples.objects.annotation import ExtraFeatures
from tfrtool.examples.objects.record_features import ColumnKind, LabelKind
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions

IMAGES = [image_bytes(tint=tint) for tint in range(6)]


def _contents(source: Source) -> dict[bytes, tuple[str, str, str | None]]:
    return {source.reader.read(i): (i.key, i.label, i.split) for i in source.items}


def test_what_webdataset_writes_is_read(tmp_path: Path) -> None:
    """Class numbers, in several tars whose names say splits; keys are up to the first dot."""
    webdataset = pytest.importorskip("webdataset")
    for number, (split, start) in enumerate((("train", 0), ("train", 2), ("val", 4))):
        tar = tmp_path / "tars" / f"set-{split}-{number:05d}.tar"
        tar.parent.mkdir(exist_ok=True)
        with webdataset.TarWriter(str(tar)) as sink:
            for at in range(start, start + 2):
                sink.write(
                    {"__key__": f"sub/s{at}", "jpg": IMAGES[at], "cls": 9 + at % 2, "v1.txt": "x"}
                )
    wanted = {
        data: (
            f"set-{'train' if at < 4 else 'val'}-{at // 2:05d}/sub/s{at}.jpg",
            str(9 + at % 2),
            "train" if at < 4 else "validation",
        )
        for at, data in enumerate(IMAGES)
    }
    for argument in (tmp_path / "tars", tmp_path / "tars" / "set-*.tar"):
        source = open_source(str(argument), LabelFrom.FOLDER, tmp_path)
        assert _contents(source) == wanted
        assert source.labels == ("9", "10")
        assert source.splits == ("train", "validation")
        where = source.reader.describe(source.items[-1])
        assert where.startswith(str(tmp_path / "tars" / "set-val-00002.tar"))
    one = open_tree(tmp_path / "tars" / "set-val-00002.tar")
    assert [(item.key, item.split) for item in one.items] == [
        ("sub/s4.jpg", None),
        ("sub/s5.jpg", None),
    ]


def test_labels_are_told_in_three_ways(tmp_path: Path) -> None:
    """A name in .cls, a name or a number in .json; what has none, or no image, is listed."""
    tree = {
        "__meta__/x.json": b"{}",
        "0.jpg": IMAGES[0],
        "0.cls": b" tabby cat\n",
        "0.json": b'{"label": "other"}',
        "1.seg.png": b"no image of its own",
        "1.PNG": IMAGES[1],
        "1.json": json.dumps({"id": 1, "Class": "dog", "deep": {"x": [1]}}).encode(),
        "2.jpg": IMAGES[2],
        "2.json": b'{"label": 7}',
        "3.jpg": IMAGES[3],
        "3.json": b"[" * 50_000,
        "4.txt": b"text alone",
        "../5.jpg": IMAGES[5],
        "../5.cls": b"7",
    }
    source = open_tree(write_tar(tmp_path / "x.tar", tree))
    assert _contents(source) == {
        IMAGES[0]: ("0.jpg", "tabby cat", None),
        IMAGES[1]: ("1.PNG", "dog", None),
        IMAGES[2]: ("2.jpg", "7", None),
    }
    assert {left.key: left.reason for left in source.rejected} == {
        "3.jpg": "no label",
        "4.txt": "no image in the sample",
        "../5.jpg": "path leads outside the archive",
    }


def test_other_members_become_columns(tmp_path: Path) -> None:
    """Text and what JSON has, where --column asks; labels need not be; a group may be JSON's."""
    tree: dict[str, bytes] = {}
    for n in range(4):
        told = {"score": n / 2, "who": f"p{n // 2}", "deep": {}, "tags": ["a"] * n, "label": n % 2}
        tree |= {f"{n}.jpg": IMAGES[n], f"{n}.json": json.dumps(told).encode()}
        tree |= {f"{n}.txt": f"caption {n}".encode()}
    tar = write_tar(tmp_path / "x.tar", tree)

    def opened(**said: Any) -> Source:
        options = SourceOptions(**said)
        return open_source(str(tar), LabelFrom.FOLDER, tmp_path, options=options)

    source = opened(columns=("score", "text", "tags"), group_by="who")
    assert source.features.columns == (
        ColumnKind("score", DType.FLOAT32),
        ColumnKind("text", DType.STRING),
        ColumnKind("tags", DType.STRING, is_list=True),
    )
    values = [ExtraFeatures.unpack(item.extra).values for item in source.items]
    assert values[3] == {"score": (1.5,), "text": (b"caption 3",), "tags": (b"a",) * 3}
    one, two, three, four = (item.group for item in source.items)
    assert one == two != three == four
    assert source.labels == ("0", "1")
    assert [column.name for column in opened(all_columns=True).features.columns] == [
        *("score", "who", "tags", "text"),
    ]
    with pytest.raises(UsageError, match="no column 'scores'"):
        opened(columns=("scores",))
    alone = write_tar(tmp_path / "y.tar", {"0.jpg": IMAGES[0], "0.txt": b"a caption"})
    options = SourceOptions(columns=("text",))
    source = open_source(str(alone), LabelFrom.FOLDER, tmp_path, options=options)
    assert (source.features.label, source.labels) == (LabelKind.NONE, ())


def test_class_folders_stay_classes(tmp_path: Path) -> None:
    """JSON and text beside images in folders don't make samples of them; nor do other tars."""
    tree = {f"{kind}/{n}.jpg": IMAGES[n] for n, kind in enumerate(("cat", "dog"))}
    tree |= {"cat/0.json": b'{"label": "x"}', "dog/1.txt": b"text"}
    source = open_tree(write_tar(tmp_path / "x.tar", tree))
    assert [item.label for item in source.items] == ["cat", "dog"]
    flat = {"cat.0.jpg": IMAGES[0], "dog.1.jpg": IMAGES[1], "cat.0.txt": b"x"}
    scratch = tmp_path / "other"
    scratch.mkdir()
    tar = write_tar(tmp_path / "y.tar", flat)
    source = open_source(str(tar), LabelFrom.FILENAME, scratch)
    assert [item.label for item in source.items] == ["cat", "dog"]


def test_a_cut_tar_is_refused(tmp_path: Path) -> None:
    """Wherever a tar ends early, it is an error that names it; another one in a folder, too."""
    tree = {
        f"{n}.{end}": data for n in range(4) for end, data in (("jpg", IMAGES[n]), ("cls", b"1"))
    }
    (tmp_path / "tars").mkdir()
    for name in ("a.tar", "b.tar"):
        tar = write_tar(tmp_path / "tars" / name, tree)
    tar.write_bytes(tar.read_bytes()[:2000])
    with pytest.raises(SourceError, match=r"b\.tar.*truncated or damaged"):
        open_tree(tmp_path / "tars")


def test_ambiguous_samples_are_refused(tmp_path: Path) -> None:
    """Two members of a sample with the same extension are an error, as in convert."""
    tree = {"0.jpg": IMAGES[0], "0.cls": b"1", "1.jpg": IMAGES[1], "1.JPG": IMAGES[2]}
    with pytest.raises(SourceError, match=r"1\.JPG.*two members of the same name"):
        open_tree(write_tar(tmp_path / "x.tar", tree))
