"""A training run on the nodes of a Ray cluster, started again where a worker dies."""

import json
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfrtool.engines.ray_cluster import RayCluster
from tfrtool.engines.ray_processes import ProcessLostError, RayProcesses
from tfrtool.errors import ClusterError, UsageError, WriteError, os_errors_as
from tfrtool.loading.dataset import Dataset
from tfrtool.storage.arguments import make_options
from tfrtool.storage.child import ChildDied
from tfrtool.storage.progress import OnProgress, no_progress
from tfrtool.training.devices.worker_cluster import VARIABLE, StrategyKind, find_workers
from tfrtool.training.models.model_choice import PICKLED
from tfrtool.training.nodes import node_worker
from tfrtool.training.run.train_options import TrainOptions, resumed
from tfrtool.training.run.train_report import EpochReport, TrainPlan, TrainReport

_RESTARTS = 3
"""Times that a run is started again: what dies for want of memory always does."""

_LAST_WORDS = 5.0
"""Seconds in which all workers tell why they ended, or that they did."""

_Told = Mapping[str, Callable[[Any], None]]
"""What the first worker tells, by the keywords of `train`."""

_PAUSE = 3.0
"""Seconds before a run is started again: a child outlives its parent by up to two."""


def train_on_nodes(
    dataset: str | os.PathLike[str] | Dataset | None = None,
    *,
    engine_address: str | None = None,
    workers: int | None = None,
    compare: bool = False,
    callbacks: Sequence[Any] = (),
    on_plan: Callable[[TrainPlan], None] = lambda _: None,
    on_epoch: Callable[[EpochReport], None] = lambda _: None,
    on_progress: OnProgress = no_progress,
    on_restart: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> TrainReport:
    """Do what `train` does with the engine "ray"; TensorFlow is needed on the nodes alone.

    Args:
        dataset: as `train` has it, and all that is not named here.
        engine_address: of the cluster.
        workers: how many; None is one for each node.
        compare: must be false.
        callbacks: must be none.
        on_plan: called at each start.
        on_epoch: called after each epoch.
        on_progress: called several times a second.
        on_restart: called with why the run is started again.
        **options: as `train` has them.

    Raises:
        UsageError: these options don't go with a cluster.
        ClusterError: workers were lost again and again; or there is no room for them.
    """
    location = dataset.directory if isinstance(dataset, Dataset) else dataset
    options = resumed({**options, "dataset": location})
    chosen = make_options(TrainOptions, **options)
    dataset = options.pop("dataset") if dataset is None else dataset
    options.pop("dataset", None)
    _check(chosen, compare=compare or bool(callbacks))
    done: int | None = None  # the last epoch that was told of

    def tell_plan(plan: TrainPlan) -> None:
        nonlocal done
        done = plan.epochs_before if done is None else done
        on_plan(plan)

    def tell_epoch(epoch: EpochReport) -> None:
        nonlocal done
        if epoch.epoch > (done or 0):
            done = epoch.epoch
            on_epoch(epoch)

    told: _Told = {"on_plan": tell_plan, "on_epoch": tell_epoch, "on_progress": on_progress}
    words = options | {"out": Path(str(chosen.out)).absolute(), "strategy": StrategyKind.AUTO}
    with RayCluster(engine_address) as cluster:
        nodes, room = RayProcesses.places(cluster)
        count = nodes if workers is None else workers
        if not 1 <= count <= room:
            raise UsageError(
                f"the cluster is too small for {count} workers",
                expected="a CPU for each",
                found=f"{room} CPUs on {nodes} nodes",
            )
        given = cluster, count, chosen.worker_timeout, node_worker.end_run
        restarts = 0
        while True:
            try:
                with RayProcesses(*given) as processes:
                    return _attempt(processes, count, dataset, words, told)
            except ProcessLostError as error:
                restarts += 1
                if restarts > _RESTARTS:
                    raise
                on_restart(f"{error.what}; restarting ({restarts} of {_RESTARTS})")
            time.sleep(_PAUSE)
            words["resume"] = True


def _check(chosen: TrainOptions, *, compare: bool) -> None:
    if chosen.strategy in (StrategyKind.ONE, StrategyKind.MIRRORED):
        raise UsageError(
            f"--strategy {chosen.strategy.value} and --engine ray cannot be used together"
        )
    if find_workers() is not None:
        raise UsageError(f"--engine ray sets {VARIABLE} itself: unset it first")
    if compare:
        raise UsageError("--engine ray cannot be used with --compare or callbacks")
    if chosen.recipe.value != "tfrtool":
        raise UsageError(f"--recipe {chosen.recipe.value} and --engine ray cannot be used together")
    try:
        pickle.dumps(chosen.own)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError("the model can't be sent to other nodes", expected=PICKLED) from error
    if chosen.out is None:
        raise UsageError(
            "--engine ray requires --out, where all nodes see it",
            hint="pass a directory for the checkpoint from which a failed run is restarted",
        )


def _attempt(
    processes: RayProcesses, count: int, dataset: Any, words: Mapping[str, Any], told: _Told
) -> TrainReport:
    """Start all workers, and wait until the run is over, or one of them is lost."""
    out = words["out"]
    with os_errors_as(WriteError, out, "can't be written to"):
        out.mkdir(parents=True, exist_ok=True)
        # A file that all must see.
        with tempfile.NamedTemporaryFile(prefix=".tfrtool-", dir=out) as seen:
            addresses = processes.call(node_worker.take_address, Path(seen.name))
    calls = {}
    for place in range(count):
        task = {"type": "worker", "index": place}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        given = (config if count > 1 else None), dataset, words
        calls[processes.begin(place, node_worker.start_run, *given)] = place
    report: TrainReport | None = None
    lost: ClusterError | None = None
    end = float("inf")
    while calls and time.monotonic() < end:
        for call in processes.wait([*calls]):
            place = calls.pop(call)
            try:
                name, value = processes.result(call) or ("", None)
            except (ProcessLostError, ChildDied) as error:
                if lost is None or lost.found is None:  # who dies after that, dies of it
                    what = f"worker {place} ({addresses[place]}) ended during the run"
                    hint = "check whether it ran out of memory"
                    lost = ProcessLostError(what, found=_death(error), hint=hint)
            except ClusterError as error:  # it misses another one, which may tell why itself
                lost = lost or ProcessLostError(error.what, hint=error.hint)
            else:
                if name != "report":
                    if name:
                        told[name](value)
                    calls[processes.begin(place, node_worker.next_told)] = place
                    continue
                if place > 0:  # the first one saves the model yet
                    continue
                report = value
            end = min(end, time.monotonic() + _LAST_WORDS)
    if report is None:
        raise lost or ClusterError("the first worker ended without a report")
    return report


def _death(error: ProcessLostError | ChildDied) -> str:
    if isinstance(error, ProcessLostError):
        return str(error.found)
    return f"signal {-error.code}" if error.code < 0 else f"exit code {error.code}"
