"""A whole model in one file: pixels in, probabilities out, with its class names and image size."""

import json
import os
import re
import warnings
import zipfile
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import keras
import msgspec
import numpy as np
import tensorflow as tf

from tfrtool.errors import WeightsError, os_reason, printable, reason_of
from tfrtool.loading.labels import Task
from tfrtool.loading.options import Channels, ImageSize, Rescale, image_shape
from tfrtool.storage.arguments import as_local_path
from tfrtool.storage.limits import MAX_METADATA_BYTES
from tfrtool.storage.opening import open_regular
from tfrtool.training.tasks import TASKS
from tfrtool.training.train_options import HDF5, HDF5_HINT, check_backend

CORE = "core"
"""Name of the layer of a whole model that takes rescaled images."""

MODEL_FILE, BEST_MODEL_FILE = "model.keras", "model.best.keras"

_CONFIG = "config.json"
_MEMBER = "tfrtool.json"
"""A .keras file is a zip archive, in which Keras ignores members that it doesn't know."""

_RESIZE = {"method": "bilinear", "antialias": False, "keeps_aspect_ratio": False, "dtype": "uint8"}
"""How images must be resized: by ``tf.image.resize``, rounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Facts about a model that its layers don't have."""

    model: str  # its name on the command line
    image_size: ImageSize  # in pixels, to which images are resized
    class_names: tuple[str, ...]  # by class number
    task: Task = Task.SINGLE
    channels: Channels = 3
    targets: tuple[str, ...] = ()  # for regression, names of the outputs in their order

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the images."""
        return image_shape(self.image_size, self.channels)

    @property
    def outputs(self) -> int:
        """Number of values that the model returns for an image."""
        return len(self.output_names)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the classes or the numbers that the model predicts."""
        return self.targets or self.class_names or TASKS[self.task].names_by_default


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member(ModelFacts):
    format: Literal[1] = 1
    resize: dict[str, Any] = field(default_factory=lambda: _RESIZE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedModel:
    """A model loaded from a file.

    Attributes:
        path: path of the file.
        whole: ``keras.Model`` from pixels, 0 to 255, [batch, height, width, channels], to
            probabilities, float32 [batch, classes], or to numbers, float32 [batch, targets].
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
        shape = (None, *self.facts.shape)
        return tf.function(
            lambda pixels: self.whole(tf.cast(pixels, tf.float32), training=False),
            input_signature=[tf.TensorSpec(shape, tf.uint8)],
        )


def model_of_pixels(core: Any, rescale: Rescale, shape: tuple[int, int, int]) -> Any:
    """Return a model that scales pixels from 0 to 255 before a model of scaled images."""
    pixels = keras.Input(shape, name="pixels")
    ordered = keras.ops.flip(pixels, axis=-1) if rescale.bgr else pixels
    scale, offset = (
        list(value) if isinstance(value, tuple) else value
        for value in (rescale.scale, rescale.offset)
    )
    rescaled = keras.layers.Rescaling(scale, offset, name="rescaling")(ordered)
    return keras.Model(pixels, core(rescaled), name="classifier")


def save_model(path: Path, core: Any, rescale: Rescale, facts: ModelFacts) -> None:
    """Save a model from pixels to probabilities, and its facts, in one ``.keras`` file.

    It consists of Keras' own layers only, so that Keras alone loads it, in safe mode.
    """
    model_of_pixels(core, rescale, facts.shape).save(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(_MEMBER, msgspec.json.encode(_Member(**asdict(facts))))


def load_model(path: str | os.PathLike[str]) -> SavedModel:
    """Load a model that `train` saved.

    Args:
        path: the model's file, or a directory that contains ``model.keras``.

    Raises:
        UsageError: Keras has another backend than TensorFlow.
        WeightsError: the file does not exist, can't be read, was not saved by tfrtool, or has
            weights that are not finite.
    """
    check_backend()
    path = as_local_path(path)
    if path.is_dir():
        path = path / MODEL_FILE
    _check_format(path)
    facts = _read_facts(path)
    try:
        whole = keras.models.load_model(path, compile=False, safe_mode=True)
        shapes = whole.input_shape, whole.output_shape
        whole.get_layer(CORE)
    except Exception as error:  # Keras and HDF5 raise anything on a damaged file
        raise WeightsError(f"the model can't be loaded: {reason_of(error)}", path=path) from error
    expected = (None, *facts.shape), (None, facts.outputs)
    if shapes != expected:
        raise WeightsError("the model does not match its own description", path=path)
    check_finite(whole, path)
    return SavedModel(path=path, whole=whole, facts=facts)


def load_own(path: Path) -> Any:
    """Load a user's ``keras.Model`` from rescaled images to outputs, compiled if it was.

    Raises:
        WeightsError: the file does not exist, can't be read, or tfrtool saved it.
    """
    expected = "a .keras file that Keras saved"
    if _read_member(path, expected) is not None:
        raise WeightsError(
            "it is a model that tfrtool saved, not your own",
            path=path,
            hint="use it with --weights FILE and the --model that it was trained with",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the state of its optimizer isn't needed
            model = keras.models.load_model(path, safe_mode=True)
    except Exception as error:  # Keras and HDF5 raise anything on a damaged file
        raise WeightsError(f"the model can't be loaded: {reason_of(error)}", path=path) from error
    check_finite(model, path)
    return model


def is_own_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a model's file was not saved by tfrtool; `WeightsError` if it is unusable."""
    path = as_local_path(path)
    if path.is_dir():
        return False
    _check_format(path)
    return _read_member(path, "a .keras file") is None


def _check_format(path: Path) -> None:
    if path.suffix.lower() in HDF5:
        what = "models in HDF5 files are not supported"
        raise WeightsError(what, path=path, expected="a .keras file", hint=HDF5_HINT)


def check_finite(model: Any, path: Path) -> None:
    """Raise a `WeightsError` that names a weight with NaN or infinite values."""
    for weight in model.weights:
        values = np.asarray(keras.ops.convert_to_numpy(weight))
        if keras.backend.is_float_dtype(weight.dtype) and not np.isfinite(values).all():
            name = printable(weight.path)[:100]
            raise WeightsError(f"the weight {name} has values that are not finite", path=path)


def _check_classes(config: Any) -> None:
    """Raise a `ValueError` for layers that are neither Keras' own nor registered.

    To find them, Keras would import packages that the file names, such as keras_hub.
    """
    parts = [config]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            module, name = part.get("module"), part.get("registered_name")
            own = module is None or re.match(r"(keras|builtins)(\.|$)", str(module))
            if not own and keras.saving.get_registered_object(name) is None:
                raise ValueError(
                    f"{part.get('class_name')!r} is a custom layer: import its module {module!r}, "
                    "which must register it, before you load the model"
                )
            parts += part.values()


def _read_facts(path: Path) -> ModelFacts:
    expected = f"a {MODEL_FILE} that tfrtool train wrote"
    member = _read_member(path, expected)
    try:
        found = msgspec.json.decode(member or b"", type=_Member)
        if found.resize != _RESIZE:
            raise ValueError("another version of tfrtool wrote it")
    except (ValueError, RecursionError) as error:
        reason = f"unusable description of the model: {error}"
        reason = "it has no class names" if member is None else reason
        raise WeightsError(reason, path=path, expected=expected) from error
    return ModelFacts(**{one.name: getattr(found, one.name) for one in fields(ModelFacts)})


def _read_member(path: Path, expected: str) -> bytes | None:
    """Return tfrtool's own member of a file that is safe to load, or None if it has none."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            # Before Keras unpacks the members: it compresses none, so that together they can't be
            # larger than the file.
            size, members = file.seek(0, os.SEEK_END), archive.infolist()
            if sum(member.file_size for member in members) > size:
                raise ValueError(f"its members unpack to more than the file's {size:,} bytes")
            for member in members:
                if member.filename.endswith(".json") and member.file_size > MAX_METADATA_BYTES:
                    raise ValueError(
                        f"its member {member.filename!r} has more than {MAX_METADATA_BYTES:,} bytes"
                    )
            _check_classes(json.loads(archive.read(_CONFIG)))
            return archive.read(_MEMBER) if _MEMBER in archive.namelist() else None
    except OSError as error:
        reason = f"can't be read: {os_reason(error)}"
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError):
        reason = "not a saved model"
    except KeyError:
        reason = "it has no layers"
    except (ValueError, RecursionError) as error:
        reason = f"unusable description of the model: {error}"
    raise WeightsError(reason, path=path, expected=expected)
