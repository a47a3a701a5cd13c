"""What a node does of a training run: it trains in a child, and hands on what that tells."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError
from tfrtool.storage.child import Child, send_to_parent
from tfrtool.storage.lock import locked
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.training.devices.worker_cluster import VARIABLE

_OFTEN = 0.2
"""Seconds between two words of how far a run is."""

_here: dict[str, Any] = {}
"""The child of this process with its folders, and the port that is held for it."""


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
    _here["folder"] = ScratchFolder()
    environment["TMPDIR"] = _here["folder"].name
    environment |= {"TF_CPP_MIN_LOG_LEVEL": "3", **({VARIABLE: config} if config else {})}
    _here.pop("port").close()
    _here["child"], _here["out"] = Child(environment=environment), options["out"]
    _here["child"].send(_train, dataset, options)


def next_told() -> Any:
    """Wait for what the run tells: a keyword of `train` with what that is called with.

    The last is "report", with what `train` returns. What it raises is raised.
    """
    return _here["child"].receive()


def end_run() -> None:
    """End the child, in the middle of its run if need be, and take away what it leaves then."""
    if "child" in _here:
        _here.pop("child").__exit__()
        _here.pop("folder").cleanup()
        with suppress(UsageError, OSError), locked(_here.pop("out"), "train"):
            pass


def _train(dataset: Any, options: Mapping[str, Any]) -> tuple[str, Any]:
    from tfrtool.training.run.checkpoints import read_run
    from tfrtool.training.run.train import train

    told = 0.0

    def tell_plan(plan: Any) -> None:
        send_to_parent(("on_plan", plan))
        before = read_run(options["out"])
        for epoch in () if before is None else before.epochs:  # who died may not have told
            send_to_parent(("on_epoch", epoch))

    def tell_progress(progress: Any) -> None:
        nonlocal told
        if time.monotonic() > told + _OFTEN:
            told = time.monotonic()
            send_to_parent(("on_progress", progress))

    def tell_epoch(epoch: Any) -> None:
        send_to_parent(("on_epoch", epoch))

    telling = partial(train, on_plan=tell_plan, on_epoch=tell_epoch, on_progress=tell_progress)
    return "report", telling(dataset, **options)
