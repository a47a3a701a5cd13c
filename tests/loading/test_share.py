"""What several pipelines and replicas have of one epoch, held against what one pipeline has."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.datasets import image_payload, write_foreign
from tests.more import more
from tests.photos import image_bytes
from tfrtool import Dataset
from tfrtool.errors import UsageError

pytestmark = pytest.mark.tf

LENGTHS = (9, 3, 14, 1, 10)
TOTAL = sum(LENGTHS)


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return a dataset in which an image's label is its number."""
    numbers = iter(range(TOTAL))
    data = [image_bytes(size=(8, 8), tint=tint) for tint in (0, 60, 120)]
    payloads = [
        [
            image_payload(number, data=data[number % 3])
            for number in itertools.islice(numbers, length)
        ]
        for length in LENGTHS
    ]
    return tfrtool.dataset(write_foreign(tmp_path_factory.mktemp("d"), payloads))


def _load(dataset: Dataset, context: Any = None, **options: Any) -> list[tuple[Any, Any]]:
    chosen = {"image_size": 8, "batch_size": 8, "epochs": 2, "augment": "flip,crop=2", **options}
    batches = dataset.load(context=context, **chosen)
    return [(images.numpy(), labels.numpy()) for images, labels in batches]


@pytest.mark.parametrize("cache", ["memory", more("none")])
def test_replicas_have_the_parts_of_one_batch(numbered: Dataset, tf: Any, cache: str) -> None:
    """Side by side they are the batch of one, augmented alike; sizes differ by one at most."""
    whole = _load(numbered, cache=cache)
    parts = _load(numbered, tf.distribute.InputContext(1, 0, 3), cache=cache)
    assert len(parts) == 3 * len(whole)
    for number, (images, labels) in enumerate(whole):
        own = parts[3 * number : 3 * number + 3]
        np.testing.assert_array_equal(np.concatenate([one for one, _ in own]), images)
        np.testing.assert_array_equal(np.concatenate([one for _, one in own]), labels)
        sizes = [len(one) for _, one in own]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("cache", "batch_size"),
    [("memory", 36), more("none", 36), ("disk", 9)],
)
def test_pipelines_have_ranges_in_as_many_steps(
    numbered: Dataset, tf: Any, tmp_path: Path, cache: str, batch_size: int
) -> None:
    """Each has a range of the images, and of each batch as much as the others but for one.

    The last batch of 36 is one image, which only one of the three has.
    """
    folder = {"cache_directory": tmp_path / "caches"} if cache == "disk" else {}
    loaded = [
        _load(numbered, context, cache=cache, batch_size=batch_size, augment=None, **folder)
        for context in (tf.distribute.InputContext(3, index, 3) for index in range(3))
    ]
    assert [len(batches) for batches in loaded] == 3 * [2 * -(-TOTAL // batch_size)]
    for index, batches in enumerate(loaded):
        labels = sorted(itertools.chain(*(one for _, one in batches[: len(batches) // 2])))
        assert labels == list(range(TOTAL * index // 3, TOTAL * (index + 1) // 3))
    for parts in zip(*loaded, strict=True):
        sizes = [len(labels) for _, labels in parts]
        assert max(sizes) - min(sizes) <= 1
        assert all(images.shape[1:] == (8, 8, 3) for images, _ in parts)
    if cache == "disk":  # which are kept side by side
        assert len(list((tmp_path / "caches").iterdir())) == 3


def test_pipelines_augment_differently(numbered: Dataset, tf: Any) -> None:
    """Images in the same places of two pipelines' batches are not changed alike."""
    contexts = [tf.distribute.InputContext(2, index, 2) for index in range(2)]
    first, second = (_load(numbered, one, augment="brightness=0.5")[0][0] for one in contexts)
    plain = [_load(numbered, one, augment=None)[0][0] for one in contexts]
    changes = [(a - b).mean((1, 2, 3)) for a, b in zip((first, second), plain, strict=True)]
    assert float(abs(changes[0] - changes[1]).max()) > 0.01


@pytest.mark.parametrize("holdout", [None, 0.25])
def test_only_own_shards_are_read(
    numbered: Dataset, tf: Any, tmp_path: Path, holdout: float | None
) -> None:
    """A pipeline does without the shards of others, and without the end of one at its border."""
    directory = tmp_path / "d"
    directory.mkdir()
    shards = numbered.split("train").shards
    for path in shards:
        (directory / path.name).write_bytes(path.read_bytes())
    dataset = tfrtool.dataset(directory)
    for path in sorted(directory.iterdir())[3:]:
        path.unlink()
    third = sorted(directory.iterdir())[2]
    # The last of its 14 records is cut; the first half of all 37 has six of them.
    third.write_bytes(third.read_bytes()[:-60])
    options: dict[str, Any] = {"epochs": 1, "augment": None, "holdout": holdout, "training": False}
    context = tf.distribute.InputContext(2, 0, 2)
    found = sorted(itertools.chain(*(one for _, one in _load(dataset, context, **options))))
    whole = sorted(itertools.chain(*(one for _, one in _load(numbered, **options))))
    assert found == whole[: len(found)]
    assert len(found) == (18 if holdout is None else 14)
    with pytest.raises(FileNotFoundError):
        _load(dataset, tf.distribute.InputContext(2, 1, 2), **options)


def test_what_cannot_be_shared_out(numbered: Dataset, tf: Any) -> None:
    """Fewer images than pipelines, or a batch that they can't share, is an error at once."""
    for context, batch_size in (((38, 0, 38), 38), ((3, 0, 3), 8), ((1, 0, 9), 8)):
        with pytest.raises(UsageError):
            _load(numbered, tf.distribute.InputContext(*context), batch_size=batch_size)
