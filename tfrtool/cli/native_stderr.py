"""Keeping TensorFlow's chatter off the terminal while it starts."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

__all__ = ["start_tensorflow"]


def start_tensorflow(*, debug: bool = False) -> None:
    """Import TensorFlow, without the lines about devices that its libraries write to stderr.

    TensorFlow 2.21 writes some before any log level counts, straight to the file descriptor.
    They are shown where the import fails, or with ``debug``.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with contextlib.nullcontext() if debug else _held_stderr():
        import tensorflow as tf

        tf.config.list_physical_devices()


@contextlib.contextmanager
def _held_stderr() -> Iterator[None]:
    """Hold back what is written to file descriptor 2; give it out if the block fails."""
    sys.stderr.flush()
    try:
        saved = os.dup(2)
    except OSError:  # stderr is closed: there is nothing to keep clean
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        failed = True
        try:
            yield
            failed = False
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            if failed:
                held.seek(0)
                os.write(2, held.read())
