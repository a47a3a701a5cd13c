"""The workers that train one model together, as TF_CONFIG tells of them."""

import enum
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tfrtool.errors import ClusterError, UsageError, os_reason

VARIABLE = "TF_CONFIG"

_JOBS = ("chief", "worker")
"""What a cluster may have, and in the order that TensorFlow numbers them."""

_SECONDS = 1.0
"""What one attempt to connect may take."""

_BETWEEN = 0.1
"""Seconds between attempts."""

_SHAPE = '{"cluster": {"worker": ["HOST:PORT", ...]}, "task": {"type": "worker", "index": 0}}'


class StrategyKind(enum.Enum):
    """Which devices a model is trained on; the values are those of the CLI.

    AUTO is MULTI_WORKER where TF_CONFIG has several workers, and else MIRRORED where there are
    several GPUs, and else ONE.
    """

    AUTO = "auto"
    ONE = "one"
    MIRRORED = "mirrored"
    MULTI_WORKER = "multi-worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What a run is trained on, known before its first step."""

    strategy: StrategyKind = StrategyKind.ONE
    workers: int = 1  # processes
    worker: int = 0  # which of them this is; the first is the chief, and writes
    replicas: int = 1  # devices, of all workers together


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCluster:
    """All workers, of which one is this process; the first is the chief."""

    names: tuple[str, ...]  # "worker 1", as type and index
    addresses: tuple[str, ...]  # HOST:PORT
    own: int  # the place of this one

    def describe(self, place: int) -> str:
        """Return what a worker is called, and where it is."""
        return f"{self.names[place]} ({self.addresses[place]})"

    @property
    def others(self) -> list[int]:
        """The places of all but this one."""
        return [place for place in range(len(self.names)) if place != self.own]

    def wait_for_all(self, seconds: float) -> None:
        """Wait until all workers are there, each at its own address.

        TensorFlow itself would wait for an hour, and name nobody. The address of this worker
        answers meanwhile, and is free again after that.

        Raises:
            ClusterError: one of them has not come in time; or this one's address can't be used.
        """
        end, missing = time.monotonic() + seconds, self.others
        address = self.addresses[self.own]
        family = socket.AF_INET6 if address.startswith("[") else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind(("", _port(address)))
                listening.listen(2 * len(self.names))
            except OSError as error:
                what = f"{self.names[self.own]} can't listen on its address"
                raise ClusterError(what, path=address, found=os_reason(error)) from error
            reasons = dict.fromkeys(missing, "")
            while missing:
                for place in missing:
                    reasons[place] = self._problem(place)
                missing = [place for place in missing if reasons[place]]
                if missing and time.monotonic() > end:
                    raise ClusterError(
                        "; ".join(f"{self.describe(one)} has not connected" for one in missing),
                        expected=f"all {len(self.names)} workers within {seconds:g} seconds",
                        found="; ".join(sorted({reasons[one] for one in missing})),
                        hint="start each with the same TF_CONFIG except for its task, or raise "
                        "--worker-timeout",
                    )
                if missing:
                    time.sleep(_BETWEEN)

    def missing(self) -> list[int]:
        """Return the places of the workers whose addresses answer no more."""
        return [place for place in self.others if self._problem(place)]

    def _problem(self, place: int) -> str:
        """Return why a worker can't be connected to; "" if it can."""
        host, port = self.addresses[place].rpartition(":")[0].strip("[]"), self.addresses[place]
        try:
            socket.create_connection((host, _port(port)), _SECONDS).close()
        except OSError as error:
            return os_reason(error)
        return ""


def find_workers(environment: Mapping[str, str] = os.environ) -> WorkerCluster | None:
    """Return the workers that TF_CONFIG has; None where it is not set, or has no cluster.

    Raises:
        UsageError: it makes no sense.
    """
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return None
    try:
        config = json.loads(text)
    except ValueError as error:
        raise _nonsense("is not JSON", text) from error
    if config == {}:
        return None
    if not isinstance(config, dict) or not isinstance(config.get("cluster"), dict):
        raise _nonsense("has no cluster", text)
    names: list[str] = []
    addresses: list[str] = []
    for job, found in sorted(config["cluster"].items()):
        if job not in _JOBS:
            raise _nonsense("has a job other than chief and worker", job)
        if not isinstance(found, list) or not found or (job == "chief" and len(found) > 1):
            raise _nonsense(f"has no valid list of addresses for {job}", found)
        for address in found:
            names.append(f"{job} {len(names) if job == 'chief' else found.index(address)}")
            addresses.append(_checked(address))
    repeated = [one for one in addresses if addresses.count(one) > 1]
    if repeated:
        raise _nonsense("has the same address twice", repeated[0])
    return WorkerCluster(
        names=tuple(names), addresses=tuple(addresses), own=_own(config.get("task"), names)
    )


def _own(task: Any, names: Sequence[str]) -> int:
    """Return the place of a task."""
    if not isinstance(task, dict) or not isinstance(task.get("type"), str):
        raise _nonsense("has no task for this worker", task)
    index = task.get("index")
    with suppress(ValueError, TypeError):  # Kubernetes' templates make strings of numbers
        index = int(index) if isinstance(index, str) else index
    name = f"{task['type']} {index}"
    if isinstance(index, bool) or not isinstance(index, int) or name not in names:
        raise _nonsense(f"has no {name} in its cluster of {', '.join(names)}", task)
    return names.index(name)


def _checked(address: object) -> str:
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if not (host and port.isascii() and port.isdecimal() and 0 < int(port) < 2**16):
        raise _nonsense("has an address that is not HOST:PORT", address)
    return str(address)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _nonsense(what: str, found: object) -> UsageError:
    return UsageError(f"{VARIABLE} {what}", expected=_SHAPE, found=repr(found)[:100])
