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
from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.storage.child import ChildDied
from tfrtool.storage.locations import as_path
from tfrtool.storage.progress import OnProgress, silent
from tfrtool.storage.words import make_options
from tfrtool.training.devices.worker_cluster import VARIABLE, StrategyKind, find_workers
from tfrtool.training.nodes import node_worker
from tfrtool.training.run.train_options import TrainOptions
from tfrtool.training.run.train_report import EpochReport, TrainPlan, TrainReport

_RESTARTS = 3
"""Times that a run is started again: what dies for want of memory always does."""

_LAST_WORDS = 5.0
"""Seconds in which all workers tell why they ended, or that they did."""

_PAUSE = 3.0
"""Seconds before a run is started again: a child outlives its parent by up to two."""


def train_on_nodes(
    dataset: str | os.PathLike[str] | Dataset,
    *,
    engine_address: str | None = None,
    workers: int | None = None,
    compare: bool = False,
    callbacks: Sequence[Any] = (),
    on_plan: Callable[[TrainPlan], None] = lambda _: None,
    on_epoch: Callable[[EpochReport], None] = lambda _: None,
    on_progress: OnProgress = silent,
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
    chosen = make_options(TrainOptions, dataset=as_path(location), **options)
    _check(chosen, compare=compare or bool(callbacks))
    seen: set[int] = set()

    def tell_plan(plan: TrainPlan) -> None:
        if not run.planned:
            seen.update(range(1, plan.epochs_before + 1))
        run.planned = True
        on_plan(plan)

    def tell_epoch(epoch: EpochReport) -> None:
        if epoch.epoch not in seen:
            seen.add(epoch.epoch)
            on_epoch(epoch)

    told: dict[str, Callable[[Any], None]]
    told = {"on_plan": tell_plan, "on_epoch": tell_epoch, "on_progress": on_progress}
    words = options | {"out": Path(str(chosen.out)).absolute(), "strategy": StrategyKind.AUTO}
    with RayCluster(engine_address) as cluster:
        nodes, room = RayProcesses.places(cluster)
        count = nodes if workers is None else workers
        if not 1 <= count <= room:
            raise UsageError(
                "the cluster is too small",
                expected=f"a CPU for each of {count} workers",
                found=f"{room} CPUs on {nodes} nodes",
            )
        run = _Run(cluster, count, chosen, told)
        for restarts in range(_RESTARTS + 1):
            try:
                report = run.attempt(dataset, words)
                break
            except ClusterError as error:
                if restarts == _RESTARTS or not run.begun:
                    raise
                on_restart(f"{error.what}; restart {restarts + 1} of {_RESTARTS}")
            time.sleep(_PAUSE)
            words["resume"] = True
    return report


def _check(chosen: TrainOptions, *, compare: bool) -> None:
    if chosen.strategy in (StrategyKind.ONE, StrategyKind.MIRRORED):
        raise UsageError(
            f"the strategy {chosen.strategy.value} is of one machine, and not of a cluster"
        )
    if find_workers() is not None:
        raise UsageError(f"--engine ray makes {VARIABLE} itself", found="one that is set")
    if compare:
        raise UsageError("--engine ray neither compares recipes nor calls callbacks")
    if chosen.recipe.value != "tfrtool":
        raise UsageError(f"the recipe {chosen.recipe.value!r} knows no cluster")
    try:
        pickle.dumps(chosen.own)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError("no node can have this model", found=str(error)[:200]) from error
    if chosen.out is None:
        raise UsageError(
            "--engine ray needs --out, where all nodes see it",
            hint="a run whose worker died is started again from its checkpoint there",
        )


class _Run:
    """A run, attempt by attempt: whether its workers had begun, and its plan was told."""

    begun = planned = False

    def __init__(
        self,
        cluster: RayCluster,
        count: int,
        options: TrainOptions,
        told: Mapping[str, Callable[[Any], None]],
    ) -> None:
        self._cluster, self._count, self._options, self._told = cluster, count, options, told

    def attempt(self, dataset: Any, words: Mapping[str, Any]) -> TrainReport:
        """Start all workers, and wait until the run is over, or one of them is lost."""
        seconds = self._options.worker_timeout
        with RayProcesses(self._cluster, self._count, seconds, node_worker.end_run) as processes:
            out = words["out"]
            with os_errors_as(WriteError, out, "can't be written to"):
                out.mkdir(parents=True, exist_ok=True)
                # A file that all must see.
                with tempfile.NamedTemporaryFile(prefix=".tfrtool-", dir=out) as seen:
                    places = range(self._count)
                    addresses = processes.call(places, node_worker.take_address, Path(seen.name))
            self.begun = True
            starts = {}
            for place in places:
                task = {"type": "worker", "index": place}
                config = json.dumps({"cluster": {"worker": addresses}, "task": task})
                given = (config if self._count > 1 else None), dataset, words
                starts[processes.begin(place, node_worker.start_run, *given)] = place
            names = [f"worker {place} ({address})" for place, address in enumerate(addresses)]
            return self._wait(processes, starts, names)

    def _wait(
        self, processes: RayProcesses, calls: dict[Any, int], names: Sequence[str]
    ) -> TrainReport:
        """Hand on what the first worker tells, and return its report when all have ended."""
        report: TrainReport | None = None
        lost: ClusterError | None = None
        end = float("inf")
        while calls and time.monotonic() < end:
            for call in processes.wait([*calls]):
                place = calls.pop(call)
                try:
                    told = processes.result(call) or []
                except (ProcessLostError, ChildDied) as error:
                    if lost is None or lost.found is None:  # who dies after that, dies of it
                        what = f"{names[place]} ended in the middle of the run"
                        lost = ClusterError(
                            what, found=_death(error), hint="was there enough memory?"
                        )
                except ClusterError as error:  # it misses another one, which may tell why itself
                    lost = lost or error
                else:
                    for name, value in told:
                        if name in self._told:
                            self._told[name](value)
                        elif place == 0:
                            report = value
                    if not told or told[-1][0] != "report":
                        calls[processes.begin(place, node_worker.next_told)] = place
                        continue
                    if place > 0:  # the first one saves the model yet
                        continue
                end = min(end, time.monotonic() + _LAST_WORDS)
        if report is not None:
            return report
        raise lost or ClusterError("the first worker ended without a report")


def _death(error: ProcessLostError | ChildDied) -> str:
    if isinstance(error, ProcessLostError):
        return str(error.found)
    return f"signal {-error.code}" if error.code < 0 else f"exit code {error.code}"
