"""Planning a cache."""

from __future__ import annotations

import sys

import pytest

from tfrtool.loading.memory import available_memory, cache_bytes


def test_cache_is_a_byte_a_channel() -> None:
    """A thousand images of 224 x 224 pixels take 150,528 bytes each."""
    assert cache_bytes(1000, 224) == 150_528_000


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_free_memory_is_plausible() -> None:
    """On Linux there is a number, of at least some megabytes."""
    free = available_memory()
    assert free is not None
    assert free > 10 * 2**20
