"""Sources in a store: the same items as of the same files here, read by ranges."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.annotated_sets import scenes, write_box_csv, write_voc, write_yolo
from tests.emulators import Bucket
from tests.photos import image_bytes
from tests.sources.annotations.told import boxes, open_annotated
from tests.sources.trees import WRITERS, contents, labelled
from tfrtool.errors import SourceError, UsageError
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source

TREE = {
    f"pets/{kind}/{number}.jpg": image_bytes(tint=number)
    for kind in ("cat", "dog")
    for number in range(5)
} | {
    "pets/.hidden/1.jpg": b"",
    "pets/readme.txt": b"text",
    "pets/cat/IMG_1": image_bytes(),
    "pets/dog/model.bin": b"numbers",
}


def opened(place: str, scratch: Path, root: Path | None = None) -> Source:
    """Return what a place holds."""
    return open_source(place, LabelFrom.FOLDER, scratch, root)


@pytest.mark.parametrize("form", WRITERS)
def test_same_as_here(form: str, bucket: Bucket, tmp_path: Path) -> None:
    """A folder or an archive in a bucket gives the items of one here, with their bytes.

    Images without a file name extension are rejected alike.
    """
    local = WRITERS[form](tmp_path / "it", TREE)
    if local.is_dir():
        bucket.put_folder(local, "some/it/")
    else:
        bucket.put("some/it", local.read_bytes())
    (tmp_path / "scratch").mkdir()
    here = opened(str(local), tmp_path)
    there = opened(f"{bucket.url}/some/it", tmp_path / "scratch")
    assert labelled(here) == labelled(there)
    assert len(there.items) == 10
    assert (here.rejected, here.ignored) == (there.rejected, there.ignored)
    assert [(one.key, "JPEG" in one.reason) for one in there.rejected] == [("pets/cat/IMG_1", True)]
    assert contents(here) == contents(there)
    again = pickle.loads(pickle.dumps(there.reader))
    assert again.read(there.items[3]) == contents(there)[there.items[3].key]


@pytest.mark.parametrize("pattern", ["pets/*/*.jpg", "pets/**", "**/[0-3].jpg", "pets/cat/*"])
def test_patterns(pattern: str, bucket: Bucket, tmp_path: Path) -> None:
    """A pattern means the objects that it would mean as files."""
    local = WRITERS["folder"](tmp_path / "it", TREE)
    bucket.put_folder(local, "it/")
    here = opened(f"{local}/{pattern}", tmp_path)
    there = opened(f"{bucket.url}/it/{pattern}", tmp_path)
    assert labelled(here) == labelled(there)
    assert contents(here) == contents(there)


@pytest.mark.parametrize("name", ["list.csv", "list.jsonl"])
def test_a_table(name: str, bucket: Bucket, tmp_path: Path) -> None:
    """A table names objects below its own folder, and no others."""
    bucket.put_folder(WRITERS["folder"](tmp_path / "it", TREE), "it/")
    rows = [
        ("pets/cat/1.jpg", "a"),
        ("pets/dog/2.jpg", "b"),
        ("../secret.jpg", "a"),
        ("no.jpg", "b"),
    ]
    text = "".join(
        f"{path},{label}\n" if name.endswith("csv") else f'{{"path":"{path}","label":"{label}"}}\n'
        for path, label in rows
    )
    bucket.put("secret.jpg", b"secret")
    bucket.put(f"it/{name}", (("path,label\n" if name.endswith("csv") else "") + text).encode())
    source = opened(f"{bucket.url}/it/{name}", tmp_path)
    assert labelled(source) == [("pets/cat/1.jpg", "a"), ("pets/dog/2.jpg", "b")]
    assert contents(source)["pets/dog/2.jpg"] == TREE["pets/dog/2.jpg"]
    assert [(one.key, "no such file" in one.reason) for one in source.rejected] == [
        ("../secret.jpg", True),
        ("no.jpg", True),
    ]
    with pytest.raises(UsageError):
        opened(f"{bucket.url}/it/{name}", tmp_path, tmp_path)


def test_a_zip_is_transferred_once(bucket: Bucket, tmp_path: Path) -> None:
    """A zip archive is read from front to back, and not again for its images."""
    tree = {f"cat/{number}.jpg": image_bytes() + bytes(200_000) for number in range(20)}
    bucket.put("it.zip", WRITERS["stored.zip"](tmp_path / "it.zip", tree).read_bytes())
    bucket.forget()
    source = opened(f"{bucket.url}/it.zip", tmp_path)
    assert contents(source) == tree
    assert bucket.down() < 1.1 * sum(map(len, tree.values()))


def test_what_is_changed_after_it_was_listed(bucket: Bucket, tmp_path: Path) -> None:
    """An object of another size is an error, and so is a URL where nothing is."""
    bucket.put_folder(WRITERS["folder"](tmp_path / "it", TREE), "it/")
    source = opened(f"{bucket.url}/it", tmp_path)
    bucket.put(f"it/{source.items[0].key}", b"something else")
    with pytest.raises(OSError, match="changed after it was listed"):
        source.reader.read(source.items[0])
    with pytest.raises(SourceError, match="no such object"):
        opened(f"{bucket.url}/nothing", tmp_path)


@pytest.mark.parametrize("kind", ["voc", "yolo", "csv"])
def test_annotations(kind: str, bucket: Bucket, tmp_path: Path) -> None:
    """Annotations in a bucket say what the same files here say."""
    local = tmp_path / "it"
    scenes(local / "images" / "train")
    write_voc(local)
    write_yolo(local)
    write_box_csv(local / "boxes.csv")
    bucket.put_folder(local, "it/")
    name = "it/boxes.csv" if kind == "csv" else "it"
    here = open_annotated(local, f"{kind}:{tmp_path}/{name}")
    there = open_annotated(f"{bucket.url}/it", f"{kind}:{bucket.url}/{name}", tmp_path)
    assert boxes(there) == boxes(here)
    assert len(there.items) in (4, 6)
