"""The fixtures are what their script makes and what their twins say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damaged import damaged_shards
from golden import golden_shards
from make_fixtures import fixture_files
from PIL import Image
from shards import shard_files

import tfrtool
from tests.more import more

FIXTURES = Path(__file__).parent.parent / "fixtures"
TWINS = sorted((*FIXTURES.glob("golden/*.json"), *FIXTURES.glob("damaged/*.json")))
GOLDEN = [twin.with_suffix("") for twin in TWINS if twin.parent.name == "golden"]
COMPRESSION_TYPES = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}
EMPTY_MEMBER = "empty-member.tfrecord.gz"


def files_below(root: Path, folders: set[str]) -> dict[str, bytes]:
    """Return the fixtures in some folders by path."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for folder in folders
        for path in (root / folder).rglob("*")
        if path.is_file()
    }


def twin_of(shard: Path) -> dict[str, Any]:
    """Return what the JSON file beside a shard tells of it."""
    twin: dict[str, Any] = json.loads(shard.with_name(f"{shard.name}.json").read_text())
    return twin


def payloads_of(shard: Path) -> list[bytes]:
    """Return the payloads that our reader finds."""
    return [record.payload for record in tfrtool.read_records(shard)]


@pytest.mark.slow
@pytest.mark.parametrize("make", [shard_files, more(fixture_files)], ids=["shards", "all"])
def test_script_reproduces_committed_files(make: Callable[..., dict[str, bytes]]) -> None:
    """The script makes the committed files, byte for byte, and no others."""
    if make is shard_files:  # the pictures take ten times as long
        golden, damaged = shard_files(golden_shards()), shard_files(damaged_shards())
        made = {f"golden/{name}": data for name, data in golden.items()}
        made |= {f"damaged/{name}": data for name, data in damaged.items()}
    else:
        made = fixture_files()
    committed = files_below(FIXTURES, {name.partition("/")[0] for name in made})
    assert made.keys() == committed.keys()
    assert [name for name in made if made[name] != committed[name]] == []


def test_each_shard_has_a_twin() -> None:
    """Every file in the folders of shards is a twin or has one, which names it."""
    shards = {
        path
        for folder in ("golden", "damaged")
        for path in (FIXTURES / folder).iterdir()
        if path.suffix != ".json"
    }
    assert shards == {twin.with_suffix("") for twin in TWINS}
    assert all(twin_of(shard)["file"] == shard.name for shard in shards)


def test_inspection_agrees_with_twins() -> None:
    """Inspection finds the compression, records, payload and faults that the twin states."""
    for shard in (twin.with_suffix("") for twin in TWINS):
        twin, found = twin_of(shard), tfrtool.inspect_shard(shard).to_json()
        for key in ("compression", "records", "payload"):
            assert found[key] == twin[key], shard
        keys = ("kind", "offset", "record")
        assert [{key: fault[key] for key in keys} for fault in found["faults"]] == twin["faults"]
        assert bool(twin["faults"]) == (shard.parent.name == "damaged")


@pytest.mark.tf
def test_plain_shard_is_what_tensorflow_writes(tmp_path: Path) -> None:
    """TensorFlow's writer makes the golden plain shard from the same payloads."""
    import tensorflow as tf

    plain = FIXTURES / "golden" / "plain.tfrecord"
    with tf.io.TFRecordWriter(str(tmp_path / "plain.tfrecord")) as writer:
        for payload in payloads_of(plain):
            writer.write(payload)
    assert (tmp_path / "plain.tfrecord").read_bytes() == plain.read_bytes()


@pytest.mark.tf
@pytest.mark.parametrize(
    "shard",
    [pytest.param(shard, id=shard.name) for shard in GOLDEN if shard.name != EMPTY_MEMBER],
)
def test_tensorflow_reads_golden_shard(shard: Path) -> None:
    """TensorFlow's reader gives the same payloads as ours, and as many as the twin tells."""
    import tensorflow as tf

    twin = twin_of(shard)
    dataset = tf.data.TFRecordDataset(str(shard), COMPRESSION_TYPES[twin["compression"]])
    payloads = list(dataset.as_numpy_iterator())
    assert payloads == payloads_of(shard)
    assert len(payloads) == twin["records"]


@pytest.mark.tf
def test_tensorflow_stops_at_empty_gzip_member() -> None:
    """TensorFlow takes a gzip member of no bytes for the end, in silence; ours reads on."""
    import tensorflow as tf

    shard = FIXTURES / "golden" / EMPTY_MEMBER
    dataset = tf.data.TFRecordDataset(str(shard), "GZIP")
    assert list(dataset.as_numpy_iterator()) == payloads_of(shard)[:4]
    assert payloads_of(shard) == payloads_of(FIXTURES / "golden" / "plain.tfrecord")


def test_pets_vary() -> None:
    """The pictures have many sizes, and about a tenth of each class are gray."""
    for kind in ("cat", "dog"):
        sizes, modes = set(), Counter[str]()
        paths = sorted((FIXTURES / "pets" / kind).glob("*.jpg"))
        for path in paths:
            with Image.open(path) as image:
                sizes.add(image.size)
                modes[image.mode] += 1
        assert len(paths) == 100
        assert len(sizes) > 50
        assert all(48 <= side <= 96 for size in sizes for side in size)
        assert any(width != height for width, height in sizes)
        assert modes == {"RGB": 90, "L": 10}


def test_one_pet_is_png_and_one_is_cut() -> None:
    """One picture is a PNG file under a JPEG's name, and one JPEG does not fully decode."""
    disguised, cut = [], []
    for path in sorted((FIXTURES / "pets").rglob("*.jpg")):
        with Image.open(path) as image:
            if image.format != "JPEG":
                disguised.append((path.name, image.format))
            try:
                image.load()
            except OSError:
                cut.append(path.name)
    assert disguised == [("cat-037.jpg", "PNG")]
    assert cut == ["dog-061.jpg"]
