"""The images of a run: its dataset, its training and validation part, and how they are loaded."""

import statistics
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.errors import DatasetError, UsageError, human_count, printable, some_of
from tfrtool.loading.augment import as_augment
from tfrtool.loading.cache import (
    CachePlan,
    CacheRequest,
    available_memory,
    cache_directory,
    free_disk,
    plan_cache,
)
from tfrtool.loading.corrupt import DropReport, naming_damage
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.decoding import record_decoder, split_records, standard_rescale
from tfrtool.loading.disk_cache import has_disk_cache
from tfrtool.loading.open_dataset import opened
from tfrtool.loading.options import Cache, ImageSize, LoadOptions, Rescale
from tfrtool.loading.pipeline import count_images, load
from tfrtool.storage.progress import OnProgress, activity
from tfrtool.training.models import SMALLEST_VALID_SIDE
from tfrtool.training.tasks import TASKS
from tfrtool.training.train_options import CNN, NO_WEIGHTS, TrainOptions, is_own

_VALIDATION = "validation"
_VALIDATIONS = (_VALIDATION, "valid", "val")
"""Names of the split that is validated on by default, the first that exists."""

_SAMPLED = 16
"""Images of the first shards, whose sides decide the size of the cnn's input."""

_STEP = 32
"""The cnn halves its images five times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """The images of a run, and how they are loaded.

    Attributes:
        original: the dataset as it is on disk.
        dataset: the same without damaged records, if they are skipped.
        dropped: what was skipped, or None if nothing was searched for.
        parts: how to load the training images, and the validation images if there are any.
        images: number of images of each part.
        steps_per_epoch: number of training batches per epoch, or None for those of all images.
    """

    original: Dataset
    dataset: Dataset
    dropped: DropReport | None
    parts: tuple[LoadOptions, ...]
    images: list[int]
    steps_per_epoch: int | None = None

    @property
    def training(self) -> LoadOptions:
        """How the training images are loaded."""
        return self.parts[0]

    @property
    def steps(self) -> list[int]:
        """Number of batches of each part."""
        return [-(-images // self.training.batch_size) for images in self.images]

    @property
    def epoch_steps(self) -> int:
        """Number of training batches per epoch."""
        return self.steps_per_epoch or self.steps[0]

    @property
    def epoch_images(self) -> list[int]:
        """Number of images of each part per epoch; a mean, if an epoch doesn't have all images."""
        first, *others = self.images
        return [round(first * self.epoch_steps / self.steps[0]), *others]

    def passes_after(self, done: int, epochs: int) -> dict[str, Any]:
        """Return the passes over the training images for all epochs after ``done``.

        They are the options of `Dataset.load` that say where they begin, and how many there are.
        """
        first, step = divmod(done * self.epoch_steps, self.steps[0])
        end = -(-epochs * self.epoch_steps // self.steps[0])
        return {"first_epoch": first, "first_step": step, "epochs": end - first}

    def changed(self, **changes: Any) -> "TrainingData":
        """Return the same images with all parts loaded in another way."""
        return replace(self, parts=tuple(replace(part, **changes) for part in self.parts))

    def once(self, **changes: Any) -> "TrainingData":
        """Return all images as uint8, for one pass in the order of their records."""
        order: dict[str, Any] = {"training": False, "epochs": 1, "first_epoch": 0}
        return self.changed(rescale=None, cache="none", augment=None, **order, **changes)

    def naming_damage(self) -> AbstractContextManager[None]:
        """Turn TensorFlow's errors about records into ours, which name shard and record."""
        splits = [part.split for part in self.parts]
        folder = (
            cache_directory(self.training.cache_directory)
            if self.training.cache == "disk"
            else None
        )
        return naming_damage(self.dataset, *splits, disk_cache=folder)

    def measured_rescale(self, on_progress: OnProgress) -> Rescale:
        """Return what gives each channel mean 0 and deviation 1 over the training images."""
        on_progress(activity("measuring the images"))
        images = load(self.dataset, self.once(recipe="tfrtool").training)
        with self.naming_damage():
            return standard_rescale(images)


def find_training_data(options: TrainOptions, scratch: Path) -> TrainingData:
    """Open the dataset of a run, and decide what is trained and validated on.

    Copies of shards without their damage are written to ``scratch``.
    """
    original = opened(options.dataset, options)
    dataset, report = original, None
    if options.on_error == "skip":
        splits = {*original.split_names(options.split)}
        if (validated := _validation_split(original, options)) is not None:
            splits |= {*original.split_names(validated)}
        dataset, report = original.drop_corrupt(
            scratch, splits=sorted(splits), on_progress=options.on_progress
        )
    TASKS[dataset.task].check_training(options, dataset)
    training = options.loading(_choose_image_size(options, dataset))
    parts: tuple[LoadOptions, ...] = (training,)
    if isinstance(options.validation, float):
        training = replace(training, holdout=options.validation)
        parts = (training, replace(training, held_out=True))
    elif (name := _validation_split(dataset, options)) is not None:
        shared = dataset.shared_split(options.split, name)
        if shared is not None:
            what = f"records of split {shared!r} can't be used for both training and validation"
            raise UsageError(what)
        parts = (training, replace(training, split=name))
    for part in parts:
        for name in dataset.split_names(part.split):
            if name in dataset.unlabeled_splits:
                raise DatasetError(f"split {name!r} has no labels", path=dataset.directory)
    validation = [replace(part, training=False, augment=None) for part in parts[1:]]
    if options.validation_steps is not None:
        if not validation:
            what = "--validation-steps requires validation images"
            raise UsageError(what, hint="use --validation FRACTION")
        validation = [_limited(dataset, validation[0], options.validation_steps)]
    parts = (training, *validation)
    images = [count_images(dataset, part) for part in parts]
    return TrainingData(
        original=original,
        dataset=dataset,
        dropped=report,
        parts=parts,
        images=images,
        steps_per_epoch=options.steps_per_epoch,
    )


def _limited(dataset: Dataset, part: LoadOptions, steps: int) -> LoadOptions:
    """Return a part with as many batches as requested."""
    images = count_images(dataset, part)
    batches = -(-images // part.batch_size)
    if steps > batches:
        available = f"{human_count(images, 'validation image')} make {batches} batches"
        raise UsageError(f"--validation-steps {steps} is too large: {available}")
    return replace(part, limit=steps * part.batch_size)


def _validation_split(dataset: Dataset, options: TrainOptions) -> str | None:
    if isinstance(options.validation, str):
        return options.validation
    if options.validation is not None:
        return None
    usable = dataset.splits.keys() - {
        *dataset.split_names(options.split),
        *dataset.unlabeled_splits,
    }
    return next((name for name in _VALIDATIONS if name in usable), None)


def _choose_image_size(options: TrainOptions, dataset: Dataset) -> ImageSize:
    """Return the image size that was requested, or the model's own.

    The cnn has no weights for a certain size: small images are only enlarged to the next multiple
    of 32, by the median of the first images' longer sides.
    """
    size = options.size
    if options.image_size is not None or options.model_name != CNN or not isinstance(size, int):
        return size
    decode, part = record_decoder(dataset), options.loading(size)
    with naming_damage(dataset, options.split):
        sides = [
            max(decode(record)[0].shape[:2])
            for record in split_records(dataset, part).take(_SAMPLED)
        ]
    longest = int(statistics.median(sides)) if sides else size
    return min(size, -(-max(longest, 1) // _STEP) * _STEP)


def plan_run_cache(
    options: TrainOptions,
    data: TrainingData,
    before: Cache | None,
    *,
    feature_size: int | None,
) -> CachePlan:
    """Decide where images are kept between epochs.

    A resumed run keeps them where it did before, since their order depends on it. ``feature_size``
    is the number of values that a frozen base returns per image, None without such a base.
    """
    directory = cache_directory(data.training.cache_directory)
    augment = as_augment(options.augment)
    plan = plan_cache(
        CacheRequest(
            images=sum(data.images),
            image_size=data.training.image_size,
            channels=options.channels,
            epochs=options.epochs,
            asked=before or (None if options.cache == "auto" else options.cache),
            recipe=options.recipe,
            base_frozen=feature_size is not None,
            augmented=augment is not None,
            before_resize=augment is not None and augment.is_before_resize,
            feature_size=feature_size,
            label_bytes=data.dataset.label_bytes,
            free_memory=available_memory,
            free_disk=lambda: free_disk(directory),
            on_disk=options.recipe == "tfrtool"
            and directory.is_dir()
            and all(has_disk_cache(data.dataset, part, (1, 0)) for part in data.parts),
        )
    )
    if plan.cache != "features" and options.precision == "bfloat16":
        raise UsageError(f"--precision {options.precision} requires cached features: {plan.reason}")
    return plan if before is None else replace(plan, reason=f"{plan.reason}, as in the resumed run")


def balanced_weights(data: TrainingData) -> dict[str, float]:
    """Return images / (classes * images of the class) for each class, as scikit-learn does.

    Classes without images are not counted, and weigh 0.
    """
    dataset, part = data.dataset, data.training
    decode = record_decoder(dataset)  # TensorFlow leaves out the pixels, which nothing needs
    labels = split_records(dataset, part).map(
        lambda record: decode(record)[1], tf.data.AUTOTUNE, deterministic=False
    )
    labels = labels.batch(1024)
    with data.naming_damage():
        counts = np.bincount(
            np.concatenate(list(labels.as_numpy_iterator())), minlength=len(dataset.class_names)
        )
    known = np.count_nonzero(counts)
    weights = [counts.sum() / (known * count) if count else 0.0 for count in counts.tolist()]
    return dict(zip(dataset.class_names, map(float, weights), strict=True))


def plan_warnings(
    options: TrainOptions,
    data: TrainingData,
    weights: Mapping[str, float] | None,
    *,
    has_base: bool,
) -> tuple[str, ...]:
    """Return a sentence for each likely mistake; ``has_base`` is whether a base is frozen."""
    found = []
    if options.policy != "float32" and not tf.config.list_physical_devices("GPU"):
        found.append(f"--precision {options.precision} is slower than float32 without a GPU")
    is_named = options.model_name != CNN and not is_own(options.model_name)
    if has_base and is_named and options.initial_weights == NO_WEIGHTS:
        found.append(
            "the base is frozen with random weights, so the head has almost nothing to learn from; "
            "use --trainable all to train the base, or --weights imagenet to load it"
        )
    if options.validation is None and _VALIDATION in data.dataset.empty_splits:
        found.append(f"split {_VALIDATION!r} has no records: nothing is validated")
    missing = [printable(name) for name, weight in (weights or {}).items() if not weight]
    if missing:
        found.append(f"no training images of {some_of(missing, 5)}")
    least = SMALLEST_VALID_SIDE
    if (options.model_name, options.head) == (CNN, "sigmoid") and min(
        data.training.shape[:2]
    ) < least:
        found.append(
            f"images below {least} pixels are too small for the cnn without padding: it gets the "
            "padding same"
        )
    return tuple(found)
