"""Strategies of tf.distribute, opened: how batches reach replicas, and how workers agree."""

import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.errors import ClusterError, UsageError, reason_of
from tfrtool.loading.python_calls import plain
from tfrtool.loading.share import Share, empty_batch
from tfrtool.loading.tensors import Batch, Tensor, TfDataset
from tfrtool.training.devices.worker_cluster import (
    VARIABLE,
    DeviceFacts,
    StrategyKind,
    WorkerCluster,
    find_workers,
)

_TASK = re.compile(r"/job:(chief|worker)(?:/replica:\d+)?/task:(\d+)")
"""How TensorFlow names a worker in an error; some say ``/job:worker/task:1``."""

_LOST = (
    *(tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.InternalError),
    *(tf.errors.CancelledError, tf.errors.DeadlineExceededError, tf.errors.UnknownError),
    tf.errors.FailedPreconditionError,
)
"""What TensorFlow raises in a worker when another one is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The devices of a run, all of which take each step together.

    Attributes:
        kind: which strategy it is.
        strategy: TensorFlow's own; variables are made in its ``scope()``.
        cluster: the workers; None where this process is the only one.
        shares: in how many ranges images are shuffled, each by itself: one of each worker, or as
            many as there shall be of one.
    """

    kind: StrategyKind
    strategy: Any
    cluster: WorkerCluster | None = None
    shares: int = 1

    @property
    def workers(self) -> int:
        """How many processes there are."""
        return 1 if self.cluster is None else len(self.cluster.names)

    @property
    def number(self) -> int:
        """The number of this worker; that of the chief, which writes and tells of the run, is 0."""
        return 0 if self.cluster is None else self.cluster.own

    @property
    def replicas(self) -> int:
        """How many devices there are in all workers."""
        return int(self.strategy.num_replicas_in_sync)

    @property
    def facts(self) -> DeviceFacts:
        """All of it for the plan of a run."""
        return DeviceFacts(
            strategy=self.kind, workers=self.workers, worker=self.number, replicas=self.replicas
        )

    def own(self, make: Callable[[Any], TfDataset]) -> tuple[TfDataset, int]:
        """Return this worker's images, for itself alone, range after range; and how many ranges.

        ``make`` is that of `batches`.
        """
        if self.shares == 1:
            return make(None), 1
        contexts = self._contexts()
        contexts = contexts if self.workers == 1 else [contexts[self.number]]
        parts = [make(context) for context in contexts]
        return functools.reduce(lambda one, other: one.concatenate(other), parts), len(parts)

    def share(self, images: int, batch_size: int) -> Share:
        """Return what this worker has of so many images; UsageError if they can't be shared out."""
        context = tf.distribute.InputContext(self.workers, self.number, self.replicas)
        return Share.of(context, images, batch_size)

    def batches(self, make: Callable[[Any], TfDataset], *, ahead: bool) -> Any:
        """Return the batches that each replica is given its part of.

        ``make`` returns them for a ``tf.distribute.InputContext``, or for None all of them. With
        ``ahead`` the first ones are made as soon as they are iterated over.
        """
        if self.kind is StrategyKind.ONE:
            if self.shares == 1:
                return make(None)
            # What so many workers have together.
            parts = [make(context) for context in self._contexts()]
            joined = plain(
                lambda *pairs: tuple(tf.concat(one, 0) for one in zip(*pairs, strict=True))
            )
            return tf.data.Dataset.zip(*parts).map(joined)

        def endless(context: Any) -> TfDataset:
            batches, options = make(context), tf.data.Options()
            options.experimental_warm_start = ahead
            # Before each step of a dataset that may end, TensorFlow would ask all workers whether
            # theirs did. All of ours have as many steps.
            return batches.concatenate(empty_batch(batches).repeat()).with_options(options)

        return self.strategy.distribute_datasets_from_function(endless)

    def _contexts(self) -> list[Any]:
        shares = range(self.shares)
        return [tf.distribute.InputContext(self.shares, one, self.shares) for one in shares]

    def ranges(self, images: int) -> list[tuple[int, int]]:
        """Return the ranges of this worker's images that are shuffled each by itself, from 0."""
        if self.workers > 1:
            return [
                (0, Share.of(self._contexts()[self.number], images, self.workers).images(images))
            ]
        return [Share.of(one, images, self.shares).bounds(images) for one in self._contexts()]

    def part_out(self, values: Any, labels: Any, share: Share) -> Batch:
        """Return this worker's part of a batch, arrays, with a part of it for each replica."""
        if self.kind is StrategyKind.ONE:
            return values, labels
        ends = [len(labels) * one // share.replicas for one in range(share.replicas + 1)]

        def part(array: Any, context: Any) -> Tensor:
            own = context.replica_id_in_sync_group % share.replicas
            return tf.constant(array[ends[own] : ends[own + 1]])

        parts = self.strategy.experimental_distribute_values_from_function
        return tuple(parts(functools.partial(part, one)) for one in (values, labels))

    def gather(self, *values: int) -> list[tuple[int, ...]]:
        """Return what each worker has given, in the order of workers; all of them must ask."""
        if self.workers == 1:
            return [values]
        table = np.zeros((self.workers, len(values)), np.int64)
        table[self.number] = values
        rows = _adding_up(self.strategy, self.replicas // self.workers)(table).numpy()
        return [tuple(int(value) for value in row) for row in rows]

    def check_same(self, *facts: int) -> None:
        """Check that all workers have the same facts of a run; UsageError names who has others."""
        found = self.gather(*facts)
        if self.cluster is not None and (
            other := [n for n, one in enumerate(found) if one != facts]
        ):
            names = ", ".join(map(self.cluster.describe, other))
            raise UsageError(
                f"options, dataset or checkpoint differ from those of {names}",
                hint="start all workers with the same options and files",
            )

    @contextmanager
    def naming_lost_workers(self) -> Iterator[None]:
        """Turn TensorFlow's errors about workers that are gone into one that names them."""
        try:
            yield
        except _LOST as error:
            if self.cluster is None:
                raise
            named = {f"{job} {index}" for job, index in _TASK.findall(str(error))}
            names, own = self.cluster.names, self.cluster.own
            lost = [n for n, name in enumerate(names) if name in named and n != own]
            # Where TensorFlow names none, or this one alone, who is gone does not answer.
            lost = self.cluster.missing() or lost
            if not lost:
                raise ClusterError(
                    f"the workers lost their connection: {reason_of(error)}"
                ) from error
            raise ClusterError(
                f"{' and '.join(map(self.cluster.describe, lost))} ended during the run",
                hint="see its output for the cause; use --resume on all workers to continue from "
                "the checkpoint in --out",
            ) from error


@functools.cache  # a function of its own for each call would be traced each time
def _adding_up(strategy: Any, local: int) -> Any:
    """Return a function that adds up int64 [workers, n], of each worker one, over all of them."""

    def add_up(table: Tensor) -> Tensor:
        context = tf.distribute.get_replica_context()
        # One replica of each worker has its values, and the others have zeros.
        first = tf.equal(context.replica_id_in_sync_group % local, 0)
        own = tf.where(first, table, tf.zeros_like(table))
        return context.all_reduce(tf.distribute.ReduceOp.SUM, own)

    def run(table: Tensor) -> Tensor:
        return strategy.experimental_local_results(strategy.run(add_up, (table,)))[0]

    return tf.function(run, [tf.TensorSpec([None, None], tf.int64)], autograph=False)


def open_devices(kind: StrategyKind, worker_timeout: float, shares: int | None = None) -> Devices:
    """Open what a strategy is for, before anything else is done with TensorFlow.

    ``shares`` is in how many ranges images are shuffled; None is one for each worker.

    Raises:
        UsageError: there are no such devices, or TF_CONFIG makes no sense.
        ClusterError: a worker has not come within so many seconds.
    """
    cluster = None if kind in (StrategyKind.ONE, StrategyKind.MIRRORED) else find_workers()
    if kind is StrategyKind.AUTO:
        several = cluster is not None and len(cluster.names) > 1
        gpus = 0 if several else len(tf.config.list_physical_devices("GPU"))
        found = StrategyKind.MIRRORED if gpus > 1 else StrategyKind.ONE
        kind = StrategyKind.MULTI_WORKER if several else found
    if kind is StrategyKind.ONE:
        return Devices(kind=kind, strategy=tf.distribute.get_strategy(), shares=shares or 1)
    workers = 1 if kind is StrategyKind.MIRRORED or cluster is None else len(cluster.names)
    if shares not in (None, workers):
        raise UsageError(f"--shares {shares} requires a single device")
    if kind is StrategyKind.MIRRORED:
        return _mirrored()
    if cluster is None:
        raise UsageError(
            f"--strategy multi-worker requires {VARIABLE} in the environment",
            hint="a scheduler such as Kubeflow sets it on each worker",
        )
    return _multi_worker(os.environ[VARIABLE], cluster, worker_timeout)


# Once in a process: collectives of a second strategy would take those of the first for theirs.
@functools.cache
def _mirrored() -> Devices:
    """Return all GPUs; without any, the CPU if the program has made several logical ones of it."""
    devices = tf.config.list_logical_devices("GPU")
    processors = tf.config.list_logical_devices("CPU")
    if not devices and len(processors) > 1:
        devices = processors
    if not devices:
        raise UsageError(
            "--strategy mirrored requires a GPU",
            found=f"{len(processors)} CPU",
            hint="use --strategy one to train on it",
        )
    strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
    return Devices(kind=StrategyKind.MIRRORED, strategy=strategy)


@functools.cache
def _multi_worker(_text: str, cluster: WorkerCluster, timeout: float) -> Devices:
    cluster.wait_for_all(timeout)
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        raise ClusterError(f"the workers can't start together: {reason_of(error)}") from error
    return Devices(
        kind=StrategyKind.MULTI_WORKER,
        strategy=strategy,
        cluster=cluster,
        shares=len(cluster.names),
    )
