"""Rows in order, in memory and in files."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.errors import WriteError
from tfrtool.storage import sorted_rows
from tfrtool.storage.sorted_rows import SortedRows

__all__ = ["keep_little_in_memory"]

KEYS = st.one_of(
    st.text(st.characters(), max_size=3),  # surrogates included: names that are not UTF-8
    st.sampled_from(["\udce9", "\uffee", "\U0001f436", "\0", "a\0", "a"]),
)
ROWS = st.lists(st.tuples(KEYS, st.integers(-(2**63), 2**63 - 1), st.integers()), max_size=40)


def keep_little_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rows go to files as soon as there are a few."""
    monkeypatch.setattr(sorted_rows, "_BUFFERED", 8)
    monkeypatch.setattr(sorted_rows, "_BLOCK", 3)


@pytest.mark.parametrize("few", [False, True], ids=["in memory", "in files"])
@given(rows=ROWS, by=st.sampled_from([1, 2]))
def test_rows_are_sorted(rows: list[tuple[str, int, int]], by: int, *, few: bool) -> None:
    """Rows come as `sorted` has them, as often as they are asked for, and by their places."""
    with pytest.MonkeyPatch.context() as patch:
        if few:
            keep_little_in_memory(patch)
        found = SortedRows(by=by, rows=rows)
        wanted = sorted(rows, key=lambda row: row[:by])
        assert [*found] == [*found] == wanted
        assert len(found) == len(rows)
        assert found[3:7] == wanted[3:7]
        assert [found[at] for at in range(0, len(rows), 5)] == wanted[::5]


def test_rows_that_are_sorted_already_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that come in order are as they were; those equal in their key keep their order."""
    keep_little_in_memory(monkeypatch)
    rows = [(number // 3, -number) for number in range(100)]
    assert [*SortedRows(rows=rows)] == rows
    assert [*SortedRows(rows=[*rows, (5, 7)])] == sorted([*rows, (5, 7)], key=lambda row: row[0])


def test_threads_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads may read, each from its own place."""
    keep_little_in_memory(monkeypatch)
    found = SortedRows(rows=[(number,) for number in reversed(range(2000))])
    with ThreadPoolExecutor(4) as pool:
        parts = [*pool.map(lambda at: found[at : at + 100], range(0, 2000, 100))]
    assert [row[0] for part in parts for row in part] == [*range(2000)]


@pytest.fixture
def no_room() -> Iterator[None]:
    """Let no file of this process have more than 64 kB, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("no_room")
def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    """Where there is no room, it is an error that names the folder; nothing is left there."""
    text = bytes(range(256)) * 4
    with pytest.raises(WriteError, match="temporary files can't be written") as caught:
        [*SortedRows(tmp_path, rows=((number * 7919 % 65_537, text) for number in range(90_000)))]
    assert caught.value.path == str(tmp_path)
    del caught
    assert [*tmp_path.iterdir()] == []
