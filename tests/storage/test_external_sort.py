"""Sorting on the disk, and numbers in mapped files."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.errors import WriteError
from tfrtool.storage.scratch import external_sort
from tfrtool.storage.scratch.external_sort import (
    ExternalSort,
    ScratchFile,
    column,
    forgetting,
    pieces,
    rising,
)

__all__ = ["keep_little_in_memory"]

ROWS = st.lists(st.tuples(st.text(max_size=3), st.integers()), max_size=80)


def keep_little_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs, chunks and mapped files be as small as they can."""
    for name, value in {"RUN": 8, "_CHUNK": 4, "_MERGED": 3, "_SMALL": 40}.items():
        monkeypatch.setattr(external_sort, name, value)


@pytest.fixture(scope="module", autouse=True)
def _little() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        keep_little_in_memory(patch)
        yield


@given(ROWS, ROWS, st.booleans())
def test_rows_come_sorted(
    given: list[tuple[str, int]], added: list[tuple[str, int]], settled: bool
) -> None:
    """Rows that are given or added come as `sorted` has them, as often as they are asked for."""
    rows = ExternalSort(None, given)
    for row in added:
        rows.add(row)
    if settled:
        rows.settle()
    assert [*rows] == [*rows] == sorted([*given, *added])
    assert len(rows) == len(given) + len(added)


@given(st.lists(st.lists(st.integers(0, 2**63), max_size=20), max_size=12))
def test_positions_are_looked_up_rising(groups: list[list[int]]) -> None:
    """Each position comes once, with its place among all; those taken together rise."""
    pairs, taken = [*rising(groups)], [*pieces(groups)]
    together = [[*chain.from_iterable(some)] for some in taken]
    assert all(0 < len(some) <= external_sort.RUN for some in together)
    assert [at for at, _ in sorted(pairs)] == [*range(len(pairs))]
    assert [position for _, position in sorted(pairs)] == [*chain.from_iterable(groups)]
    rest = iter(position for _, position in pairs)
    assert [[*islice(rest, len(some))] for some in together] == [*map(sorted, together)]


def test_no_file_is_left(tmp_path: Path) -> None:
    """What is on the disk has no name there, even while it is used."""
    rows = ExternalSort(tmp_path, ((number % 7, number) for number in range(1000)))
    numbers = column("Q", 1000, tmp_path)
    assert [*tmp_path.iterdir()] == []
    for at, (_, number) in enumerate(forgetting(rows, numbers)):
        numbers[at] = number
    assert sorted(numbers) == [*range(1000)]
    assert [*tmp_path.iterdir()] == []


@pytest.fixture
def no_room() -> Iterator[None]:
    """Let no file of this process have more than 64 kB, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("no_room")
def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    """Where there is no room, it is an error that names the folder, and no signal later."""
    file = ScratchFile(tmp_path)
    fills: list[Callable[[], object]] = [
        lambda: column("Q", 100_000, tmp_path),
        lambda: ExternalSort(tmp_path, ((number,) for number in range(10_000))),
        lambda: [file.append(bytes(99)) for _ in range(10_000)],
    ]
    for fill in fills:
        with pytest.raises(WriteError, match="temporary files can't be written") as caught:
            fill()
        assert caught.value.path == str(tmp_path)
