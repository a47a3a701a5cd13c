"""Sizes of shards: what is written keeps to what was asked for, and a plan tells it."""

from __future__ import annotations

import io
import json
import random
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tfrtool.cli import main
from tfrtool.records.framing import FRAME_SIZE, Record
from tfrtool.records.reader import read_records

pytestmark = pytest.mark.tf

RECIPES = {
    "as they are": [],
    "raw": ["--encode", "raw"],
    "raw of one size": ["--encode", "raw", "--resize", "40x30"],
    "raw, shorter side": ["--encode", "raw", "--resize", "30"],
    "png": ["--encode", "png"],
    "jpeg": ["--encode", "jpeg", "--quality", "30"],
    "one size": ["--resize", "20x20"],
    "enlarged": ["--resize", "90"],
    "compressed": ["--encode", "png", "--compression", "gzip"],
}
KNOWN = ("as they are",)


def _picture(number: int, format_: str = "JPEG") -> bytes:
    """Return an image of one of many sizes, some of noise, which takes much more than others."""
    draw = random.Random(number)
    size = draw.randrange(24, 80), draw.randrange(24, 80)
    image = Image.linear_gradient("L").resize(size).rotate(number, fillcolor=number % 251)
    if number % 3 == 0:
        image = Image.frombytes("L", size, draw.randbytes(size[0] * size[1]))
    output = io.BytesIO()
    image.convert("RGB").save(output, format_)
    return output.getvalue()


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return 2 x 50 images; those of one class are PNGs, of which JPEGs are made."""
    source = tmp_path_factory.mktemp("source") / "photos"
    for number in range(100):
        label, format_ = (("cat", "JPEG"), ("dog", "PNG"))[number % 2]
        path = source / label / f"{number:03d}.{format_.lower()}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_picture(number, format_))
    return source


@pytest.fixture(scope="module")
def jpegs(photos: Path) -> Path:
    """Return 2 x 25 images that are JPEGs."""
    source = photos.parent / "jpegs"
    for number, path in enumerate(sorted(photos.glob("cat/*"))):
        target = source / ("cat", "dog")[number % 2] / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return source


def _record_sizes(path: Path) -> list[int]:
    """Return the sizes of a shard's records, frames included, before compression."""
    with path.open("rb") as file:
        records = list(read_records(file))
    return [FRAME_SIZE + len(item.payload) for item in records if isinstance(item, Record)]


def _check_sizes(dataset: Path, size: int) -> None:
    """Check that shards keep to a size to a tenth or one record, and are no more than needed."""
    shards = [_record_sizes(path) for path in sorted(dataset.glob("*.tfrecord-*"))]
    whole, record = sum(map(sum, shards)), max(map(max, shards))
    assert len(shards) > 3
    assert len(shards) <= -(-whole // (0.9 * size))
    mean = whole / len(shards)
    for shard in shards:
        assert abs(sum(shard) - mean) <= max(record, mean / 10)
        assert sum(shard) <= size + max(record, size / 10)
        assert sum(shard) >= 0.9 * size * (1 - 1 / len(shards)) - max(record, size / 10)


@pytest.mark.parametrize("recipe", RECIPES)
def test_shards_keep_to_the_size(
    photos: Path,
    jpegs: Path,
    tmp_path: Path,
    recipe: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Shards have the size asked for, approximately if images are re-encoded."""
    dataset = tmp_path / "dataset"
    size = 75_000 if "raw" in recipe else 20_000
    options = ["--shard-size", str(size), *RECIPES[recipe]]
    source = jpegs if recipe in KNOWN else photos
    assert main(["write", str(source), str(dataset), *options]) == 0
    capsys.readouterr()
    if recipe in KNOWN:
        _check_sizes(dataset, size)
    else:
        shards = [sum(_record_sizes(path)) for path in dataset.glob("*.tfrecord-*")]
        assert 0.5 * size < sum(shards) / len(shards) < 1.5 * size


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_plan_tells_the_sizes(
    photos: Path, jpegs: Path, tmp_path: Path, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sizes that are known are exact; others are said to be estimated, and nearly right."""
    source = jpegs if recipe in KNOWN else photos
    arguments = ["write", str(source), str(tmp_path / "d"), "--shard-size", "50kB", "--json"]
    arguments += RECIPES[recipe]
    assert main([*arguments, "--dry-run"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert main(arguments) == 0
    written = json.loads(capsys.readouterr().out)
    planned, real = plan["splits"]["train"], written["splits"]["train"]
    if recipe in KNOWN:
        assert plan["bytes_estimated_from"] is None
        assert plan["seconds"] > 0
        sizes = [[shard["bytes"] for shard in split["shards"]] for split in (planned, real)]
        assert sizes[0] == sizes[1]
    else:
        assert 1 <= plan["bytes_estimated_from"] <= 40
        assert planned["bytes"] == pytest.approx(real["bytes"], rel=0.35)
    arguments.remove("--json")
    assert main([*arguments, "--dry-run"]) == 0
    assert ("estimated" in capsys.readouterr().out) is (recipe not in KNOWN)
