"""``tfrtool train``."""

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.damage import warn_of_damage
from tfrtool.cli.output import Bars, Outcome, emit, warn
from tfrtool.cli.parameters import INPUT, command, resolve_dataset
from tfrtool.engines.engine import cores
from tfrtool.errors import UsageError, human_count, printable, some_of
from tfrtool.loading.options import LoaderOption, size_text
from tfrtool.page import figure_text
from tfrtool.training.train_options import TrainOptions, check_backend

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfrtool.training.train_report import ComparedRun, EpochReport, TrainPlan, TrainReport

_CLASSES_SHOWN = 10
_BUSY = 0.1
"""The part of the cores that other programs may take before it is said."""
_COST_TITLES = {
    "first_epoch_seconds": "first epoch",
    "later_epoch_seconds": "later epoch",
    "seconds": "total      ",
    "cpu_seconds": "CPU time   ",
}


@command(
    "tfrtool train shards --validation validation --out run",
    "tfrtool train shards --model cnn --image-size 150 --validation 0.2 --augment flip",
    "tfrtool train shards --resume --out run --epochs 10",
    options=(TrainOptions, LoaderOption),
)
@click.argument("dataset", type=INPUT, required=False)
def train_command(dataset: str | None, *, as_json: bool, **words: Any) -> Outcome:
    """Train an image classifier on the shards in DATASET.

    DATASET is a directory that tfrtool write or TFDS wrote, or any directory of shards with an
    image and a label in each record; or a quoted glob of shards. With --resume, it need not be
    repeated if it is in --out.

    Exit code 3 means that damaged records were skipped.
    """
    from tfrtool.training.run_record import resumed

    source_of = click.get_current_context().get_parameter_source
    default = click.core.ParameterSource.DEFAULT
    passed = {name: one for name, one in words.items() if source_of(name) != default}
    passed |= passed.pop("loader", {})
    if "compare_rounds" in passed and not words["compare"]:
        raise UsageError("--compare-rounds requires --compare")
    # Before TensorFlow starts, so that wrong options are reported at once.
    options = resumed(dataset, **passed)
    check_backend()
    path = options.dataset
    if not isinstance(path, tuple):  # files in the record of a run
        path = resolve_dataset(str(path))
    plans: list[TrainPlan] = []
    epochs: list[EpochReport] = []
    with Bars() as bars:
        with bars.loading_tensorflow():
            from tfrtool.loading.tensors import start_devices
            from tfrtool.training.train import train_with

            start_devices()

        def show_plan(plan: "TrainPlan") -> None:
            plans[:] = [plan]
            if plan.damage:
                warn_of_damage(plan.damage)
            for line in plan.warnings:
                warn(line)
            if not as_json:
                emit(render_plan(plan))

        def show_epoch(epoch: "EpochReport") -> None:
            epochs.append(epoch)
            is_first = len(epochs) == 1
            is_cached = plans[-1].cache == "features" and not is_first
            line = epoch.to_json() if as_json else render_epoch(epoch, is_cached, head=is_first)
            emit(line)

        report = train_with(
            replace(options, dataset=path, on_plan=show_plan, on_epoch=show_epoch, on_progress=bars)
        )
    emit(report.to_json() if as_json else render_end(report))
    return Outcome.DAMAGE if report.plan.skipped else Outcome.FINE


def render_plan(plan: "TrainPlan") -> str:
    """Return what is printed before the first step, and the head of the table of epochs."""
    from tfrtool.training.tasks import TASKS

    title, outputs = TASKS[plan.task].plan_line(plan.class_names or plan.targets)
    validated = f"{plan.validation_images:,}" if plan.validation_images else "none"
    validated += " for validation"
    if plan.epochs_before:
        validated += f"; {human_count(plan.epochs_before, 'epoch')} already done"
    options, loader = plan.options, plan.recipe
    if not options.deterministic:
        loader += ", nondeterministic order"
    if options.augment is not None:
        loader += f", augment {options.augment}"
    decay = f", {options.schedule} decay" if options.schedule == "cosine" else ""
    effective = plan.made["effective"]
    loss = f", compiled loss {printable(effective['loss'])}" if "loss" in effective else ""
    weights = [f"{printable(name)} {one:.3g}" for name, one in (plan.class_weights or {}).items()]
    lines = [
        f"{plan.model} at {size_text(plan.image_size)} px, "
        f"{human_count(plan.trainable_parameters, 'trainable parameter')}, "
        f"{effective['optimizer']}, learning rate {effective['learning_rate']:g}{decay}{loss}"
        + ("" if plan.precision == "float32" else f", {plan.precision}"),
        f"  {title:7}  {outputs}",
        *(f"  data     {printable(note)}" for note in plan.forms),
        f"  images   {plan.train_images:,} for training, {validated}",
        *([f"  weights  {some_of(weights, _CLASSES_SHOWN)}"] if weights else []),
        f"  pixels   {_pixels(plan)}",
        f"  loader   {loader}; cache: {plan.cache} ({plan.cache_reason})",
    ]
    if plan.replicas > 1:
        lines.append(f"  devices  {plan.replicas}, {plan.strategy}")
    if plan.skipped:
        lines.append(f"  skipped  {human_count(plan.skipped, 'damaged record')}")
    if options.profile_folder is not None:
        lines.append(f"  profile  {printable(str(options.profile_folder))}")
    return "\n".join(lines)


def _pixels(plan: "TrainPlan") -> str:
    """Return what 0 to 255 becomes: "scaled to [0, 1]"."""
    scale, offset, layer = plan.rescale.scale, plan.rescale.offset, plan.scaling_layer
    if isinstance(scale, tuple) or isinstance(offset, tuple):
        return "each channel normalized by its own mean and standard deviation"
    if (scale, offset) == (1, 0):
        itself = f"; the model scales them itself (layer {printable(layer)})" if layer else ""
        return f"0 to 255{itself}"
    return f"scaled to [{offset:g}, {255 * scale + offset:g}]"


def render_epoch(epoch: "EpochReport", is_cached: bool = False, *, head: bool = False) -> str:
    """Return an epoch as a line of the table, after the table's head if wanted.

    An epoch on cached features reads no images, so it has no rate of images.
    """
    logs, mean = epoch.logs, "mean_average_precision"
    names = [name for name in epoch.scores if name != mean]
    names += [f"val_{name}" for name in names]
    last = [mean, f"val_{mean}"] if mean in logs else []
    cells = [
        ("epoch", f"{epoch.epoch}"),
        (" seconds", f"{epoch.seconds:.1f}"),
        ("images/s", "cached" if is_cached else f"{epoch.images_per_second:.1f}"),
        *((_title(name), figure_text(logs.get(name))) for name in names),
        ("input wait", f"{epoch.input_wait_fraction:.1%}"),
        *((_title(name), figure_text(logs.get(name))) for name in last),
    ]
    line = "  ".join(f"{value:>{len(title)}}" for title, value in cells)
    return "\n".join(["", "  ".join(title for title, _ in cells), line]) if head else line


def _title(name: str) -> str:
    """Return the title of a column, as wide as its figures."""
    title = name.replace("mean_average_precision", "mAP").replace("_", " ")
    return f"{printable(title):>{6 if title == 'mAP' else 7}}"


def render_end(report: "TrainReport") -> str:
    """Return the text after the last epoch, with the comparison if there is one."""
    from tfrtool.training.run_record import RUN_FILE
    from tfrtool.training.saved_model import BEST_MODEL_FILE, MODEL_FILE

    epochs, out = len(report.epochs), report.plan.options.out_dir
    lines = ["", f"{human_count(epochs, 'epoch')} in {report.seconds:.1f} s"]
    if epochs == report.plan.epochs_before:
        lines.append("all were already done; use a higher --epochs to train longer")
    if report.stopped_early:
        lines.append("stopped early")
    if out is not None:
        lines += [
            f"saved {printable(str(out / MODEL_FILE))} (epoch {report.saved_epoch})",
            f"saved {printable(str(out / BEST_MODEL_FILE))} (best epoch, {report.best_epoch})",
            f"saved {printable(str(out / RUN_FILE))} (how the run was made)",
        ]
    elif report.plan.options.early_stopping is not None:
        lines.append(f"kept the weights of the best epoch, {report.best_epoch}")
    lines += [
        f"exported {printable(str(one.path))}: probabilities differ by at most {one.difference:.1e}"
        for one in report.exported
    ]
    if (folder := report.plan.options.profile_folder) is not None:
        lines += [
            "to open the profile:",
            "  pip install tensorboard xprof",
            f"  tensorboard --logdir {printable(shlex.quote(str(folder)))}",
        ]
    if report.compared:
        lines += _comparison(report)
    return "\n".join(lines)


def _comparison(report: "TrainReport") -> list[str]:
    """Return costs and results of the runs, their ratios, and what disturbed them."""
    runs, rounds = report.compared, len(report.compared[-1].seconds_each)
    head = "  run          first s  later s  total s    CPU s  images/s  input wait      memory"
    lines = ["", f"{head}     loss  accuracy", *map(_compared_run, runs)]
    lines += [
        f"  {name} was skipped: {printable(why)}" for name, why in report.compare_skipped.items()
    ]
    lines += ["", "  naive divided by each of the others:"]
    for cost, title in _COST_TITLES.items():
        shown = [
            f"{name} {ratio_text(ratios[cost])}"
            for name, ratios in report.ratios.items()
            if ratios[cost]
        ]
        lines += [f"  {title}  {', '.join(shown)}"] if shown else []
    if report.gains:
        pipeline, cache = report.gains["pipeline"], report.gains["feature_cache"]
        lines.append(
            f"  of the {report.speedup:.2g}x in total, the pipeline gives {pipeline:.2g}x and the "
            f"feature cache {cache:.2g}x"
        )
    lines.append(
        f"  medians of {rounds} rounds, with the smallest and largest ratio"
        if rounds > 1
        else "  one round; use --compare-rounds 3 to measure the spread"
    )
    busy = max(run.other_cores or 0.0 for run in runs)
    if busy > _BUSY * cores():
        lines.append(
            f"  other programs kept {busy:.1f} of {cores()} cores busy; compare CPU time rather "
            "than wall-clock time"
        )
    return lines


def ratio_text(ratio: "Mapping[str, float]") -> str:
    """Return a ratio with two digits at least, and its range if there is one: "480x", "1.2x"."""
    least, median, most = (
        f"{ratio[key]:.2g}" if ratio[key] < 99.5 else f"{ratio[key]:,.0f}"
        for key in ("least", "median", "most")
    )
    return f"{median}x" if least == most else f"{median}x ({least} to {most})"


def _compared_run(run: "ComparedRun") -> str:
    memory = "-" if run.memory_bytes is None else f"{run.memory_bytes / 2**20:,.0f} MiB"
    later = "-" if run.later_epoch_seconds is None else f"{run.later_epoch_seconds:.1f}"
    return (
        f"  {run.name:11}  {run.first_epoch_seconds:7.1f}  {later:>7}  {run.seconds:7.1f}  "
        f"{run.cpu_seconds:7.1f}  {run.images_per_second:8.1f}  {run.input_wait_fraction:10.1%}  "
        f"{memory:>10}  {figure_text(run.loss):>7}  {figure_text(run.accuracy):>8}"
    )
