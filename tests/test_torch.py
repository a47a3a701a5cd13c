"""The iterable dataset of PyTorch; without PyTorch, with a stand-in for what it asks of it."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import tfrtool
from tests.datasets import image_payload
from tests.features.robot import LENGTHS, write_robot
from tests.photos import image_bytes
from tests.records.strategies import shard_of

SHARDS, RECORDS = 3, 17
INSTALLED = importlib.util.find_spec("torch") is not None


@pytest.fixture(scope="module")
def module() -> Iterator[Any]:
    """Return `tfrtool.torch`."""
    with pytest.MonkeyPatch.context() as patch:
        if not INSTALLED:
            distributed, data = ModuleType("torch.distributed"), ModuleType("torch.utils.data")
            data.__dict__.update(IterableDataset=object, get_worker_info=lambda: None)
            distributed.__dict__.update(is_initialized=lambda: False)
            patch.setitem(sys.modules, "torch", ModuleType("torch"))
            patch.setattr(sys.modules["torch"], "distributed", distributed, raising=False)
            patch.setitem(sys.modules, "torch.utils", ModuleType("torch.utils"))
            patch.setitem(sys.modules, "torch.utils.data", data)
        yield importlib.import_module("tfrtool.torch")
        sys.modules.pop("tfrtool.torch")


@pytest.fixture(params=["none", "gzip"])
def shards(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return shards with the images 0 to 50, by their labels."""
    data = image_bytes()
    for shard in range(SHARDS):
        numbers = range(shard * RECORDS, (shard + 1) * RECORDS)
        content = shard_of([image_payload(number, data=data) for number in numbers])
        content = gzip.compress(content) if request.param == "gzip" else content
        (tmp_path / f"a-train.tfrecord-{shard:05}-of-{SHARDS:05}").write_bytes(content)
    return tmp_path


def _in_worker(module: Any, patch: pytest.MonkeyPatch, number: int, count: int) -> None:
    info = SimpleNamespace(id=number, num_workers=count)
    patch.setattr(module, "get_worker_info", lambda: info)


@pytest.mark.parametrize("buffer", [0, 8])
@pytest.mark.parametrize(("ranks", "workers"), [(1, 1), (2, 3), (5, 2)])
def test_each_record_once(
    module: Any, shards: Path, ranks: int, workers: int, buffer: int, monkeypatch: Any
) -> None:
    """Ranks and their workers share the records, and all ranks have as many."""
    options = {"split": "train", "decode": "image", "shuffle_buffer": buffer, "world_size": ranks}
    epochs: list[list[int]] = [[], []]
    for rank in range(ranks):
        counts = [0, 0]
        for worker in range(workers):
            _in_worker(module, monkeypatch, worker, workers)
            records = module.IterableRecords(shards, rank=rank, **options)
            for epoch, labels in enumerate(epochs):
                found = [label for _, label in records]
                counts[epoch] += len(found)
                labels += found
        assert counts == [len(records)] * 2 == [SHARDS * RECORDS // ranks] * 2
    for labels in epochs:
        assert len({*labels}) == len(labels) == SHARDS * RECORDS // ranks * ranks
    assert (epochs[0] == sorted(epochs[0])) == (not buffer)
    assert (epochs[0] == epochs[1]) == (not buffer)


@pytest.mark.parametrize("buffer", [0, 8])
def test_resuming(module: Any, shards: Path, buffer: int, monkeypatch: Any) -> None:
    """A loaded state continues where it was saved, in the same order, and with its next epoch."""
    _in_worker(module, monkeypatch, 1, 2)

    def opened() -> Any:
        return module.IterableRecords(shards, decode="image", shuffle_buffer=buffer, seed=3)

    whole = opened()
    epochs = [[label for _, label in whole] for _ in range(3)]
    for done in (0, 7, len(epochs[1])):
        first = opened()
        first.set_epoch(1)
        elements = iter(first)
        assert [next(elements)[1] for _ in range(done)] == epochs[1][:done]
        second = opened()
        second.load_state_dict(first.state_dict())
        assert second.state_dict() == first.state_dict()
        assert [label for _, label in second] == epochs[1][done:]
        assert [label for _, label in second] == epochs[2]
    state = first.state_dict()
    assert [label for _, label in first] == epochs[1]  # an epoch that was left begins again
    _in_worker(module, monkeypatch, 0, 2)
    second.load_state_dict(state)
    with pytest.raises(tfrtool.UsageError, match="another worker"):
        next(iter(second))


def test_what_elements_are(module: Any, shards: Path, tmp_path: Path) -> None:
    """They are those of `open_records`; damage and images that can't be decoded are named."""
    (shards / "label.labels.txt").write_text("cat\n")
    options: Any = {"decode": "image", "resize": (6, 4), "transform": lambda one: one[0].shape}
    records = module.IterableRecords(shards, **options)
    assert records.class_names == ("cat",)
    assert [*records] == [(4, 6, 3)] * 51
    assert [record.index for record in module.IterableRecords(shards)][16:18] == [16, 0]
    path = tmp_path / "b.tfrecord"
    path.write_bytes(shard_of([image_payload(0), image_payload(1, data=b"noise")]))
    elements = iter(module.IterableRecords(path, decode="image"))
    next(elements)
    with pytest.raises(tfrtool.ShardError, match="image") as caught:
        next(elements)
    assert (caught.value.path, caught.value.record) == (str(path), 1)
    wrong: Any
    for wrong in ({"rank": 2, "world_size": 2}, {"shuffle_buffer": -1}):
        with pytest.raises(tfrtool.UsageError):
            module.IterableRecords(path, **wrong)


def test_elements_of_features(module: Any, tmp_path: Path) -> None:
    """The elements are the arrays of features.json, as those of `open_records` are."""
    records = module.IterableRecords(write_robot(tmp_path / "robot"), decode="features")
    assert [record["steps"]["action"].shape for record in records] == [(n, 2) for n in LENGTHS]


@pytest.mark.skipif(not INSTALLED, reason="PyTorch is not installed")
@pytest.mark.filterwarnings("ignore:'set_vital'")  # torchdata calls it
@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_of_pytorch(module: Any, shards: Path, workers: int) -> None:
    """DataLoader makes batches of all records; that of torchdata resumes after any of them."""
    data: Any = importlib.import_module("torch.utils.data")
    records = module.IterableRecords(shards, decode="image", shuffle_buffer=8)
    batches = [*data.DataLoader(records, 4, num_workers=workers)]
    assert batches[0][0].shape == (4, 12, 16, 3)
    labels = [batch[1].tolist() for batch in batches]
    assert sorted(label for batch in labels for label in batch) == [*range(51)]
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="no torchdata")
    records.set_epoch(0)
    loader = stateful.StatefulDataLoader(records, 4, num_workers=workers)
    elements = iter(loader)
    assert [next(elements)[1].tolist() for _ in range(3)] == labels[:3]
    state = loader.state_dict()
    resumed = stateful.StatefulDataLoader(
        module.IterableRecords(shards, decode="image", shuffle_buffer=8), 4, num_workers=workers
    )
    resumed.load_state_dict(state)
    assert [batch[1].tolist() for batch in resumed] == labels[3:]
