"""The models: image in, probabilities out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras

from tfrtool.errors import UsageError, WeightsError, nearest, reason_of
from tfrtool.loading.labels import Task
from tfrtool.loading.options import Rescale
from tfrtool.training.models.applications import (
    application_rescale,
    build_base,
    find_application,
)
from tfrtool.training.models.model_choice import CNN, IMAGENET, NO_WEIGHTS, is_own
from tfrtool.training.models.own_model import build_own, find_function
from tfrtool.training.models.saved_model import CORE, SavedModel, check_finite, load_model

_UNIT = Rescale(scale=1 / 255, offset=0.0)

_FILTERS = (16, 32, 64, 64, 64)
_HIDDEN = 512
_ACTIVATIONS = {Task.SINGLE: "softmax", Task.MULTI: "sigmoid"}
_HEAD = "probabilities"
"""The name of the last layer of every model here."""

_SAVED = ".keras"


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """A model, whole and in its two parts, which share their weights; the cnn is whole alone.

    A frozen base is one of which nothing is trained. It runs in inference mode, so that an image
    always has the same features.
    """

    core: Any  # keras.Model, rescaled float32 [batch, image_size, image_size, 3] to probabilities
    base: Any = None  # keras.Model, the same to pooled features, float32 [batch, features]
    head: Any = None  # the layer from features to probabilities
    frozen: bool = False
    still: bool = False  # whether the base runs in inference mode, whatever of it is trained


def rescale_for(model: str, *, unit: bool = False) -> Rescale:
    """Return how pixel values become what a model takes: 0 to 1 the cnn and the user's own."""
    construct = None if model == CNN or is_own(model) else find_application(model)
    return _UNIT if unit or construct is None else application_rescale(construct)


@contextmanager
def dtype_policy(policy: str) -> Iterator[None]:
    """Have layers that are built meanwhile compute by one of Keras' policies."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def build_classifier(
    model: str,
    image_size: int,
    classes: int,
    weights: str = NO_WEIGHTS,
    trainable: str = "all",
    own: Any = None,
    task: Task = Task.SINGLE,
) -> Classifier:
    """Build a classifier of rescaled images; ``own`` is the user's function or ``keras.Model``.

    The last layer of ours is a softmax, or sigmoids where an image may be of several classes. It
    computes in float32, and all others by the `dtype_policy`.

    Loaded weights come with statistics in their BatchNormalization layers, which a few small
    batches would spoil. The base then runs in inference mode, whatever of it is trained, as Keras'
    guide on transfer learning has it, and these layers aren't trained at all. Over random weights
    they must be, statistics and all.

    Raises:
        UsageError: there is no such model or layer, or the images are too small for it.
        WeightsError: the weights can't be downloaded, found or loaded.
    """
    file = None if weights in (IMAGENET, NO_WEIGHTS) else Path(weights)
    if file is not None and not file.is_file():
        raise WeightsError(
            "no such file", path=file, expected="imagenet, none or a file of weights"
        )
    saved = None
    if file is not None and file.suffix == _SAVED:
        saved = _saved(file, model, classes, task)
    if model == CNN or is_own(model):
        if model == CNN:
            core, called = _cnn(image_size, classes, task), "the cnn"
            layers = core.layers
        else:
            own, called = own or find_function(model), model
            core, layers = build_own(own, model, image_size, classes)
        if file is not None:
            _load(core, file, saved and saved.core)
        if trainable != "all":
            first = [layer.name for layer in layers if layer.weights][-1:] or ["head"]
            _freeze_before(layers, first[0] if trainable == "head" else trainable, called)
        return Classifier(core=core)

    base = _base(model, image_size, weights, saved)
    # One by one, too: Keras 3.15 does not hand it on to the layers of a cloned model.
    for layer in (base, *base.layers):
        layer.trainable = trainable != "head"
    if trainable not in ("head", "all"):
        _freeze_before(base.layers, trainable, model)
    inputs = keras.Input((image_size, image_size, 3))
    frozen = not base.trainable_weights
    still = frozen or weights != NO_WEIGHTS
    if still:
        _hold_still(base)
        features = base(inputs, training=False)
    else:
        features = base(inputs)
    head = _head(classes, task)
    core = keras.Model(inputs, head(features), name=CORE)
    if saved is not None:
        head.set_weights(saved.core.layers[-1].get_weights())
    return Classifier(core=core, base=base, head=head, frozen=frozen, still=still)


def check_layer(classifier: Classifier, layer: str, model: str) -> None:
    """Check that there is such a layer; it is a UsageError that there is none."""
    _place_of(layer, _inner_layers(classifier), model)


def fine_tuned(classifier: Classifier, layer: str, model: str) -> Classifier:
    """Return the same classifier, of which the layers from one on are trained, and no others.

    A base that ran in inference mode still does.
    """
    layers, base = _inner_layers(classifier), classifier.base
    first = _place_of(layer, layers, model)
    for outer in (classifier.core, *(one for one in classifier.core.layers if one not in layers)):
        outer.trainable = True
    for number, one in enumerate(layers):
        one.trainable = number >= first
    if base is not None and classifier.still:
        _hold_still(base)
    return replace(classifier, frozen=False)


def _inner_layers(classifier: Classifier) -> list[Any]:
    """Return the layers of a base, or of a model that is whole alone."""
    models = [one for one in classifier.core.layers if isinstance(one, keras.Model)]
    inner = classifier.base or (models[0] if len(models) == 1 else classifier.core)
    return list(inner.layers)


def _base(model: str, image_size: int, weights: str, saved: SavedModel | None) -> Any:
    """Build a base, and load its weights."""
    if saved is not None:
        # The saved layers, and not newly built ones: with its imagenet weights, Keras gives
        # EfficientNet a layer more.
        old = next(layer for layer in saved.core.layers if isinstance(layer, keras.Model))
        inputs = keras.Input((image_size, image_size, 3))
        base = keras.models.clone_model(old, input_tensors=inputs, clone_function=_as_policy)
        _load(base, saved.path, old)
        return base
    base = build_base(find_application(model), image_size, imagenet=weights == IMAGENET)
    if weights not in (IMAGENET, NO_WEIGHTS):
        _load(base, Path(weights), None)
    return base


def _as_policy(layer: Any) -> Any:
    """Return a layer like another, with the dtype policy that is set."""
    config: dict[str, Any] = {**layer.get_config(), "dtype": keras.config.dtype_policy()}
    return layer.__class__.from_config(config)


def _hold_still(base: Any) -> None:
    """Make a base run in inference mode while the model that it is in is trained.

    Calling it with ``training=False`` is not enough: Keras 3.15 hands the model's own
    ``training=True`` down to it. A frozen BatchNormalization always runs in inference mode.
    """
    for layer in base.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = False
        elif isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0


def _head(classes: int, task: Task) -> Any:
    return keras.layers.Dense(classes, activation=_ACTIVATIONS[task], name=_HEAD, dtype="float32")


def _cnn(image_size: int, classes: int, task: Task) -> Any:
    """Five convolutions, as in the horses_or_humans example.

    That one doesn't pad, and needs images of 300 pixels; padding lets smaller ones through, and
    changes nothing else.
    """
    layers: list[Any] = [keras.Input((image_size, image_size, 3))]
    for number, filters in enumerate(_FILTERS, 1):
        layers.append(
            keras.layers.Conv2D(filters, 3, padding="same", activation="relu", name=f"conv{number}")
        )
        layers.append(keras.layers.MaxPooling2D(2, name=f"pool{number}"))
    layers.append(keras.layers.Flatten(name="flatten"))
    layers.append(keras.layers.Dense(_HIDDEN, activation="relu", name="hidden"))
    # Last: the order of layers decides what is drawn for each.
    layers.append(_head(classes, task))
    return keras.Sequential(layers, name=CORE)


def _freeze_before(layers: Sequence[Any], name: str, model: str) -> None:
    """Freeze the layers before one of them."""
    for layer in layers[: _place_of(name, layers, model)]:
        layer.trainable = False


def _place_of(name: str, layers: Sequence[Any], model: str) -> int:
    names = [layer.name for layer in layers]
    if name not in names:
        raise UsageError(
            f"{model} has no layer {name!r}",
            expected=f"auto, head, all or a layer: {', '.join(nearest(name, reversed(names)))}",
            hint="print model.summary() of its Keras model to list them",
        )
    return names.index(name)


def _saved(file: Path, model: str, classes: int, task: Task) -> SavedModel:
    saved = load_model(file)
    facts = saved.facts
    if (facts.model, len(facts.class_names), facts.task) != (model, classes, task):
        raise WeightsError(
            "the saved model does not match the run",
            path=file,
            expected=f"{model} for {classes} classes, {task.value}",
            found=f"{facts.model} for {len(facts.class_names)}, {facts.task.value}",
        )
    return saved


def _load(model: Any, file: Path, source: Any) -> None:
    """Load a file's weights into a model, from another model if the file held one."""
    try:
        if source is None:
            model.load_weights(file)
        else:
            model.set_weights(source.get_weights())
    except (ValueError, OSError, KeyError, TypeError) as error:
        if isinstance(error, OSError) or "format not supported" in str(error):  # HDF5's, or Keras'
            known = ".keras, .weights.h5 or .h5"
            raise WeightsError("not a file of weights", path=file, expected=known) from error
        raise WeightsError(f"weights don't fit the model: {reason_of(error)}", path=file) from error
    check_finite(model, file)
