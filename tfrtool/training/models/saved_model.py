"""A whole model in one file: pixels in, probabilities out, and what the probabilities mean."""

import json
import os
import re
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrtool.errors import WeightsError, os_reason, printable, reason_of
from tfrtool.loading.labels import Task
from tfrtool.loading.options import Rescale
from tfrtool.storage.arguments import as_local_path
from tfrtool.storage.limits import MAX_METADATA_BYTES
from tfrtool.storage.opening import open_regular

CORE = "core"
"""The name of the layer of a whole model that takes rescaled images."""

MODEL_FILE = "model.keras"
"""What the file is called in the directory of a run."""

_CONFIG = "config.json"
"""The layers, as Keras writes them."""

_MEMBER = "tfrtool.json"
"""A .keras file is a zip archive; Keras passes over members that it doesn't know."""

_FORM = {
    "format": 1,
    "resize": {
        "method": "bilinear",
        "antialias": False,
        "keeps_aspect_ratio": False,
        "dtype": "uint8",
    },
}
"""The format of that, and how images become those that the model takes: as ``tf.image.resize`` does
by default, rounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What a model's layers don't tell."""

    model: str  # its name on the command line
    image_size: int  # pixels both ways, to which images are resized for the model
    class_names: tuple[str, ...]  # by number
    task: Task = Task.SINGLE  # of models from before there was another

    def to_json(self) -> Mapping[str, Any]:
        """Return the object that is kept in the file."""
        return asdict(self) | {"task": self.task.value} | _FORM

    @classmethod
    def from_json(cls, data: Any) -> "ModelFacts":
        """Make it again from the object in a file; anything else is a ValueError."""
        if not isinstance(data, dict) or {name: data.get(name) for name in _FORM} != _FORM:
            raise ValueError("another version of tfrtool wrote it")
        model, size, names, task = (data.get(field.name) for field in fields(cls))
        if not isinstance(model, str) or type(size) is not int or size < 1:
            raise ValueError("the model's name or image size is missing")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("the class names are missing")
        task = Task(Task.SINGLE.value if task is None else task)
        if len(names) < (2 if task is Task.SINGLE else 1):
            raise ValueError("a classifier needs at least two classes")
        return cls(model=model, image_size=size, class_names=tuple(names), task=task)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedModel:
    """A model loaded from a file.

    Attributes:
        path: path of the file.
        whole: ``keras.Model`` from pixels, 0 to 255, [batch, image_size, image_size, 3], to
            probabilities, float32 [batch, classes].
        facts: image size, class names and task of the model.
    """

    path: Path
    whole: Any
    facts: ModelFacts

    @property
    def core(self) -> Any:
        """The ``keras.Model`` from rescaled images to probabilities."""
        return self.whole.get_layer(CORE)

    def graph(self) -> Any:
        """Return ``whole`` as a ``tf.function`` that accepts uint8 batches of any length."""
        shape = (None, self.facts.image_size, self.facts.image_size, 3)
        return tf.function(
            lambda pixels: self.whole(tf.cast(pixels, tf.float32), training=False),
            input_signature=[tf.TensorSpec(shape, tf.uint8)],
        )


def save_model(path: Path, core: Any, rescale: Rescale, facts: ModelFacts) -> None:
    """Save a model from pixels to probabilities and its facts in one ``.keras`` file.

    Whoever loads it needs to know nothing about rescaling. It is made of Keras' own layers and
    operations only, so that Keras loads it by itself and in safe mode.
    """
    pixels = keras.Input((facts.image_size, facts.image_size, 3), name="pixels")
    ordered = keras.ops.flip(pixels, axis=-1) if rescale.bgr else pixels
    scale, offset = (
        list(value) if isinstance(value, tuple) else value
        for value in (rescale.scale, rescale.offset)
    )
    rescaled = keras.layers.Rescaling(scale, offset, name="rescaling")(ordered)
    keras.Model(pixels, core(rescaled), name="classifier").save(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(_MEMBER, json.dumps(facts.to_json()))


def load_model(path: str | os.PathLike[str]) -> SavedModel:
    """Load a model that `train` saved.

    Args:
        path: the model's file, or a directory that contains ``model.keras``.

    Raises:
        WeightsError: the file does not exist, can't be read, was not saved by tfrtool, or has
            weights that are not finite.
    """
    path = as_local_path(path)
    if path.is_dir():
        path = path / MODEL_FILE
    facts = _read_facts(path)
    try:
        whole = keras.models.load_model(path, compile=False, safe_mode=True)
        shapes = whole.input_shape, whole.output_shape
        whole.get_layer(CORE)
    except Exception as error:  # Keras and HDF5 raise anything on a damaged file
        raise WeightsError(f"the model can't be loaded: {reason_of(error)}", path=path) from error
    expected = (None, facts.image_size, facts.image_size, 3), (None, len(facts.class_names))
    if shapes != expected:
        raise WeightsError("the model does not match its own description", path=path)
    check_finite(whole, path)
    return SavedModel(path=path, whole=whole, facts=facts)


def check_finite(model: Any, path: Path) -> None:
    """Check that no weight of a model, which a file held, is NaN or infinite.

    Raises:
        WeightsError: one is; names it.
    """
    for weight in model.weights:
        values = np.asarray(keras.ops.convert_to_numpy(weight))
        if keras.backend.is_float_dtype(weight.dtype) and not np.isfinite(values).all():
            name = printable(weight.path)[:100]
            raise WeightsError(f"the weight {name} has values that are not finite", path=path)


def _check_classes(config: Any) -> None:
    """Raise a `ValueError` if a model has layers that are neither Keras' own nor registered.

    To find them, Keras would import packages that the file names, such as keras_hub.
    """
    parts = [config]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            module, name = part.get("module"), part.get("registered_name")
            own = module is None or re.match(r"(keras|builtins)(\.|$)", str(module))
            if not own and keras.saving.get_registered_object(name) is None:
                raise ValueError(
                    f"{part.get('class_name')!r} is a custom layer: import its module {module!r}, "
                    "which must register it, before you load the model"
                )
            parts += part.values()
        elif isinstance(part, list):
            parts += part


def _read_facts(path: Path) -> ModelFacts:
    expected = f"a {MODEL_FILE} that tfrtool train wrote"
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            # Before Keras unpacks its members. It compresses none: together they are no larger
            # than the file. zipfile gives out no more of a member than it claims to have.
            size, members = file.seek(0, os.SEEK_END), archive.infolist()
            if sum(member.file_size for member in members) > size:
                raise ValueError(f"its members unpack to more than the file's {size:,} bytes")
            for member in members:
                if member.filename.endswith(".json") and member.file_size > MAX_METADATA_BYTES:
                    raise ValueError(
                        f"its member {member.filename!r} has more than {MAX_METADATA_BYTES:,} bytes"
                    )
            _check_classes(json.loads(archive.read(_CONFIG)))
            return ModelFacts.from_json(json.loads(archive.read(_MEMBER)))
    except OSError as error:
        reason = f"can't be read: {os_reason(error)}"
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError):
        reason = "not a saved model"
    except KeyError:
        reason = "it has no layers or no class names"
    except (ValueError, RecursionError) as error:
        reason = f"unusable description of the model: {error}"
    raise WeightsError(reason, path=path, expected=expected)
