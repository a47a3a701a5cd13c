"""A ``.keras`` file that tfrtool did not save: class names and pixel range come from elsewhere."""

import os
from pathlib import Path
from typing import Any

import keras

from tfrtool.errors import UsageError, WeightsError, os_errors_as
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.labels import Task
from tfrtool.loading.options import as_image_size
from tfrtool.storage.arguments import as_local_path
from tfrtool.storage.limits import MAX_CLASSES
from tfrtool.storage.opening import read_bounded
from tfrtool.training.evaluate_options import OwnModelOptions
from tfrtool.training.input_scaling import find_scaling_layer
from tfrtool.training.models import build_classifier, rescale_for
from tfrtool.training.saved_model import (
    ModelFacts,
    SavedModel,
    is_own_file,
    load_model,
    load_own,
    model_of_pixels,
)


def load_any_model(
    model: str | os.PathLike[str], options: OwnModelOptions, dataset: Dataset | None = None
) -> SavedModel:
    """Load a model that tfrtool saved, or a ``.keras`` file of the user's.

    The latter's class names are those of ``options.labels``, or else of the dataset. It gets pixels
    as `train` would give them. If its last layer has no activation, softmax or sigmoid follows.

    Raises:
        UsageError: there are no class names, or an option is not for this model.
        WeightsError: the model can't be loaded, or does not fit its class names.
    """
    if not is_own_file(model):
        options.check_unused()
        return load_model(model)
    path = as_local_path(model)
    task = dataset.task if dataset else Task.SINGLE
    names, targets = (dataset.class_names, dataset.targets) if dataset else ((), ())
    if options.labels is not None:
        names = _read_names(Path(options.labels))
    if not (names or targets):
        hint = "use --labels FILE, with one class name per line"
        raise UsageError("the model has no class names", path=path, hint=hint)
    loaded = load_own(path)
    shape: Any = getattr(loaded, "input_shape", None) or ()
    if len(shape) != 4 or not all(shape[1:3]) or shape[3] not in (1, 3):
        expected = "[batch, height, width, 3 or 1] of a fixed size"
        raise WeightsError("the model takes no images", path=path, expected=expected, found=shape)
    size = as_image_size(shape[2:0:-1])
    name, count = str(path), len(targets or names)
    core = build_classifier(
        name,
        size,
        count,
        own=loaded,
        task=task,
        outputs="logits" if _ends_linear(loaded) else None,
        channels=shape[3],
    ).core
    rescale = rescale_for(name, options.rescale, scaling_layer=find_scaling_layer(core))
    facts = ModelFacts(
        model=name,
        image_size=size,
        class_names=names,
        task=task,
        channels=shape[3],
        targets=targets,
    )
    return SavedModel(path=path, whole=model_of_pixels(core, rescale, facts.shape), facts=facts)


def _ends_linear(model: Any) -> bool:
    """Return whether the last layer has an activation that changes nothing."""
    return getattr(model.layers[-1], "activation", None) is keras.activations.linear


def _read_names(path: Path) -> tuple[str, ...]:
    """Return the class names of a text file, one per line."""
    with os_errors_as(UsageError, path, "can't be read"):
        data = read_bounded(path)
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UsageError("--labels is not a text file in UTF-8", path=path) from error
    names = tuple(line.strip() for line in lines if line.strip())
    if not names or len({*names}) < len(names) or len(names) > MAX_CLASSES:
        expected = f"at most {MAX_CLASSES:,} different names, one per line"
        raise UsageError("--labels has no usable class names", path=path, expected=expected)
    return names
