"""The backend of Keras, which must be TensorFlow."""

import contextlib
import os
import sys
from pathlib import Path

from tfrtool.errors import UsageError, printable
from tfrtool.storage.json_values import read_json

_BACKEND = "tensorflow"


def check_backend() -> None:
    """Raise a `UsageError` if Keras has another backend, or will have it once it is imported."""
    keras = sys.modules.get("keras")
    backend = _configured() if keras is None else keras.config.backend()
    if backend != _BACKEND:
        what = f"Keras is set to the backend {printable(backend)[:100]!r}, but tfrtool needs "
        raise UsageError(f"{what}{_BACKEND!r}", hint=f"set KERAS_BACKEND={_BACKEND}")


def _configured() -> str:
    """Return the backend as Keras chooses it: by the environment, else by its configuration."""
    if backend := os.environ.get("KERAS_BACKEND"):
        return backend
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # Keras ignores it, too
        home = os.environ.get("KERAS_HOME")
        folder = Path.home() / ".keras" if home is None else Path(home)
        config = read_json(folder / "keras.json")
        if isinstance(config, dict):
            return str(config.get("backend", _BACKEND))
    return _BACKEND
