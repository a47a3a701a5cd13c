"""A process that has TensorFlow, for all tests that need commands of their own which have it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.forking import Forking


@pytest.fixture(scope="session")
def forking() -> Iterator[Forking]:
    """Give what starts commands that write, without loading TensorFlow for each of them."""
    started = Forking()
    yield started
    started.end()
