"""Packages that only an extra installs, and the error that names the extra."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import NoReturn

from tfrtool.errors import UsageError

_PACKAGES = {"hf": "huggingface_hub", "ray": "Ray", "tensorflow": "TensorFlow"}
"""The main package of each extra, as errors name it."""

KERAS_MODELS = "Keras models"
"""What training, evaluating and predicting require TensorFlow for."""


def missing_extra(what: str, extra: str, package: str | None = None) -> UsageError:
    """Return the error for something that requires an extra which is not installed.

    Args:
        what: what requires it, in the plural.
        extra: name of the extra.
        package: the missing package, if it may be another than the main one of the extra.
    """
    missing = package or _PACKAGES[extra]
    hint = f'run pip install "tfrtool[{extra}]"'
    return UsageError(f"{what} require {missing}, which is not installed", hint=hint)


def has_tensorflow() -> bool:
    """Return whether TensorFlow is installed, without loading it."""
    return find_spec("tensorflow") is not None


def require_tensorflow(what: str) -> None:
    """Raise a `UsageError` for something, named in the plural, if TensorFlow is not installed."""
    if not has_tensorflow():
        raise missing_extra(what, "tensorflow")


def without_tensorflow(name: str) -> Callable[..., NoReturn]:
    """Return a stand-in for a public function whose module needs TensorFlow.

    With it, ``from tfrtool import *`` works everywhere. A call raises the error of
    `require_tensorflow`.
    """

    def function(*_: object, **__: object) -> NoReturn:
        raise missing_extra(KERAS_MODELS, "tensorflow")

    function.__name__ = name
    return function
