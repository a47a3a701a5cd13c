"""A run compared with the published recipes, each measured in a process of its own."""

import pickle
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from tfrtool.declare import declared
from tfrtool.errors import UsageError
from tfrtool.loading.bench import Measurement, measure_in_turn
from tfrtool.loading.options import LOADER_KEYS, Cache
from tfrtool.storage.arguments import as_paths
from tfrtool.storage.child import send_to_parent
from tfrtool.training.train_options import PICKLED, TrainOptions
from tfrtool.training.train_report import NAIVE, NO_FEATURES, ComparedRun, TrainReport

_SAVES_NOTHING: dict[str, Any] = {
    one.name: one.default
    for one in declared(TrainOptions)
    if one.spec.group == "Output" or one.spec.on_resume == "call"
} | {"strategy": "one"}

_AS_PUBLISHED: dict[str, Any] = {
    **dict.fromkeys((*LOADER_KEYS.values(), "cache_directory")),
    **{"cache": "auto", "decode": "exact", "deterministic": True, "precision": "float32"},
    "autotune": False,
}


def comparable_runs(options: TrainOptions) -> dict[str, TrainOptions]:
    """Return the runs to measure by name, the caller's last; a `UsageError` if there are none."""
    if options.resume or options.recipe == "naive":
        other = "--resume" if options.resume else "--recipe naive"
        raise UsageError(f"--compare can't be used with {other}")
    measured = replace(options, **_SAVES_NOTHING | {"on_progress": send_to_parent})
    published = replace(measured, **_AS_PUBLISHED)
    runs = {NAIVE: replace(published, recipe="naive")}
    if options.recipe == "tfrtool":
        runs["notebook"] = replace(published, recipe="notebook")
        runs[NO_FEATURES] = replace(measured, cache="memory", precision="float32")
    runs[options.recipe] = measured
    try:
        pickle.dumps(runs)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            "--compare requires a model that other processes can load",
            expected=PICKLED,
        ) from error
    return runs


def compare_recipes(
    options: TrainOptions,
    runs: Mapping[str, TrainOptions],
    cache: Cache,
    train: Callable[[TrainOptions], TrainReport],
) -> tuple[tuple[ComparedRun, ...], dict[str, str]]:
    """Measure runs in turn; also return why some were skipped, by name.

    ``cache`` is that of the caller's own run. Without cached features, there is none to leave out.
    """
    tasks = {
        name: partial(train, one)
        for name, one in runs.items()
        if name != NO_FEATURES or cache == "features"
    }
    measured, skipped = measure_in_turn(
        as_paths(options.source)[0],
        tasks,
        options.compare_rounds,
        warm_up=partial(_load_libraries, train.__module__),
        optional={"notebook", NO_FEATURES} - {options.recipe},
        on_progress=options.on_progress,
    )
    found = [_compared(name, one) for name, one in measured.items() if name not in skipped]
    return tuple(found), skipped


def _load_libraries(module: str) -> None:
    """Do in a new process what is not measured: load what trains, and start the devices."""
    import_module(module)
    from tfrtool.loading.tensors import start_devices

    start_devices()


def _compared(name: str, rounds: Sequence[Measurement]) -> ComparedRun:
    reports: list[TrainReport] = [one.result for one in rounds]
    plan, last = reports[0].plan, reports[0].epochs[-1].to_json()
    others = [one.other_cores for one in rounds if one.other_cores is not None]
    memory = [one.memory_bytes for one in rounds if one.memory_bytes is not None]
    figures: dict[str, Any] = {}
    for cost, seconds in _costs(rounds).items():
        figures[cost] = round(statistics.median(seconds), 3) if seconds else None
        figures[f"{cost}_each"] = tuple(round(one, 3) for one in seconds)
    figures |= {one: last.get(one) for one in ("loss", "val_loss")}
    for figure, short in (("accuracy", "acc"), ("val_accuracy", "val_acc")):
        figures[figure] = last.get(figure, last.get(short))  # as a compiled model calls it
    return ComparedRun(
        name=name,
        recipe=plan.recipe,
        cache=plan.cache,
        precision=plan.precision,
        other_cores=round(statistics.median(others), 2) if others else None,
        memory_bytes=round(statistics.median(memory)) if memory else None,
        images_per_second=round(statistics.median(map(_image_rate, reports)), 1),
        input_wait_fraction=round(statistics.median(one.input_wait_fraction for one in reports), 4),
        epochs=len(reports[0].epochs),
        **figures,
    )


def _costs(rounds: Sequence[Measurement]) -> dict[str, list[float]]:
    """Return the `COSTS` of each round."""
    epochs = [[epoch.seconds for epoch in one.result.epochs] for one in rounds]
    return {
        "first_epoch_seconds": [seconds[0] for seconds in epochs],
        "later_epoch_seconds": [statistics.median(each[1:]) for each in epochs if len(each) > 1],
        "seconds": [one.seconds for one in rounds],
        "cpu_seconds": [one.cpu_seconds for one in rounds],
    }


def _image_rate(report: TrainReport) -> float:
    """Return the training and validation images of all epochs per second of their time."""
    images = sum(one.images_per_second * one.seconds for one in report.epochs)
    return images / sum(one.seconds for one in report.epochs)
