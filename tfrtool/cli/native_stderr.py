"""Keeping TensorFlow's chatter off the terminal while it starts."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def starting_tensorflow() -> Iterator[None]:
    """Hold back the lines about devices that TensorFlow's libraries write when they are loaded.

    TensorFlow 2.21 writes some before any log level counts, straight to file descriptor 2. They
    are given out if the block fails.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        said = b""
        try:
            yield
        except Exception:
            held.seek(0)
            said = held.read()
            raise
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            with contextlib.suppress(OSError):  # stderr may be on a full disk
                os.write(2, said)
