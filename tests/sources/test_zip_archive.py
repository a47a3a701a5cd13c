"""Zip archives, as they come from other programs, from other systems, and broken."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.trees import contents, labelled, open_tree, write_zip
from tfrtool.errors import SourceError
from tfrtool.sources.items import Source

TREE = {"cat/1.jpg": b"one" * 400, "dog/2.jpg": bytes(range(256)) * 8, "readme.txt": b"x"}
IMAGES = {key: data for key, data in TREE.items() if key.endswith(".jpg")}


def _bytes(tree: dict[str, bytes] = TREE, method: int = zipfile.ZIP_DEFLATED) -> bytearray:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for key, data in tree.items():
            archive.writestr(key, data)
    return bytearray(file.getvalue())


def _open(path: Path, data: bytes | bytearray) -> Source:
    path.write_bytes(data)
    return open_tree(path)


def _with(path: Path, infos: list[tuple[zipfile.ZipInfo, bytes]]) -> Source:
    with zipfile.ZipFile(path, "w") as archive:
        for info, data in infos:
            archive.writestr(info, data)
    return open_tree(path)


def _info(name: str, *, system: int = 3, mode: int = 0o100644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = system
    info.external_attr = mode << 16
    return info


def test_data_before_the_archive(tmp_path: Path) -> None:
    """A self-extracting archive, which starts with a program, is read."""
    source = _open(tmp_path / "a.exe", b"MZ" + bytes(5000) + _bytes())
    assert contents(source) == IMAGES


def test_large_archive_records(tmp_path: Path) -> None:
    """Members with 64-bit sizes and data descriptors, as streamed archives have, are read."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise io.UnsupportedOperation

    path, pipe = tmp_path / "a.zip", Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, data in TREE.items():
            with archive.open(key, "w", force_zip64=True) as member:
                member.write(data)
    path.write_bytes(pipe.getvalue())
    assert contents(open_tree(path)) == IMAGES


def test_directories_of_64_bits(tmp_path: Path) -> None:
    """The place and size of the directory may stand in a record of 64-bit numbers."""
    data = _bytes()
    at = data.index(b"PK\x05\x06")
    *_, count, size, offset, _ = struct.unpack_from("<4s4H2LH", data, at)
    large = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, at, 1)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, *[0xFFFF] * 2, *[0xFFFFFFFF] * 2, 0)
    archive = bytes(data[:at]) + large + locator + end
    for prefix in (b"", b"#!program"):
        assert len(zipfile.ZipFile(io.BytesIO(prefix + archive)).namelist()) == len(TREE)
        assert contents(_open(tmp_path / "a.zip", prefix + archive)) == IMAGES


def test_bytes_behind_the_archive(tmp_path: Path) -> None:
    """A comment, or what a download added, may follow the directory."""
    path = write_zip(tmp_path / "a.zip", TREE)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"and more"
    assert contents(open_tree(path)) == IMAGES
    assert contents(_open(tmp_path / "b.zip", _bytes() + b"\r\n")) == IMAGES


def test_long_extra_fields_are_skipped(tmp_path: Path) -> None:
    """What stands between a member's header and its data may be long."""
    info = _info("cat/1.jpg")
    info.extra = struct.pack("<HH", 0x9999, 4000) + bytes(4000)
    assert contents(_with(tmp_path / "a.zip", [(info, b"data")])) == {"cat/1.jpg": b"data"}


@pytest.mark.parametrize("system", [0, 3])
@pytest.mark.parametrize(
    "folder", ["pets\\{}\\", "pets/{}\\", "pets\\{}/", "C:\\me\\pets\\{}\\", "\\pets\\{}\\"]
)
def test_backslashes_of_windows_programs(folder: str, system: int, tmp_path: Path) -> None:
    """Programs of Windows separate folders by backslashes, also next to slashes or a drive."""
    names = [f"{folder.format(label)}1.jpg" for label in ("cat", "dog")]
    folders = [folder.format("cat"), "__MACOSX\\pets\\cat\\._1.jpg"]
    members = [(_info(name, system=system), b"x") for name in [*folders, *names]]
    source = _with(tmp_path / "a.zip", members)
    assert [item.label for item in source.items] == ["cat", "dog"]
    assert {item.key.removeprefix("me/") for item in source.items} == {
        "pets/cat/1.jpg",
        "pets/dog/1.jpg",
    }
    assert source.ignored == source.rejected == ()


def test_a_backslash_in_a_name(tmp_path: Path) -> None:
    """Next to images without one, a backslash is a character that a name may have on Unix."""
    names = ["cat/1.jpg", "cat/a\\b.jpg"]
    source = _with(tmp_path / "a.zip", [(_info(name), b"x") for name in names])
    assert labelled(source) == [("cat/1.jpg", "cat"), ("cat/a\\b.jpg", "cat")]


def test_names_that_lead_out_show_no_classes(tmp_path: Path) -> None:
    """Folders around everything are those of the images that are read."""
    names = ["../photos/cat/1.jpg", "photos/cat/2.jpg", "photos/dog/3.jpg"]
    source = _with(tmp_path / "a.zip", [(_info(name), b"x") for name in names])
    assert labelled(source) == [("photos/cat/2.jpg", "cat"), ("photos/dog/3.jpg", "dog")]


@pytest.mark.parametrize("name", ["..\\cat\\1.jpg", "cat\\..\\..\\1.jpg"])
def test_backslashes_that_lead_out_are_rejected(name: str, tmp_path: Path) -> None:
    """A path with backslashes leads no more outside of the archive than one with slashes."""
    source = _with(tmp_path / "a.zip", [(_info(name), b"x"), (_info("cat\\2.jpg"), b"x")])
    assert labelled(source) == [("cat/2.jpg", "cat")]
    assert [entry.key for entry in source.rejected] == [name.replace("\\", "/")]


@pytest.mark.parametrize(
    ("stored", "flag", "expected"),
    [
        ("é.jpg".encode(), True, "é.jpg"),
        ("é.jpg".encode(), False, "é.jpg"),
        ("é.jpg".encode("cp437"), False, "é.jpg"),
    ],
)
def test_names_in_utf8_and_code_page_437(
    stored: bytes, flag: bool, expected: str, tmp_path: Path
) -> None:
    """Names are read as UTF-8 if they are that, flagged or not, else as code page 437."""
    placeholder = b"#" * len(stored)
    data = _bytes({"cat/" + placeholder.decode(): b"x"}).replace(placeholder, stored)
    if flag:
        for signature, at in ((b"PK\x03\x04", 7), (b"PK\x01\x02", 9)):
            data[data.index(signature) + at] |= 0x08
    assert labelled(_open(tmp_path / "a.zip", data)) == [(f"cat/{expected}", "cat")]


def test_names_that_lead_out_are_rejected(tmp_path: Path) -> None:
    """A member that would land elsewhere is no item; a slash in front is only dropped."""
    names = ["../cat/1.jpg", "cat/../../2.jpg", "/cat/3.jpg", "./cat//4.jpg"]
    source = _with(tmp_path / "a.zip", [(_info(name), b"x") for name in names])
    assert labelled(source) == [("cat/3.jpg", "cat"), ("cat/4.jpg", "cat")]
    assert [entry.key for entry in source.rejected] == ["../cat/1.jpg", "cat/../../2.jpg"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_later_member_replaces_an_earlier_one(tmp_path: Path) -> None:
    """As unzip and Python's zipfile have it, the last of two members of one name is read."""
    source = _with(tmp_path / "a.zip", [(_info("cat/1.jpg"), b"a"), (_info("cat/1.jpg"), b"b")])
    assert contents(source) == {"cat/1.jpg": b"b"}
    assert source.ignored == source.rejected == ()


def test_links_are_listed(tmp_path: Path) -> None:
    """Symbolic links are not followed, and are no images."""
    members = [(_info("cat/1.jpg"), b"x"), (_info("cat/2.jpg", mode=0o120777), b"1.jpg")]
    source = _with(tmp_path / "a.zip", members)
    assert contents(source) == {"cat/1.jpg": b"x"}
    assert [entry.key for entry in source.rejected] == ["cat/2.jpg"]


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (8, 1, "encrypted"),
        (10, 9, "method 9"),
        (10, zipfile.ZIP_LZMA, "method 14"),
        (34, 1, "multi-part"),
    ],
)
def test_members_that_can_not_be_read_are_rejected(
    at: int, value: int, reason: str, tmp_path: Path
) -> None:
    """Encrypted members and rare compressions are rejected with their reason; others are read."""
    data = _bytes()
    data[data.index(b"PK\x01\x02") + at] = value
    source = _open(tmp_path / "a.zip", data)
    assert labelled(source) == [("dog/2.jpg", "dog")]
    assert [entry.key for entry in source.rejected] == ["cat/1.jpg"]
    assert reason in source.rejected[0].reason


def test_an_archive_whose_images_are_all_encrypted(tmp_path: Path) -> None:
    """It is an error that says so and names a member."""
    data = _bytes({"cat/1.jpg": b"x"})
    data[data.index(b"PK\x01\x02") + 8] = 1
    with pytest.raises(SourceError, match=r"no image.*cat/1\.jpg: encrypted") as caught:
        _open(tmp_path / "a.zip", data)
    assert caught.value.path == str(tmp_path / "a.zip")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("what", ["header", "data"])
def test_a_damaged_member_is_found_when_it_is_read(method: int, what: str, tmp_path: Path) -> None:
    """A wrong byte in a member is an error that names it; others are read."""
    data = _bytes(method=method)
    data[{"header": 0, "data": 30 + len("cat/1.jpg") + 3}[what]] ^= 0x40
    path = tmp_path / "a.zip"
    source = _open(path, data)
    with pytest.raises(SourceError) as caught:
        source.reader.read(source.items[0])
    assert caught.value.path == f"{path}/cat/1.jpg"
    assert source.reader.read(source.items[1]) == TREE["dog/2.jpg"]


def _central(data: bytearray, at: int, value: int) -> bytearray:
    start = data.index(b"PK\x01\x02") + at
    data[start : start + 4] = struct.pack("<I", value)
    return data


def test_a_bomb_does_not_go_off(tmp_path: Path) -> None:
    """A member that unpacks to more than it says costs no more memory than it says."""
    bomb = _bytes({"cat/1.jpg": bytes(20_000_000), "cat/2.jpg": b"x"})
    tracemalloc.start()
    source = _open(tmp_path / "a.zip", _central(bomb, 24, 1000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    with pytest.raises(SourceError, match="damaged"):
        source.reader.read(source.items[0])


def test_sizes_that_can_not_be(tmp_path: Path) -> None:
    """A member whose sizes or offset lie outside the archive is damaged; others are read."""
    for number, (at, value) in enumerate([(24, 1 << 20), (42, 1 << 30)]):
        source = _open(tmp_path / f"{number}.zip", _central(_bytes(), at, value))
        with pytest.raises(SourceError, match="damaged"):
            source.reader.read(source.items[0])
        assert source.reader.read(source.items[1]) == TREE["dog/2.jpg"]


@pytest.mark.parametrize("part", [0.3, 0.9, 0.99])
def test_a_cut_archive_is_an_error(part: float, tmp_path: Path) -> None:
    """The list of members stands at the end: without it nothing is taken for whole."""
    data = _bytes()
    with pytest.raises(SourceError) as caught:
        _open(tmp_path / "a.zip", data[: int(len(data) * part)])
    assert caught.value.path == str(tmp_path / "a.zip")


@given(st.data())
def test_damage_never_gives_wrong_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever byte is changed, what is read is right, or it is a SourceError."""
    archive = _bytes()
    at = data.draw(st.integers(0, len(archive) - 1))
    archive[at] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.zip"
    try:
        source = _open(path, archive)
    except SourceError:
        return
    for item in source.items:
        try:
            found = source.reader.read(item)
        except SourceError:
            continue
        assert zlib.crc32(found) in {zlib.crc32(member) for member in TREE.values()}


def test_an_archive_that_vanishes(tmp_path: Path) -> None:
    """What was unpacked is read, whatever happens to the archive after that."""
    path = write_zip(tmp_path / "a.zip", TREE)
    source = open_tree(path)
    path.unlink()
    assert contents(source) == IMAGES
