"""What the images of a cache on disk depend on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from tfrtool.errors import DatasetError, UsageError, os_errors_as
from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.loading.pipeline.load_options import LoadOptions
from tfrtool.storage.locations import user_cache

__all__ = ["DECODING", "CacheKey", "default_cache_directory"]

DECODING = 2
"""The version of how a record becomes pixels, and of the order of images. Raise it when either
changes: caches that older releases wrote are not used any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKey:
    """All that decides which images a cache on disk holds, and in which order.

    Attributes:
        images: how many.
        image_size: of each, in pixels, both ways.
        purpose: what the cache is for: a part of a split of a dataset. There is one cache for a
            purpose, and one with other facts is stale.
        facts: all else, of JSON's types.
    """

    images: int
    image_size: int
    purpose: Mapping[str, object]
    facts: Mapping[str, object]

    @classmethod
    def of(
        cls, dataset: Dataset, options: LoadOptions, images: int, share: tuple[int, int] = (0, 1)
    ) -> CacheKey:
        """Return the key of the images that ``options`` would load.

        Contents of shards are known by the files' names, sizes and times of change: reading them
        would take as long as decoding them.

        Args:
            dataset: where the images are.
            options: which of them, and how large.
            images: how many that makes.
            share: which of how many pipelines they are for.

        Raises:
            UsageError: there is no such split.
            DatasetError: a shard can't be looked at.
        """
        split, holdout = dataset.split(options.split), options.holdout
        return cls(
            images=images,
            image_size=options.image_size,
            purpose={
                "dataset": os.fspath(dataset.directory.resolve()),
                "split": split.name,
                "part": "all" if holdout is None else "held out" if holdout.held_out else "rest",
            },
            facts={
                "shards": [_stamp(path) for path in split.shards],
                "records": split.records,
                "image_feature": dataset.image_feature,
                "image_form": repr(dataset.image_form),
                "label_feature": dataset.label_feature,
                "label_dtype": dataset.label_dtype.value,
                "class_names": dataset.class_names,  # labels may be names, to be numbered by these
                "fraction": None if holdout is None else holdout.fraction,
                "order": [options.cycle_length, options.block_length],
                "decoding": [DECODING, str(tf.__version__)],
                "extra": {"share": share},
            },
        )

    @property
    def digest(self) -> str:
        """32 hexadecimal digits that differ where anything does."""
        size = [self.images, self.image_size]
        return _digest({"purpose": self.purpose, "facts": self.facts, "size": size}, 32)

    @property
    def slot(self) -> str:
        """16 hexadecimal digits that differ where the purpose does."""
        return _digest(self.purpose, 16)

    @property
    def file_name(self) -> str:
        """The name of the cache's file."""
        return f"{self.slot}-{self.digest}.images"


def default_cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where caches are kept unless told otherwise.

    Raises:
        UsageError: neither XDG_CACHE_HOME nor a home directory is known.
    """
    path = user_cache("images", environment)
    if path is None:
        raise UsageError("there is no home directory to keep a cache in", hint="set XDG_CACHE_HOME")
    return path


def _stamp(path: Path) -> tuple[str, int, int]:
    with os_errors_as(DatasetError, path, "can't be looked at"):
        status = path.stat()
    return path.name, status.st_size, status.st_mtime_ns


def _digest(facts: Mapping[str, object], digits: int) -> str:
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:digits]
