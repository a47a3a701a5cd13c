"""The models of keras.applications: found by name, each with its own preprocessing."""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import io
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tfrtool.errors import UsageError, WeightsError
from tfrtool.loading.pipeline.load_options import Rescale
from tfrtool.training.models.model_choice import IMAGENET, model_name

_WHITE = 255.0
_NEAR = 6
"""Names in the error where there is none as asked for."""

_FORWARD, _REVERSED = (0, 1, 2), (2, 1, 0)


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
        near = difflib.get_close_matches(model, names, n=_NEAR) or names
        known = ", ".join(names[name] for name in near)
        raise UsageError(
            "no such model",
            expected=f"mobilenet_v2, cnn or a name of keras.applications: {known}",
            found=model,
        )
    construct: Callable[..., Any] = getattr(keras.applications, names[model])
    return construct


def application_rescale(construct: Callable[..., Any]) -> Rescale:
    """Return what a model's own ``preprocess_input`` does to pixels."""
    # Where the constructor is defined; the public modules don't have all of them.
    return probe_rescale(sys.modules[construct.__module__].preprocess_input)


def probe_rescale(preprocess: Callable[..., Any]) -> Rescale:
    """Find out what a ``preprocess_input`` does to pixels, by giving it some.

    Black tells the offset of each channel, white the scale, and pure red whether the channels
    are reversed. That this is all it does is then seen on every value of every channel.

    Raises:
        UsageError: it does something else.
    """

    def ask(pixels: Any) -> Any:
        # In float64, which Keras keeps: what comes out is exact enough to be divided again.
        given = np.array(pixels, np.float64).reshape(1, -1, 1, 3)
        return np.asarray(preprocess(given, data_format="channels_last")).reshape(-1, 3)

    black, white, red = ask([[0.0] * 3, [_WHITE] * 3, [_WHITE, 0.0, 0.0]])
    bgr = bool(red[2] != black[2])
    scale, offset = (white - black) / _WHITE, black
    values = np.arange(256.0)
    colours = np.stack([values, np.roll(values, 85), values[::-1]], axis=1)
    expected = colours[:, _REVERSED if bgr else _FORWARD] * scale + offset
    if not np.allclose(ask(colours), expected, rtol=1e-5, atol=1e-5):
        raise UsageError(
            "its preprocessing is not linear in each channel", hint="--rescale unit takes 0..1"
        )
    return Rescale(scale=_one_or_three(scale), offset=_one_or_three(offset), bgr=bgr)


def _one_or_three(values: Any) -> float | tuple[float, float, float]:
    first, second, third = map(float, values)
    if np.allclose(values, first, rtol=1e-12, atol=0):
        return first
    return first, second, third


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
            with contextlib.suppress(ValueError), contextlib.redirect_stdout(shown):
                return build(weights=IMAGENET)
        # Keras raises the same for an impossible size and for a download whose hash is wrong.
        base = build(weights=None)
    except ValueError as error:
        raise UsageError(
            f"{construct.__name__} can't be built for images of {image_size} pixels",
            found=" ".join(str(error).split())[:200],
        ) from error
    except Exception as error:
        # Keras raises a plain Exception where a download fails, from the one that says why.
        raise _not_downloaded(getattr(error.__context__, "reason", None) or error) from error
    if imagenet:
        raise _not_downloaded("the file that came is not the expected one")
    return base


def _not_downloaded(reason: object) -> WeightsError:
    return WeightsError(
        f"the imagenet weights can't be downloaded: {' '.join(str(reason).split())[:200]}",
        hint="--weights none starts from random ones, --weights FILE takes a file, "
        "--model cnn needs none",
    )
