"""Sources that change while they are read: nothing is published, and what is gone is named."""

from __future__ import annotations

import errno
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.photos import write_class_folders
from tfrtool.sources.archives import list_zip
from tfrtool.sources.folders.listing import file_entry
from tfrtool.storage.progress import Progress

TWO = {"train": 0.5, "test": 0.5}
ONE = {"train": 1}


def _options(source: Path, *, looked_at_first: bool) -> dict[str, Any]:
    return {
        "source": source,
        "dataset": source.parent / "dataset",
        "shuffle": False,
        "splits": TWO if looked_at_first else ONE,
        "shards": 2,
        "workers": 1,
    }


def _once(
    action: Callable[[], object], *, when_checked: bool = False
) -> Callable[[Progress], None]:
    """Return a callback that does something at the first step, or when all has been checked."""
    pending = [action]

    def on_progress(progress: Progress) -> None:
        if pending and (not when_checked or progress.done == progress.total):
            pending.pop()()

    return on_progress


def _refused(options: dict[str, Any], on_progress: Callable[[Progress], None]) -> str:
    """Write, expect an error with exit code 1 and no dataset, and return the path it names."""
    with pytest.raises(tfrtool.TfrtoolError) as caught:
        tfrtool.write(**options, on_progress=on_progress)  # type: ignore[call-arg]
    assert caught.value.exit_code == 1
    assert not options["dataset"].exists()
    return caught.value.path or ""


@pytest.mark.tf
@pytest.mark.parametrize("looked_at_first", [False, True])
def test_a_class_that_vanishes(tmp_path: Path, looked_at_first: bool) -> None:
    """A folder that goes away after it was listed ends the work; no class is left out."""
    source = write_class_folders(tmp_path / "photos", count=50)
    options = _options(source, looked_at_first=looked_at_first)
    path = _refused(options, _once(lambda: shutil.rmtree(source / "dog")))
    assert path.startswith(str(source / "dog"))


def _change(path: Path, change: str) -> None:
    data = path.read_bytes()
    path.unlink()
    if change == "folder":
        path.mkdir()
    elif change == "link":
        path.symlink_to(path.name)
    elif change != "gone":
        path.write_bytes(
            {"cut": data[:100], "longer": data + b"\0", "other": bytes(len(data))}[change]
        )


@pytest.mark.tf
@pytest.mark.parametrize("looked_at_first", [False, True])
@pytest.mark.parametrize("change", ["gone", "cut", "longer", "folder", "link"])
def test_a_file_that_is_changed(tmp_path: Path, change: str, looked_at_first: bool) -> None:
    """A file that is gone, or not what was listed, is an error that names it."""
    source = write_class_folders(tmp_path / "photos", count=50)
    path = source / "dog" / "dog.49.jpg"
    options = _options(source, looked_at_first=looked_at_first)
    assert _refused(options, _once(lambda: _change(path, change))) == str(path)


@pytest.mark.tf
@pytest.mark.parametrize("recipe", ["keep", "png"])
def test_a_file_that_changes_between_check_and_write(tmp_path: Path, recipe: str) -> None:
    """What is written is what was checked, even where the new bytes are as many."""
    source = write_class_folders(tmp_path / "photos", count=20)
    path = source / "dog" / "dog.9.jpg"
    other = bytearray(path.read_bytes())
    other[-10] ^= 1
    options = {"source": source, "dataset": tmp_path / "dataset", "splits": TWO, "encode": recipe}
    assert _refused(options, _once(lambda: path.write_bytes(other), when_checked=True)) == str(path)


@pytest.mark.tf
@pytest.mark.parametrize(
    ("number", "looked_at_first"), [(errno.EIO, False), (errno.EACCES, False), (errno.ESTALE, True)]
)
def test_a_disk_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, looked_at_first: bool
) -> None:
    """An error of the system is no bad image: a mount that is gone gives it for every file."""
    from tfrtool.sources.folders import listing

    source = write_class_folders(tmp_path / "photos", count=20)
    real = listing.read_file

    def read_file(path: str, size: int) -> bytes:
        if path.endswith("dog.9.jpg"):
            raise OSError(number, os.strerror(number), path)
        return real(path, size)

    monkeypatch.setattr(listing, "read_file", read_file)
    options = _options(source, looked_at_first=looked_at_first)
    assert _refused(options, lambda _: None) == str(source / "dog" / "dog.9.jpg")


def _zip(source: Path) -> Path:
    path = source.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(source.rglob("*.jpg")):
            archive.write(file, file.relative_to(source))
    return path


@pytest.mark.tf
@pytest.mark.parametrize("looked_at_first", [False, True])
@pytest.mark.parametrize("change", ["gone", "cut", "other"])
def test_an_archive_that_is_changed(tmp_path: Path, change: str, looked_at_first: bool) -> None:
    """Members of an archive that is gone, cut or another one are no bad images."""
    photos = write_class_folders(tmp_path / "photos", count=50)
    path = Path(shutil.make_archive(str(photos), "tar", photos))
    options = _options(path, looked_at_first=looked_at_first)
    assert _refused(options, _once(lambda: _change(path, change))).startswith(str(path))


def test_an_archive_that_is_changed_while_it_is_unpacked(tmp_path: Path) -> None:
    """A zip that is written to while its images are unpacked ends the work."""
    path = _zip(write_class_folders(tmp_path / "photos", count=3))
    entries = iter(list_zip(str(path), tmp_path).entries)
    next(entries)
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(tfrtool.SourceError, match="changed while it was read"):
        list(entries)


@pytest.mark.tf
def test_a_damaged_member_is_skipped(tmp_path: Path) -> None:
    """A member whose checksum was wrong from the start is a bad image, as before."""
    source = write_class_folders(tmp_path / "photos", count=10)
    path = _zip(source)
    data = bytearray(path.read_bytes())
    inside = data.index((source / "dog" / "dog.9.jpg").read_bytes()) + 200
    data[inside] ^= 1
    path.write_bytes(data)
    report = tfrtool.write(**_options(path, looked_at_first=False))  # type: ignore[call-arg]
    assert [entry.key for entry in report.rejected] == ["dog/dog.9.jpg"]


def test_what_is_gone_while_it_is_listed(tmp_path: Path) -> None:
    """A name that is listed, but can't be looked at, is an error; a link to nowhere is not."""
    (tmp_path / "link.jpg").symlink_to("nowhere.jpg")
    with pytest.raises(FileNotFoundError):
        file_entry(str(tmp_path / "gone.jpg"), "gone.jpg")
    assert "link" in str(file_entry(str(tmp_path / "link.jpg"), "link.jpg"))


def test_a_disk_that_fails_under_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows whose files can't even be looked at for an error of the disk are not left out."""
    source = write_class_folders(tmp_path / "photos", count=2)
    table = tmp_path / "table.csv"
    table.write_text("path,label\nphotos/cat/cat.0.jpg,cat\nphotos/dog/dog.1.jpg,dog\n")
    real = os.lstat

    def lstat(path: str | Path, **options: bool) -> os.stat_result:
        if str(path).endswith("dog.1.jpg"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return real(path, **options)

    monkeypatch.setattr("tfrtool.sources.tables.table_files.os.lstat", lstat)
    path = _refused(_options(table, looked_at_first=False), lambda _: None)
    assert path == str(source / "dog" / "dog.1.jpg")
