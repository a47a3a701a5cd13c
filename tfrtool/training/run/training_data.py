"""What is trained on: the dataset without its damage, its parts, and how they are loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.dataset.corrupt_report import DropReport, OnCorrupt
from tfrtool.loading.dataset.dataset import Dataset, Split, open_dataset
from tfrtool.loading.dataset.drop_corrupt import drop_corrupt, name_damage
from tfrtool.loading.pipeline.load_options import Cache, Holdout, LoadOptions, Recipe, Rescale
from tfrtool.loading.pipeline.normalize import channel_statistics, standard_rescale
from tfrtool.loading.pipeline.pipeline import count_images, load
from tfrtool.storage.progress import Progress
from tfrtool.training.models.image_size import choose_image_size
from tfrtool.training.run.feed import Feed
from tfrtool.training.run.listener import Phase
from tfrtool.training.run.train_options import TrainOptions

__all__ = ["Material", "find_material", "measured_rescale", "open_material"]

_DEFAULT_VALIDATION = "validation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """The images of a run.

    Attributes:
        original: the dataset as it is on disk.
        dataset: the same without what can't be used.
        salvage: what that is; None where nobody looked.
        training: how the images to train on are loaded.
        validation: how those to validate on are; None where nothing is validated.
    """

    original: Dataset
    dataset: Dataset
    salvage: DropReport | None
    training: LoadOptions
    validation: LoadOptions | None

    @property
    def train_images(self) -> int:
        """How many images an epoch has."""
        return count_images(self.dataset, self.training)

    @property
    def validation_images(self) -> int:
        """How many images are validated on."""
        return 0 if self.validation is None else count_images(self.dataset, self.validation)

    def changed(self, **changes: Any) -> Material:
        """Return the same images, both parts of them loaded in another way."""
        validation = None if self.validation is None else replace(self.validation, **changes)
        return replace(self, training=replace(self.training, **changes), validation=validation)

    def feeds(self, on_phase: Callable[[Phase], None]) -> tuple[Feed, Feed | None]:
        """Return the batches to train on, and those to validate on.

        Args:
            on_phase: told how far a cache on disk is, if one has to be written.
        """
        return (
            self._feed(self.training, on_phase),
            None if self.validation is None else self._feed(self.validation, on_phase),
        )

    def _feed(self, options: LoadOptions, on_phase: Callable[[Phase], None]) -> Feed:
        images = count_images(self.dataset, options)

        def tell(at: Progress) -> None:
            on_phase(Phase(name="cache", done=at.done, total=at.total or 0))

        return Feed(
            load(self.dataset, options, on_progress=tell),
            images,
            -(-images // options.batch_size),
            # The published pipelines are read as they are in the notebooks: anew each epoch.
            at_once=options.recipe is Recipe.TFRTOOL,
        )

    @contextmanager
    def naming_damage(self) -> Iterator[None]:
        """Turn TensorFlow's errors about records into ours, which name shard and record."""
        parts = [self.training] if self.validation is None else [self.training, self.validation]
        splits: list[Split] = [self.dataset.split(part.split) for part in parts]
        try:
            yield
        except (
            tf.errors.DataLossError,
            tf.errors.InvalidArgumentError,
            tf.errors.NotFoundError,
        ) as error:
            raise name_damage(self.dataset, splits, error) from error


def open_material(
    options: TrainOptions, scratch: Path, on_phase: Callable[[Phase], None]
) -> tuple[Dataset, Dataset, DropReport | None]:
    """Open the dataset of a run.

    Args:
        options: what was asked for.
        scratch: an empty directory for copies of damaged shards without the damage.
        on_phase: told how far the search for damage is.

    Returns:
        The dataset as it is, as it can be used, and what is the difference if that was asked for.
    """
    original = open_dataset(options.dataset, options.on_corrupt)
    dataset, report = original, None
    if options.on_corrupt is OnCorrupt.SKIP:
        splits = [options.split]
        validation = _validation_split(original, options)
        if validation is not None and validation != options.split:
            splits.append(validation)
        dataset, report = drop_corrupt(
            original,
            scratch,
            splits=splits,
            on_progress=lambda p: on_phase(Phase(name="check", done=p.done, total=p.total or 0)),
        )
    if len(dataset.class_names) < 2:
        raise DatasetError(
            "a classifier needs at least two classes",
            path=dataset.directory,
            found=", ".join(dataset.class_names),
        )
    return original, dataset, report


def find_material(
    options: TrainOptions, scratch: Path, on_phase: Callable[[Phase], None]
) -> Material:
    """Open the dataset of a run, and tell which parts of it are trained and validated on.

    Nothing is cached or rescaled yet.

    Args:
        options: what was asked for.
        scratch: an empty directory, to be deleted after the run.
        on_phase: told how far the search for damage is.

    Raises:
        UsageError: the options don't go together with the dataset.
        DatasetError: the dataset can't be trained on.
        CorruptShardError: a shard is damaged; names the record.
    """
    original, dataset, report = open_material(options, scratch, on_phase)
    training = LoadOptions(
        image_size=choose_image_size(options, dataset),
        split=options.split,
        rescale=None,
        batch_size=options.batch_size,
        recipe=options.recipe,
        seed=options.seed,
        cache_directory=options.cache_directory,
        augment=options.augment,
        epochs=options.epochs,
        deterministic=options.deterministic,
        cycle_length=options.cycle_length,
        block_length=options.block_length,
        parallel_calls=options.parallel_calls,
        shuffle_buffer=options.shuffle_buffer,
        prefetch=options.prefetch,
    )
    validation = None
    if isinstance(options.validation, float):
        holdout = Holdout(fraction=options.validation, held_out=False)
        training = replace(training, holdout=holdout)
        validation = replace(training, holdout=replace(holdout, held_out=True))
    elif (name := _validation_split(dataset, options)) is not None:
        if name == options.split:
            raise UsageError(f"split {name!r} can't be both trained and validated on")
        validation = replace(training, split=name)
    if validation is not None:
        validation = replace(validation, training=False, augment=None)
    return Material(
        original=original,
        dataset=dataset,
        salvage=report,
        training=training,
        validation=validation,
    )


def _validation_split(dataset: Dataset, options: TrainOptions) -> str | None:
    """Return the split to validate on; None where there is none of its own."""
    if isinstance(options.validation, str):
        return options.validation
    usual = _DEFAULT_VALIDATION
    default = usual in dataset.splits and options.split != usual
    return usual if options.validation is None and default else None


def measured_rescale(material: Material, on_phase: Callable[[Phase], None]) -> Rescale:
    """Return what makes the mean of each channel 0 over the images to train on, and its spread 1.

    All of them are decoded once for it.

    Raises:
        DatasetError: a record can't be used; names it.
        CorruptShardError: a shard is damaged; names the record.
    """
    options = replace(
        material.training,
        recipe=Recipe.TFRTOOL,
        cache=Cache.NONE,
        training=False,
        augment=None,
        epochs=1,
        first_epoch=0,
    )
    images = load(material.dataset, options)
    total = int(images.cardinality())
    on_phase(Phase(name="statistics", done=0, total=total))
    with material.naming_damage():
        rescale = standard_rescale(*channel_statistics(images))
    on_phase(Phase(name="statistics", done=total, total=total))
    return rescale
