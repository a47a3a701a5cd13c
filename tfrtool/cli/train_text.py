"""A training run as text."""

from __future__ import annotations

from pathlib import Path

from tfrtool.cli.output import human_count
from tfrtool.errors import printable
from tfrtool.training.report import EpochReport, TrainPlan, TrainReport

__all__ = ["render_end", "render_epoch", "render_plan"]

_CLASSES_SHOWN = 10


def render_plan(plan: TrainPlan) -> str:
    """Return what is said before the first step, and the head of the table of epochs."""
    classes = ", ".join(printable(name) for name in plan.class_names[:_CLASSES_SHOWN])
    if len(plan.class_names) > _CLASSES_SHOWN:
        classes += ", ..."
    validated = (
        f"{plan.validation_images:,} to validate on"
        if plan.validation_images
        else ("none to validate on")
    )
    return "\n".join(
        [
            f"{plan.model} at {plan.image_size} px, "
            f"{human_count(plan.trainable_parameters, 'trainable parameter')}, "
            f"learning rate {plan.learning_rate:g}",
            f"  classes  {len(plan.class_names)} ({classes})",
            f"  images   {plan.train_images:,} to train on, {validated}",
            f"  loader   {plan.recipe}; cache: {plan.cache} ({plan.cache_reason})",
            "",
            "epoch   seconds  images/s     loss  accuracy  val loss  val accuracy  input wait",
        ]
    )


def render_epoch(epoch: EpochReport) -> str:
    """Return an epoch as a line of the table."""
    return (
        f"{epoch.epoch:5d}  {epoch.seconds:8.1f}  {epoch.images_per_second:8.1f}  "
        f"{epoch.loss:7.4f}  {epoch.accuracy:8.4f}  {_number(epoch.val_loss):>8}  "
        f"{_number(epoch.val_accuracy):>12}  {epoch.input_wait_fraction:10.1%}"
    )


def render_end(report: TrainReport, out: Path | None) -> str:
    """Return what is said after the last epoch."""
    lines = ["", f"{human_count(len(report.epochs), 'epoch')} in {report.seconds:.1f} s"]
    if out is not None:
        lines.append(f"saved in {printable(str(out))}: model.keras, history, labels")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
