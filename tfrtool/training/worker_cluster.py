"""The workers of TF_CONFIG, which train one model together."""

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tfrtool.errors import ClusterError, UsageError, os_reason

VARIABLE = "TF_CONFIG"

_SHAPE = '{"cluster": {"worker": ["HOST:PORT", ...]}, "task": {"type": "worker", "index": 0}}'

_WAIT = 600.0
"""Seconds to wait for other workers. TensorFlow would wait for an hour, and name none."""


class _Cluster(msgspec.Struct, forbid_unknown_fields=True):
    chief: list[str] = []
    worker: list[str] = []


class _Task(msgspec.Struct):
    type: str
    index: int


class _Config(msgspec.Struct):
    cluster: _Cluster
    task: _Task


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCluster:
    """All workers, and which of them this process is. The first is the chief."""

    names: tuple[str, ...]  # such as "worker 1"
    addresses: tuple[str, ...]  # HOST:PORT
    own: int  # position of this worker

    def describe(self, number: int) -> str:
        """Return a worker's name and address."""
        return f"{self.names[number]} ({self.addresses[number]})"

    def wait_for_all(self, seconds: float = _WAIT) -> None:
        """Wait until every worker answers at its address; this one answers at its own meanwhile.

        Raises:
            ClusterError: an address is taken, or workers did not connect in time; names them.
        """
        host, _, port = self.addresses[self.own].rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            server = socket.create_server(("", int(port)), family=family, backlog=len(self.names))
        except OSError as error:
            what = f"{self.describe(self.own)} can't use its address"
            raise ClusterError(what, found=os_reason(error)) from error
        deadline = time.monotonic() + seconds
        with server:
            while missing := self.missing():
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"no connection to {' and '.join(map(self.describe, missing))}",
                        expected=f"all {len(self.names)} workers within {seconds:g} seconds",
                        hint="start each with the same TF_CONFIG except for its task",
                    )
                time.sleep(0.1)

    def missing(self) -> list[int]:
        """Return the numbers of the other workers that don't answer."""
        missing = []
        for number, address in enumerate(self.addresses):
            host, _, port = address.rpartition(":")
            if number != self.own:
                try:
                    socket.create_connection((host.strip("[]"), int(port)), 1.0).close()
                except OSError:
                    missing.append(number)
        return missing


def find_workers(environment: Mapping[str, str] = os.environ) -> WorkerCluster | None:
    """Return the workers in TF_CONFIG, None if it is not set; a `UsageError` if it is invalid."""
    text = environment.get(VARIABLE, "").strip()
    if text in ("", "{}"):
        return None
    try:
        # Not strict: Kubernetes' templates make strings of numbers.
        config = msgspec.convert(msgspec.json.decode(text), _Config, strict=False)
        cluster, task = config.cluster, config.task
        named = {
            f"{job} {n}": a
            for job in ("chief", "worker")
            for n, a in enumerate(getattr(cluster, job))
        }
        for address in named.values():
            host, _, port = address.rpartition(":")
            if not (host and port.isdecimal() and 0 < int(port) < 2**16):
                raise ValueError(f"{address!r} is not HOST:PORT")
        if len({*named.values()}) < len(named):
            raise ValueError("it has the same address twice")
        own = [*named].index(f"{task.type} {task.index}")
    except ValueError as error:  # msgspec's errors are, too
        raise UsageError(f"{VARIABLE} is invalid: {error}", expected=_SHAPE) from error
    return WorkerCluster(names=tuple(named), addresses=tuple(named.values()), own=own)
