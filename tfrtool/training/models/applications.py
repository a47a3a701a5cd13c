"""The models of keras.applications: found by name, each with its own preprocessing."""

import contextlib
import functools
import inspect
import io
import sys
import warnings
from collections.abc import Callable
from typing import Any

import keras

from tfrtool.errors import UsageError, WeightsError, nearest, os_reason, reason_of
from tfrtool.loading.options import Rescale
from tfrtool.training.models.model_choice import IMAGENET, model_name

_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CAFFE = Rescale(scale=1.0, offset=(-103.939, -116.779, -123.68), bgr=True)
_INSIDE = Rescale(scale=1.0, offset=0.0)

_SYMMETRIC = Rescale(scale=1 / 127.5, offset=-1.0)
_RESCALED = {
    "convnext": _INSIDE,
    "densenet": Rescale(
        scale=tuple(1 / deviation / 255 for deviation in _DEVIATION),  # type: ignore[arg-type]
        offset=tuple(-mean / spread for mean, spread in zip(_MEAN, _DEVIATION, strict=True)),  # type: ignore[arg-type]
    ),
    "efficientnet": _INSIDE,
    "efficientnet_v2": _INSIDE,
    "inception_resnet_v2": _SYMMETRIC,
    "inception_v3": _SYMMETRIC,
    "mobilenet": _SYMMETRIC,
    "mobilenet_v2": _SYMMETRIC,
    "mobilenet_v3": _INSIDE,
    "nasnet": _SYMMETRIC,
    "resnet": _CAFFE,
    "resnet_v2": _SYMMETRIC,
    "vgg16": _CAFFE,
    "vgg19": _CAFFE,
    "xception": _SYMMETRIC,
}
"""What the ``preprocess_input`` of a module does to pixels: to -1 to 1; nothing if the model has
layers for it; what Caffe's or PyTorch's models take. A test asks Keras for all."""


def application_names() -> tuple[str, ...]:
    """Return the names of all constructors in keras.applications."""
    found = vars(keras.applications).items()
    return tuple(sorted(name for name, value in found if inspect.isfunction(value)))


def find_application(model: str) -> Callable[..., Any]:
    """Return the constructor of a model in keras.applications.

    Raises:
        UsageError: there is none of that name; the error has near ones.
    """
    names = {model_name(name): name for name in application_names()}
    if model not in names:
        known = ", ".join(names[name] for name in nearest(model, names, len(names)))
        raise UsageError(
            f"no model {model!r}",
            expected=f"mobilenet_v2, cnn or one of keras.applications: {known}",
        )
    construct: Callable[..., Any] = getattr(keras.applications, names[model])
    return construct


def application_rescale(construct: Callable[..., Any]) -> Rescale:
    """Return what a model's own ``preprocess_input`` does to pixels.

    Raises:
        UsageError: it is of a newer Keras, and nobody has looked yet.
    """
    module = construct.__module__.rpartition(".")[2]
    if module not in _RESCALED:
        raise UsageError(
            f"the pixel range of {construct.__name__} is unknown",
            hint="use --rescale unit for 0..1",
        )
    return _RESCALED[module]


def build_base(construct: Callable[..., Any], image_size: int, *, imagenet: bool) -> Any:
    """Build the part of a model below its classifier.

    Returns:
        A ``keras.Model`` from rescaled images, float32 [batch, image_size, image_size, 3], to
        features averaged over the image, float32 [batch, features].

    Raises:
        UsageError: the model can't take images of this size.
        WeightsError: the weights for ImageNet can't be downloaded.
    """
    build = functools.partial(
        construct, input_shape=(image_size, image_size, 3), include_top=False, pooling="avg"
    )
    try:
        if imagenet:
            # Keras shows a download on stdout, which is for results.
            shown = sys.stderr if sys.stderr.isatty() else io.StringIO()
            with (
                contextlib.suppress(ValueError),
                contextlib.redirect_stdout(shown),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")  # weights for 224 pixels are meant to be taken
                return build(weights=IMAGENET)
        # Keras raises the same for an impossible size and for a download whose hash is wrong.
        base = build(weights=None)
    except ValueError as error:
        raise UsageError(
            f"{construct.__name__} can't be built for images of {image_size} pixels",
            found=reason_of(error),
        ) from error
    except Exception as error:
        # Keras raises a plain Exception where a download fails, from the one that says why.
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
