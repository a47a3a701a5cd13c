"""A saved model in formats of other programs: pixels from 0 to 255 in, probabilities out."""

import contextlib
import io
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.errors import TrainingError, UsageError, WriteError, os_errors_as, reason_of
from tfrtool.storage.atomic_files import move, temporary_folder
from tfrtool.training.saved_model import SavedModel

EXPORT_FILES = {"saved_model": "saved_model", "tflite": "model.tflite"}
"""Names of the exports, by format."""

_SAVED_MODEL = frozenset({"saved_model.pb", "fingerprint.pb", "variables", "assets"})
"""What TensorFlow writes to the folder of a SavedModel."""

_TOLERATED, _TOLERATED_MIXED = 1e-3, 2e-2
"""Largest difference between probabilities: kernels sum in another order, and bfloat16 numbers
have 8 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """An exported model, and the largest difference of its outputs on one image.

    For outputs above 1, it is relative to them.
    """

    kind: str
    path: Path
    difference: float


def export_model(model: SavedModel, kind: str, image: Any, *, mixed: bool) -> Exported:
    """Export a model next to its file, once it gives the same probabilities for an image.

    An existing export is replaced. The image is uint8 [1, height, width, channels].

    Raises:
        UsageError: the existing folder has other files in it, too.
        TrainingError: it can't be exported, or gives other probabilities.
        WriteError: it can't be written.
    """
    target = model.path.parent / EXPORT_FILES[kind]
    _check_replaceable(target)
    pixels = tf.cast(image, tf.float32)
    expected = np.asarray(model.whole(pixels, training=False))
    with os_errors_as(WriteError, target, "can't be written"), temporary_folder(target) as folder:
        try:
            with _quiet():
                export = _saved_model if kind == "saved_model" else _tflite
                found = export(model.whole, folder / target.name, pixels)
        except OSError:
            raise
        except Exception as error:  # TensorFlow raises anything where it can't convert
            what = f"the model can't be exported as {kind}: {_reason(error)}"
            raise TrainingError(what, path=target) from error
        difference = float((np.abs(found - expected) / np.maximum(np.abs(expected), 1)).max())
        tolerated = _TOLERATED_MIXED if mixed else _TOLERATED
        if not difference <= tolerated:
            raise TrainingError(
                f"the exported {kind} returns other values than the model",
                path=target,
                expected=f"a difference of at most {tolerated:g}",
                found=f"{difference:.3g}",
            )
        if os.path.lexists(target):
            move(target, folder / "before")
        move(folder / target.name, target)
    return Exported(kind=kind, path=target, difference=difference)


def _check_replaceable(target: Path) -> None:
    """Raise a `UsageError` if a folder is not only an earlier export."""
    if target.is_dir() and not target.is_symlink():
        names = {path.name for path in target.iterdir()} - _SAVED_MODEL
        if names:
            what = f"contains files that tfrtool did not write, such as {min(names)}"
            raise UsageError(what, path=target, hint="move them away")


def _saved_model(whole: Any, path: Path, pixels: Any) -> Any:
    whole.export(str(path), format="tf_saved_model", verbose=False)
    loaded = tf.saved_model.load(str(path))  # its variables live as long as it does
    return np.asarray(loaded.serve(pixels))


def _tflite(whole: Any, path: Path, pixels: Any) -> Any:
    path.write_bytes(tf.lite.TFLiteConverter.from_keras_model(whole).convert())
    interpreter = tf.lite.Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], pixels.numpy())
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def _reason(error: Exception) -> str:
    """Return the operations that TFLite lacks, or else the error's own reason."""
    lacking = sorted(set(re.findall(r"'tf\.(\w+)' op is neither", str(error))))
    return f"TFLite does not support {', '.join(lacking)}" if lacking else reason_of(error)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the converters' output on stdout, as warnings and on file descriptor 2."""
    with contextlib.ExitStack() as stack:
        saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        for descriptor in (saved, nowhere):
            stack.callback(os.close, descriptor)
        os.dup2(nowhere, 2)
        stack.callback(os.dup2, saved, 2)
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        warnings.simplefilter("ignore")  # the interpreter is to move to another package
        yield
