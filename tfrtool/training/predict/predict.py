"""The verb: image files become labels, by a saved model."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.errors import SourceError, os_reason
from tfrtool.images.audit import audit_image
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.encode import render_image
from tfrtool.images.recipe import Encode, ImageRecipe
from tfrtool.sources.folders.folder_reader import read_file
from tfrtool.sources.folders.walk import file_entry
from tfrtool.sources.items import LeftOut
from tfrtool.storage.limits import MAX_IMAGE_BYTES
from tfrtool.training.models.saved_model import SavedModel, load_saved
from tfrtool.training.predict.prediction import (
    ImageFile,
    Images,
    Prediction,
    PredictOptions,
    Unreadable,
    find_images,
)

__all__ = ["predict"]

_DEFAULT = PredictOptions()

_PIXELS = ImageRecipe(encode=Encode.RAW)


def predict(
    saved: SavedModel | str | os.PathLike[str], images: Images, options: PredictOptions = _DEFAULT
) -> Iterator[Prediction | Unreadable]:
    """Tell what images show, in their order.

    Images are decoded as for training: JPEGs that TensorFlow reads right by TensorFlow; others as
    ``tfrtool write`` converts them, turned upright, what is transparent on white, and of an
    animation the first frame. They are resized as the loader does it.

    Memory is bounded by two batches of resized images and, for each core, one that is being
    decoded, however many images there are.

    Args:
        saved: the model, or its file.
        images: what `find_images` takes, or returned.
        options: how many at a time, and how much is told.

    Yields:
        What the model says of an image, or why it can't be read.
    """
    given = (images,) if isinstance(images, str | os.PathLike) else images
    files = [
        file
        for image in given
        for file in ((image,) if isinstance(image, ImageFile) else find_images(image))
    ]
    saved = saved if isinstance(saved, SavedModel) else load_saved(saved)
    names, size = saved.facts.class_names, saved.facts.image_size
    run = tf.function(
        lambda pixels: saved.whole(tf.cast(pixels, tf.float32), training=False),
        # One trace for batches of all lengths.
        input_signature=[tf.TensorSpec((None, size, size, 3), tf.uint8)],
    )
    for batch in _decoded(files, size, options.batch_size):
        pixels = [found for _, found in batch if not isinstance(found, Unreadable)]
        rows = iter(run(np.stack(pixels)).numpy() if pixels else ())
        for path, found in batch:
            if isinstance(found, Unreadable):
                yield found
            else:
                yield Prediction(path=path, classes=_top(next(rows), names, options.top))


def _top(probabilities: Any, names: Sequence[str], count: int) -> dict[str, float]:
    order = np.argsort(-probabilities, kind="stable")[:count]
    return {names[number]: float(probabilities[number]) for number in order}


_Found = tuple[str, Any]
"""A path, and uint8 pixels [size, size, 3] or what is wrong."""


def _decoded(images: Sequence[ImageFile], size: int, batch_size: int) -> Iterator[list[_Found]]:
    """Yield batches; while one is in use, the next is being decoded."""
    pool = ThreadPoolExecutor(os.cpu_count())
    ahead: deque[tuple[str, Future[Any]]] = deque()
    with quiet_pillow():
        try:
            for image in images:
                ahead.append((image.path, pool.submit(_read, image, size)))
                if len(ahead) == 2 * batch_size:
                    yield _taken(ahead, batch_size)
            while ahead:
                yield _taken(ahead, batch_size)
        finally:
            pool.shutdown(cancel_futures=True)


def _taken(ahead: deque[tuple[str, Future[Any]]], count: int) -> list[_Found]:
    taken = [ahead.popleft() for _ in range(min(count, len(ahead)))]
    return [(path, future.result()) for path, future in taken]


def _read(image: ImageFile, size: int) -> Any:
    """Return uint8 pixels [size, size, 3], or what is wrong."""
    if image.problem is not None:
        return Unreadable(path=image.path, reason=image.problem)
    try:
        entry = file_entry(image.path, image.path)
    except OSError as error:
        return Unreadable(path=image.path, reason=os_reason(error))
    if isinstance(entry, LeftOut):
        return Unreadable(path=image.path, reason=entry.reason)
    if entry.problem is not None:
        return Unreadable(path=image.path, reason=entry.problem)
    if entry.bytes > MAX_IMAGE_BYTES:
        reason = f"it has {entry.bytes:,} bytes, more than {MAX_IMAGE_BYTES:,}"
        return Unreadable(path=image.path, reason=reason)
    try:
        data = read_file(image.path, entry.bytes)
    except OSError as error:
        return Unreadable(path=image.path, reason=os_reason(error))
    verdict = audit_image(data)
    if verdict.problem is not None:
        return Unreadable(path=image.path, reason=verdict.problem)
    try:
        if verdict.conversion is None:
            pixels = tf.io.decode_image(data, channels=3, expand_animations=False)
        else:
            drawn = render_image(data, _PIXELS)
            pixels = np.frombuffer(drawn.data, np.uint8).reshape(drawn.height, drawn.width, 3)
    except tf.errors.OpError as error:
        return Unreadable(path=image.path, reason=f"it does not decode: {_said(error.message)}")
    except SourceError as error:
        return Unreadable(path=image.path, reason=f"it does not decode: {error.found}")
    resized = tf.image.resize(pixels, (size, size))
    return tf.cast(tf.round(resized), tf.uint8).numpy()


def _said(message: str) -> str:
    """Return what TensorFlow said, without the name of its operation."""
    return " ".join(message.rpartition("} ")[2].split())[:200]
