"""Tests of reading run twice: with the functions in C, and with Python in their place."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from tfrtool.records import frames

_READ_TWICE = {
    *("test_reader", "test_damage", "test_count", "test_index", "test_random_access"),
    *("test_repair", "test_uncertainty", "test_search_budget", "test_large_records", "test_writer"),
}


@pytest.fixture(autouse=True, scope="module")
def read_in(request: pytest.FixtureRequest) -> Iterator[None]:
    """Read in what the parameter names, if there is one."""
    if getattr(request, "param", "C") == "C":
        yield
        return
    with patch.object(frames, "native", None):
        yield


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of some modules twice, if there are functions in C."""
    module = metafunc.module.__name__.rpartition(".")[2]
    if module in _READ_TWICE and frames.native is not None:
        metafunc.parametrize("read_in", ["C", "Python"], indirect=True, scope="module")
