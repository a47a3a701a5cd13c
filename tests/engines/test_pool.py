"""Work on several shards at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfrtool.engines.pool import map_shards
from tfrtool.errors import ShardError


def _size(path: Path) -> tuple[str, int, int]:
    return path.name, path.stat().st_size, os.getpid()


def _die(path: Path) -> int:
    if path.name == "1":
        os._exit(1)
    return 0


def _refuse(path: Path) -> int:
    raise ShardError("refused", path=path)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Five files of 0 to 4 bytes."""
    paths = [tmp_path / str(number) for number in range(5)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(number))
    return paths


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order(paths: list[Path], workers: int) -> None:
    """Results are in the order of the shards, from this process alone or from others."""
    results = list(map_shards(_size, paths, workers, worth=1))
    assert [(name, size) for name, size, _ in results] == [(str(n), n) for n in range(5)]
    assert ({pid for _, _, pid in results} == {os.getpid()}) is (workers == 1)


@pytest.mark.parametrize("in_order", [True, False])
def test_each_task_is_done_once(paths: list[Path], in_order: bool) -> None:
    """There is one result per task, in the order of the tasks or as they are done."""
    sizes = [size for _, size, _ in map_shards(_size, paths * 9, 2, worth=1, in_order=in_order)]
    expected = [0, 1, 2, 3, 4] * 9
    assert sizes == expected if in_order else sorted(sizes) == sorted(expected)


def test_small_shards_stay_in_one_process(paths: list[Path]) -> None:
    """Processes are not started for ten bytes."""
    assert {pid for _, _, pid in map_shards(_size, paths, 2)} == {os.getpid()}


def test_a_dead_worker_is_an_error(paths: list[Path]) -> None:
    """A process that dies is an error that names a shard, and nothing hangs."""
    with pytest.raises(ShardError) as caught:
        list(map_shards(_die, paths, 2, worth=1))
    assert caught.value.path is not None


def test_an_error_keeps_its_facts(paths: list[Path]) -> None:
    """An error of a worker arrives with its path."""
    with pytest.raises(ShardError) as caught:
        list(map_shards(_refuse, paths, 2, worth=1))
    assert caught.value.path == str(paths[0])
    assert caught.value.what == "refused"
