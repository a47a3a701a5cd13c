"""A run compared with the published recipes, each measured in a process of its own."""

import pickle
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tfrtool.declare import declared
from tfrtool.errors import UsageError
from tfrtool.loading.bench import Measurement, measure_in_turn
from tfrtool.loading.options import LOADER_KEYS
from tfrtool.training.train_options import PICKLED, TrainOptions
from tfrtool.training.train_report import ComparedRun, TrainReport

_SAVES_NOTHING: dict[str, Any] = {
    one.name: one.default
    for one, spec in declared(TrainOptions)
    if spec.group == "Output" or spec.on_resume == "call"
} | {"strategy": "one"}

_AS_PUBLISHED: dict[str, Any] = {
    **dict.fromkeys((*LOADER_KEYS.values(), "cache_directory")),
    **{"cache": "auto", "decode": "exact", "deterministic": True, "precision": "float32"},
}


def comparable_runs(options: TrainOptions) -> dict[str, Callable[[], TrainReport]]:
    """Return the runs to measure, by recipe, tfrtool's last; a `UsageError` if there are none."""
    if options.resume or options.recipe == "naive":
        other = "--resume" if options.resume else "--recipe naive"
        raise UsageError(f"--compare cannot be used with {other}")
    measured = replace(options, **_SAVES_NOTHING)
    published = replace(measured, **_AS_PUBLISHED)
    runs = {"naive": partial(_run, replace(published, recipe="naive"))}
    if options.recipe == "tfrtool":
        runs["notebook"] = partial(_run, replace(published, recipe="notebook"))
    runs[options.recipe] = partial(_run, measured)
    try:
        pickle.dumps(runs)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            "--compare requires a model that other processes can load",
            expected=PICKLED,
        ) from error
    return dict(runs)


def _run(options: TrainOptions) -> TrainReport:
    from tfrtool.training.train_run import run_here

    return run_here(options)


def compare_recipes(
    options: TrainOptions, runs: Mapping[str, Callable[[], TrainReport]]
) -> tuple[tuple[ComparedRun, ...], str]:
    """Measure runs by recipe, in turn; also return why the notebook's was skipped, or ""."""
    optional = {"notebook"} - {options.recipe}
    measured, skipped = measure_in_turn(
        options.location,
        runs,
        options.compare_rounds,
        warm_up=_load_libraries,
        optional=optional,
        on_progress=options.on_progress,
    )
    found = [_compared(one) for name, one in measured.items() if name not in skipped]
    return tuple(found), skipped.get("notebook", "")


def _load_libraries() -> None:
    """Do in a new process what is not measured."""
    import tfrtool.training.train_run  # noqa: F401
    from tfrtool.loading.tensors import start_devices

    start_devices()


def _compared(rounds: Sequence[Measurement]) -> ComparedRun:
    report: TrainReport = rounds[0].result
    last, seconds = report.epochs[-1].to_json(), statistics.median(one.seconds for one in rounds)
    others = [one.other_cores for one in rounds if one.other_cores is not None]
    plan, epochs = report.plan, len(report.epochs)
    return ComparedRun(
        recipe=plan.recipe,
        cache=plan.cache,
        precision=plan.precision,
        seconds=round(seconds, 3),
        cpu_seconds=round(statistics.median(one.cpu_seconds for one in rounds), 3),
        seconds_each=tuple(round(one.seconds, 3) for one in rounds),
        cpu_seconds_each=tuple(round(one.cpu_seconds, 3) for one in rounds),
        other_cores=round(statistics.median(others), 2) if others else None,
        memory_bytes=rounds[0].memory_bytes,
        images_per_second=round(plan.train_images * epochs / seconds, 1),
        input_wait_fraction=round(report.input_wait_fraction, 4),
        epochs=epochs,
        **{name: last.get(name) for name in ("loss", "accuracy", "val_loss", "val_accuracy")},
    )
