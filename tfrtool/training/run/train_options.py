"""What to train, on what, and how long."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import UsageError
from tfrtool.loading.augment.augment_options import Augment
from tfrtool.loading.dataset.corrupt_report import OnCorrupt
from tfrtool.loading.pipeline.load_options import Cache, Recipe
from tfrtool.storage.locations import as_path, take_paths
from tfrtool.storage.words import take_words
from tfrtool.training.features.features_precision import Precision
from tfrtool.training.models.model_choice import (
    IMAGENET,
    ModelName,
    Trainable,
    learning_rate,
    learns_all,
)

__all__ = ["ModelName", "Precision", "RescaleTo", "TrainOptions", "Trainable"]

KNOBS = ("cycle_length", "block_length", "parallel_calls", "shuffle_buffer", "prefetch")
"""The numbers of our loader; None for each is its own default."""


class RescaleTo(enum.Enum):
    """What pixel values become.

    MODEL is the range that the model was trained on, UNIT is 0 to 1. DATASET makes the mean of
    each channel 0 and its standard deviation 1 over the images that are trained on.
    """

    MODEL = "model"
    UNIT = "unit"
    DATASET = "dataset"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """What to train, on what, and how long.

    Attributes:
        dataset: the directory of shards.
        split: the split to train on.
        validation: the name of a split, or the fraction of the training split to hold out; None
            takes the split named "validation" if there is one, and else validates nothing.
        model: which model.
        weights: "imagenet", "none" or a file; None is "imagenet" for a model of
            keras.applications and "none" for others.
        trainable: what learns.
        image_size: in pixels, both ways; None is the model's own.
        rescale: what pixel values become.
        epochs: how many times through the split.
        batch_size: images in a step.
        learning_rate: Adam's; None is 0.001 where only a head learns, 0.0003 where random weights
            do, and 0.0001 where loaded ones do.
        seed: of the initial weights, the order of images, and dropout.
        recipe: the loader.
        cache: what is kept between epochs, and where; None is planned from what is free.
        cache_directory: where a cache on disk is; None is the user's own cache directory. Where it
            is given and ``cache`` is not, images are cached on disk.
        cycle_length, block_length, parallel_calls, shuffle_buffer, prefetch: as in LoadOptions.
        deterministic: whether the same seed gives the same order of images.
        augment: how images are changed at random while the model is trained.
        precision: what the model computes in.
        on_corrupt: whether damage in the shards ends the run, or is left out.
        early_stopping: end after this many epochs without a lower val_loss (loss, where nothing
            is validated), and take the weights of the best epoch; None never does.
        out: a directory for the model, its history, its labels, and a checkpoint of each epoch.
        resume: go on from the checkpoint in ``out``, if there is one.
        tensorboard: a directory for TensorBoard's logs.
        profile: whether some steps are traced, for TensorBoard's profiler; into ``tensorboard``,
            or else into ``out / "profile"``.
    """

    dataset: Path
    split: str = "train"
    validation: str | float | None = None
    model: ModelName = ModelName.MOBILENET_V2
    weights: str | None = None
    trainable: Trainable = Trainable.AUTO
    image_size: int | None = None
    rescale: RescaleTo = RescaleTo.MODEL
    epochs: int = 5
    batch_size: int = 32
    learning_rate: float | None = None
    seed: int = 0
    recipe: Recipe = Recipe.TFRTOOL
    cache: Cache | None = None
    cache_directory: Path | None = None
    cycle_length: int | None = None
    block_length: int | None = None
    parallel_calls: int | None = None
    shuffle_buffer: int | None = None
    prefetch: int | None = None
    deterministic: bool = True
    augment: Augment | None = None
    precision: Precision = Precision.FLOAT32
    on_corrupt: OnCorrupt = OnCorrupt.STOP
    early_stopping: int | None = None
    out: Path | None = None
    resume: bool = False
    tensorboard: Path | None = None
    profile: bool = False

    def __post_init__(self) -> None:
        take_words(
            self,
            rescale=RescaleTo,
            recipe=Recipe,
            cache=Cache,
            precision=Precision,
            on_corrupt=OnCorrupt,
        )
        take_paths(self, "dataset", "cache_directory", "out", "tensorboard")
        if self.weights is not None:
            object.__setattr__(self, "weights", str(as_path(self.weights)))
        if isinstance(self.model, str):
            object.__setattr__(self, "model", ModelName(self.model))
        if isinstance(self.trainable, str):
            object.__setattr__(self, "trainable", Trainable(self.trainable))
        if self.epochs < 1:
            raise UsageError(
                "impossible number of epochs", expected="at least 1", found=self.epochs
            )
        if self.batch_size < 1:
            raise UsageError("impossible batch size", expected="at least 1", found=self.batch_size)
        if self.image_size is not None and not 32 <= self.image_size <= 4096:
            raise UsageError(
                "impossible image size", expected="32 to 4096 pixels", found=self.image_size
            )
        if self.learning_rate is not None and not 0 < self.learning_rate < 1e3:
            raise UsageError(
                "impossible learning rate", expected="a number above 0", found=self.learning_rate
            )
        if not 0 <= self.seed < 2**32:
            raise UsageError("impossible seed", expected="0 to 2**32 - 1", found=self.seed)
        if isinstance(self.validation, float) and not 0 < self.validation < 1:
            raise UsageError(
                "impossible part to validate on",
                expected="a split's name, or a fraction above 0 and below 1",
                found=self.validation,
            )
        if self.recipe is not Recipe.TFRTOOL:
            self._require_published()
        for name in KNOBS:
            value, least = getattr(self, name), 0 if name == "prefetch" else 1
            if value is not None and value < least:
                raise UsageError(
                    f"impossible {name.replace('_', ' ')}",
                    expected=f"at least {least}",
                    found=value,
                )
        if self.early_stopping is not None and self.early_stopping < 1:
            raise UsageError(
                "impossible patience of early stopping",
                expected="at least 1 epoch",
                found=self.early_stopping,
            )
        if self.resume and self.out is None:
            raise UsageError(
                "there is nothing to resume from", hint="--out names the directory of the run"
            )
        if self.profile and self.out is None and self.tensorboard is None:
            raise UsageError(
                "there is no place for the profile", hint="--tensorboard or --out names one"
            )
        if self.cache_directory is not None:
            if self.cache not in (None, Cache.DISK):
                raise UsageError(
                    "a cache directory is for the cache on disk", found=self.cache.value
                )
            object.__setattr__(self, "cache", Cache.DISK)
        if self.model == ModelName.CNN and self.weights == IMAGENET:
            raise UsageError("there are no imagenet weights for the cnn", expected="none or a file")
        if self.precision is not Precision.FLOAT32:
            self._require_features()

    def _require_features(self) -> None:
        """Refuse to learn in less than float32.

        A step of MobileNetV2 in bfloat16 took 1.5 times the CPU time of one in float32, on a
        processor with AVX512_BF16: oneDNN has no fast ways back through its convolutions.
        """
        features = self.recipe is Recipe.TFRTOOL and self.cache in (None, Cache.FEATURES)
        if not (features and self.freezes_base and self.augment is None):
            raise UsageError(
                f"{self.precision.value} is for a frozen base whose features are kept",
                hint="it needs a model of keras.applications, --trainable head, --cache features "
                "or auto, --recipe tfrtool, and no --augment",
            )

    def _require_published(self) -> None:
        """Refuse what the published pipelines don't have: they are compared, and not changed."""
        recipe = f"the recipe {self.recipe.value!r}"
        if self.cache is not None or self.cache_directory is not None:
            raise UsageError(f"{recipe} has a cache rule of its own")
        augment = () if self.recipe is Recipe.NAIVE else ("augment",)
        for name in (*KNOBS, *augment):
            if getattr(self, name) is not None:
                raise UsageError(f"{recipe} has no choice of {name.replace('_', ' ')}")
        if not self.deterministic:
            raise UsageError(f"{recipe} has an order of its own")
        if self.resume:
            raise UsageError(f"{recipe} can't go on where it was: its order is lost with the run")

    @property
    def freezes_base(self) -> bool:
        """Whether nothing but a head learns, on a base that gives an image the same features."""
        whole = learns_all(self.trainable, self.initial_weights)
        return self.model != ModelName.CNN and self.trainable.layer is None and not whole

    @property
    def size(self) -> int:
        """The image size in pixels, the model's own where none is given."""
        return self.image_size or self.model.image_size

    @property
    def rate(self) -> float:
        """The learning rate, the default where none is given."""
        if self.learning_rate is not None:
            return self.learning_rate
        return learning_rate(self.model, self.trainable, self.initial_weights)

    @property
    def initial_weights(self) -> str:
        """What weights to start from, the model's own default where none are given."""
        return self.weights or self.model.weights
