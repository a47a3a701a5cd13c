"""What is said before a run that may waste effort."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfrtool.errors import human_count, printable, some_of
from tfrtool.loading.labels import Task
from tfrtool.training.models.model_choice import NO_WEIGHTS
from tfrtool.training.run.part_facts import PartFacts
from tfrtool.training.run.train_options import Precision, TrainOptions
from tfrtool.training.run.training_data import USUAL_VALIDATION, TrainingData

_UNEVEN = 10
"""How many times as many images of one class than of another are told."""

_SHOWN = 5


def plan_warnings(
    options: TrainOptions, data: TrainingData, facts: Sequence[PartFacts]
) -> tuple[str, ...]:
    """Return a sentence for each thing that is likely not meant; ``facts`` may be left out."""
    found = []
    mixed = options.precision.policy != Precision.FLOAT32.value
    if mixed and not tf.config.list_physical_devices("GPU"):
        found.append(f"--precision {options.precision.value} is slower than float32 without a GPU")
    if options.freezes_base and options.initial_weights == NO_WEIGHTS:
        found.append(
            "the base is frozen with random weights, so the head has almost nothing to learn from; "
            "use --trainable all to train the base, or --weights imagenet to load it"
        )
    if options.validation is None and USUAL_VALIDATION in data.dataset.empty_splits:
        found.append(f"split {USUAL_VALIDATION!r} has no records, so there is no validation")
    if facts:
        names = list(map(printable, data.dataset.class_names))
        found += _of_classes(names, facts[0].counts, options, data.dataset.task)
    if len(facts) > 1:
        validated = facts[1].images
        shared = int(np.isin(validated, facts[0].images).sum())
        if shared:
            found.append(
                f"{shared:,} of {human_count(len(validated), 'validation image')} "
                f"{'is' if shared == 1 else 'are'} also trained on, so val_accuracy is too high"
            )
    return tuple(found)


def _of_classes(
    names: Sequence[str], counts: Sequence[int], options: TrainOptions, task: Task
) -> list[str]:
    missing = [name for name, count in zip(names, counts, strict=True) if not count]
    found = []
    if missing:
        found.append(f"no training images of {some_of(missing, _SHOWN)}")
    there = sorted((count, name) for name, count in zip(names, counts, strict=True) if count)
    if not there or options.class_weights is not None or task is Task.MULTI:
        return found
    (fewest, rare), (most, common) = there[0], there[-1]
    if most >= _UNEVEN * fewest:
        found.append(
            f"there are {most / fewest:.0f} times as many images of {common} as of {rare} "
            f"({most:,} and {fewest:,}); use --class-weights balanced to compensate"
        )
    return found
