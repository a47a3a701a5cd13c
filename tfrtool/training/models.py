"""Classifiers: keras.applications with a new head, the cnn, and users' own models."""

import contextlib
import functools
import inspect
import io
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np

from tfrtool.errors import UsageError, WeightsError, nearest, os_reason, reason_of
from tfrtool.loading.labels import Task
from tfrtool.loading.options import ImageSize, Rescale, image_shape
from tfrtool.loading.user_function import find_function
from tfrtool.storage.arguments import as_local_path
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.training.fitting import take_compile_arguments
from tfrtool.training.saved_model import CORE, SavedModel, check_finite, load_model, load_own
from tfrtool.training.tasks import TASKS
from tfrtool.training.train_options import (
    CNN,
    IMAGENET,
    NO_WEIGHTS,
    Head,
    Outputs,
    canonical_name,
    is_own,
    is_saved,
)

_UNIT = Rescale(scale=1 / 255, offset=0.0)
UNSCALED = Rescale(scale=1.0, offset=0.0)
_FILTERS = (16, 32, 64, 64, 64)
_HIDDEN = 512
SMALLEST_VALID_SIDE = 94
"""Of an image for the cnn's convolutions without padding: five times, two pixels fewer, halved."""

_OWN = "a function of image size and number of classes that returns a keras.Model"


@dataclass(slots=True, kw_only=True)
class Classifier:
    """A model, and its parts if it has a frozen base; the parts share its weights.

    A frozen base gives an image the same features in every epoch.
    """

    core: Any  # keras.Model, rescaled float32 [batch, height, width, channels] to probabilities
    base: Any = None  # keras.Model, rescaled images to features, float32 [batch, ...]
    head: Any = None  # keras.Model, features to what the loss takes
    trained: Any  # keras.Model, rescaled images to what the loss takes
    compiled: Mapping[str, Any] = field(default_factory=dict)  # the user's arguments of compile()


@contextmanager
def dtype_policy(policy: str) -> Iterator[None]:
    """Build layers with one of Keras' dtype policies."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def build_classifier(
    model: str,
    image_size: ImageSize,
    classes: int,
    weights: str = NO_WEIGHTS,
    trainable: str = "all",
    own: Any = None,
    task: Task = Task.SINGLE,
    head: Head | None = None,
    outputs: Outputs | None = None,
    channels: int = 3,
) -> Classifier:
    """Build a classifier of rescaled images; ``own`` is the user's function or ``keras.Model``.

    The last layer is a softmax, or sigmoids if an image can have several classes, or linear for
    regression, in float32. A single sigmoid is the probability of the second of two classes. A
    user's compiled loss gets the outputs of the user's model.

    Raises:
        UsageError: there is no such model or layer, or the images are too small for it.
        WeightsError: the weights can't be downloaded, found or loaded.
    """
    shape = image_shape(image_size, channels)
    file = None if weights in (IMAGENET, NO_WEIGHTS) else Path(weights)
    if file is not None and not file.is_file():
        raise WeightsError(
            "no such file", path=file, expected="imagenet, none or a file of weights"
        )
    saved = None
    if file is not None and file.suffix == ".keras":
        saved = _load_saved(file, model, classes, task)
    kind = TASKS[task]
    if head == "sigmoid" and not (classes == 2 and kind.allows_single_output and not is_own(model)):
        raise UsageError("--head sigmoid requires two classes, and a model that is not your own")
    units = 1 if head == "sigmoid" else classes
    returned, trained = outputs or "probabilities", None
    compiled: Mapping[str, Any] = {}
    finish = functools.partial(kind.finish, classes=classes, outputs=returned)
    finish_head: Callable[[Any], Any] = finish
    if not (model == CNN or is_own(model)):
        return _build_application(model, shape, kind.head(units), finish, weights, trainable, saved)
    if model == CNN:
        inner = core = _build_cnn(
            shape, functools.partial(kind.head, units), is_padded=head != "sigmoid"
        )
        if head == "sigmoid":
            core = keras.Model(inner.inputs, finish(inner.outputs[0]), name=CORE)
    else:
        if is_saved(model) and own is None:
            own = load_own(as_local_path(model))
        inner = _call_own(own or find_function(model, "--model", _OWN), model, shape, classes)
        compiled = take_compile_arguments(inner)
        finish = functools.partial(finish, outputs=_outputs_of(compiled, outputs))
        raw, core = _wrap_own(inner, model, shape, classes, task, finish)
        finish_head = finish
        if compiled.get("loss") is not None:
            trained, finish_head = raw, _unchanged
    if file is not None:
        _load_weights(core, file, saved and saved.core)
    if trainable != "all":
        first = [layer.name for layer in inner.layers if layer.weights][-1:] or ["head"]
        name = first[0] if trainable == "head" else trainable
        _train_from(inner.layers, name, "the cnn" if model == CNN else model)
    mixed = keras.config.dtype_policy().compute_dtype != "float32"
    base = top = None
    if not mixed and (model != CNN or trainable != "all"):
        base, top = _split_at_frozen(inner, finish_head) or (None, None)
    return Classifier(core=core, base=base, head=top, trained=trained or core, compiled=compiled)


def rescale_for(
    model: str, rescale: Literal["model", "unit", "none"] = "model", *, scaling_layer: str = ""
) -> Rescale:
    """Return what pixel values become.

    By default, that is the range of a model of keras.applications, 0 to 255 for a model of the
    user's that has a ``scaling_layer``, and 0 to 1 for others.
    """
    construct = None if model == CNN or is_own(model) else find_application(model)
    if rescale == "none" or (rescale == "model" and is_own(model) and scaling_layer):
        return UNSCALED
    if rescale == "unit" or construct is None:
        return _UNIT
    preprocess = sys.modules[construct.__module__].preprocess_input
    pixels = np.array([[0, 0, 0], [255, 255, 255], [255, 0, 0]], np.float64)
    black, white, red = preprocess(pixels[None, None])[0, 0]
    scale, offset = (tuple(np.round(one, 15).tolist()) for one in ((white - black) / 255, black))
    return Rescale(
        scale=scale[0] if len({*scale}) == 1 else scale,
        offset=offset[0] if len({*offset}) == 1 else offset,
        bgr=bool(red[2] != black[2]),
    )


def application_names() -> tuple[str, ...]:
    """Return the names of all constructors in keras.applications."""
    found = vars(keras.applications).items()
    return tuple(sorted(name for name, value in found if inspect.isfunction(value)))


def find_application(model: str) -> Callable[..., Any]:
    """Return a constructor in keras.applications; a `UsageError` suggests similar names."""
    names = {canonical_name(name): name for name in application_names()}
    if model not in names:
        known = ", ".join(names[name] for name in nearest(model, names, len(names)))
        raise UsageError(
            f"no model {model!r}",
            expected=f"mobilenet_v2, cnn or one of keras.applications: {known}",
        )
    construct: Callable[..., Any] = getattr(keras.applications, names[model])
    return construct


def _build_application(
    model: str,
    shape: tuple[int, int, int],
    head: Any,
    finish: Callable[[Any], Any],
    weights: str,
    trainable: str,
    saved: SavedModel | None,
) -> Classifier:
    """Build a base of keras.applications with a new head.

    Loaded weights come with BatchNormalization statistics, which a few small batches would spoil:
    the base then runs in inference mode, as in Keras' guide to transfer learning. Random weights
    need their statistics trained.
    """
    inputs = keras.Input(shape)
    if saved is not None:
        # With its imagenet weights, Keras gives EfficientNet an additional layer: clone it.
        old = next(layer for layer in saved.core.layers if isinstance(layer, keras.Model))
        base = keras.models.clone_model(old, input_tensors=inputs, clone_function=_with_policy)
        _load_weights(base, saved.path, old)
    else:
        base = _build_base(find_application(model), shape, imagenet=weights == IMAGENET)
        if weights not in (IMAGENET, NO_WEIGHTS):
            _load_weights(base, Path(weights), None)
    # One by one, too: Keras 3.15 does not pass it on to the layers of a cloned model.
    for layer in (base, *base.layers):
        layer.trainable = trainable != "head"
    if trainable not in ("head", "all"):
        _train_from(base.layers, trainable, model)
    frozen = not base.trainable_weights
    inference = frozen or weights != NO_WEIGHTS
    if inference:
        _hold_in_inference_mode(base.layers)
    features = base(inputs, training=False) if inference else base(inputs)
    core = keras.Model(inputs, finish(head(features)), name=CORE)
    if saved is not None:
        head.set_weights(saved.core.get_layer(head.name).get_weights())
    built = Classifier(core=core, trained=core)
    if frozen:
        features = keras.Input(base.output_shape[1:])
        built.base, built.head = base, keras.Model(features, finish(head(features)), name="head")
    return built


def _build_base(
    construct: Callable[..., Any], shape: tuple[int, int, int], *, imagenet: bool
) -> Any:
    """Build a model of keras.applications below its classifier, with pooled features."""
    build = functools.partial(construct, input_shape=shape, include_top=False, pooling="avg")
    try:
        if imagenet:
            # Keras shows a download on stdout, which is for results.
            shown = sys.stderr if sys.stderr.isatty() else io.StringIO()
            with (
                contextlib.suppress(ValueError),
                contextlib.redirect_stdout(shown),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")  # weights for 224 pixels are used on purpose
                return build(weights=IMAGENET)
        # Keras raises the same error for an impossible size and a download with a wrong hash.
        base = build(weights=None)
    except ValueError as error:
        raise UsageError(
            f"{construct.__name__} can't be built for images of {_pixels(shape)}",
            found=reason_of(error),
        ) from error
    except Exception as error:
        # Keras raises a plain Exception for a failed download, whose context has the reason.
        raise _not_downloaded(getattr(error.__context__, "reason", None) or error) from error
    if imagenet:
        raise _not_downloaded("the downloaded file is not the expected one")
    return base


def _not_downloaded(reason: object) -> WeightsError:
    text = os_reason(reason) if isinstance(reason, OSError) else reason_of(reason)
    return WeightsError(
        f"the ImageNet weights can't be downloaded: {text}",
        hint="use --weights none to start from random weights, --weights FILE to load a file, or "
        "--model cnn, which needs none",
    )


def _with_policy(layer: Any) -> Any:
    """Copy a layer, with the dtype policy that is set."""
    config: dict[str, Any] = {**layer.get_config(), "dtype": keras.config.dtype_policy()}
    return layer.__class__.from_config(config)


def _hold_in_inference_mode(layers: Sequence[Any]) -> None:
    """Make layers behave as in inference while they are trained.

    Calling a base with ``training=False`` is not enough: Keras 3.15 passes the model's own
    ``training=True`` down to it. A frozen BatchNormalization always runs in inference mode.
    """
    for layer in layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = False
        elif isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0


def _build_cnn(
    shape: tuple[int, int, int], make_head: Callable[[], Any], *, is_padded: bool
) -> Any:
    """Build the five convolutions of the horses_or_humans example.

    Without padding and with a single sigmoid, it is that network. Small images need padding.
    """
    padding = "same" if is_padded or min(shape[:2]) < SMALLEST_VALID_SIDE else "valid"
    layers: list[Any] = [keras.Input(shape)]
    for number, filters in enumerate(_FILTERS, 1):
        layers.append(
            keras.layers.Conv2D(
                filters, 3, padding=padding, activation="relu", name=f"conv{number}"
            )
        )
        layers.append(keras.layers.MaxPooling2D(2, name=f"pool{number}"))
    layers.append(keras.layers.Flatten(name="flatten"))
    layers.append(keras.layers.Dense(_HIDDEN, activation="relu", name="hidden"))
    # The order in which layers are made decides their random weights.
    layers.append(make_head())
    return keras.Sequential(layers, name=CORE)


def _unchanged(output: Any) -> Any:
    return output


def _outputs_of(compiled: Mapping[str, Any], outputs: Outputs | None) -> Outputs:
    """Return what a user's model returns: by the option, or by its compiled loss."""
    loss = compiled.get("loss")
    logits = isinstance(loss, keras.losses.Loss) and loss.get_config().get("from_logits")
    if logits and outputs == "probabilities":
        raise UsageError("--outputs probabilities contradicts the compiled loss: from_logits=True")
    return outputs or ("logits" if logits else "probabilities")


def _call_own(build: Any, name: str, shape: tuple[int, int, int], classes: int) -> Any:
    """Return a user's model."""
    model = build
    mixed = keras.config.dtype_policy().compute_dtype != "float32"
    if not isinstance(build, keras.Model):
        try:
            size = shape[0] if shape[0] == shape[1] else (shape[1], shape[0])
            model = build(size, classes)
        except (Exception, SystemExit) as error:  # anything that the user's own code raises
            raise UsageError(f"{name} raised {_described(error)}") from error
    elif mixed:
        raise UsageError(
            "--precision does not apply to a keras.Model: pass a function that builds it"
        )
    if not isinstance(model, keras.Model):
        raise UsageError(
            f"{name} did not return a keras.Model", expected=_OWN, found=type(model).__name__
        )
    if mixed:  # the last layer with weights, and those after it, compute in float32
        last = max((number for number, one in enumerate(model.layers) if one.weights), default=0)
        for layer in model.layers[last:]:
            layer.dtype_policy = "float32"
    return model


def _wrap_own(
    model: Any,
    name: str,
    shape: tuple[int, int, int],
    classes: int,
    task: Task,
    finish: Callable[[Any], Any],
) -> tuple[Any, Any]:
    """Return models from rescaled images to the outputs of a user's model, and to probabilities.

    It is run on an image, saved and loaded once, before time is spent on training it.
    """
    inputs = keras.Input(shape)
    try:
        raw = model(inputs)
        if raw.dtype != "float32":
            raw = keras.layers.Activation("linear", dtype="float32", name="float32")(raw)
        returned = tuple(raw.shape)
        outputs = finish(raw)
    except (Exception, SystemExit) as error:  # Keras raises anything where shapes don't fit
        raise UsageError(
            f"{name} can't process images of {_pixels(shape)}: {reason_of(error)}",
            expected=f"float32 [batch, {shape[0]}, {shape[1]}, {shape[2]}]",
        ) from error
    if returned not in ((None, classes), (None, 1 if classes == 2 else classes)):
        raise UsageError(
            f"the outputs of {name} don't match the number of classes",
            expected=f"[batch, {classes}]",
            found=str([*("batch" if size is None else size for size in returned)]).replace("'", ""),
        )
    core = keras.Model(inputs, outputs, name=CORE)
    _check_usable(core, name, shape, task)
    return keras.Model(inputs, raw, name=CORE), core


def _check_usable(core: Any, name: str, shape: tuple[int, int, int], task: Task) -> None:
    """Check that outputs are probabilities or numbers, and that the model can be saved."""
    images = np.full((2, *shape), 0.5, np.float32)
    TASKS[task].check_outputs(name, np.asarray(core(images, training=False)))
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


def _split_at_frozen(model: Any, finish: Callable[[Any], Any]) -> tuple[Any, Any] | None:
    """Split a model after its longest frozen part: a base and a head, or None if it has none.

    The base has only Keras' own layers without anything trained or random, so that it gives an
    image the same features in every epoch.
    """
    if not isinstance(model, keras.Sequential) and not hasattr(model, "operations"):
        return None  # a subclass of keras.Model, with code of its own
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        return None
    frozen = 0
    for layer in model.layers[:-1]:
        if not _is_frozen(layer):
            break
        frozen += 1
    for count in range(frozen, 0, -1):
        if not any(layer.weights for layer in model.layers[:count]):
            break
        features = model.layers[count - 1].output
        try:
            head = keras.Model(features, finish(model.outputs[0]), name="head")
        except ValueError:  # later layers need something else of the base, too
            continue
        return keras.Model(model.inputs[0], features, name="base"), head
    return None


def _is_frozen(layer: Any) -> bool:
    """Return whether a layer gives the same output in every epoch."""
    if isinstance(layer, keras.Model):
        return hasattr(layer, "operations") and all(map(_is_frozen, layer.layers))
    random = any(isinstance(one, keras.random.SeedGenerator) for one in vars(layer).values())
    trained = layer.trainable and bool(layer.weights)
    return type(layer).__module__.startswith("keras.") and not (random or trained)


def _train_from(layers: Sequence[Any], name: str, model: str) -> None:
    names = [layer.name for layer in layers]
    if name not in names:
        raise UsageError(
            f"{model} has no layer {name!r}",
            expected=f"auto, head, all or a layer: {', '.join(nearest(name, reversed(names)))}",
            hint="print model.summary() of its Keras model to list them",
        )
    first = names.index(name)
    for number, layer in enumerate(layers):
        layer.trainable = number >= first


def _load_saved(file: Path, model: str, classes: int, task: Task) -> SavedModel:
    saved = load_model(file)
    facts = saved.facts
    if (facts.model, facts.outputs, facts.task) != (model, classes, task):
        raise WeightsError(
            "the saved model does not match the run",
            path=file,
            expected=f"{model} with {classes} outputs, {task.value}",
            found=f"{facts.model} with {facts.outputs}, {facts.task.value}",
        )
    return saved


def _load_weights(model: Any, file: Path, source: Any) -> None:
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


def _pixels(shape: tuple[int, int, int]) -> str:
    """Return a size as messages have it."""
    height, width, _ = shape
    return f"{width} pixels" if width == height else f"{width} x {height} pixels"


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {reason_of(error)}"
