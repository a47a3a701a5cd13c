"""Processes on the nodes of a Ray cluster that keep state between calls."""

from collections.abc import Callable, Sequence
from typing import Any

from tfrtool.engines.ray_cluster import RayCluster, arguments_of, node_call, node_result
from tfrtool.errors import ClusterError

_SECONDS = 5.0
"""Seconds for processes to end by themselves."""


class ProcessLostError(ClusterError):
    """A process of a cluster, or its node, is gone."""


class RayProcesses:
    """A number of processes, spread over the nodes; a context manager that ends them."""

    def __init__(
        self, cluster: RayCluster, count: int, seconds: float, end: Callable[[], None]
    ) -> None:
        """Take a CPU for each process, and an even share of the GPUs.

        Args:
            cluster: the cluster, connected.
            count: the number of processes.
            seconds: how long to wait for room, and for answers.
            end: called in each process before it is ended.
        """
        self._ray, self._count, self._seconds, self._end = cluster.ray, count, seconds, end
        self._actors: list[Any] = []

    @staticmethod
    def places(cluster: RayCluster) -> tuple[int, int]:
        """Return how many nodes have CPUs, and how many CPUs they have together."""
        nodes = [node["Resources"].get("CPU", 0) for node in cluster.ray.nodes() if node["Alive"]]
        return sum(cpus >= 1 for cpus in nodes), sum(map(int, nodes))

    def __enter__(self) -> "RayProcesses":
        """Start the processes; ClusterError if there are not enough CPUs."""
        share = int(self._ray.cluster_resources().get("GPU", 0)) // self._count
        kind = self._ray.remote(
            num_cpus=1,
            num_gpus=share,
            max_restarts=0,
            max_concurrency=3,
            scheduling_strategy="SPREAD",
        )(_worker())
        self._actors = [kind.remote() for _ in range(self._count)]
        try:
            self._wait_for_all(
                [actor.ready.remote() for actor in self._actors],
                "not enough free CPUs in the cluster for all workers",
            )
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """End the processes, in the middle of their work if need be."""
        calls = [self.begin(index, self._end) for index in range(self._count)]
        self._ray.wait(calls, num_returns=len(calls), timeout=_SECONDS)
        self._kill()

    def _kill(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)

    def begin(self, index: int, function: Callable[..., object], *arguments: object) -> Any:
        """Call a function in one process, at the same time as other calls; see `result`."""
        return self._actors[index].call.remote(*arguments_of(function, *arguments))

    def call(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the results of a function in all processes; ClusterError names a late one."""
        calls = [self.begin(index, function, *arguments) for index in range(self._count)]
        self._wait_for_all(calls, "a worker did not respond")
        return [self.result(call) for call in calls]

    def _wait_for_all(self, calls: list[Any], what: str) -> None:
        done, late = self._ray.wait(calls, num_returns=len(calls), timeout=self._seconds)
        if late:
            expected = f"all {self._count} workers within {self._seconds:g} seconds"
            raise ClusterError(what, expected=expected, found=len(done))

    def wait(self, calls: Sequence[Any]) -> list[Any]:
        """Return the calls that are done, as soon as there is one, or none after a second."""
        done: list[Any] = self._ray.wait([*calls], timeout=1.0)[0]
        return done

    def result(self, call: Any) -> Any:
        """Return what a function returned, or raise its error.

        Raises:
            ProcessLostError: the process is gone.
            ClusterError: the node has another version of tfrtool.
            ShardError: a file doesn't exist on the node.
        """
        try:
            answer = self._ray.get(call)
        except self._ray.exceptions.RayError as error:
            raise ProcessLostError("a process died", found=type(error).__name__) from error
        return node_result(*answer)


def _worker() -> type:
    """Return the class of the processes, which is sent whole; see `node_call`."""
    run = node_call()

    class Worker:
        def ready(self) -> None:
            pass

        def call(self, *task: Any) -> tuple[tuple[str, str, bytes], list[Any]]:
            return run(*task)

    return Worker
