"""What a node does of a training run: it trains in a child, and hands on what that tells."""

import os
import queue
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfrtool.storage.child import Child
from tfrtool.training.devices.worker_cluster import VARIABLE

Told = list[tuple[str, Any]]
"""What a run tells, by the names of the keywords of `train`; "report" is the last."""

_OFTEN = 0.2
"""Seconds between two that tell nothing but how far a run is."""

_here: dict[str, Any] = {}
"""The child of this process, and the port that is held for it."""

_events: "queue.SimpleQueue[tuple[str, Any]]" = queue.SimpleQueue()
"""Of the child's run."""


def take_address(_seen: Path) -> str:
    """Return this node's address with a port that is free, and is held until a run starts.

    The file is one that the node must see, or it is not called.
    """
    import ray

    host = str(ray.util.get_node_ip_address())
    held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    held.bind(("", 0))
    _here["port"] = held
    return f"[{host}]:{held.getsockname()[1]}" if ":" in host else f"{host}:{held.getsockname()[1]}"


def start_run(config: str | None, dataset: Any, options: Mapping[str, Any]) -> None:
    """Start to train in a child, with this TF_CONFIG."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    # Its temporary files go with it, even if it is ended in the middle.
    _here["folder"] = tempfile.TemporaryDirectory(prefix="tfrtool-")
    environment["TMPDIR"] = _here["folder"].name
    environment |= {"TF_CPP_MIN_LOG_LEVEL": "3", **({VARIABLE: config} if config else {})}
    _here.pop("port").close()
    _here["child"] = Child(environment=environment)
    _here["child"].call(_begin, dataset, options)


def next_told() -> Told:
    """Wait until the run tells something; raise what it raises."""
    told: Told = _here["child"].call(_told)
    return told


def end_run() -> None:
    """End the child, in the middle of its run if need be."""
    if "child" in _here:
        _here.pop("child").__exit__()
        _here.pop("folder").cleanup()


def _begin(dataset: Any, options: Mapping[str, Any]) -> None:
    threading.Thread(target=_train, args=(dataset, options), daemon=True).start()


def _train(dataset: Any, options: Mapping[str, Any]) -> None:
    try:
        from tfrtool.training.run.checkpoints import read_run
        from tfrtool.training.run.train import train

        def tell(name: str) -> Callable[[Any], None]:
            return lambda value: _events.put((name, value))

        def tell_plan(plan: Any) -> None:
            _events.put(("on_plan", plan))
            before = read_run(options["out"])
            for epoch in () if before is None else before.epochs:  # who died may not have told
                _events.put(("on_epoch", epoch))

        given: dict[str, Any] = {name: tell(name) for name in ("on_epoch", "on_progress")}
        given["on_plan"] = tell_plan
        report = train(dataset, **given, **options)
        _events.put(("report", report))
    except Exception as error:  # noqa: BLE001 - it is raised where the run was asked for
        _events.put(("error", error))


def _told() -> Told:
    told = [_events.get()]
    if told[0][0] == "on_progress":
        time.sleep(_OFTEN)
    while not _events.empty():
        if told[-1][0] == "on_progress":
            told.pop()  # who is further tells all of it
        told.append(_events.get())
    if told[-1][0] == "error":
        raise told[-1][1]
    return told
