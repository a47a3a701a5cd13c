"""WebDataset: samples that the library reads, and that come back as they were."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeShard
from tests.photos import image_bytes
from tfrtool.convert.formats.conversion import convert
from tfrtool.errors import SchemaError, SourceError
from tfrtool.examples.example import decode_example, encode_example
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard
from tfrtool.storage.limits import MAX_ARCHIVE_HEADER_BYTES

pytestmark = [
    pytest.mark.skipif(find_spec("webdataset") is None, reason="WebDataset is not installed"),
    # The library leaves files open.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def shard_payloads(folder: Path) -> list[bytes]:
    """Return the payloads of all shards in a folder."""
    shards = sorted(folder.glob("*.tfrecord*"))
    return [one.payload for path in shards for one in read_shard(path) if isinstance(one, Record)]


def samples(folder: Path) -> list[dict[str, Any]]:
    """Return what the library reads."""
    import webdataset  # which loads PyTorch, if that is installed

    paths = [f"file:{path}" for path in sorted(folder.glob("*.tar"))]
    return list(webdataset.WebDataset(paths, shardshuffle=False).decode("pil"))


def test_what_is_no_example_comes_back(make_shard: MakeShard, tmp_path: Path) -> None:
    """Payloads of any sort are members ``pb`` without anything else."""
    records = [b"\xff", b"hello", b"\xff" * 600]
    convert(make_shard(records), tmp_path / "web", to="webdataset")
    assert [one["pb"] for one in samples(tmp_path / "web")] == records
    assert {len(one) for one in samples(tmp_path / "web")} == {4}  # with its key and its place
    convert(tmp_path / "web", tmp_path / "back", to="tfrecord")
    assert shard_payloads(tmp_path / "back") == records


def test_library_reads_samples(make_shard: MakeShard, tmp_path: Path) -> None:
    """The library decodes the image, the class number, the text and the rest of each sample."""
    import webdataset

    images = [image_bytes(tint=20 * number) for number in range(3)]
    names = [b"PetImages/Cat/cat.1.jpg", b"PetImages/Cat/cat.2.jpg", b"../__meta__/x.png"]
    shard = make_shard(
        encode_example(
            {
                "image": data,
                "image/filename": name,
                "label": number - 1,
                "caption": "a häppy cat",
                "box": [0.5, 2],
                "mask": image_bytes(tint=9),
                "blob": b"\xff\0",
            }
        )
        for number, (data, name) in enumerate(zip(images, names, strict=True))
    )
    convert(shard, tmp_path / "web", to="webdataset")
    found = samples(tmp_path / "web")
    keys = [one["__key__"] for one in found]
    assert keys[:2] == ["PetImages/Cat/cat%2E1", "PetImages/Cat/cat%2E2"]
    assert not keys[2].startswith("_")
    assert [one["cls"] for one in found] == [-1, 0, 1]
    assert {one["txt"] for one in found} == {"a häppy cat"}
    assert all(one["jpg"].size == one["mask.jpg"].size for one in found)
    rest = found[0]["json"]
    assert rest["box"] == [0.5, 2.0]
    assert rest["blob"] == {"base64": "/wA="}
    pairs = webdataset.WebDataset(
        [f"file:{path}" for path in (tmp_path / "web").glob("*.tar")], shardshuffle=False
    ).to_tuple("jpg", "cls")
    assert [data for data, _ in pairs] == images


def test_names_stay_apart(make_shard: MakeShard, tmp_path: Path) -> None:
    """Names that are alike, empty, too long or the library's own are keys of their own."""
    names = [
        b"a.jpg",
        b"a.png",
        b"a.jpg",
        b"",
        b"..",
        b"x" * 300,
        b"__m__/a.jpg",
        b"a/.jpg",
        b"a_.jpg",
    ]
    shard = make_shard(encode_example({"image": image_bytes(), "filename": name}) for name in names)
    convert(shard, tmp_path / "web", to="webdataset")
    found = samples(tmp_path / "web")
    assert len({one["__key__"] for one in found}) == len(names)
    assert [one["json"]["filename"].encode() for one in found] == names


def test_same_bytes_every_time(make_shard: MakeShard, tmp_path: Path) -> None:
    """The same records are the same archive, which says nothing of when and by whom it was made."""
    shard = make_shard(encode_example({"image": image_bytes(), "label": n}) for n in range(5))
    for name in ("one", "two"):
        convert(shard, tmp_path / name, to="webdataset", name="pets", shards=2)
    first, second = (sorted((tmp_path / name).glob("*.tar")) for name in ("one", "two"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    with tarfile.open(first[0]) as archive:
        assert {(one.mtime, one.uid, one.gid, one.uname) for one in archive} == {(0, 0, 0, "")}
        members = archive.getnames()
    assert members == sorted(members)


def archive_of(path: Path, members: Sequence[tuple[str, bytes]], **facts: Any) -> Path:
    """Write an archive as others do."""
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for fact, value in facts.items():
                setattr(info, fact, value)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_samples_of_others(tmp_path: Path) -> None:
    """Archives without our JSON: members by usual names; nested JSON as text, ints and floats."""
    told = {"width": 640, "score": 0.5, "tags": ["a", "b"], "nested": {"a": [1]}, "none": None}
    members = [
        ("README", b"no sample"),
        ("d.x/1.seg.png", b"\x89PNG"),
        ("d.x/1.JPG", b"\xff\xd8\xff"),
        ("d.x/1.cls", b"7\n"),
        ("d.x/1.json", json.dumps(told).encode()),
        ("d.x/2.jpg", b"\xff\xd8\xff2"),
        ("d.x/2.cls", b"8"),
        ("d.x/2.txt", b"text"),
        ("d.x/3.npy", b"\x93NUMPY"),
        ("d.x/3.json", b"[no json"),
    ]
    archive_of(tmp_path / "web-train-000.tar", members)
    convert(tmp_path / "web-train-000.tar", tmp_path / "out", to="tfrecord")
    found = [decode_example(payload).features for payload in shard_payloads(tmp_path / "out")]
    read = [{name: tuple(one.values) for name, one in features.items()} for features in found]
    assert read == [
        {
            "image": (b"\xff\xd8\xff",),
            "image/filename": (b"d.x/1.jpg",),
            "label": (7,),
            "seg.png": (b"\x89PNG",),
            "width": (640,),
            "score": (0.5,),
            "tags": (b"a", b"b"),
            "nested": (b'{"a": [1]}',),
        },
        {
            "image": (b"\xff\xd8\xff2",),
            "image/filename": (b"d.x/2.jpg",),
            "label": (8,),
            "text": (b"text",),
        },
        {"__key__": (b"d.x/3",), "npy": (b"\x93NUMPY",), "json": (b"[no json",)},
    ]


def broken(good: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield archives that are damaged or hostile."""
    yield "cut in a member", good[: len(good) // 2]
    yield "without an end", good[:512]
    yield "no archive", b"hello" * 1000
    yield "gzip", b"\x1f\x8b" + good
    header = bytearray(good)
    header[0] ^= 1
    yield "header", bytes(header)
    long = tarfile.TarInfo("././@LongLink")
    long.type, long.size = tarfile.GNUTYPE_LONGNAME, MAX_ARCHIVE_HEADER_BYTES + 1
    yield "long name", long.tobuf(tarfile.GNU_FORMAT) + bytes(32 * 1024) + good


def test_damaged_archives_are_named(tmp_path: Path) -> None:
    """What is cut, damaged or no archive is an error with its place, and nothing is written."""
    good = archive_of(tmp_path / "good.tar", [("1.jpg", b"x" * 9000), ("2.jpg", b"y")]).read_bytes()
    for what, data in broken(good):
        (tmp_path / "bad.tar").write_bytes(data)
        with pytest.raises(SourceError) as error:
            convert(tmp_path / "bad.tar", tmp_path / "out", to="tfrecord", from_format="webdataset")
        assert error.value.path == str(tmp_path / "bad.tar"), what
        assert error.value.offset is not None
        assert not (tmp_path / "out").exists()


def test_hostile_samples_are_refused(tmp_path: Path) -> None:
    """Two members of one name are an error, as in the library; links lead nowhere."""
    twice = archive_of(tmp_path / "twice.tar", [("1.jpg", b"a"), ("1.JPG", b"b")])
    with pytest.raises(SourceError, match=r"1\.JPG"):
        convert(twice, tmp_path / "out", to="tfrecord")
    archive_of(twice, [("1.jpg", b"")], type=tarfile.SYMTYPE, linkname="/etc/passwd")
    convert(twice, tmp_path / "out", to="tfrecord")
    assert shard_payloads(tmp_path / "out") == []


def test_taken_name_is_refused(make_shard: MakeShard, tmp_path: Path) -> None:
    """A feature with the name that our JSON needs is an error before anything is written."""
    shard = make_shard([encode_example({"__features__": 1})])
    with pytest.raises(SchemaError, match="__features__"):
        convert(shard, tmp_path / "web", to="webdataset")
    assert not (tmp_path / "web").exists()
