"""The training data: the dataset without its damage, its parts, and how they are loaded."""

import statistics
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.cache import (
    CachePlan,
    CacheRequest,
    available_memory,
    default_cache_directory,
    free_disk,
    has_disk_cache,
    plan_cache,
)
from tfrtool.loading.corrupt import DropReport, naming_damage
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.decoding import record_decoder, standard_rescale
from tfrtool.loading.labels import Task
from tfrtool.loading.open_dataset import open_dataset
from tfrtool.loading.options import Cache, Holdout, LoadOptions, Recipe, Rescale
from tfrtool.loading.pipeline import count_images, load, split_records
from tfrtool.storage.arguments import OnError
from tfrtool.storage.progress import OnProgress, Progress
from tfrtool.training.devices.devices import Devices
from tfrtool.training.models.model_choice import CNN, known_sizes
from tfrtool.training.run.train_options import Precision, TrainOptions

USUAL_VALIDATION = "validation"

_LOOKED_AT = 16
"""Images, from the first shard on, by which the size of the cnn's is chosen."""

_STEP = 32
"""The cnn halves its images five times: the least that it takes, and what divides evenly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """The images of a run: the dataset on disk, and without what is dropped, and how it is loaded.

    Nothing is dropped where nobody looked, and there may be nothing to validate on.
    """

    original: Dataset
    dataset: Dataset
    dropped: DropReport | None
    parts: tuple[LoadOptions, ...]  # how to load what is trained on, and what is validated on

    @property
    def training(self) -> LoadOptions:
        """How the images that are trained on are loaded."""
        return self.parts[0]

    @property
    def images(self) -> list[int]:
        """How many images an epoch has, and how many are validated on, if any."""
        return [count_images(self.dataset, part) for part in self.parts]

    def changed(self, **changes: Any) -> "TrainingData":
        """Return the same images, all parts of them loaded in another way."""
        return replace(self, parts=tuple(replace(part, **changes) for part in self.parts))

    def once(self, **changes: Any) -> "TrainingData":
        """Return all images as uint8, for one pass in the order of their records."""
        order: dict[str, Any] = {"training": False, "epochs": 1, "first_epoch": 0}
        return self.changed(rescale=None, cache=Cache.NONE, augment=None, **order, **changes)

    def naming_damage(self) -> AbstractContextManager[None]:
        """Turn TensorFlow's errors about records into ours, which name shard and record."""
        return naming_damage(self.dataset, *(part.split for part in self.parts))

    def measured_rescale(self, on_progress: OnProgress) -> Rescale:
        """Return what makes the mean of each channel 0 over the training images, and its spread 1.

        All of them are decoded once for it.
        """
        images = load(self.dataset, self.once(recipe=Recipe.TFRTOOL).training)
        total = int(images.cardinality())
        on_progress(Progress(what="statistics", done=0, total=total, unit="batches"))
        with self.naming_damage():
            rescale = standard_rescale(images)
        on_progress(Progress(what="statistics", done=total, total=total, unit="batches"))
        return rescale


def find_training_data(
    options: TrainOptions, scratch: Path, on_progress: OnProgress, given: Dataset | None = None
) -> TrainingData:
    """Open the dataset of a run, and find which parts of it are trained and validated on.

    Nothing is cached or rescaled yet. Copies of shards without their damage go to ``scratch``.
    """
    original = open_original(options, given)
    dataset, report = original, None
    if options.on_error is OnError.SKIP:
        splits = {options.split, _validation_split(original, options) or options.split}
        dataset, report = original.drop_corrupt(
            scratch, splits=sorted(splits), on_progress=on_progress
        )
    if len(dataset.class_names) < (2 if dataset.task is Task.SINGLE else 1):
        raise DatasetError(
            "a classifier needs at least two classes",
            path=dataset.directory,
            found=", ".join(dataset.class_names),
        )
    training = options.loading(_choose_image_size(options, dataset))
    validation = None
    if isinstance(options.validation, float):
        holdout = Holdout(fraction=options.validation, held_out=False)
        training = replace(training, holdout=holdout)
        validation = replace(training, holdout=replace(holdout, held_out=True))
    elif (name := _validation_split(dataset, options)) is not None:
        if name == options.split:
            raise UsageError(f"split {name!r} can't be used for both training and validation")
        validation = replace(training, split=name)
    parts: tuple[LoadOptions, ...] = (training,)
    if validation is not None:
        parts = (training, replace(validation, training=False, augment=None))
    return TrainingData(original=original, dataset=dataset, dropped=report, parts=parts)


def open_original(options: TrainOptions, given: Dataset | None) -> Dataset:
    """Open the dataset of a run as it is on disk, where it is not open yet."""
    if given is not None and options.shard_cache is not None:
        raise UsageError("an open dataset has its shard cache already")
    named = {"image_feature": options.image_feature, "label_feature": options.label_feature}
    if given is not None and any(named.values()):
        raise UsageError("an open dataset has its image and label features already")
    return given or open_dataset(
        options.dataset, options.on_error, shard_cache=options.shard_cache, **named
    )


def _validation_split(dataset: Dataset, options: TrainOptions) -> str | None:
    """Return the split to validate on; None where there is none of its own."""
    if isinstance(options.validation, str):
        return options.validation
    default = USUAL_VALIDATION in dataset.splits and options.split != USUAL_VALIDATION
    return USUAL_VALIDATION if options.validation is None and default else None


def _choose_image_size(options: TrainOptions, dataset: Dataset) -> int:
    """Return what was asked for in pixels both ways, or else the model's own size.

    The cnn has no weights from elsewhere, and so no size that it must have: small images are
    enlarged to the next multiple of 32 alone, by the median of the first ones' longer sides.
    Digits of 28 pixels are trained on at 32.
    """
    if options.image_size is not None or options.model != CNN:
        return options.size
    decode, part = record_decoder(dataset), options.loading(options.size)
    with naming_damage(dataset, options.split):
        sides = [
            max(decode(record)[0].shape[:2])
            for record in split_records(dataset, part).take(_LOOKED_AT)
        ]
    longest = int(statistics.median(sides)) if sides else options.size
    return min(options.size, -(-max(longest, 1) // _STEP) * _STEP)


def plan_run_cache(
    options: TrainOptions, data: TrainingData, before: Cache | None, devices: Devices
) -> CachePlan:
    """Decide where images are kept between epochs; a run that is resumed keeps them where it did.

    The order of images depends on it. What was asked for and doesn't fit is a UsageError. A worker
    keeps its own share alone.
    """
    shares = [devices.share(images, options.batch_size) for images in data.images]
    ours = options.recipe is Recipe.TFRTOOL
    directory = options.cache_directory or default_cache_directory()
    plan = plan_cache(
        CacheRequest(
            images=sum(one.images(images) for one, images in zip(shares, data.images, strict=True)),
            image_size=data.training.image_size,
            epochs=options.epochs,
            asked=before or options.cache,
            recipe=options.recipe,
            base_frozen=options.freezes_base,
            augmented=options.augment is not None,
            feature_size=known_sizes(options.model)[1],
            label_bytes=data.dataset.label_bytes,
            free_memory=available_memory(),
            free_disk=free_disk(directory) if ours else None,
            on_disk=ours
            and all(
                has_disk_cache(data.dataset, part, (share.count, share.number))
                for part, share in zip(data.parts, shares, strict=True)
            ),
        )
    )
    if plan.cache is not Cache.FEATURES and options.precision is Precision.BFLOAT16:
        raise UsageError(
            f"--precision {options.precision.value} requires cached features: {plan.reason}"
        )
    return plan if before is None else replace(plan, reason=f"{plan.reason}, as in the resumed run")


def agree_on_cache(plan: CachePlan, devices: Devices) -> CachePlan:
    """Return the plan that all workers can keep to: that of the one with the least room."""
    kinds = list(Cache)
    ranks = [rank for (rank,) in devices.gather(kinds.index(plan.cache))]
    cache = kinds[max(ranks)]
    if cache is plan.cache or devices.cluster is None:
        return plan
    reason = f"{devices.cluster.describe(ranks.index(max(ranks)))} has no room for more"
    return CachePlan(cache=cache, reason=reason)
