"""Batches whose bytes are known: order, augmentation and shares stay what they were."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.loading.test_pipeline import load, write_numbered
from tests.more import more
from tfrtool import Dataset

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return a dataset of three shards of different lengths."""
    return tfrtool.dataset(write_numbered(tmp_path_factory.mktemp("d"), [20, 3, 12]))


FLIPPED = {"augment": "flip,crop=2"}
LATER = {"first_epoch": 2, "first_step": 2, **FLIPPED}
HELD_OUT = {"holdout": 0.4, "held_out": True, "training": False}
"""Without colors or angles, which processors round in different ways."""


@pytest.mark.parametrize(
    ("cache", "changes", "share", "digest"),
    [
        ("none", FLIPPED, None, "388fa48f76b602d9"),
        more("none", LATER, None, "a347ca1b278eb55c"),
        more("none", HELD_OUT, None, "8bb129b4b553e3a7"),
        ("memory", LATER, None, "c7eb63ea5b33e91a"),
        more("memory", {}, None, "53365ab4a2cde6fc"),
        ("memory", {"holdout": 0.4, **LATER}, (2, 1, 4), "02f2a352024d01ba"),
        more("memory", HELD_OUT, (2, 1, 4), "11170785594c081f"),
        ("disk", LATER, None, "d0bbb958da80cf9c"),
        more("disk", HELD_OUT, (2, 0, 2), "9f9c00e952b2e638"),
    ],
)
def test_bytes_of_batches(
    numbered: Dataset,
    tmp_path: Path,
    tf: Any,
    cache: str,
    changes: dict[str, Any],
    share: tuple[int, int, int] | None,
    digest: str,
) -> None:
    """Two iterators over two epochs each return the same images and labels as in earlier versions.

    With and without rescaling, in one iterator for each epoch, too, if it starts at the first step.
    """
    options: dict[str, Any] = {"cache": cache, "batch_size": 8, "seed": 7, **changes}
    if cache == "disk":
        options["cache_directory"] = tmp_path
    if share is not None:
        options["context"] = tf.distribute.InputContext(*share)
    batches = load(numbered, epochs=2, **options)
    assert _digest([*batches, *batches]) == digest
    rescaled = load(numbered, epochs=2, rescale=(1 / 127.5, -1.0), **options)
    whole = [(np.round((pixels + 1) * 127.5), labels) for pixels, labels in [*rescaled, *rescaled]]
    assert _digest(whole) == digest
    if "first_step" not in changes:
        single = load(numbered, **options)
        assert _digest([batch for _ in range(4) for batch in single]) == digest


def _digest(batches: list[tuple[Any, Any]]) -> str:
    """Return the start of the SHA-256 of images, as uint8, and labels, as int64."""
    digest = hashlib.sha256()
    for pixels, labels in batches:
        digest.update(np.asarray(pixels).astype(np.uint8).tobytes())
        digest.update(np.asarray(labels).astype("<i8").tobytes())
    return digest.hexdigest()[:16]
