"""What the tests of the loader share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def _fast_graphs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Don't optimise graphs that run for milliseconds; `real_graphs` are as users have them."""
    if "not tf" in str(request.config.getoption("markexpr")):
        yield
        return
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


@pytest.fixture
def real_graphs() -> Iterator[None]:
    """Let TensorFlow optimise graphs as it does for users."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
