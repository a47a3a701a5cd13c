"""A training run as text."""

import math
from typing import TYPE_CHECKING

from tfrtool.engines.pool import cores
from tfrtool.errors import human_count, printable, some_of
from tfrtool.loading.labels import Task
from tfrtool.training.models.optimizers import Schedule
from tfrtool.training.run.train_report import EpochReport, TrainPlan, TrainReport

if TYPE_CHECKING:
    from tfrtool.loading.options import Rescale

_CLASSES_SHOWN = 10
_BUSY = 0.1
"""The part of the cores that other programs may take before it is said."""

_MULTI = ", multi-label: sigmoid and binary cross-entropy"


def render_plan(plan: TrainPlan) -> str:
    """Return what is printed before the first step, and the head of the table of epochs."""
    classes = some_of(list(map(printable, plan.class_names)), _CLASSES_SHOWN)
    validated = f"{plan.validation_images:,}" if plan.validation_images else "none"
    validated += " for validation"
    if plan.epochs_before:
        validated += f"; {human_count(plan.epochs_before, 'epoch')} already done"
    options, precision = plan.options, plan.options.precision.value
    loader = options.recipe.value
    if not options.deterministic:
        loader += ", nondeterministic order"
    if options.augment is not None:
        loader += f", augment {options.augment}"
    decay = "" if options.schedule is Schedule.CONSTANT else f", {options.schedule.value} decay"
    lines = [
        f"{options.model} at {plan.image_size} px, "
        f"{human_count(plan.trainable_parameters, 'trainable parameter')}, "
        f"{options.optimizer.value}, learning rate {options.rate:g}{decay}"
        + ("" if precision == "float32" else f", {precision}"),
        f"  classes  {len(plan.class_names)} ({classes}){_MULTI * (plan.task is Task.MULTI)}",
        *(f"  data     {printable(note)}" for note in plan.notes),
        f"  images   {plan.train_images:,} for training, {validated}",
        *_weights(plan),
        *_tuning(plan),
        f"  pixels   {_pixels(plan.rescale)}",
        f"  loader   {loader}; cache: {plan.cache.cache.value} ({plan.cache.reason})",
    ]
    if plan.devices.replicas > 1:
        several = f", {human_count(plan.devices.workers, 'worker')}"
        lines.append(f"  devices  {plan.devices.replicas}, {plan.devices.strategy.value}" + several)
    if plan.n_skipped:
        lines.append(f"  skipped  {human_count(plan.n_skipped, 'damaged record')}")
    if options.profile_folder is not None:
        lines.append(f"  profile  {printable(str(options.profile_folder))}")
    head = "epoch   seconds  images/s     loss  accuracy  val loss  val accuracy  input wait"
    if plan.task is Task.MULTI:
        head += "     mAP  val mAP"
    return "\n".join([*lines, "", head])


def _tuning(plan: TrainPlan) -> list[str]:
    tuning, second = plan.options.fine_tune, plan.options.second_phase
    if tuning is None or second is None:
        return []
    now = " (current)" if plan.phase == 2 else ""
    return [
        f"  phases   {human_count(plan.options.epochs, 'epoch')}, then "
        f"{human_count(second.epochs, 'epoch')} fine-tuning from layer {printable(tuning.layer)}, "
        f"learning rate {second.rate:g}{now}"
    ]


def _weights(plan: TrainPlan) -> list[str]:
    weights = zip(plan.class_names, plan.class_weights, strict=False)
    shown = [f"{printable(name)} {weight:.3g}" for name, weight in weights]
    return [f"  weights  {some_of(shown, _CLASSES_SHOWN)}"] if shown else []


def _pixels(rescale: "Rescale") -> str:
    """Return what 0 to 255 becomes: "0 to 1"."""
    scale, offset = rescale.scale, rescale.offset
    if isinstance(scale, tuple) or isinstance(offset, tuple):
        return "each channel normalized by its own mean and standard deviation"
    return f"scaled to [{offset:g}, {255 * scale + offset:g}]"


def render_epoch(epoch: EpochReport) -> str:
    """Return an epoch as a line of the table."""
    val_loss, val_accuracy = _figure(epoch.val_loss), _figure(epoch.val_accuracy)
    precisions: list[tuple[float | None, int]] = []
    if epoch.mean_average_precision is not None:
        precisions = [(epoch.mean_average_precision, 6), (epoch.val_mean_average_precision, 7)]
    return (
        f"{epoch.epoch:5d}  {epoch.seconds:8.1f}  {epoch.images_per_second:8.1f}  "
        f"{epoch.loss:7.4f}  {epoch.accuracy:8.4f}  {val_loss:>8}  {val_accuracy:>12}  "
        f"{epoch.input_wait_fraction:10.1%}"
    ) + "".join(f"  {_figure(value):>{width}}" for value, width in precisions)


def _figure(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.4f}"


def render_end(report: TrainReport) -> str:
    """Return what is printed after the last epoch, with the naive run beside ours if any."""
    epochs = len(report.epochs)
    lines = ["", f"{human_count(epochs, 'epoch')} in {report.seconds:.1f} s"]
    if epochs == report.plan.epochs_before:
        lines.append("all were already done; use a higher --epochs to train longer")
    if report.best_epoch is not None:
        early = "stopped early; " if report.stopped_early else ""
        lines.append(f"{early}kept the weights of the best epoch, {report.best_epoch}")
    if report.plan.options.out is not None:
        lines.append(
            f"saved model.keras, history and labels in {printable(str(report.plan.options.out))}"
        )
    lines += [
        f"exported {printable(str(one.path))}: probabilities differ by at most {one.difference:.1e}"
        for one in report.exported
    ]
    if report.naive is not None:
        lines += [
            "",
            "  recipe     CPU s   seconds     memory  images/s  input wait     loss  accuracy",
        ]
        lines += map(_compared_run, report.runs)
        if report.notebook_skipped:
            lines.append(f"  notebook was skipped: {printable(report.notebook_skipped)}")
        lines += _ratios(report)
    return "\n".join(lines)


def _ratios(report: TrainReport) -> list[str]:
    """Return how the recipes compare with ours, round by round, and what disturbed them."""
    rounds, ours = len(report.again) + 1, report.plan.options.recipe.value
    lines = [
        f"  medians of {rounds} rounds relative to {ours}, smallest and largest in parentheses:"
        if rounds > 1
        else f"  relative to {ours}, from one round; use --compare-rounds 3 to measure the spread:"
    ]
    for name, what in (("cpu_seconds", "CPU time"), ("seconds", "wall-clock time")):
        shown = []
        for other in report.runs[:-1]:
            least, median, most = (f"{one:.2g}" for one in report.ratios(other, name))
            spread = f" ({least} to {most})" * (rounds > 1)
            shown.append(f"{other.plan.options.recipe.value} {median}x{spread}")
        lines.append(f"  {what}: {', '.join(shown)}")
    others = max(run.median_of("other_cores") or 0.0 for run in report.runs)
    if others > _BUSY * cores():
        busy = f"other programs kept {others:.1f} of {cores()} cores busy"
        lines.append(f"  {busy}; compare CPU time rather than wall-clock time")
    return lines


def _compared_run(run: TrainReport) -> str:
    last, costs = run.epochs[-1], run.costs()
    memory = "-" if run.memory_bytes is None else f"{run.memory_bytes / 2**20:,.0f} MiB"
    return (
        f"  {costs['recipe']:8}  {costs['cpu_seconds']:6.1f}  {costs['seconds']:8.1f}  "
        f"{memory:>9}  {costs['images_per_second']:8.1f}  {run.input_wait_fraction:10.1%}  "
        f"{last.loss:7.4f}  {last.accuracy:8.4f}"
    )
