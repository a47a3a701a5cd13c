"""Sizes of shards: what is written keeps to what was asked for, and a plan tells it."""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

import tfrtool
from tfrtool.cli import main
from tfrtool.records.framing import FRAME_SIZE, Record
from tfrtool.records.reader import read_records
from tfrtool.storage.commit import STAGING
from tfrtool.writing import record_sizes
from tfrtool.writing.publish import Staging
from tfrtool.writing.shard_writer import write_shards
from tfrtool.writing.write_plan import PlannedShard, cut_by_size, fits

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
KNOWN = ("as they are", "raw of one size")


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
    tmp_path: Path,
    recipe: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever is written of the images, shards have the size asked for."""
    dataset = tmp_path / "dataset"
    size = 75_000 if "raw" in recipe else 20_000
    options = ["--shard-size", str(size), *RECIPES[recipe]]
    assert main(["write", str(photos), str(dataset), *options]) == 0
    capsys.readouterr()
    _check_sizes(dataset, size)


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
        assert 8 <= plan["bytes_estimated_from"] <= 20
        assert planned["bytes"] == pytest.approx(real["bytes"], rel=0.35)
    arguments.remove("--json")
    assert main([*arguments, "--dry-run"]) == 0
    assert ("estimated" in capsys.readouterr().out) is (recipe not in KNOWN)


@given(st.lists(st.integers(17, 5000), min_size=1, max_size=200), st.integers(20, 20_000))
def test_cut_by_size(records: list[int], size: int) -> None:
    """Any records are cut into the fewest even shards, each right to one record."""
    bounds = cut_by_size(records, size)
    assert (bounds[0], bounds[-1]) == (0, len(records))
    shards = [sum(records[start:end]) for start, end in pairwise(bounds)]
    fewest = -(-sum(records) // size)
    assert len(shards) <= fewest
    assert all(0 < shard <= size + max(records) for shard in shards)
    assert all(abs(shard - sum(records) / fewest) <= max(records) for shard in shards)
    if max(records) < 0.05 * sum(records) / fewest:
        assert fits([("train", shard) for shard in shards], size)


@given(
    st.lists(st.tuples(st.integers(17, 5000), st.integers(17, 5000)), min_size=1, max_size=200),
    st.integers(20, 50_000),
)
@example([(100, 110)] * 40 + [(100, 80)] * 40, 4_000)
def test_estimated_sizes_keep_the_promise(records: list[tuple[int, int]], size: int) -> None:
    """However wrong the estimates are: even shards, larger by a tenth or one record at most."""
    real = [one for _, one in records]
    bounds = cut_by_size([estimate for estimate, _ in records], size)
    shards = [sum(real[start:end]) for start, end in pairwise(bounds)]
    if not fits([("train", shard) for shard in shards], size):
        shards = [sum(real[start:end]) for start, end in pairwise(cut_by_size(real, size))]
    mean = sum(real) / len(shards)
    assert all(shard <= size + max(size / 10, *real) for shard in shards)
    assert all(abs(shard - mean) <= max(mean / 10, *real) + 1e-6 for shard in shards)


@pytest.mark.parametrize("command", ["write", "reshard", "convert"])
def test_a_number_without_a_unit(
    command: str, jpegs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--shard-size 10` is refused before anything is written; `10B` is what it says."""
    dataset, out = tmp_path / "pets", tmp_path / "out"
    source = jpegs
    if command != "write":
        tfrtool.write(source=jpegs, dataset=dataset)
        source = dataset
    words = [command, str(source), str(out), "--shard-size"]
    words = [*words[:-1], *(["--to", "parquet"] if command == "convert" else []), words[-1]]
    assert main([*words, "10"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--shard-size 10 has no unit" in line
    assert "; add the unit, such as 10MiB" in line
    assert not out.exists()
    assert main([*words, "10B"]) == 0


class Counted:
    """Stands before `write_shards`: counts records, and may stop as a killed process does."""

    def __init__(self, runs: int = 99, kept: Path | None = None) -> None:
        self.records: list[int] = []
        self._runs, self._kept = runs, kept

    def __call__(self, shards: Sequence[PlannedShard], staging: Staging, *more: Any) -> Any:
        self.records.append(sum(len(shard.positions) for shard in shards))
        last = len(self.records) == self._runs
        reports = write_shards(shards[: 5 if last else None], staging, *more)
        if last and self._kept:
            shutil.copytree(staging.folder, self._kept)
            raise KeyboardInterrupt
        return reports


def _counted(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> list[int]:
    """Write, and return how many records each go has written."""
    with monkeypatch.context() as patch:
        counted = Counted()
        patch.setattr("tfrtool.writing.write.write_shards", counted)
        tfrtool.write(**options)
    return counted.records


def _options(source: Path, dataset: Path, **changes: Any) -> dict[str, Any]:
    given = {"source": source, "dataset": dataset, "name": "d", "shard_size": 50_000}
    return {**given, "encode": "raw", **changes}


def _files(dataset: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in dataset.glob("*.tfrecord-*")}


@pytest.fixture
def misled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sizes be estimated from a single image, the smallest."""
    monkeypatch.setattr(
        record_sizes, "_spread", lambda count: [min(range(count), key=lambda at: (at * 7) % 31)]
    )


@pytest.mark.usefixtures("misled")
@pytest.mark.parametrize("splits", [{}, {"train": 0.7, "test": 0.3}])
def test_a_wrong_estimate_is_put_right(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, splits: Any
) -> None:
    """Where shards turn out too large or too small, all are written again, once."""
    options = _options(photos, tmp_path / "d", splits=splits)
    assert _counted(monkeypatch, options) == [100, 100]
    for split in {path.name.partition(".")[0] for path in (tmp_path / "d").glob("*.tfrecord-*")}:
        folder = tmp_path / split
        folder.mkdir()
        for path in (tmp_path / "d").glob(f"{split}.*"):
            shutil.copy(path, folder)
        _check_sizes(folder, 50_000)


def test_known_sizes_are_written_once(
    jpegs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of images that are kept, and of pixels of one size, nothing is written twice."""
    recipes: list[dict[str, Any]] = [{"encode": "keep"}, {"resize": (40, 30)}]
    for number, recipe in enumerate(recipes):
        options = _options(jpegs, tmp_path / str(number), shard_size=5000, **recipe)
        assert _counted(monkeypatch, options) == [50]


@pytest.mark.usefixtures("misled")
def test_the_same_on_any_way(photos: Path, tmp_path: Path) -> None:
    """Workers, bad images and looking first don't change how shards are cut."""
    source = tmp_path / "photos"
    shutil.copytree(photos, source)
    (source / "cat" / "bad.jpg").write_bytes(b"no image")
    tfrtool.write(**_options(source, tmp_path / "bad"))
    (source / "cat" / "bad.jpg").unlink()
    for workers in (1, 3):
        tfrtool.write(**_options(source, tmp_path / f"w{workers}", workers=workers))
    tfrtool.write(**_options(source, tmp_path / "first", existing="resume"))  # it looks first
    assert len(_files(tmp_path / "w1")) > 10
    for name in ("w3", "first", "bad"):
        assert _files(tmp_path / name) == _files(tmp_path / "w1")


@pytest.mark.usefixtures("misled")
@pytest.mark.parametrize("run", [1, 2])
def test_resuming_goes_on(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: int
) -> None:
    """Killed in the first or the second go, a write is gone on with, to the same end."""
    tfrtool.write(**_options(photos, tmp_path / "whole"))
    dataset = tmp_path / "d"
    with monkeypatch.context() as patch:
        patch.setattr("tfrtool.writing.write.write_shards", Counted(run, tmp_path / "kept"))
        with pytest.raises(KeyboardInterrupt):
            tfrtool.write(**_options(photos, dataset))
    dataset.mkdir()
    shutil.move(tmp_path / "kept", dataset / STAGING)
    report = tfrtool.write(**_options(photos, dataset, existing="resume"))
    assert report.resumed >= 4
    assert _files(dataset) == _files(tmp_path / "whole")
    assert [path.name for path in dataset.glob(".*")] == []
    again = tfrtool.write(**_options(photos, dataset, existing="resume"))
    assert again.complete
