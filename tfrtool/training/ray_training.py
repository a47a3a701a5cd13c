"""A training run on the nodes of a Ray cluster, restarted if a worker dies."""

import functools
import json
import os
import pickle
import queue
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfrtool.engines.ray_cluster import RayCluster
from tfrtool.engines.ray_processes import ProcessLostError, RayProcesses
from tfrtool.errors import ClusterError, UsageError, WriteError, os_errors_as
from tfrtool.storage.atomic_files import delete_leftovers, temporary_folder
from tfrtool.storage.extras import require_tensorflow
from tfrtool.storage.progress import no_progress
from tfrtool.training.train_options import PICKLED, TrainOptions, ignore
from tfrtool.training.train_report import EpochReport, TrainPlan, TrainReport
from tfrtool.training.worker_cluster import VARIABLE, find_workers

_RESTARTS = 3
_ROOM = 600.0
"""Seconds to wait for free CPUs, and for workers to start."""

_LAST_ERRORS = 5.0
"""Seconds in which the other workers may report why they ended."""


def train_on_ray(options: TrainOptions) -> TrainReport:
    """Train as `train` does with the engine "ray"; only the nodes need TensorFlow."""
    if options.strategy in ("one", "mirrored"):
        raise UsageError(f"--strategy {options.strategy} and --engine ray cannot be used together")
    if find_workers() is not None:
        raise UsageError(f"--engine ray sets {VARIABLE} itself: unset it first")
    if options.compare or options.callbacks:
        raise UsageError("--engine ray cannot be used with --compare or callbacks")
    if options.recipe != "tfrtool":
        raise UsageError(f"--recipe {options.recipe} and --engine ray cannot be used together")
    if options.out_dir is None:
        raise UsageError(
            "--engine ray requires --out, where all nodes see it",
            hint="pass a directory for the checkpoint from which a failed run is restarted",
        )
    sent = replace(
        options,
        out=options.out_dir.absolute(),
        strategy="auto",
        engine="local",
        engine_address=None,
        workers=None,
        on_plan=ignore,
        on_epoch=ignore,
        on_restart=ignore,
        on_progress=no_progress,
    )
    try:
        pickle.dumps(sent)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError("the model can't be sent to other nodes", expected=PICKLED) from error
    reported: int | None = None  # the last epoch

    def on_plan(plan: TrainPlan) -> None:
        nonlocal reported
        reported = plan.epochs_before if reported is None else reported
        options.on_plan(plan)

    def on_epoch(epoch: EpochReport) -> None:
        nonlocal reported
        if epoch.epoch > (reported or 0):
            reported = epoch.epoch
            options.on_epoch(epoch)

    heard: dict[str, Any] = {"plan": on_plan, "epoch": on_epoch}
    heard["progress"] = options.on_progress
    with RayCluster(options.engine_address) as cluster:
        nodes, room = RayProcesses.places(cluster)
        count = options.workers or nodes
        if count > room:
            what = f"the cluster is too small for {count} workers"
            raise UsageError(what, expected="a CPU for each", found=f"{room} CPUs on {nodes} nodes")
        restart = 0
        while True:
            try:
                with RayProcesses(cluster, count, _ROOM, end_worker) as processes:
                    return _attempt(processes, count, sent, heard)
            except ProcessLostError as error:
                restart += 1
                if restart > _RESTARTS:
                    raise
                options.on_restart(f"{error.what}; restarting ({restart} of {_RESTARTS})")
            sent = replace(sent, resume=True)


def _attempt(
    processes: RayProcesses, count: int, options: TrainOptions, heard: dict[str, Callable[..., Any]]
) -> TrainReport:
    """Start all workers, and wait until the run is over, or one of them is lost."""
    out = Path(str(options.out))
    with os_errors_as(WriteError, out, "can't be written to"):
        out.mkdir(parents=True, exist_ok=True)
        delete_leftovers(out / "shared")
        with temporary_folder(out / "shared") as folder:  # all nodes must see it
            addresses = processes.call(take_address, folder)
    runs = {}
    for place in range(count):
        task = {"type": "worker", "index": place}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        runs[processes.begin(place, run_worker, config if count > 1 else "", options)] = place
    message = processes.begin(0, next_message)
    lost: ClusterError | None = None
    end = float("inf")
    while (runs or lost is None) and time.monotonic() < end:  # the report comes as a message
        for call in processes.wait([*runs, *([] if lost else [message])]):
            place = runs.pop(call, 0)
            try:
                result = processes.result(call)
            except ClusterError as error:  # of several, the death of a worker is the cause
                if lost is None or (isinstance(error, ProcessLostError) and lost.found is None):
                    dead = isinstance(error, ProcessLostError)
                    what = f"worker {place} ({addresses[place]}) ended during the run"
                    lost = ProcessLostError(what if dead else error.what, found=error.found)
                end = min(end, time.monotonic() + _LAST_ERRORS)
                continue
            if call == message:
                name, value = result
                if name == "report":
                    report: TrainReport = value
                    return report
                heard[name](value)
                message = processes.begin(0, next_message)
    raise lost or ClusterError("the first worker ended without a report")


@functools.cache
def _messages() -> "queue.SimpleQueue[tuple[str, Any]]":
    """Messages of the run in this process."""
    return queue.SimpleQueue()


def take_address(_seen: Path) -> str:
    """Return this node's address with a free port. ``_seen`` must exist on the node."""
    import ray

    host = str(ray.util.get_node_ip_address())
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as free:
        free.bind(("", 0))
        return f"{f'[{host}]' if ':' in host else host}:{free.getsockname()[1]}"


def run_worker(config: str, options: TrainOptions) -> None:
    """Train in this process with a TF_CONFIG, and leave messages for `next_message`."""
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", VARIABLE: config}
    require_tensorflow("the nodes of this run")
    from tfrtool.training.checkpoint import read_state
    from tfrtool.training.train_run import run_here

    def send(name: str) -> Callable[[Any], None]:
        return lambda value: _messages().put((name, value))

    def on_plan(plan: Any) -> None:
        send("plan")(replace(plan, options=options))  # without functions of this process
        before = read_state(Path(str(options.out)))
        for epoch in () if before is None else before.epochs:  # a worker that died may not have
            send("epoch")(epoch)

    heard: dict[str, Any] = {"on_epoch": send("epoch"), "on_progress": send("progress")}
    report = run_here(replace(options, on_plan=on_plan, **heard))
    send("report")(replace(report, plan=replace(report.plan, options=options)))


def next_message() -> tuple[str, Any]:
    """Wait for the next message of the run in this process."""
    return _messages().get()


def end_worker() -> None:
    """Release `next_message` of a process that is about to be killed."""
    _messages().put(("end", None))
