"""The benchmark of the loader, on small datasets and on measurements that are made up."""

from __future__ import annotations

import io
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.datasets import flip_bit, image_payload, write_foreign
from tests.photos import image_bytes
from tfrtool.cli.app import cli
from tfrtool.errors import CorruptShardError, DatasetError, UsageError
from tfrtool.loading import published
from tfrtool.loading.bench import STAGES, BenchReport, Numbers, StageRun, bench, measure
from tfrtool.loading.bench_measure import measure_parts, measure_stage
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.open_dataset import open_dataset
from tfrtool.loading.options import Cache, LoadOptions
from tfrtool.storage.progress import Progress

pytestmark = pytest.mark.tf

SIZE = 32
RECORDS = (6, 7, 5)
MODULE = "tfrtool.loading.bench"

PARTS = {"reading": 0.05, "parsing": 0.1, "decoding": 0.6, "resizing": 0.2}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of 18 JPEGs in 3 shards; half of its labels are 1."""
    jpeg = image_bytes(size=(300, 200))
    shards = [[image_payload(n % 2, data=jpeg) for n in range(count)] for count in RECORDS]
    return write_foreign(tmp_path_factory.mktemp("bench"), shards)


@pytest.fixture(scope="module")
def dataset(directory: Path) -> Dataset:
    """Return it opened."""
    return open_dataset(directory)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return a dataset of 12 JPEGs of noise, which take long to decode."""
    noise = np.random.default_rng(0).integers(0, 256, (1000, 1000, 3), np.uint8)
    output = io.BytesIO()
    Image.fromarray(noise).save(output, "JPEG")
    payload = image_payload(1, data=output.getvalue())
    return open_dataset(write_foreign(tmp_path_factory.mktemp("large"), [[payload] * 12]))


def _made_up(
    *,
    parts: Numbers = PARTS,
    cold: float | None = 0.1,
    rate: float = 1667.0,
    cpu: float = 1.1,
    others: float = 0.0,
    pixels: float = 60_000.0,
    change: Callable[[str, StageRun], StageRun] = lambda _stage, run: run,
) -> Callable[..., Any]:
    """Return a stand-in for measurements, where only what becomes of them is tested."""

    def measured(work: str, dataset: Dataset, *task: Any) -> Any:
        if work == "measure_parts":
            return parts, cold, pixels
        epoch = {"images_per_second": rate, "cpu_ms_per_image": cpu, "other_cores": others}
        images = dataset.split("train").records
        run = StageRun(images=images, labels=8, epochs=(epoch,) * task[2], memory=1000)
        return change(task[1], run)

    return measured


def _load(**changes: Any) -> LoadOptions:
    return LoadOptions(image_size=SIZE, batch_size=4, **changes)


def _bench(directory: Path, **changes: Any) -> BenchReport:
    return bench(directory, **{"image_size": SIZE, "batch_size": 4, "rounds": 1, **changes})


@pytest.mark.parametrize("stage", STAGES)
def test_stage_goes_through_all_images(
    dataset: Dataset, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stage loads every image once an epoch; the published ones are cumulative."""
    built: list[set[str]] = []
    real = published.load_published

    def spy(*arguments: Any) -> Any:
        built.append(set(arguments[-1]))
        return real(*arguments)

    monkeypatch.setattr("tfrtool.loading.bench_measure.load_published", spy)
    run = measure_stage(dataset, _load(cache=Cache.MEMORY), stage, 2)
    assert (run.images, run.labels, len(run.epochs)) == (18, 8, 2)
    for epoch in run.epochs:
        assert epoch["images_per_second"] > 0
        assert epoch["cpu_ms_per_image"] > 0
    does = STAGES[1 : STAGES.index(stage) + 1]
    assert built[1:] == ([] if stage in STAGES[-3:] else [set(does)])


@pytest.mark.parametrize("stage", ["cache", "tfrtool"])
def test_later_epochs_come_from_the_cache(large: Dataset, stage: str) -> None:
    """A later epoch of a cached stage decodes nothing, as a first one does."""
    run = measure_stage(large, _load(cache=Cache.MEMORY), stage, 2)
    first, later = (epoch["cpu_ms_per_image"] for epoch in run.epochs)
    assert later < first / 2


def test_parts_tell_decoding_from_the_rest(large: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of large JPEGs decoding costs most."""
    monkeypatch.setattr("tfrtool.loading.bench_measure._PARTS_IMAGES", 24)
    for last in (False, False, True):  # other processes may come in between
        parts, cold, pixels = measure_parts(large, _load(), 1)
        assert pixels == 1e6
        assert list(parts) == list(PARTS)
        assert cold is None or cold > 0
        reading, parsing, decoding, resizing = parts.values()
        if decoding > max(resizing, 3 * (reading + parsing)):
            break
        assert not last, parts


def test_report(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All stages are measured as often as asked, in turn; their medians are reported."""
    seen: list[Progress] = []
    done = iter(range(100))

    def growing(_stage: str, run: StageRun) -> StageRun:
        number = next(done)
        first, *later = ({name: value + number for name, value in e.items()} for e in run.epochs)
        later[-1] = {name: value + 100 for name, value in later[-1].items()}
        return replace(run, epochs=(first, *later), memory=number)

    monkeypatch.setattr(f"{MODULE}.measure", _made_up(rate=1, change=growing))
    report = _bench(directory, rounds=3, epochs=3, on_progress=seen.append)
    assert [progress.what for progress in seen] == ["pieces", *STAGES * 3]
    assert [(progress.done, progress.total) for progress in seen] == [(n, 25) for n in range(25)]
    *stages, last = report.to_json()
    assert [stage["stage"] for stage in stages] == list(STAGES)
    naive = stages[0]  # measured as numbers 0, 8 and 16
    assert naive["first_epoch"]["images_per_second"] == 1 + 8
    assert naive["later_epochs"]["images_per_second"] == (1 + 16 + 1 + 100) / 2
    assert naive["memory_bytes"] == 8
    over = {stage["stage"]: stage["cache_bytes"] for stage in stages}
    assert {name: size for name, size in over.items() if size is not None} == {
        "cache": 1,  # measured right after the parallel map, which is the same without it
        "tfrtool": 1,
    }
    assert (last["images"], last["total_images"], last["shards"]) == (18, 18, 3)
    assert last["cache"] == "memory"
    assert last["parts_cpu_ms_per_image"] == PARTS
    names = [*PARTS, "copying", "storing", "waiting"]
    assert list(last["shares_ms_per_image"]) == names
    assert last["shares_ms_per_image"]["storing"] == pytest.approx(1)  # each is 1 ms more


@pytest.mark.parametrize(("limit", "shards"), [(1, 1), (6, 1), (7, 2), (1000, 3)])
def test_limit_takes_whole_shards(
    directory: Path, monkeypatch: pytest.MonkeyPatch, limit: int, shards: int
) -> None:
    """As many shards are read as it takes to have enough images; the report tells of the rest."""
    monkeypatch.setattr(f"{MODULE}.measure", _made_up())
    report = _bench(directory, limit=limit)
    assert report.shards == shards
    assert (report.images, report.total_images) == (sum(RECORDS[:shards]), sum(RECORDS))


@pytest.mark.parametrize(
    ("free", "cache", "skipped"),
    [
        (None, "none", 0),
        (4 * 18 * SIZE * SIZE * 12, "memory", 0),
        (18 * SIZE * SIZE * 12, "memory", 2),
        (18 * SIZE * SIZE * 3, "none", 2),
    ],
)
def test_caches_that_do_not_fit_are_not_tried(
    directory: Path, monkeypatch: pytest.MonkeyPatch, free: int | None, cache: str, skipped: int
) -> None:
    """A stage that would take most of the memory is left out, and ours does without a cache."""
    monkeypatch.setattr(f"{MODULE}.available_memory", lambda: free)
    monkeypatch.setattr(f"{MODULE}.measure", _made_up())
    report = _bench(directory)
    reasons = [stage.skipped for stage in report.stages if stage.first_epoch is None]
    assert len(reasons) == skipped
    assert all(reason and "float32 cache" in reason for reason in reasons)
    assert report.cache == cache


@pytest.mark.parametrize("wrong", [{"labels": 7}, {"images": 17}])
def test_pipelines_must_agree(
    directory: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    """Numbers of pipelines that don't load the same images are not compared."""

    def change(stage: str, run: StageRun) -> StageRun:
        return replace(run, **wrong) if stage == "cache" else run

    monkeypatch.setattr(f"{MODULE}.measure", _made_up(change=change))
    with pytest.raises(DatasetError, match="different images"):
        _bench(directory)


@pytest.mark.parametrize(
    ("bottleneck", "measured", "says"),
    [
        ("decoding", {}, ["50%", "parsing 8%", "waiting 8%", "--encode raw", "--resize 32 "]),
        ("resizing", {"parts": PARTS | {"decoding": 0.2, "resizing": 0.7}}, ["58%"]),
        ("parsing", {"parts": PARTS | {"parsing": 0.9}}, ["batched_parse"]),
        ("reading", {"parts": PARTS | {"reading": 0.9}}, ["--resize 32 "]),
        ("copying", {"cpu": 3, "rate": 667}, ["68%", "--image-size"]),
        ("waiting", {"rate": 250}, ["0.3 of 2 cores", "--parallel-calls", "now 3"]),
        ("disk", {"cold": 5}, ["200 images", "1,667", "--resize 32"]),
        ("starting", {"rate": 90}, ["0.20 s", "18 images"]),
        ("starting", {"rate": 90, "cold": 50}, ["0.20 s"]),
        ("decoding", {"rate": 250, "others": 1.725}, ["55%", "1.7 of 2 cores busy"]),
    ],
)
def test_the_largest_share_is_the_bottleneck(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    bottleneck: str,
    measured: dict[str, Any],
    says: list[str],
) -> None:
    """The sentence names what takes most, and an option of a command that exists and helps."""
    monkeypatch.setattr(f"{MODULE}.os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(f"{MODULE}._TOO_SHORT", 0.5 if bottleneck == "starting" else 0)
    monkeypatch.setattr(f"{MODULE}.measure", _made_up(**measured))
    report = _bench(directory)
    assert report.bottleneck == bottleneck
    subject = {"disk": "The disk", "starting": "Startup"}.get(bottleneck, bottleneck.capitalize())
    assert report.sentence.startswith(f"{subject} is")
    for words in says:
        assert words in report.sentence
    known = {opt for command in cli.commands.values() for one in command.params for opt in one.opts}
    assert set(re.findall(r"--[a-z-]+", report.sentence)) <= known


@pytest.mark.parametrize(
    "measured",
    [
        {"parts": PARTS | {name: 0.9}, "cold": cold}
        for name, cold in (("reading", 0.1), ("decoding", 0.1), ("resizing", 0.1), ("reading", 5.0))
    ],
)
def test_small_images_are_not_advised_to_be_resized(
    directory: Path, monkeypatch: pytest.MonkeyPatch, measured: dict[str, Any]
) -> None:
    """Images of 28 pixels that are enlarged to 32, uncompressed: no advice would help."""
    monkeypatch.setattr(f"{MODULE}._TOO_SHORT", 0)
    monkeypatch.setattr(f"{MODULE}.measure", _made_up(pixels=28 * 28, **measured))
    sentence = _bench(directory).sentence
    assert "--resize" not in sentence
    assert "--compression" not in sentence


@pytest.mark.several
def test_process_of_its_own_tells_the_memory(dataset: Dataset) -> None:
    """A measurement in a process of its own knows what the float32 cache takes, at least."""
    options = LoadOptions(image_size=512, batch_size=4)
    run = measure("measure_stage", dataset, options, "cache", 2)
    assert (run.images, run.labels) == (18, 8)
    cache = 18 * 512 * 512 * 3 * 4
    assert 0.8 * cache < run.memory < 6 * cache


def test_damaged_record_is_named(directory: Path, tmp_path: Path) -> None:
    """A record that TensorFlow can't read is named as in training."""
    path = tmp_path / "part-00000-of-00001.tfrecord"
    path.write_bytes(min(directory.iterdir()).read_bytes())
    opened = open_dataset(tmp_path)
    flip_bit(path, path.stat().st_size - 40)  # in the last record, before its CRC
    with pytest.raises(CorruptShardError) as caught:
        measure_stage(opened, _load(), "naive", 2)
    assert (caught.value.path, caught.value.record) == (str(path), 5)


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for Python is a shell script")
@pytest.mark.parametrize(("script", "says"), [("kill -9 $$", "signal 9"), ("exit 7", "code 7")])
def test_process_that_ends_badly(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str
) -> None:
    """How a process ended is said."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(DatasetError, match=says):
        measure("measure_stage", dataset, _load(), "naive", 2)


@pytest.mark.parametrize(
    "wrong", [{"epochs": 1}, {"rounds": 0}, {"limit": 0}, {"image_size": 0}, {"batch_size": 0}]
)
def test_impossible_options(directory: Path, wrong: dict[str, int]) -> None:
    """Options without sense are refused before anything is measured; a later epoch must be."""
    option = "--" + next(iter(wrong)).replace("_", "-")
    with pytest.raises(UsageError, match=f"{option} must be at least .*, got"):
        _bench(directory, **wrong)


def test_the_process_that_asks_does_without_tensorflow() -> None:
    """Only processes that measure load TensorFlow: what asks takes none of their memory."""
    code = "import sys, tfrtool.loading.bench; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
