"""What is about to be trained, and where its images are kept."""

from __future__ import annotations

from dataclasses import dataclass

from tfrtool.errors import UsageError
from tfrtool.loading.cache.cache_key import default_cache_directory
from tfrtool.loading.cache.cache_plan import CachePlan, CacheRequest, plan_cache
from tfrtool.loading.cache.memory import available_memory, free_disk
from tfrtool.loading.pipeline.load_options import Cache, Recipe, Rescale
from tfrtool.loading.pipeline.pipeline import has_disk_cache
from tfrtool.training.features.features_precision import Precision
from tfrtool.training.run.checkpoint import Checkpoint
from tfrtool.training.run.train_options import TrainOptions
from tfrtool.training.run.train_report import TrainPlan
from tfrtool.training.run.training_data import Material

__all__ = ["Decided", "describe_plan", "plan_run_cache"]


def plan_run_cache(
    options: TrainOptions, material: Material, checkpoint: Checkpoint | None
) -> CachePlan:
    """Decide where images are kept; a run that goes on keeps them where it did.

    Raises:
        UsageError: what was asked for doesn't fit.
    """
    asked = options.cache if checkpoint is None else Cache(checkpoint.cache)
    ours = options.recipe is Recipe.TFRTOOL
    directory = options.cache_directory
    plan = plan_cache(
        CacheRequest(
            images=material.train_images + material.validation_images,
            image_size=material.training.image_size,
            epochs=options.epochs,
            asked=asked,
            recipe=options.recipe,
            base_frozen=options.freezes_base,
            augmented=options.augment is not None,
            feature_size=options.model.feature_size,
            free_memory=available_memory(),
            free_disk=free_disk(directory or default_cache_directory()) if ours else None,
            on_disk=ours and _is_on_disk(material),
        )
    )
    if plan.cache is not Cache.FEATURES and options.precision is not Precision.FLOAT32:
        raise UsageError(f"{options.precision.value} is for features that are kept: {plan.reason}")
    if checkpoint is None or not ours:
        return plan
    return CachePlan(
        cache=plan.cache, bytes=plan.bytes, reason=f"{plan.reason}, by the run that goes on"
    )


def _is_on_disk(material: Material) -> bool:
    parts = [material.training]
    if material.validation is not None:
        parts.append(material.validation)
    return all(has_disk_cache(material.dataset, part) for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What is known of a run before its first step, beside what was asked for.

    Attributes:
        cache: where images are kept.
        rescale: what pixels become.
        parameters: how many of the model's numbers learn.
        epochs_before: how many epochs an earlier run had done.
    """

    cache: CachePlan
    rescale: Rescale
    parameters: int
    epochs_before: int


def describe_plan(options: TrainOptions, material: Material, decided: Decided) -> TrainPlan:
    """Return the plan as it is told."""
    left_out = material.salvage
    profile = options.tensorboard or (options.out and options.out / "profile")
    return TrainPlan(
        model=options.model.value,
        recipe=options.recipe.value,
        cache=decided.cache.cache.value,
        cache_reason=decided.cache.reason,
        image_size=material.training.image_size,
        class_names=material.dataset.class_names,
        train_images=material.train_images,
        validation_images=material.validation_images,
        trainable_parameters=decided.parameters,
        learning_rate=options.rate,
        precision=options.precision.value,
        augment=None if options.augment is None else str(options.augment),
        rescale=decided.rescale,
        deterministic=options.deterministic,
        left_out=() if left_out is None else tuple(map(str, left_out.left_out)),
        n_left_out=0 if left_out is None else left_out.n_left_out,
        epochs_before=decided.epochs_before,
        profile=profile if options.profile else None,
    )
