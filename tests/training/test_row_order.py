"""The order of a cache's rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.datasets import image_payload, write_foreign
from tests.more import more
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.open_dataset import open_dataset
from tfrtool.loading.options import Cache, Holdout, LoadOptions
from tfrtool.loading.pipeline import count_images, load
from tfrtool.training.features.extraction import row_order

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return 30 images in 3 shards whose labels are their numbers."""
    payloads = [image_payload(number) for number in range(30)]
    directory = tmp_path_factory.mktemp("numbered")
    return open_dataset(write_foreign(directory, [payloads[:7], payloads[7:20], payloads[20:]]))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"first_epoch": 2, "epochs": 1},
        more({"shuffle_buffer": 5}),
        more({"seed": 7}),
        {"holdout": Holdout(fraction=0.2, held_out=False)},
    ],
    ids=str,
)
def test_rows_come_as_their_images_would(
    numbered: Dataset, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Batch by batch and epoch by epoch, the rows are those that the cache on disk would give."""
    kept = {"cache": Cache.DISK, "cache_directory": tmp_path}
    options = LoadOptions(**{"image_size": 8, "batch_size": 4, "epochs": 3, **kept, **changes})
    once = LoadOptions(image_size=8, batch_size=30, training=False, holdout=options.holdout)
    ((_, in_place),) = load(numbered, once)
    images = count_images(numbered, options)
    rows = [np.asarray(batch) for batch in row_order(images, options)]
    expected = [labels.numpy() for _, labels in load(numbered, options)]
    assert len(rows) == len(expected)
    for batch, labels in zip(rows, expected, strict=True):
        np.testing.assert_array_equal(in_place.numpy()[batch], labels)
