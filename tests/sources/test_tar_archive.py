"""Tar archives, as they come from other programs, and broken."""

from __future__ import annotations

import gzip
import io
import os
import resource
import subprocess
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.trees import contents, labelled, open_tree, write_folder, write_tar
from tfrtool.errors import SourceError, WriteError
from tfrtool.sources.archives import SPOOL
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.open_source import open_source

TREE = {"cat/1.jpg": b"one" * 400, "readme.txt": b"x" * 600, "dog/2.jpg": bytes(range(256)) * 4}
IMAGES = {key: data for key, data in TREE.items() if key.endswith(".jpg")}

both = pytest.mark.parametrize("mode", ["w", "w:gz"])


def _members(path: Path, mode: str, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def _info(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("options", [["--format=v7"], ["--format=gnu"], ["--format=pax"], ["-z"]])
def test_archives_of_gnu_tar(options: list[str], tmp_path: Path) -> None:
    """Archives of each format that GNU tar writes, names of any length included, are read."""
    tree = {"cat/1.jpg": b"x" * 512, "dog/é/2.jpg": b"y" * 513, "dog/empty.jpg": b""}
    if options != ["--format=v7"]:
        tree[f"cat/{'long' * 40}/{'n' * 200}.jpg"] = b"z"
    write_folder(tmp_path / "files", tree)
    command = ["tar", *options, "-cf", str(tmp_path / "a"), "-C", str(tmp_path / "files"), "."]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    assert contents(open_tree(tmp_path / "a")) == tree


def test_an_uncompressed_archive_is_read_in_place(tmp_path: Path) -> None:
    """Nothing is unpacked where that isn't needed."""
    open_tree(write_tar(tmp_path / "a.tar", TREE))
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_compressed_archive_is_unpacked(tmp_path: Path) -> None:
    """What is in it lies in one file in the given folder; items are named as in the archive."""
    source = open_tree(write_tar(tmp_path / "a.tgz", TREE, "w:gz"))
    assert (tmp_path / "scratch" / SPOOL).stat().st_size < 20_000
    assert contents(source) == IMAGES
    assert [entry.key for entry in source.ignored] == ["readme.txt"]
    assert source.reader.describe(source.items[0]) == f"{tmp_path / 'a.tgz'}/cat/1.jpg"


@both
def test_names_that_are_no_utf8_are_read(mode: str, tmp_path: Path) -> None:
    """A member's name may be any bytes."""
    name = os.fsdecode(b"cat/\xe9.jpg")
    source = open_tree(write_tar(tmp_path / "a", {name: b"x"}, mode))
    assert contents(source) == {name: b"x"}


@both
def test_links_and_pipes_are_listed(mode: str, tmp_path: Path) -> None:
    """Links are not followed: no image is written twice, and none is left out in silence."""
    members = [
        (_info("cat/1.jpg"), b"photo"),
        (_info("cat/hard.jpg", tarfile.LNKTYPE, "./cat/1.jpg"), b""),
        (_info("dog/soft.jpg", tarfile.SYMTYPE, "../cat/hard.jpg"), b""),
        (_info("notes", tarfile.SYMTYPE, "notes.txt"), b""),
        (_info("pipe.jpg", tarfile.FIFOTYPE), b""),
    ]
    source = open_tree(_members(tmp_path / "a", mode, members))
    assert contents(source) == {"cat/1.jpg": b"photo"}
    assert [entry.key for entry in source.rejected] == ["cat/hard.jpg", "dog/soft.jpg", "pipe.jpg"]
    assert [entry.key for entry in source.ignored] == ["notes"]


@both
def test_a_later_member_replaces_an_earlier_one(mode: str, tmp_path: Path) -> None:
    """As tar does when it unpacks, the last of several members of a name counts."""
    members = [(_info("cat/1.jpg"), b"old"), (_info("./cat/1.jpg"), b"new")]
    source = open_tree(_members(tmp_path / "a", mode, members))
    assert contents(source) == {"cat/1.jpg": b"new"}
    assert source.ignored == source.rejected == ()


@both
def test_names_that_lead_out_are_rejected(mode: str, tmp_path: Path) -> None:
    """A member that would land elsewhere is no item; a slash in front is only dropped."""
    tree = {"../cat/1.jpg": b"x", "/cat/2.jpg": b"y"}
    source = open_tree(write_tar(tmp_path / "a", tree, mode))
    assert labelled(source) == [("cat/2.jpg", "cat")]
    assert [entry.key for entry in source.rejected] == ["../cat/1.jpg"]


def test_files_with_holes_are_rejected(tmp_path: Path) -> None:
    """A sparse member's bytes don't lie in one piece."""
    hole = tmp_path / "files" / "cat" / "1.jpg"
    write_folder(tmp_path / "files", {"cat/2.jpg": b"x"})
    with hole.open("wb") as file:
        file.truncate(1 << 20)
    command = ["tar", "--sparse", "-cf", str(tmp_path / "a"), "-C", str(tmp_path / "files"), "cat"]
    subprocess.run(command, check=True)
    source = open_tree(tmp_path / "a")
    assert [entry.key for entry in source.rejected] == ["cat/1.jpg"]


def _plain() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for key, data in TREE.items():
            info = _info(key)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


END = 512 + 1536 + 512 + 1024 + 512 + 1024
"""Where the end mark of the archive starts."""


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["tar", "tar.gz"])
@pytest.mark.parametrize(
    "size",
    [600, 512 + 1200, 512 + 1536, 512 + 1536 + 100, END - 1024, END - 1, END, END + 100],
)
def test_an_archive_cut_anywhere_is_an_error(
    pack: Callable[[bytes], bytes], size: int, tmp_path: Path
) -> None:
    """In a header, in data, between members: without its end mark no archive is whole."""
    path = tmp_path / "a"
    path.write_bytes(pack(_plain()[:size]))
    with pytest.raises(SourceError) as caught:
        open_tree(path)
    assert caught.value.path == str(path)
    assert caught.value.offset is not None
    assert caught.value.offset <= size


@pytest.mark.parametrize("part", [0.3, 0.7, 0.98])
@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_cut_compression_is_an_error(mode: str, part: float, tmp_path: Path) -> None:
    """A download that stopped is not taken for whole."""
    tree = {f"cat/{number}.jpg": os.urandom(3000) for number in range(20)}
    path = write_tar(tmp_path / "a", tree, mode)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * part)])
    with pytest.raises(SourceError):
        open_tree(path)


def test_a_wrong_gzip_checksum_is_an_error(tmp_path: Path) -> None:
    """The checksum at the end of gzip data is looked at, though the members are read before."""
    data = bytearray(gzip.compress(_plain()))
    data[-6] ^= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(SourceError):
        open_tree(tmp_path / "a")


@pytest.mark.parametrize("at", [2048 + 10, 2048 + 150])
def test_a_damaged_header_is_no_end(at: int, tmp_path: Path) -> None:
    """A header with a wrong checksum is told, with the member before it and its offset."""
    data = bytearray(_plain())
    data[at] ^= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(SourceError) as caught:
        open_tree(tmp_path / "a")
    assert caught.value.offset == 0
    assert "in or after cat/1.jpg" in str(caught.value)


def test_several_archives_in_one_are_an_error(tmp_path: Path) -> None:
    """What stands behind an end mark isn't dropped in silence."""
    (tmp_path / "a").write_bytes(_plain() + _plain())
    with pytest.raises(SourceError) as caught:
        open_tree(tmp_path / "a")
    assert caught.value.hint is not None


def test_endless_headers_are_an_error(tmp_path: Path) -> None:
    """Headers that each announce another don't exhaust the stack."""
    info = _info("././@LongLink", tarfile.GNUTYPE_LONGNAME)
    info.size = 1
    block = info.tobuf(tarfile.GNU_FORMAT) + b"n".ljust(512, b"\0")
    (tmp_path / "a").write_bytes(_plain()[:2048] + block * 2000)
    with pytest.raises(SourceError):
        open_tree(tmp_path / "a")


def test_a_full_disk_is_a_write_error(tmp_path: Path) -> None:
    """Where there is no room to unpack, the error says what would do without."""
    path = write_tar(tmp_path / "a.tgz", TREE, "w:gz")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(WriteError) as caught:
            open_source(str(path), LabelFrom.FOLDER, scratch)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.path == str(path)
    assert "uncompressed" in str(caught.value)


def test_what_an_interrupted_write_left_is_not_written_through(tmp_path: Path) -> None:
    """A link that has the name of the file with the images is replaced, and not followed."""
    path = write_tar(tmp_path / "a.tgz", TREE, "w:gz")
    (tmp_path / "precious").write_bytes(b"kept")
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / SPOOL).symlink_to(tmp_path / "precious")
    assert contents(open_tree(path)) == IMAGES
    assert (tmp_path / "precious").read_bytes() == b"kept"


def test_an_archive_that_shrinks(tmp_path: Path) -> None:
    """An archive that is cut after it was listed gives an error, and no part of an image."""
    path = write_tar(tmp_path / "a.tar", TREE)
    source = open_tree(path)
    os.truncate(path, 600)
    with pytest.raises(OSError, match="changed") as caught:
        source.reader.read(source.items[0])
    assert caught.value.filename == str(path)


def test_memory_does_not_grow_with_images(tmp_path: Path) -> None:
    """An image of a compressed archive is unpacked piece by piece."""
    path = write_tar(tmp_path / "a", {"cat/1.jpg": bytes(15_000_000)}, "w:gz")
    tracemalloc.start()
    source = open_tree(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3_000_000
    assert source.items[0].bytes == 15_000_000


@given(st.data())
def test_damage_is_told_or_changes_no_name(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever byte of a header is changed, opening ends with items or a SourceError."""
    archive = bytearray(_plain())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, 511)) + data.draw(st.sampled_from([0, 2048, 3584, END]))
        archive[at] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.tar"
    path.write_bytes(archive)
    try:
        source = open_tree(path)
    except SourceError:
        return
    assert [len(data) for data in contents(source).values()] == [i.bytes for i in source.items]
