"""One tree, whatever form it has."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import pickle
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.photos import image_bytes, write_class_folders
from tests.sources.trees import WRITERS, contents, labelled, open_tree, write_folder
from tfrtool.errors import SourceError, UsageError
from tfrtool.records.framing import frame
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.open_source import open_source

_FOLDERS = st.sampled_from(["cat", "dog", "été", "train", "test", "Pet Images", "猫", ".x"])
_NAMES = st.sampled_from(["1.jpg", "cat.1.JPG", "dog_2.png", "x.txt", "Thumbs.db", "._1.jpg"])
_KEYS = st.tuples(st.lists(_FOLDERS, max_size=3), _NAMES).map(
    lambda parts: "/".join((*parts[0], parts[1]))
)
_TREES = st.dictionaries(_KEYS, st.binary(max_size=1500), max_size=8)


@given(_TREES, st.sampled_from(LabelFrom))
def test_all_forms_give_the_same_items(tree: dict[str, bytes], label_from: LabelFrom) -> None:
    """A folder and every archive of it give equal items with equal bytes, or all an error."""
    with tempfile.TemporaryDirectory() as name:
        found: list[tuple[Any, ...] | None] = []
        for form, write in WRITERS.items():
            path = write(Path(name) / f"source.{form}", tree)
            try:
                source = open_tree(path, label_from)
            except SourceError as error:
                assert error.path == str(path)  # noqa: PT017 - the same for all forms
                found.append(None)
                continue
            meaning = [(item.key, item.label, item.bytes, item.split) for item in source.items]
            skipped = (source.labels, source.splits, source.rejected, source.ignored)
            found.append((meaning, contents(source), *skipped))
    assert all(form == found[0] for form in found)
    if found[0] is not None:
        assert found[0][1] == {key: tree[key] for key in found[0][1]}


@pytest.mark.parametrize("form", WRITERS)
def test_readers_travel_and_share_nothing(form: str, tmp_path: Path) -> None:
    """A pickled reader reads, in several threads at once, what the first one reads."""
    tree = {f"cat/{number}.jpg": os.urandom(number * 37) for number in range(60)}
    source = open_tree(WRITERS[form](tmp_path / "source", tree))
    reader = pickle.loads(pickle.dumps(source.reader))
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(reader.read, [*source.items] * 3))
    assert parts == [tree[item.key] for item in [*source.items] * 3]
    assert "cat/7.jpg" in reader.describe(next(i for i in source.items if i.key == "cat/7.jpg"))


@pytest.mark.parametrize("form", WRITERS)
def test_the_name_of_an_archive_proves_nothing(form: str, tmp_path: Path) -> None:
    """What a source is, its bytes tell."""
    path = WRITERS[form](tmp_path / "photos.jpg", {"cat/1.jpg": b"x", "dog/1.jpg": b"y"})
    assert labelled(open_tree(path)) == [("cat/1.jpg", "cat"), ("dog/1.jpg", "dog")]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "no data"),
        (bytes(2000), "only zero bytes"),
        (image_bytes(), "a JPEG image"),
        (b"\x1f\x8b\x08", "gzip data"),
    ],
)
def test_other_files_are_an_error(data: bytes, found: str, tmp_path: Path) -> None:
    """A file that is no source is an error that says what is possible, and what was found."""
    path = tmp_path / "file.zip"
    path.write_bytes(data)
    with pytest.raises(SourceError) as caught:
        open_tree(path)
    assert caught.value.path == str(path)
    assert ".tar" in str(caught.value.expected)
    assert caught.value.found == found


@pytest.mark.parametrize("name", ["pets-train.tfrecord-00000-of-00001", "train.tfrec", "records"])
def test_shards_are_a_dataset_already(name: str, tmp_path: Path) -> None:
    """A shard, and a folder of shards below others, name commands that read a dataset."""
    folder = tmp_path / "pets" / "1.0.0"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text("{}")
    (folder / name).write_bytes(frame(b"payload"))
    for path, command in ((tmp_path / "pets", "dataset"), (folder / name, "shard")):
        with pytest.raises(SourceError, match="already a dataset of TFRecord shards") as caught:
            open_tree(path)
        assert str(caught.value.found).endswith(name)
        assert f"tfrtool inspect {command} {path} " in str(caught.value.hint)


def test_tables(tmp_path: Path) -> None:
    """A text is a table, whatever its name; one that isn't is an error that names it."""
    tree = {"files/1.jpg": b"a", "files/2.jpg": b"b"}
    write_folder(tmp_path, tree)
    for name in ("table.csv", "table"):
        (tmp_path / name).write_text("path,label\nfiles/1.jpg,cat\nfiles/2.jpg,dog\n")
        source = open_tree(tmp_path / name)
        assert labelled(source) == [("files/1.jpg", "cat"), ("files/2.jpg", "dog")]
        assert contents(source) == tree
    (tmp_path / "notes.txt").write_text("Some text.\n")
    with pytest.raises(SourceError) as caught:
        open_tree(tmp_path / "notes.txt")
    assert caught.value.path == str(tmp_path / "notes.txt")


@pytest.mark.parametrize("source", ["a.csv", "tfds:cats_vs_dogs"])
def test_labels_of_names_are_for_files(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table and a dataset of TFDS say labels themselves: they can't be asked for from names."""
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("path,label\ncat.1.jpg,cat\n")
    with pytest.raises(UsageError) as caught:
        open_source(source, LabelFrom.FILENAME, tmp_path)
    assert caught.value.path == source


def test_names_of_tfds(tmp_path: Path) -> None:
    """What follows ``tfds:`` is for TFDS, whatever files there are."""
    with pytest.raises(UsageError) as caught:
        open_source("tfds:no-such/name/at:all", LabelFrom.FOLDER, tmp_path)
    assert "no-such/name/at:all" in str(caught.value)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_data_that_is_no_tar_is_an_error(
    compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """Compression alone makes no archive, whole or cut."""
    for number, size in enumerate((None, 20)):
        path = tmp_path / f"{number}"
        path.write_bytes(compress(b"no archive" * 1000)[:size])
        with pytest.raises(SourceError) as caught:
            open_tree(path)
        assert caught.value.path == str(path)


def test_missing_and_special_sources_are_errors(tmp_path: Path) -> None:
    """Neither a path that isn't there nor a pipe, which would never end, is a source."""
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", "missing*", "pipe", "a\0b"):
        with pytest.raises(SourceError) as caught:
            open_source(str(tmp_path / name), LabelFrom.FOLDER, tmp_path)
        assert caught.value.path == str(tmp_path / name)
        assert caught.value.exit_code == 1


def test_real_photographs(shared_data: Path, tmp_path: Path) -> None:
    """Photographs of others come out of each kind of archive as they are in the folder."""
    folder = shared_data / "catsdogs_iitis"
    source = open_source(str(folder), LabelFrom.FOLDER, tmp_path)
    assert source.labels == ("Cat", "Dog")
    assert len(source.items) == 20
    expected = contents(source)
    for form in ("zip", "tar", "tar.gz"):
        assert contents(open_tree(WRITERS[form](tmp_path / form, expected))) == expected


def test_a_relative_source_stays_readable_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers hold absolute paths: workers may stand elsewhere."""
    write_class_folders(tmp_path / "photos", count=1)
    monkeypatch.chdir(tmp_path)
    source = open_source("photos", LabelFrom.FOLDER, tmp_path)
    monkeypatch.chdir("/")
    assert len(contents(source)) == 2
