"""A model that a function of the user's builds, or a ``keras.Model`` that is there."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfrtool.errors import UsageError, reason_of
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.training.models.saved_model import CORE

_TAKES = "a function of image size and number of classes that returns a keras.Model"

Build = Callable[[int, int], Any]
"""A function of image size in pixels and number of classes; it returns a ``keras.Model``."""


def find_function(text: str) -> Build:
    """Return the function that ``package.module:function`` or ``file.py:function`` names.

    A module is looked for where Python looks, and last in the current directory.

    Raises:
        UsageError: there is no such module, file or function, or it can't be imported.
    """
    place, _, name = text.rpartition(":")
    try:
        if place.endswith(".py"):
            module = _from_file(Path(place))
        else:
            with _current_directory_last():
                module = importlib.import_module(place)
    except Exception as error:  # whatever the user's own code raises
        raise UsageError(f"--model {text} can't be imported: {_told(error)}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise UsageError(f"--model {text}: no function {name!r}", expected=_TAKES)
    function: Build = found
    return function


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise FileNotFoundError("no such file")
    module = importlib.util.module_from_spec(spec)
    # Where Keras finds the classes of its layers again; but a json.py takes no library's place.
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) != spec.origin:
        raise ImportError(f"a module {path.stem!r} is already loaded: rename the file")
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def _current_directory_last() -> Iterator[None]:
    sys.path.append("")
    try:
        yield
    finally:
        sys.path.remove("")


def build_own(build: Any, name: str, image_size: int, classes: int) -> tuple[Any, Sequence[Any]]:
    """Return a model of the user's, from rescaled images to probabilities, and its layers.

    It is tried on an image, and saved and loaded once, before time is spent on training it.

    Args:
        build: the function, or a ``keras.Model``.
        name: what it is called in errors.
        image_size: pixels both ways.
        classes: how many there are.

    Raises:
        UsageError: it raises, returns something else, takes or gives something else, or can't be
            loaded again.
    """
    model = build
    if not isinstance(build, keras.Model):
        try:
            model = build(image_size, classes)
        except Exception as error:  # whatever the user's own code raises
            raise UsageError(f"{name} raised {_told(error)}") from error
    elif keras.config.dtype_policy().compute_dtype != "float32":
        raise UsageError(
            "--precision does not apply to a keras.Model: pass a function that builds it"
        )
    if not isinstance(model, keras.Model):
        raise UsageError(
            f"{name} did not return a keras.Model", expected=_TAKES, found=type(model).__name__
        )
    inputs = keras.Input((image_size, image_size, 3))
    if keras.config.dtype_policy().compute_dtype != "float32":
        _end_in_float32(model.layers)
    try:
        outputs = model(inputs)
        if outputs.dtype != "float32":
            outputs = keras.layers.Activation("linear", dtype="float32", name="float32")(outputs)
        shape = tuple(outputs.shape)
    except Exception as error:  # Keras raises anything where shapes don't fit
        raise UsageError(
            f"{name} can't process images of {image_size} pixels: {reason_of(error)}",
            expected=f"float32 [batch, {image_size}, {image_size}, 3]",
        ) from error
    if shape != (None, classes):
        raise UsageError(
            f"the outputs of {name} don't match the number of classes",
            expected=f"[batch, {classes}]",
            found=str([*("batch" if size is None else size for size in shape)]).replace("'", ""),
        )
    core = keras.Model(inputs, outputs, name=CORE)
    _try_out(core, name, image_size)
    return core, model.layers


def _end_in_float32(layers: Sequence[Any]) -> None:
    """Have the last layer that has weights, and those after it, compute in float32."""
    last = max((number for number, one in enumerate(layers) if one.weights), default=0)
    for layer in layers[last:]:
        layer.dtype_policy = "float32"


def _try_out(core: Any, name: str, image_size: int) -> None:
    """Look whether outputs are probabilities, and whether the model can be saved and loaded."""
    images = np.full((2, image_size, image_size, 3), 0.5, np.float32)
    outputs = np.asarray(core(images, training=False))
    if not (np.isfinite(outputs).all() and (outputs >= 0).all() and (outputs <= 1).all()):
        raise UsageError(
            f"{name} does not return probabilities",
            expected="numbers from 0 to 1, as from softmax (or sigmoid, for multi-label)",
            found=f"{outputs.min():.3g} to {outputs.max():.3g}",
        )
    with ScratchFolder() as folder:
        path = Path(folder, "model.keras")
        try:
            core.save(path)
            keras.models.load_model(path, compile=False, safe_mode=True)
        except Exception as error:  # Keras raises anything where a layer is not its own
            reason = reason_of(error)
            if "`Lambda` layer" in reason:  # Keras' paragraph on what such a layer might do
                reason = "its Lambda layer is not safe to load"
            raise UsageError(
                f"{name} can't be loaded after it is saved: {reason}",
                hint="give custom layers get_config and "
                "@keras.saving.register_keras_serializable()",
            ) from error


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {reason_of(error)}"
