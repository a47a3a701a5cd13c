"""A saved model as other programs run it: pixels from 0 to 255 in, probabilities out."""

import contextlib
import io
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.errors import TrainingError, WriteError, os_errors_as, reason_of
from tfrtool.storage.atomic_files import move, temporary_name
from tfrtool.training.models.saved_model import SavedModel
from tfrtool.training.run.train_options import Export, Precision

NAMES = {Export.SAVED_MODEL: "saved_model", Export.TFLITE: "model.tflite"}
"""Of the folder or the file beside the model."""

_TOLERATED = 1e-3
_TOLERATED_MIXED = 2e-2
"""How far a probability may be from that of the Keras model: kernels add up in another order, and
numbers of bfloat16 have 8 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was exported, and by how much its probabilities differ from the model's, at most."""

    kind: Export
    path: Path
    difference: float


def export_model(model: SavedModel, kind: Export, image: Any, precision: Precision) -> Exported:
    """Export a model beside its file; what is there of the name is replaced when it is whole.

    Before that it is run once, on an image, uint8 [1, image_size, image_size, 3].

    Raises:
        TrainingError: it can't be exported, or gives other probabilities; nothing is left of it.
        WriteError: it can't be written.
    """
    target = model.path.parent / NAMES[kind]
    pixels = tf.cast(image, tf.float32)
    expected = np.asarray(model.whole(pixels, training=False))
    mixed = precision.policy != Precision.FLOAT32.value
    tolerated = _TOLERATED_MIXED if mixed else _TOLERATED
    with os_errors_as(WriteError, target, "can't be written"), _folder_beside(target) as folder:
        made = folder / target.name
        try:
            with _quiet():
                run = _saved_model if kind is Export.SAVED_MODEL else _tflite
                found = run(model.whole, made, pixels)
        except OSError:
            raise
        except Exception as error:  # TensorFlow raises anything where it can't convert
            what = f"the model can't be exported as {kind.value}: {_reason(error)}"
            raise TrainingError(what, path=target) from error
        difference = float(np.abs(found - expected).max())
        if not difference <= tolerated:
            raise TrainingError(
                f"the exported {kind.value} returns other probabilities than the model",
                path=target,
                expected=f"a difference of at most {tolerated:g}",
                found=f"{difference:.3g}",
            )
        if os.path.lexists(target):
            move(target, folder / "before")
        move(made, target)
    return Exported(kind=kind, path=target, difference=difference)


@contextlib.contextmanager
def _folder_beside(target: Path) -> Iterator[Path]:
    folder = temporary_name(target)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _saved_model(whole: Any, made: Path, pixels: Any) -> Any:
    whole.export(str(made), format="tf_saved_model", verbose=False)
    loaded = tf.saved_model.load(str(made))  # its variables live as long as it does
    return np.asarray(loaded.serve(pixels))


def _tflite(whole: Any, made: Path, pixels: Any) -> Any:
    made.write_bytes(tf.lite.TFLiteConverter.from_keras_model(whole).convert())
    interpreter = tf.lite.Interpreter(model_path=str(made))
    interpreter.allocate_tensors()
    (given,), (taken,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.set_tensor(given["index"], pixels.numpy())
    interpreter.invoke()
    return interpreter.get_tensor(taken["index"])


def _reason(error: Exception) -> str:
    """Return the operations that TFLite lacks, or else what the error says."""
    lacking = sorted(set(re.findall(r"'tf\.(\w+)' op is neither", str(error))))
    return f"TFLite does not support {', '.join(lacking)}" if lacking else reason_of(error)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hold back what converters say: on stdout, by warnings, and straight to file descriptor 2."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")  # the interpreter is to move to another package
            yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
