"""The shards of a split in a store, for one pipeline: fetched ahead of use, in its order."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import tensorflow as tf

from tfrtool.errors import TfrtoolError, UsageError
from tfrtool.loading.dataset.dataset import Split
from tfrtool.loading.pipeline.python_calls import plain, python_call, records_of
from tfrtool.loading.pipeline.tensors import Tensor, TfDataset
from tfrtool.storage.remote.shard_cache import FETCHED_AT_ONCE, NoRoomError, ShardCache

_OPENED = 3
"""For each shard that an interleave takes records from at a time, so many are open: TensorFlow
opens two more ahead, if it reads them in parallel."""

_PATIENCE = 10.0
"""Seconds that a shard which is needed waits for room."""


class RemoteShards:
    """Copies of a split's shards: each is kept from the time it is announced until it is read.

    Attributes:
        parallel: whether there is room for what a parallel interleave opens; the order of records
            is the same without.
        waiting: how many threads may wait for a copy at once.
    """

    def __init__(
        self, cache: ShardCache, split: Split, cycle: int, check: Callable[[int, Path], None]
    ) -> None:
        """Plan how many are fetched ahead of those that are read, ``cycle`` at a time.

        ``check`` is called with a shard's number and its copy before that is read for the first
        time.
        """
        self._announced: dict[int, Future[BinaryIO]] = {}
        self._open: list[tuple[int, BinaryIO]] = []
        sizes = [path.stat().st_size for path in split.shards]
        cycle, room = min(cycle, len(sizes)), cache.max_bytes // max(*sizes, 1)
        if room < cycle:
            several = f"{cycle} shards at a time" if cycle > 1 else "a shard"
            less = ", or use --cycle-length 1 to read one at a time" if cycle > 1 else ""
            raise UsageError(
                f"the shard cache is too small to read {several}",
                path=cache.folder,
                expected=f"at least {cycle * max(sizes):,} bytes",
                found=f"{cache.max_bytes:,}",
                hint=f"raise --shard-cache-size{less}",
            )
        # Training and validation may be under way at once.
        self.parallel = sum(sizes) <= cache.max_bytes or 2 * (_OPENED + 1) * cycle <= room
        self._ahead = cycle if self.parallel else min(cycle, room - cycle)
        self._most = self.waiting = _OPENED * cycle if self.parallel else cycle
        self._cache, self._shards, self._check = cache, split.shards, check
        self._checked: set[int] = set()
        self._lock = threading.RLock()
        self._pool = ThreadPoolExecutor(FETCHED_AT_ONCE, thread_name_prefix="tfrtool-shards")
        cache.holders.add(self)

    def __del__(self) -> None:
        for future in self._announced.values():
            future.add_done_callback(_close)
        for _, file in self._open:
            file.close()

    def ahead(self, numbers: TfDataset, following: TfDataset | None = None) -> TfDataset:
        """Return the numbers of shards, int64 [], which are fetched from when they are asked for.

        That is some time before they are used. After them, the ``following`` are fetched that an
        epoch begins with which comes next.
        """
        if not self._ahead:
            return numbers
        announce = plain(lambda number: python_call(self._announce, (number,), tf.int64, []))
        announced = numbers.map(announce)
        if following is not None:
            others = following.take(self._ahead).map(announce)
            announced = announced.concatenate(others.filter(plain(lambda _: False)))
        return announced.prefetch(self._ahead)

    def records(
        self, number: Tensor, compression: str, cut: Callable[[TfDataset], TfDataset]
    ) -> TfDataset:
        """Return what ``cut`` leaves of a shard's records, string [].

        At its end, let go of the copy.
        """
        path = python_call(self._take, (number,), tf.string, [])
        release = plain(lambda number: python_call(self._release, (number,), tf.string, []))
        end = tf.data.Dataset.from_tensors(number).map(release).filter(plain(lambda _: False))
        return cut(records_of(path, compression)).concatenate(end)

    def _announce(self, number: Tensor) -> Tensor:
        key = int(number)
        with self._lock:
            if key not in self._announced:
                self._announced[key] = self._pool.submit(self._fetch, key)
            # More were announced only for iterators that were left.
            for old in [*self._announced][: -2 * self._ahead - 1]:
                self._announced.pop(old).add_done_callback(_close)
        return number

    def _fetch(self, number: int) -> BinaryIO:
        alive = threading.main_thread().is_alive
        file = self._cache.fetch(self._shards[number], lambda: not alive())
        try:
            if number not in self._checked:
                self._check(number, Path(file.name))
                self._checked.add(number)
        except BaseException:
            file.close()
            raise
        return file

    def _take(self, number: Tensor) -> bytes:
        """Return the path of a copy, which is there now."""
        key = int(number)
        with self._lock:
            announced = self._announced.pop(key, None)
        try:
            file = self._fetched(key, announced)
        except TfrtoolError as error:
            self._cache.failure = error
            raise ValueError(str(error)) from error  # an InvalidArgumentError, in TensorFlow
        with self._lock:
            self._open.append((key, file))
            for _, left in self._open[: -self._most]:
                left.close()
            del self._open[: -self._most]
        return os.fsencode(file.name)

    def _fetched(self, number: int, announced: "Future[BinaryIO] | None") -> BinaryIO:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                return self._fetch(number) if announced is None else announced.result()
            except NoRoomError:
                announced = None
                if time.monotonic() > end:
                    raise
                for holder in [*self._cache.holders]:
                    holder.give_back()
                time.sleep(0.1)

    def give_back(self) -> None:
        """Let go of what is not needed yet."""
        with self._lock:
            for number in [key for key, future in self._announced.items() if future.done()]:
                _close(self._announced.pop(number))

    def _release(self, number: Tensor) -> bytes:
        with self._lock:
            for place, (key, file) in enumerate(self._open):
                if key == number:
                    file.close()
                    del self._open[place]
                    break
        return b""


def _close(future: "Future[BinaryIO]") -> None:
    """Let go of a copy as soon as it is there."""
    if future.exception() is None:
        future.result().close()
