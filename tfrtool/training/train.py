"""The verb: a dataset of shards becomes a trained model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import keras
import tensorflow as tf

from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.dataset import Dataset, Split, open_dataset
from tfrtool.loading.memory import available_memory, cache_bytes
from tfrtool.loading.options import Cache, Holdout, LoadOptions, Recipe, Rescale
from tfrtool.loading.pipeline import count_images, load
from tfrtool.records.count import first_fault
from tfrtool.training.models import build_model, rescale_for
from tfrtool.training.options import TrainOptions
from tfrtool.training.report import EpochReport, TrainPlan, TrainReport
from tfrtool.training.save import check_out, save_run

__all__ = ["Step", "train"]

_DEFAULT_VALIDATION = "validation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """How far an epoch has come.

    Attributes:
        epoch: its number, from 1.
        done: steps so far.
        total: steps in all.
        loss: mean loss so far.
        accuracy: accuracy so far.
    """

    epoch: int
    done: int
    total: int
    loss: float
    accuracy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A pipeline, how many images it gives in an epoch, and the shards that it reads."""

    batches: Any
    images: int
    split: Split


def train(
    options: TrainOptions,
    on_plan: Callable[[TrainPlan], None] = lambda _: None,
    on_epoch: Callable[[EpochReport], None] = lambda _: None,
    on_step: Callable[[Step], None] = lambda _: None,
) -> TrainReport:
    """Train a classifier on a dataset's images.

    Args:
        options: what, on what, and how long.
        on_plan: called once, before the first step.
        on_epoch: called after each epoch.
        on_step: called after each step.

    Raises:
        UsageError: the options don't go together with the dataset.
        DatasetError: the dataset can't be trained on.
        CorruptShardError: a shard is damaged; names the record.
        WeightsError: the weights can't be had.
    """
    start = time.perf_counter()
    if options.out is not None:
        check_out(options.out)
    dataset = open_dataset(options.dataset)
    if len(dataset.class_names) < 2:
        raise DatasetError(
            "a classifier needs at least two classes",
            path=dataset.directory,
            found=", ".join(dataset.class_names),
        )
    keras.utils.set_random_seed(options.seed)
    rescale = rescale_for(options.model, options.rescale)
    training, validation, plan = _prepare(dataset, options, rescale)
    model = build_model(
        options.model,
        options.size,
        len(dataset.class_names),
        options.initial_weights,
        options.trainable,
    )
    model.compile(
        optimizer=keras.optimizers.Adam(options.rate),
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=["accuracy"],
    )
    parameters = sum(int(tf.size(weight.value)) for weight in model.trainable_weights)
    on_plan(replace(plan, trainable_parameters=parameters))
    epochs = []
    for number in range(1, options.epochs + 1):
        with _named_damage(dataset, training, validation):
            report = _epoch(model, number, training, validation, on_step)
        epochs.append(report)
        on_epoch(report)
    result = TrainReport(
        plan=replace(plan, trainable_parameters=parameters),
        epochs=tuple(epochs),
        seconds=time.perf_counter() - start,
    )
    if options.out is not None:
        save_run(options.out, model, options.size, rescale, result)
    return result


def _prepare(
    dataset: Dataset, options: TrainOptions, rescale: Rescale
) -> tuple[_Part, _Part | None, TrainPlan]:
    loads = [
        LoadOptions(
            image_size=options.size,
            split=options.split,
            rescale=rescale,
            batch_size=options.batch_size,
            recipe=options.recipe,
            seed=options.seed,
        )
    ]
    if isinstance(options.validation, float):
        holdout = Holdout(fraction=options.validation, held_out=False)
        loads = [
            replace(loads[0], holdout=holdout),
            replace(loads[0], holdout=replace(holdout, held_out=True), training=False),
        ]
    elif options.validation is not None or _has_default_validation(dataset, options):
        name = options.validation or _DEFAULT_VALIDATION
        if name == options.split:
            raise UsageError(f"split {name!r} can't be both trained and validated on")
        loads.append(replace(loads[0], split=name, training=False))
    images = sum(count_images(dataset, load_options) for load_options in loads)
    cache, reason = _plan_cache(options, images)
    parts = [_part(dataset, replace(load_options, cache=cache)) for load_options in loads]
    training, validation = parts[0], parts[1] if len(parts) > 1 else None
    plan = TrainPlan(
        model=options.model.value,
        recipe=options.recipe.value,
        cache=cache.value,
        cache_reason=reason,
        image_size=options.size,
        class_names=dataset.class_names,
        train_images=training.images,
        validation_images=0 if validation is None else validation.images,
        trainable_parameters=0,
        learning_rate=options.rate,
    )
    return training, validation, plan


def _part(dataset: Dataset, options: LoadOptions) -> _Part:
    return _Part(
        batches=load(dataset, options),
        images=count_images(dataset, options),
        split=dataset.split(options.split),
    )


def _has_default_validation(dataset: Dataset, options: TrainOptions) -> bool:
    return _DEFAULT_VALIDATION in dataset.splits and options.split != _DEFAULT_VALIDATION


def _plan_cache(options: TrainOptions, images: int) -> tuple[Cache, str]:
    """Return where decoded images are kept between epochs, and why there."""
    if options.recipe is Recipe.NAIVE:
        return Cache.NONE, "the naive recipe has none"
    size = cache_bytes(images, options.size)
    if options.recipe is Recipe.NOTEBOOK:
        return Cache.MEMORY, f"{_mib(4 * size)} of float32, as published"
    if options.cache is Cache.NONE:
        return Cache.NONE, "as asked for"
    if options.cache is Cache.MEMORY:
        return Cache.MEMORY, f"{_mib(size)} of uint8, as asked for"
    if options.epochs == 1:
        return Cache.NONE, "there is one epoch only"
    free = available_memory()
    known = "an unknown amount is" if free is None else f"{_mib(free)} are"
    fits = free is not None and size <= free // 2
    return Cache.MEMORY if fits else Cache.NONE, f"{_mib(size)} of uint8, and {known} free"


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def _epoch(
    model: Any,
    number: int,
    training: _Part,
    validation: _Part | None,
    on_step: Callable[[Step], None],
) -> EpochReport:
    """Train for one epoch.

    The steps are taken one by one, and not by ``fit``, so that the time that the model waits for
    its input can be told from the time that it works.
    """
    start = time.perf_counter()
    total = int(training.batches.cardinality())
    waited = 0.0
    seen, losses, hits = 0, 0.0, 0.0
    batches = iter(training.batches)
    for done in range(1, total + 1):
        before = time.perf_counter()
        images, labels = next(batches)
        waited += time.perf_counter() - before
        # Whether metrics run on over batches differs between releases of Keras: take each batch's.
        model.reset_metrics()
        logs = model.train_on_batch(images, labels, return_dict=True)
        seen += len(labels)
        losses += float(logs["loss"]) * len(labels)
        hits += float(logs["accuracy"]) * len(labels)
        on_step(
            Step(epoch=number, done=done, total=total, loss=losses / seen, accuracy=hits / seen)
        )
    if next(batches, None) is not None:  # also lets a cache know that it is complete
        raise DatasetError("the split has more records than were counted")
    trained = time.perf_counter() - start
    val_loss = val_accuracy = None
    if validation is not None:
        logs = model.evaluate(validation.batches, return_dict=True, verbose=0)
        val_loss, val_accuracy = float(logs["loss"]), float(logs["accuracy"])
    return EpochReport(
        epoch=number,
        seconds=time.perf_counter() - start,
        images_per_second=training.images / trained,
        loss=losses / seen,
        accuracy=hits / seen,
        val_loss=val_loss,
        val_accuracy=val_accuracy,
        input_wait_fraction=min(waited / trained, 1.0),
    )


@contextmanager
def _named_damage(dataset: Dataset, training: _Part, validation: _Part | None) -> Iterator[None]:
    """Turn TensorFlow's errors about records into ours, which name the file.

    Its "corrupted record at N" doesn't say in which of the shards; our reader finds it again.
    """
    try:
        yield
    except tf.errors.DataLossError as error:
        for part in filter(None, (training, validation)):
            for path in part.split.shards:
                fault = first_fault(path)
                if fault is not None:
                    raise fault from error
        raise DatasetError(
            f"a shard can't be read: {_first_line(error)}", path=dataset.directory
        ) from error
    except tf.errors.InvalidArgumentError as error:
        raise DatasetError(
            f"a record can't be used: {_first_line(error)}",
            path=dataset.directory,
            hint="tfrtool inspect shard tells what the records hold",
        ) from error


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0][:300] if lines else type(error).__name__
