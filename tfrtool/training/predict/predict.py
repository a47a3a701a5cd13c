"""The verb: image files become labels, by a saved model."""

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.engines.pool import cores
from tfrtool.errors import SourceError, os_reason
from tfrtool.images.audit import audit_image, render_image
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import Encode, ImageRecipe
from tfrtool.loading.decoding import rounded
from tfrtool.storage.arguments import Paths, check_least
from tfrtool.storage.limits import MAX_IMAGE_BYTES
from tfrtool.storage.opening import read_bounded
from tfrtool.storage.progress import OnProgress, Progress, no_progress
from tfrtool.training.models.saved_model import SavedModel, load_model
from tfrtool.training.predict.image_files import ImageFile, find_images

_PIXELS = ImageRecipe(encode=Encode.RAW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Classes predicted for an image.

    Attributes:
        path: path of the image.
        classes: probability by class name, highest first, as many as requested. Empty if the image
            can't be read.
        problem: why the image can't be read, or None.
    """

    path: str
    classes: Mapping[str, float] = field(default_factory=dict)
    problem: str | None = None

    @property
    def label(self) -> str | None:
        """Most probable class, or None if the image can't be read."""
        return next(iter(self.classes), None)

    @property
    def probability(self) -> float | None:
        """Probability of that class, 0 to 1, or None if the image can't be read."""
        return next(iter(self.classes.values()), None)

    def to_json(self) -> Mapping[str, Any]:
        """Return the object that ``predict --json`` prints."""
        classes = {name: round(value, 6) for name, value in self.classes.items()}
        probability = next(iter(classes.values()), None)
        found = {"label": self.label, "probability": probability, "classes": classes}
        return {"path": self.path, **found, "error": self.problem}


def predict(
    model: SavedModel | str | os.PathLike[str],
    images: Paths,
    *,
    top: int = 1,
    batch_size: int = 32,
    on_progress: OnProgress = no_progress,
) -> Iterator[Prediction]:
    """Classify images: ``for prediction in tfrtool.predict("run", "photos"): ...``.

    Images are decoded as in training: JPEGs that TensorFlow reads correctly by TensorFlow, others
    after the conversion that ``tfrtool write`` applies (rotated upright, transparency on white,
    first frame of an animation). They are resized as the loader resizes them.

    Memory is bounded by two batches of resized images, plus one image being decoded per core,
    however many images there are.

    Args:
        model: result of `load_model`, path of a model file, or directory of a run.
        images: files, directories, glob patterns or URLs of these, one or several.
        top: number of classes per image, most probable first; at least 1.
        batch_size: number of images per batch; at least 1.
        on_progress: called after each image.

    Yields:
        A prediction for each image, in order. It has a ``problem`` if the image can't be read.

    Raises:
        UsageError: a number is below 1, or the model is a URL.
        WeightsError: the model can't be loaded.
    """
    check_least({"top": top, "batch_size": batch_size}, {"top": 1, "batch_size": 1})
    saved = model if isinstance(model, SavedModel) else load_model(model)
    return predict_files(saved, find_images(images), top, batch_size, on_progress)


def predict_files(
    saved: SavedModel,
    files: Sequence[ImageFile],
    top: int = 1,
    batch_size: int = 32,
    on_progress: OnProgress = no_progress,
) -> Iterator[Prediction]:
    """Predict as `predict` does, of files that were found before."""
    names, run, done = saved.facts.class_names, saved.graph(), 0
    for batch in _decoded(files, saved.facts.image_size, batch_size):
        pixels = [found for _, found in batch if not isinstance(found, str)]
        rows = iter(run(np.stack(pixels)).numpy() if pixels else ())
        for path, found in batch:
            done += 1
            on_progress(Progress(what="predict", done=done, total=len(files), unit="images"))
            if isinstance(found, str):
                yield Prediction(path=path, problem=found)
                continue
            row = next(rows)
            order = np.argsort(-row, kind="stable")[:top]
            classes = {names[number]: float(row[number]) for number in order}
            yield Prediction(path=path, classes=classes)


def _decoded(
    images: Sequence[ImageFile], size: int, batch_size: int
) -> Iterator[list[tuple[str, Any]]]:
    """Yield batches of paths, and pixels or what is wrong; the next is decoded meanwhile."""
    pool = ThreadPoolExecutor(cores())
    started: deque[Iterator[tuple[str, Any]]] = deque()

    def read(image: ImageFile) -> tuple[str, Any]:
        return image.path, _read(image, size)

    with quiet_pillow():
        try:
            for start in range(0, len(images) + batch_size, batch_size):
                started.append(pool.map(read, images[start : start + batch_size]))
                if len(started) == 2:
                    yield list(started.popleft())
        finally:
            pool.shutdown(cancel_futures=True)


def _read(image: ImageFile, size: int) -> Any:
    """Return uint8 pixels [size, size, 3], or what is wrong."""
    if image.problem is not None:
        return image.problem
    try:
        data = read_bounded(image.path, MAX_IMAGE_BYTES)
    except OSError as error:
        return os_reason(error)
    verdict = audit_image(data)
    if verdict.problem is not None:
        return verdict.problem
    try:
        if verdict.conversion is None:
            pixels = tf.io.decode_image(data, channels=3, expand_animations=False)
        else:
            drawn = render_image(data, _PIXELS)
            pixels = np.frombuffer(drawn.data, np.uint8).reshape(drawn.height, drawn.width, 3)
    except tf.errors.OpError as error:
        # Without the name of TensorFlow's operation.
        reason = " ".join(str(error.message).rpartition("} ")[2].split())[:200]
        return f"can't be decoded: {reason}"
    except SourceError as error:
        return f"can't be decoded: {error.found}"
    resized = tf.image.resize(pixels, (size, size))
    return rounded(resized).numpy()
