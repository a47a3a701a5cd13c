"""The folder that files are taken out into: all or nothing, and nothing overwritten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.inspection.extracting import JPEG, files_below, photo, write_shard
from tfrtool import ExtractOptions, extract
from tfrtool.errors import UsageError, WriteError
from tfrtool.inspection.extract_files import STAGING, FileTree, metadata_beside, staging_files


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """Return a shard with two records."""
    payloads = [photo(JPEG, b"cat/0.jpg", 0), photo(JPEG, b"dog/1.jpg", 1)]
    return write_shard(tmp_path / "a.tfrecord", payloads)


def test_what_is_there_is_never_touched(shard: Path, tmp_path: Path) -> None:
    """A directory with anything in it is refused, and so is one beside which metadata lies."""
    used, free, file = tmp_path / "used", tmp_path / "free", tmp_path / "file"
    used.mkdir()
    (used / ".keep").touch()
    (tmp_path / "free.jsonl").write_text("mine")
    file.touch()
    for out in (used, free, file):
        with pytest.raises(UsageError):
            extract([shard], ExtractOptions(directory=out))
    assert [path.name for path in used.iterdir()] == [".keep"]
    assert not free.exists()
    assert (tmp_path / "free.jsonl").read_text() == "mine"


def test_an_interrupted_extract_is_named(shard: Path, tmp_path: Path) -> None:
    """What a killed run left behind is told from files of the user's."""
    (tmp_path / "out" / f"{STAGING}1234").mkdir(parents=True)
    with pytest.raises(UsageError) as caught:
        extract([shard], ExtractOptions(directory=tmp_path / "out"))
    assert "interrupted" in caught.value.what


def test_the_current_directory_stays_the_same_one(
    shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty directory is filled, not replaced: who stands in it sees the files."""
    out = tmp_path / "out"
    out.mkdir(mode=0o750)
    before = out.stat()
    monkeypatch.chdir(out)
    extract([shard], ExtractOptions(directory=Path()))
    assert sorted(path.name for path in Path().iterdir()) == ["0", "1"]
    assert (out.stat().st_ino, out.stat().st_mode) == (before.st_ino, before.st_mode)
    assert metadata_beside(Path()) == tmp_path / "out.jsonl"
    assert (tmp_path / "out.jsonl").is_file()


def test_a_link_to_an_empty_directory_is_followed(shard: Path, tmp_path: Path) -> None:
    """A link that the user names is where it points; one that points nowhere is refused."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    extract([shard], ExtractOptions(directory=tmp_path / "link"))
    assert len(files_below(tmp_path / "real")) == 2
    with pytest.raises(UsageError):
        extract([shard], ExtractOptions(directory=tmp_path / "dangling"))
    assert not (tmp_path / "nowhere").exists()


def test_links_are_never_written_through(tmp_path: Path) -> None:
    """A link in the way of a file or a folder is a name that is taken."""
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    (root / "cat").symlink_to(outside)
    (root / "x.jpg").symlink_to(outside / "x.jpg")
    tree = FileTree(root, root)
    assert tree.add(("cat", "1.jpg"), JPEG) == "cat_2/1.jpg"
    assert tree.add(("cat", "2.jpg"), JPEG) == "cat_2/2.jpg"
    assert tree.add(("x.jpg",), JPEG) == "x_2.jpg"
    assert list(outside.iterdir()) == []


def test_numbers_are_tried_once(tmp_path: Path) -> None:
    """Long names that numbering makes alike don't each try all numbers that others have."""
    attempts = 0

    class Counting(FileTree):
        def _write(self, path: str, data: bytes) -> None:
            nonlocal attempts
            attempts += 1
            super()._write(path, data)

    tree = Counting(tmp_path, tmp_path)
    names = ["x" * 247 + f"{number % 100:03d}.jpg" for number in range(300)]
    assert len({tree.add((name,), b"") for name in names}) == 300
    assert attempts == 100 + 2 * 200


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_metadata_on_a_full_disk_is_an_error(tmp_path: Path) -> None:
    """Lines that can't be written are an error that names the metadata, and nothing is left."""

    def fill() -> None:
        with staging_files(tmp_path / "out") as staging, open("/dev/full", "w") as full:  # noqa: PTH123
            staging.metadata.close()
            staging.metadata = full
            staging.tree.add(("1.jpg",), JPEG)
            staging.write_line("x" * 100_000)

    with pytest.raises(WriteError) as caught:
        fill()
    assert caught.value.path == str(tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_an_error_at_the_end_takes_everything_back(
    shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where something gets in the way while files get their names, none keeps its own."""
    out = tmp_path / "out"
    rename = os.rename

    def crossed(source: str | Path, target: str | Path) -> None:
        rename(source, target)
        if Path(target).name == "0":
            (tmp_path / "out.jsonl").write_text("somebody else's")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", crossed)
        with pytest.raises(WriteError) as caught:
            extract([shard], ExtractOptions(directory=out))
    assert caught.value.path == str(tmp_path / "out.jsonl")
    assert not out.exists()
    assert (tmp_path / "out.jsonl").read_text() == "somebody else's"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tfrecord", "out.jsonl"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError(28, "No space")])
def test_nothing_is_left_of_an_unfinished_one(
    error: type[BaseException] | BaseException, tmp_path: Path
) -> None:
    """An exception on the way leaves nothing, and no parent that was made for it either."""

    def begin() -> None:
        with staging_files(tmp_path / "a" / "b") as staging:
            staging.tree.add(("x", "1.jpg"), JPEG)
            staging.write_line("{}")
            raise error

    with pytest.raises(type(error) if isinstance(error, BaseException) else error):
        begin()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_that_is_not_ours_is_refused(shard: Path, tmp_path: Path) -> None:
    """Without the right to write, the error names the place."""
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    with pytest.raises(WriteError) as caught:
        extract([shard], ExtractOptions(directory=locked / "out"))
    assert str(locked) in str(caught.value)
