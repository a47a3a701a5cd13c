"""A first epoch: how well it is mixed, where it begins, and JPEGs decoded smaller."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tfrtool
from tests.datasets import image_payload, write_foreign
from tests.more import more
from tests.photos import image_bytes
from tfrtool.errors import UsageError
from tfrtool.loading.dataset import Dataset

pytestmark = pytest.mark.tf

SHARDS, EACH = 8, 60
CACHES = ("memory", "disk", "none")


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return a dataset of 480 images in 8 shards; an image's label is its number."""
    data = image_bytes(size=(8, 8))
    shards = [
        [image_payload(EACH * shard + row, data=data) for row in range(EACH)]
        for shard in range(SHARDS)
    ]
    return tfrtool.dataset(write_foreign(tmp_path_factory.mktemp("d"), shards))


@pytest.mark.parametrize("cache", CACHES)
def test_the_first_epoch_is_mixed(
    numbered: Dataset, cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image's place in the shards says next to nothing of when it comes, though few are held."""
    monkeypatch.setattr("tfrtool.loading.pipeline._SHUFFLE", 64)
    batches = numbered.load(image_size=4, cache=cache, cache_directory=tmp_path / "c")
    labels = np.concatenate([labels.numpy() for _, labels in batches])
    assert sorted(labels) == list(range(SHARDS * EACH))
    # Shards one half after the other come to 0.75. Without a cache four shards are read at a time,
    # in any order.
    if cache != "none":
        assert abs(np.corrcoef(labels, np.arange(len(labels)))[0, 1]) < 0.2


@pytest.mark.parametrize("cache", ["memory", more("disk"), "none"])
def test_a_run_goes_on_at_any_step(numbered: Dataset, cache: str, tmp_path: Path) -> None:
    """What comes from a step of an epoch on is what an uninterrupted run sees from there."""
    options: dict[str, Any] = {
        **{"image_size": 4, "cache": cache, "cache_directory": tmp_path / "c"},
        **{"augment": "flip,crop=1", "batch_size": 50, "seed": 3},
    }
    whole = list(numbered.load(epochs=2, **options))
    for epoch, step in ((0, 1), (1, 9)):
        resumed = list(
            numbered.load(epochs=2 - epoch, first_epoch=epoch, first_step=step, **options)
        )
        expected = whole[epoch * 10 + step :]
        assert len(resumed) == len(expected)
        for one, other in zip(resumed, expected, strict=True):
            np.testing.assert_array_equal(one[1], other[1])
            np.testing.assert_array_equal(one[0], other[0])


def test_a_step_that_no_epoch_has(numbered: Dataset) -> None:
    """It is an error, and no epoch without images."""
    with pytest.raises(UsageError, match="first_step must be from 0 to 14"):
        numbered.load(image_size=4, first_step=15)
    with pytest.raises(UsageError, match=r"first_step.*--recipe"):
        numbered.load(image_size=4, first_step=1, recipe="naive")


def _jpeg(width: int, height: int, format_: str = "JPEG") -> bytes:
    """Return a smooth picture."""
    y, x = np.mgrid[:height, :width]
    planes = [x * 255 / width, y * 255 / height, (x + y) * 255 / (width + height)]
    output = io.BytesIO()
    Image.fromarray(np.stack(planes, -1).astype(np.uint8)).save(output, format_, quality=95)
    return output.getvalue()


@pytest.mark.parametrize(
    ("width", "height", "format_", "ratio"),
    [
        (31, 400, "JPEG", 1),
        (63, 63, "JPEG", 2),
        (130, 126, "JPEG", 4),
        (128, 125, "JPEG", 2),
        (301, 253, "JPEG", 8),
        (300, 256, "PNG", 1),
    ],
)
def test_fast_is_as_large_as_asked_for(
    width: int, height: int, format_: str, ratio: int, tmp_path: Path, tf: Any
) -> None:
    """A JPEG is decoded at the smallest size that has 32 pixels both ways; nothing else is."""
    data = _jpeg(width, height, format_)
    directory = write_foreign(tmp_path / "d", [[image_payload(0, data=data)]])
    dataset = tfrtool.dataset(directory)
    found, exact = (
        next(iter(dataset.load(image_size=32, rescale=None, decode=how)))[0][0].numpy()
        for how in ("fast", "exact")
    )
    whole = tf.io.decode_image(data, 3)
    if ratio > 1:
        # The height and the width to the nearest: libjpeg rounds up.
        sides = [(side + ratio // 2) // ratio for side in (height, width)]
        whole = tf.io.decode_jpeg(data, 3, ratio=ratio)[: sides[0], : sides[1]]
    assert min(whole.shape[:2]) >= min(32, height, width)
    expected = tf.cast(tf.image.resize(tf.cast(whole, tf.float32), (32, 32)) + 0.5, tf.uint8)
    assert np.array_equal(found, expected)
    assert np.abs(found.astype(int) - exact).max() <= (12 if ratio > 1 else 0)


@pytest.mark.parametrize(("side", "ratio"), [(257, 4), (265, 8)])
def test_fast_does_not_stretch(side: int, ratio: int, tmp_path: Path) -> None:
    """Sides that are a pixel more than a multiple leave things where exact decoding has them."""
    directory = write_foreign(tmp_path / "d", [[image_payload(0, data=_jpeg(side, side))]])
    dataset = tfrtool.dataset(directory)
    size = side // ratio
    found, exact = (
        next(iter(dataset.load(image_size=size, rescale=None, decode=how)))[0][0].numpy()
        for how in ("fast", "exact")
    )
    # A pixel of the original is a grey level; libjpeg's last pixels reach 3 and 7 beyond it.
    difference = found[size // 2, -8:, 0].astype(float) - exact[size // 2, -8:, 0]
    assert abs(difference.mean()) < 1.5
