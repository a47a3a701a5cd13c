"""The contact sheet of shards: which records it shows, and what it says of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from PIL import Image

import tfrtool
from tests.conftest import MakeShard
from tests.datasets import flip_bit
from tests.examples.strategies import int64, string
from tests.photos import image_bytes
from tests.records.strategies import offsets_of
from tfrtool.errors import ShardError, UsageError, WriteError
from tfrtool.examples.example import encode_example
from tfrtool.images.sheet import SUFFIXES
from tfrtool.inspection.pictures.contact_sheet import SheetReport, contact_sheet
from tfrtool.records.framing import FaultKind
from tfrtool.storage.json_values import to_json_values
from tfrtool.storage.progress import Progress

COLORS = [(200, 30, 30), (30, 200, 30), (30, 30, 200), (200, 200, 30), (30, 200, 200)]


def painted(number: int, size: int = 64) -> bytes:
    """Return a record whose image has the color with this number."""
    raw = bytes(COLORS[number % len(COLORS)]) * size * size
    features = {
        "image": string(raw),
        "height": int64(size),
        "width": int64(size),
        "label": int64(number),
    }
    return encode_example(features)


def colors_of(report: SheetReport) -> list[tuple[int, ...]]:
    """Return the color in the middle of each tile."""
    with Image.open(report.out) as sheet:
        middle = report.layout.thumb // 2
        found = []
        for index in range(report.layout.images):
            left, top = report.layout.corner(index)
            color = sheet.getpixel((left + middle, top + middle))
            assert isinstance(color, tuple)
            found.append(color)
    return found


def test_each_tile_is_its_record(make_shard: MakeShard, tmp_path: Path) -> None:
    """Tile k shows record k."""
    path = make_shard([painted(number) for number in range(5)])
    report = contact_sheet([path], tmp_path / "sheet.png")
    assert colors_of(report) == COLORS
    assert to_json_values(report) == {
        "out": str(tmp_path / "sheet.png"),
        "images": 5,
        "broken": [],
        "columns": 4,
        "rows": 2,
        "thumb": 128,
        "width": report.layout.width,
        "height": report.layout.height,
        "guessed": 0,
        "shards": [{"path": str(path), "images": 5, "feature": "image"}],
        "other_features": [],
        "without": [],
        "faults": [],
        "objects": None,
        "has_boxes": False,
        "undrawn": "",
    }


@pytest.mark.parametrize(
    ("sizes", "limit", "shares"),
    [
        ((5, 5, 5), 6, [2, 2, 2]),
        ((1, 5, 5), 6, [1, 3, 2]),
        ((5, 5, 5, 5), 2, [0, 1, 0, 1]),
        ((2, 2), 100, [2, 2]),
        ((5, 5, 5), 7, [2, 2, 3]),
    ],
)
def test_the_limit_is_shared_evenly(
    sizes: tuple[int, ...], limit: int, shares: list[int], make_shard: MakeShard, tmp_path: Path
) -> None:
    """Each shard gives its share from its start; what one can't fill goes to the next."""
    paths = [
        make_shard([painted(shard)] * size, f"{shard}.tfrecord") for shard, size in enumerate(sizes)
    ]
    report = contact_sheet(paths, tmp_path / "sheet.png", limit=limit)
    assert [shard.images for shard in report.shards] == shares
    wanted = [COLORS[shard] for shard, share in enumerate(shares) for _ in range(share)]
    assert colors_of(report) == wanted


def test_what_is_broken_is_marked(make_shard: MakeShard, tmp_path: Path) -> None:
    """Cut images and damaged records have a red tile each, at their place, and a reason."""
    photo = image_bytes(size=(64, 64))
    cut = encode_example({"image": string(photo[: len(photo) * 4 // 5]), "label": int64(1)})
    payloads = [painted(0), cut, painted(2), painted(3)]
    path = make_shard(payloads)
    offsets = offsets_of(payloads)
    flip_bit(path, offsets[2] + 100)
    report = contact_sheet([path], tmp_path / "sheet.png")
    assert report.layout.images == 4
    assert [(item.record, item.offset) for item in report.broken] == [
        (1, offsets[1]),
        (2, offsets[2]),
    ]
    assert "can't be decoded" in report.broken[0].reason
    assert report.broken[1].reason.startswith("payload-crc")
    first, second, third, last = colors_of(report)
    assert (first, last) == (COLORS[0], COLORS[3])
    for red, green, blue in (second, third):
        assert red > green
        assert red > blue


def test_damage_without_a_record(make_shard: MakeShard, tmp_path: Path) -> None:
    """Stray bytes after the last record are a fault without a tile."""
    path = make_shard([painted(0)])
    path.write_bytes(path.read_bytes() + b"abc")
    report = contact_sheet([path], tmp_path / "sheet.png")
    assert report.layout.images == 1
    assert [one.fault.kind for one in report.faults] == [FaultKind.TRAILING_BYTES]


def test_shards_without_images_are_named(make_shard: MakeShard, tmp_path: Path) -> None:
    """A shard of other records is told; an empty one is a fault; the others are drawn."""
    text = make_shard([encode_example({"age": int64(3)})], "text.tfrecord")
    empty = make_shard([], "empty.tfrecord")
    images = make_shard([painted(1)], "images.tfrecord")
    report = contact_sheet([text, empty, images], tmp_path / "sheet.png")
    assert report.without == (text,)
    assert [(one.path, one.fault.kind) for one in report.faults] == [(empty, FaultKind.EMPTY)]
    assert colors_of(report) == [COLORS[1]]


def test_no_image_anywhere(make_shard: MakeShard, tmp_path: Path) -> None:
    """Without a single image there is no sheet, and the error names the features."""
    out = tmp_path / "sheet.png"
    path = make_shard([encode_example({"age": int64(3)})])
    with pytest.raises(ShardError, match=r"no feature holds an image.*age"):
        contact_sheet([path], out)
    with pytest.raises(ShardError, match="no feature 'photo'"):
        contact_sheet([path], out, feature="photo")
    with pytest.raises(ShardError, match=r"empty\.tfrecord: .*file is empty"):
        contact_sheet([make_shard([], "empty.tfrecord")], out)
    with pytest.raises(ShardError, match=r"no feature holds an image.*not a tf.train.Example"):
        contact_sheet([make_shard([b"hello"], "text.tfrecord")], out)
    assert not out.exists()


def test_a_shard_is_read_no_farther_than_needed(make_shard: MakeShard, tmp_path: Path) -> None:
    """Damage beyond the records that are shown is not looked for."""
    path = make_shard([painted(0)] * 3 + [b"x" * 100])
    flip_bit(path, path.stat().st_size - 20)
    report = contact_sheet([path], tmp_path / "a.png", limit=3)
    assert not report.broken
    assert contact_sheet([path], tmp_path / "b.png", limit=4).broken


def test_what_is_there_is_not_replaced(make_shard: MakeShard, tmp_path: Path) -> None:
    """A file under the sheet's name is kept, unless it may be overwritten."""
    path = make_shard([painted(0)])
    out = tmp_path / "sheet.png"
    out.write_text("mine")
    with pytest.raises(UsageError, match=r"already exists.*--overwrite"):
        contact_sheet([path], out)
    assert out.read_text() == "mine"
    contact_sheet([path], out, overwrite=True)
    with Image.open(out) as sheet:
        assert sheet.format == "PNG"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.tfrecord", "sheet.png"]


@pytest.mark.parametrize("name", ["sheet", "sheet.tfrecord", "sheet.pdf", "missing/sheet.png", "."])
def test_a_name_that_can_be_no_sheet(name: str, make_shard: MakeShard, tmp_path: Path) -> None:
    """Unknown formats, missing directories and directories are refused before anything is read."""
    with pytest.raises(UsageError):
        contact_sheet([make_shard([painted(0)])], tmp_path / name)


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".JPG"])
def test_every_format_of_a_sheet(suffix: str, make_shard: MakeShard, tmp_path: Path) -> None:
    """A sheet is saved in each format that is offered."""
    report = contact_sheet([make_shard([painted(0)])], tmp_path / f"sheet{suffix}")
    with Image.open(report.out) as image:
        names = {".jpg": "JPEG", ".tif": "TIFF"}
        assert image.format == names.get(suffix.lower(), suffix[1:].upper())
        assert image.size == (report.layout.width, report.layout.height)


def test_a_shard_is_never_replaced(make_shard: MakeShard, tmp_path: Path) -> None:
    """A sheet doesn't take the place of what it shows, whatever that is called."""
    path = make_shard([painted(0)], "shard.png")
    before = path.read_bytes()
    link = tmp_path / "link.png"
    link.symlink_to(path)
    for out in (path, link):
        with pytest.raises(UsageError, match="one of the shards"):
            contact_sheet([path], out, overwrite=True)
    assert path.read_bytes() == before


def test_a_full_disk_leaves_nothing(
    make_shard: MakeShard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the sheet can't be written, neither it nor a part of it is there."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = make_shard([painted(0)])
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match="no space left"):
        contact_sheet([path], tmp_path / "sheet.png")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.tfrecord"]


def test_what_comes_meanwhile_is_not_replaced(make_shard: MakeShard, tmp_path: Path) -> None:
    """A file that takes the sheet's name while it is drawn stays, unless it may be replaced."""
    path, out = make_shard([painted(0)]), tmp_path / "sheet.png"

    def come(_: Progress) -> None:
        out.write_text("dear")

    with pytest.raises(WriteError, match="exists"):
        contact_sheet([path], out, on_progress=come)
    assert out.read_text() == "dear"
    contact_sheet([path], out, overwrite=True, on_progress=come)
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "options",
    [{"limit": 0}, {"columns": 0}, {"thumb": 8}, {"thumb": 4096}, {"limit": 10_000, "thumb": 512}],
)
def test_impossible_sheets(options: dict[str, int], tmp_path: Path) -> None:
    """Sheets of no or of too many pixels are refused before anything is read."""
    with pytest.raises(UsageError):
        contact_sheet(tmp_path / "none", tmp_path / "a.png", **options)  # type: ignore[arg-type]


def test_progress_is_told(make_shard: MakeShard, tmp_path: Path) -> None:
    """The callback hears of every picture."""
    heard: list[tuple[int, int | None]] = []
    path = make_shard([painted(0)] * 3)
    contact_sheet(
        [path],
        tmp_path / "sheet.png",
        limit=9,
        on_progress=lambda now: heard.append((now.done, now.total)),
    )
    assert heard == [(1, 9), (2, 9), (3, 9)]


def test_library_users_have_it(make_shard: MakeShard, tmp_path: Path) -> None:
    """The verb and its options are public, and the report goes into JSON."""
    path = make_shard([painted(0)])
    report = tfrtool.contact_sheet([path], tmp_path / "s.webp", thumb=64)
    assert json.loads(json.dumps(to_json_values(report)))["images"] == 1


def test_real_shards(shared_data: Path, tmp_path: Path) -> None:
    """TFDS' MNIST and tensorflow-recorder's shards are drawn whole."""
    mnist = next((shared_data / "tfrecord" / "tfds_mnist").glob("mnist*"))
    report = contact_sheet([mnist], tmp_path / "mnist.png", limit=30)
    assert (report.layout.images, report.broken, report.faults) == (30, (), ())
    shards = sorted((shared_data / "tfrecord" / "tfrecorder").glob("*.gz"))
    report = contact_sheet(shards, tmp_path / "recorder.png")
    assert (report.layout.images, report.broken, report.guessed) == (6, (), 0)


def test_real_awkward_images(shared_data: Path, make_shard: MakeShard, tmp_path: Path) -> None:
    """Of a shard of difficult images each is drawn or marked, and none is left out."""
    paths = sorted(
        path for path in (shared_data / "images_awkward").iterdir() if path.suffix != ".txt"
    )
    payloads = [
        encode_example({"image": string(path.read_bytes()), "filename": string(path.name.encode())})
        for path in paths
    ]
    report = contact_sheet([make_shard(payloads)], tmp_path / "sheet.png", thumb=48)
    assert report.layout.images == len(paths)
    broken = {paths[item.record].name for item in report.broken if item.record is not None}
    assert {"pillow__truncated_jpeg.jpg", "pillow__bmp_b_reallybig.bmp"} <= broken
    assert len(broken) < 20
