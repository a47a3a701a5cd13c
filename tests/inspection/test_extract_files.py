"""The folder that files are taken out into: all or nothing, and nothing overwritten."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.inspection.extracting import JPEG, files_below, lines_beside, photo, write_shard
from tfrtool import extract
from tfrtool.errors import UsageError, WriteError
from tfrtool.inspection.extract.extract_files import NewFiles, metadata_beside, new_files
from tfrtool.storage.atomic_files import move, temporary_name
from tfrtool.storage.lock import LOCK


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
            extract([shard], out)
    assert [path.name for path in used.iterdir()] == [".keep"]
    assert not free.exists()
    assert (tmp_path / "free.jsonl").read_text() == "mine"


def test_what_a_killed_extract_left_is_taken_away(shard: Path, tmp_path: Path) -> None:
    """What a killed run left behind is no hindrance; what looks like it, and isn't, stays."""
    out = tmp_path / "out"
    left, beside = temporary_name(out / "extract"), temporary_name(tmp_path / "out.jsonl")
    (left / "new" / "cat").mkdir(parents=True)
    beside.mkdir()
    for folder in (left, beside):
        (folder / LOCK).write_text("write 1\n")
    others, unlocked = (temporary_name(tmp_path / name) for name in ("other.jsonl", "out.jsonl"))
    others.touch()
    unlocked.mkdir()
    (unlocked / "new").touch()
    extract([shard], out)
    assert sorted(path.name for path in out.iterdir()) == ["0", "1"]
    names = ["a.tfrecord", "out", "out.jsonl", others.name, unlocked.name]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_the_current_directory_stays_the_same_one(
    shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty directory is filled, not replaced: who stands in it sees the files."""
    out = tmp_path / "out"
    out.mkdir(mode=0o750)
    before = out.stat()
    monkeypatch.chdir(out)
    extract([shard], Path())
    assert sorted(path.name for path in Path().iterdir()) == ["0", "1"]
    assert (out.stat().st_ino, out.stat().st_mode) == (before.st_ino, before.st_mode)
    assert metadata_beside(Path()) == tmp_path / "out.jsonl"
    assert (tmp_path / "out.jsonl").is_file()


def test_a_link_to_an_empty_directory_is_followed(shard: Path, tmp_path: Path) -> None:
    """A link that the user names is where it points; one that points nowhere is refused."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    extract([shard], tmp_path / "link")
    assert len(files_below(tmp_path / "real")) == 2
    with pytest.raises(UsageError):
        extract([shard], tmp_path / "dangling")
    assert not (tmp_path / "nowhere").exists()


def test_links_are_never_written_through(tmp_path: Path) -> None:
    """A link in the way of a file or a folder is a name that is taken."""
    outside = tmp_path / "outside"
    outside.mkdir()
    with new_files(tmp_path / "out") as files:
        (root,) = tmp_path.glob("out/.tfrtool-*.extract/new")
        (root / "cat").symlink_to(outside)
        (root / "x.jpg").symlink_to(outside / "x.jpg")
        assert files.add(("cat", "1.jpg"), JPEG) == "cat_2/1.jpg"
        assert files.add(("cat", "2.jpg"), JPEG) == "cat_2/2.jpg"
        assert files.add(("x.jpg",), JPEG) == "x_2.jpg"
    assert list(outside.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_metadata_on_a_full_disk_is_an_error(tmp_path: Path) -> None:
    """Lines that can't be written are an error that names the metadata, and nothing is left."""

    def fill() -> None:
        with open("/dev/full", "wb", buffering=0) as full:  # noqa: PTH123
            files = NewFiles(tmp_path / "out", False, tmp_path, full)
            files.add_line("x" * 1_000_000)

    with pytest.raises(WriteError) as caught:
        fill()
    assert caught.value.path == str(tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []


def cross(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], object]) -> None:
    """Do something as soon as what has this name has got its place."""

    def crossed(source: Path, target: Path, *, replace: bool = True) -> None:
        move(source, target, replace=replace)
        if target.name == name:
            act()

    monkeypatch.setattr("tfrtool.storage.atomic_files.move", crossed)


def test_an_error_at_the_end_takes_everything_back(
    shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where something gets in the way while files get their names, none keeps its own."""
    out = tmp_path / "out"
    cross(monkeypatch, "out.jsonl", lambda: (out / "1").write_text("somebody else's"))
    with pytest.raises(WriteError) as caught:
        extract([shard], out)
    assert caught.value.path == str(out / "1")
    assert {path.name: path.read_text() for path in out.iterdir()} == {"1": "somebody else's"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tfrecord", "out"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError(28, "No space")])
def test_nothing_is_left_of_an_unfinished_one(
    error: type[BaseException] | BaseException, tmp_path: Path
) -> None:
    """An exception on the way leaves nothing, and no parent that was made for it either."""

    def begin() -> None:
        with new_files(tmp_path / "a" / "b") as staging:
            staging.add(("x", "1.jpg"), JPEG)
            staging.add_line("{}")
            raise error

    with pytest.raises(type(error) if isinstance(error, BaseException) else error):
        begin()
    assert list(tmp_path.iterdir()) == []


def test_a_signal_waits_until_all_is_published(
    shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while files get their names comes when they have them."""
    cross(monkeypatch, "0", lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        extract([shard], tmp_path / "out")
    assert len(lines_beside(tmp_path / "out")) == len(files_below(tmp_path / "out")) == 2
    assert not list(tmp_path.rglob(".tfrtool-*"))


def again(shard: Path, out: Path) -> None:
    """Extract with overwrite."""
    extract([shard], out, overwrite=True)


def below(directory: Path) -> dict[str, bytes]:
    """Return all files of a test's folder but the shards, by their path."""
    found = files_below(directory)
    return {name: data for name, data in found.items() if not name.endswith(".tfrecord")}


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Return a shard with other records than the first."""
    payloads = [photo(JPEG + b"new", b"cat/0.jpg", 0), photo(JPEG, b"owl/2.jpg", 2)]
    return write_shard(tmp_path / "b.tfrecord", payloads)


def test_overwriting_replaces_all_of_an_earlier_extract(
    shard: Path, other: Path, tmp_path: Path
) -> None:
    """What only the earlier one made goes; in the end it is as if there had been none."""
    extract([other], tmp_path / "new" / "out")
    extract([shard], tmp_path / "out")
    again(other, tmp_path / "out")
    assert files_below(tmp_path / "out") == files_below(tmp_path / "new" / "out")
    assert lines_beside(tmp_path / "out") == lines_beside(tmp_path / "new" / "out")
    assert not list(tmp_path.rglob(".tfrtool-*"))


@pytest.mark.parametrize("left", ["nothing", "files", "metadata"])
def test_overwriting_where_half_of_it_is_gone(shard: Path, tmp_path: Path, left: str) -> None:
    """Where DIR or its metadata were deleted, --overwrite makes them anew, if it knows them."""
    out, beside = tmp_path / "out", tmp_path / "out.jsonl"
    extract([shard], out)
    before = below(tmp_path)
    if left != "files":
        shutil.rmtree(out)
    if left != "metadata":
        beside.unlink()
    if left == "files":
        with pytest.raises(UsageError, match="not created by"):
            again(shard, out)
    else:
        again(shard, out)
        assert below(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda out: (out / "mine.txt").touch(), "not created by"),
        (lambda out: (out / "0" / "cat" / "mine").mkdir(), "not created by"),
        (lambda out: (out / "mine").symlink_to("../a.tfrecord"), "not created by"),
        (lambda out: (out / "0" / "cat" / "0.jpg").write_bytes(b"retouched"), "was changed"),
        (lambda out: Path(f"{out}.jsonl").write_text(""), "not created by"),
        (lambda out: Path(f"{out}.jsonl").write_text('{"a": 1}\n'), "not written by"),
        (lambda out: Path(f"{out}.jsonl").write_text("[]"), "not written by"),
        (lambda out: Path(f"{out}.jsonl").write_text("[" * 100_000), "not written by"),
    ],
)
def test_overwriting_spares_what_is_not_known(
    shard: Path, tmp_path: Path, change: Callable[[Path], object], what: str
) -> None:
    """Files that no extract made, or that were changed, are named, and all stays as it is."""
    out = tmp_path / "out"
    extract([shard], out)
    time.sleep(0.02)
    change(out)
    before = [files_below(out), (tmp_path / "out.jsonl").read_text()]
    with pytest.raises(UsageError, match=what):
        again(shard, out)
    assert [files_below(out), (tmp_path / "out.jsonl").read_text()] == before


def test_overwriting_ends_with_the_old_or_the_new(
    shard: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error between the old files and the new ones brings the old ones back."""
    out = tmp_path / "out"
    extract([shard], out)
    before = below(tmp_path)

    def fail() -> None:
        raise OSError(5, "Input/output error")

    for name in ("out.jsonl", "0", "2"):
        with monkeypatch.context() as patch:
            cross(patch, name, fail)
            with pytest.raises(WriteError):
                again(other, out)
        assert below(tmp_path) == before
