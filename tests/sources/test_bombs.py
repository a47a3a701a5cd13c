"""Small files that would take hours, or all memory, or all of a disk."""

from __future__ import annotations

import bz2
import io
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.sources.trees import WRITERS, contents, open_tree, write_folder
from tfrtool.errors import SourceError
from tfrtool.sources.archives import SPOOL
from tfrtool.sources.folders.listing import read_file
from tfrtool.storage.limits import MAX_IMAGE_BYTES

PHOTO = bytes(range(256)) * 3
TREE = {"cat/1.jpg": PHOTO, "dog/1.jpg": PHOTO}


def _header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def _with_base256(size: int) -> bytes:
    header = bytearray(_header("cat/2.jpg", 0))
    header[124:136] = size.to_bytes(12, "big", signed=True)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def _pax(data: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    return _header("PaxHeader", len(data), kind) + _padded(data) + _header("cat/2.jpg", 0)


def _tar(*extra: bytes) -> bytes:
    parts = [part for key, data in TREE.items() for part in (_header(key, len(data)), data, b"")]
    photos = b"".join(_padded(part) for part in parts)
    return photos + b"".join(extra) + bytes(1024)


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param(_pax(b"14 size=-1536\n"), id="negative in pax"),
        pytest.param(_pax(b"14 size=-1536\n", tarfile.XGLTYPE), id="negative for all"),
        pytest.param(_with_base256(-1536), id="negative in base-256"),
        pytest.param(_pax(b"27 size=99999999999999999999\n"), id="size of 20 digits"),
        pytest.param(_pax(b"1" * 200_000), id="200 kB of digits"),
        pytest.param(_pax(b"0 a=b\n"), id="record of no length"),
        pytest.param(_header("x", 100_000, tarfile.GNUTYPE_LONGNAME), id="long name"),
    ],
)
def test_headers_that_lie(extra: bytes, tmp_path: Path) -> None:
    """A size below nothing, or a header longer than any name, is an error that says where."""
    (tmp_path / "a.tar").write_bytes(_tar(extra))
    with pytest.raises(SourceError) as caught:
        open_tree(tmp_path / "a.tar")
    assert caught.value.path == str(tmp_path / "a.tar")
    assert caught.value.offset is not None
    assert "dog/1.jpg" in str(caught.value)


def test_headers_as_long_as_names_are_read(tmp_path: Path) -> None:
    """Paths of 4,095 bytes, to which links of 4,095 bytes lead, need no more than is allowed."""
    name = "/".join(["cat", *["n" * 200] * 20])[:4091] + ".jpg"
    link = tarfile.TarInfo(f"{name[:-5]}l.jpg")
    link.type, link.linkname = tarfile.LNKTYPE, name
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        with tarfile.open(tmp_path / "a.tar", "w", format=form) as archive:
            info = tarfile.TarInfo(name)
            info.size = len(PHOTO)
            archive.addfile(info, io.BytesIO(PHOTO))
            archive.addfile(link)
        source = open_tree(tmp_path / "a.tar")
        assert contents(source) == {name: PHOTO}
        assert [entry.key for entry in source.rejected] == [link.name]


def _gzip(parts: list[bytes]) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*(packer.compress(part) for part in parts), packer.flush()])


def test_a_huge_file_in_a_tar_gz_is_one_bad_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left out, named with its size; the rest is there."""
    monkeypatch.setattr("tfrtool.sources.folders.listing.MAX_IMAGE_BYTES", 5 << 20)
    size = (5 << 20) + 512
    huge = [_header("cat/huge.jpg", size), *[bytes(1 << 20)] * (size >> 20), bytes(512)]
    (tmp_path / "a.tar.gz").write_bytes(_gzip([_tar()[:-1024], *huge, bytes(1024)]))
    source = open_tree(tmp_path / "a.tar.gz")
    assert contents(source) == TREE
    assert [entry.key for entry in source.rejected] == ["cat/huge.jpg"]
    assert f"{size:,}" in source.rejected[0].reason


@pytest.mark.parametrize("form", ["tar", "zip", "stored.zip", "folder"])
def test_a_huge_image_is_one_bad_image(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever it lies, it is left out, named with its size, and the rest is there."""
    monkeypatch.setattr("tfrtool.sources.folders.listing.MAX_IMAGE_BYTES", 1000)
    huge = {"cat/huge.jpg": bytes(1001), "cat/film.mpg": bytes(5000)}
    source = open_tree(WRITERS[form](tmp_path / "source", {**TREE, **huge}))
    assert contents(source) == TREE
    assert [entry.key for entry in source.rejected] == ["cat/huge.jpg"]
    assert "1,001 bytes" in source.rejected[0].reason
    assert [entry.key for entry in source.ignored] == ["cat/film.mpg"]


@pytest.mark.parametrize("pack", [_gzip, lambda parts: bz2.compress(b"".join(parts))])
def test_a_tar_bomb_is_refused(
    pack: Callable[[list[bytes]], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many images of zeros are no images: no more is unpacked than may be."""
    monkeypatch.setattr("tfrtool.storage.limits.FREE_UNPACKED_BYTES", 20_000_000)
    images = [
        part
        for number in range(25)
        for part in (_header(f"cat/{number}.jpg", 1 << 20), bytes(1 << 20))
    ]
    (tmp_path / "a.tar").write_bytes(pack([*images, bytes(1024)]))
    with pytest.raises(SourceError, match="20,000,000") as caught:
        open_tree(tmp_path / "a.tar")
    assert caught.value.path == str(tmp_path / "a.tar")
    assert sum(path.stat().st_size for path in (tmp_path / "scratch").iterdir()) <= 20_000_000


def test_too_many_headers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty files that pack to a few bytes each would fill the memory with their names."""
    monkeypatch.setattr("tfrtool.storage.limits.FREE_UNPACKED_BYTES", 4_000_000)
    empty = [_header(f"cat/{number}.jpg", 0) for number in range(5000)]
    (tmp_path / "a.tar.bz2").write_bytes(bz2.compress(b"".join([*empty, bytes(1024)])))
    with pytest.raises(SourceError, match="more than 976 members"):
        open_tree(tmp_path / "a.tar.bz2")


def _zip_of_one(count: int, size: int) -> bytes:
    """Return an archive whose members are all the same bytes under the same name."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = packer.compress(bytes(size)) + packer.flush()
    numbers = (20, 0, 8, 0, 0x21, zlib.crc32(bytes(size)), len(data), size)
    name = b"cat/1.jpg"
    body = struct.pack("<4s5H3L2H", b"PK\3\4", *numbers, len(name), 0) + name + data
    entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, *numbers, len(name), 0, 0, 0, 0, 0, 0) + name
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, count * len(entry), len(body), 0)
    return body + count * entry + end


def test_members_that_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stream of zeros under a thousand entries takes no more of the disk than is allowed."""
    monkeypatch.setattr("tfrtool.storage.limits.FREE_UNPACKED_BYTES", 10_000_000)
    (tmp_path / "one.zip").write_bytes(_zip_of_one(1, 1_000_000))
    assert contents(open_tree(tmp_path / "one.zip")) == {"cat/1.jpg": bytes(1_000_000)}
    (tmp_path / "many.zip").write_bytes(_zip_of_one(1000, 1_000_000))
    with suppress(SourceError):  # newer versions of Python take such members for damaged
        open_tree(tmp_path / "many.zip")
    assert (tmp_path / "scratch" / SPOOL).stat().st_size <= 10_000_000


def test_members_may_lie_in_any_order_with_gaps(tmp_path: Path) -> None:
    """A directory in another order than the members, and gaps between these, are no overlap."""
    first, second = io.BytesIO(), io.BytesIO()
    for file, names in ((first, ["cat/1.jpg", "gone.jpg", "dog/1.jpg"]), (second, ["cat/1.jpg"])):
        with zipfile.ZipFile(file, "w") as archive:
            for name in names:
                archive.writestr(name, PHOTO)
            archive.filelist = [i for i in reversed(archive.filelist) if i.filename != "gone.jpg"]
    (tmp_path / "a.zip").write_bytes(first.getvalue())
    assert contents(open_tree(tmp_path / "a.zip")) == TREE


def test_a_zip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many images of zeros are no images: the error names the member that was one too many."""
    monkeypatch.setattr("tfrtool.storage.limits.FREE_UNPACKED_BYTES", 4_000_000)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(7):
            archive.writestr(f"cat/{number}.jpg", bytes(1_000_000))
    with pytest.raises(SourceError, match=r"4,000,000 bytes.*cat/4\.jpg") as caught:
        open_tree(tmp_path / "a.zip")
    assert caught.value.path == str(tmp_path / "a.zip")


def test_a_sparse_file_is_one_bad_image(tmp_path: Path) -> None:
    """A file of 3 TiB that takes no room on the disk is left out, and needs no memory."""
    write_folder(tmp_path / "photos", TREE)
    with (tmp_path / "photos" / "cat" / "huge.jpg").open("wb") as file:
        file.truncate(3 << 40)
    source = open_tree(tmp_path / "photos")
    assert contents(source) == TREE
    assert [entry.key for entry in source.rejected] == ["cat/huge.jpg"]
    table = tmp_path / "photos" / "table.csv"
    table.write_text("path,label\ncat/1.jpg,cat\ncat/huge.jpg,cat\n")
    source = open_tree(table)
    assert [item.key for item in source.items] == ["cat/1.jpg"]
    assert "3,298,534,883,328" in source.rejected[0].reason


@pytest.mark.parametrize("name", ["table.jsonl", "table.csv"])
def test_a_sparse_table_is_an_error(name: str, tmp_path: Path) -> None:
    """A line of 3 TiB is not read to its end."""
    rows = {"table.jsonl": b'{"path": "a.jpg", "label": "x"}\n', "table.csv": b"path,label\n"}
    (tmp_path / name).write_bytes(rows[name])
    os.truncate(tmp_path / name, 3 << 40)
    with pytest.raises(SourceError) as caught:
        open_tree(tmp_path / name)
    assert caught.value.path == str(tmp_path / name)


def test_a_file_that_grows_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a file's size was when it was listed, no more than an image's is read of it."""
    with (tmp_path / "huge.jpg").open("wb") as file:
        file.truncate(3 << 40)
    with pytest.raises(OSError, match=f"{MAX_IMAGE_BYTES:,}"):
        read_file(str(tmp_path / "huge.jpg"), 3 << 40)
    monkeypatch.setattr("tfrtool.sources.folders.listing.MAX_IMAGE_BYTES", 5 << 20)
    with pytest.raises(OSError, match="5,242,880"):
        read_file(str(tmp_path / "huge.jpg"), 100)


@pytest.mark.parametrize("form", ["folder", "table", "tar"])
def test_a_pipe_in_the_place_of_a_file_is_an_error(form: str, tmp_path: Path) -> None:
    """What is a pipe when it is read, and wasn't when it was listed, is not waited for."""
    folder = write_folder(tmp_path / "photos", TREE)
    path = folder / "cat" / "1.jpg"
    if form == "folder":
        source = open_tree(folder)
    elif form == "table":
        (folder / "table.csv").write_text("path,label\ncat/1.jpg,cat\n")
        source = open_tree(folder / "table.csv")
    else:
        path = tmp_path / "archive"
        path.write_bytes(_tar())
        source = open_tree(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="pipe"):
        source.reader.read(source.items[0])
