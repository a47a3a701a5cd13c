"""Prediction: classes of image files, by a saved model."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tfrtool.declare import takes
from tfrtool.engines.engine import cores
from tfrtool.errors import DatasetError, ShardError, SourceError, os_reason
from tfrtool.loading.labels import Task
from tfrtool.records.compression import starts_record
from tfrtool.records.count import count_shard
from tfrtool.records.shard_sets import natural_order
from tfrtool.records.shards import find_shards
from tfrtool.sources.folders.listing import (
    is_image_name,
    is_pattern,
    list_directory,
    list_matches,
)
from tfrtool.sources.folders.store_listing import list_store
from tfrtool.sources.folders.unread_images import why_unread
from tfrtool.sources.items import Item
from tfrtool.storage.arguments import Paths, as_text
from tfrtool.storage.extras import KERAS_MODELS, require_tensorflow
from tfrtool.storage.limits import MAX_IMAGE_BYTES
from tfrtool.storage.opening import open_regular, read_bounded
from tfrtool.storage.progress import Progress
from tfrtool.storage.remote_path import is_url
from tfrtool.training.evaluate_options import PredictOptions
from tfrtool.training.record_images import RecordImage, read_record_images

if TYPE_CHECKING:
    from tfrtool.loading.options import PathLike
    from tfrtool.training.saved_model import SavedModel


_HEAD = 4096


class ImageFile(NamedTuple):
    """A file that should be an image, and why it can't be read, if that is known already.

    A shard has an image in each record.
    """

    path: str
    problem: str | None = None
    is_shard: bool = False


class _ImageToClassify(NamedTuple):
    """An image to classify; ``read`` returns its pixels in a shape, or the problem."""

    path: str
    read: Callable[[tuple[int, int, int]], Any]
    record: int | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Classes predicted for an image.

    Attributes:
        path: path of the image, or of its shard.
        classes: probability by class name, highest first, as many as requested. Empty if the image
            can't be read.
        problem: why the image can't be read, or None.
        value: the number that a model for regression predicts, or several by name; otherwise None.
        task: what the model predicts.
        record: number of the image's record in its shard, from 0; otherwise None.
        name: name of the image in its record, or None.
    """

    path: str
    classes: Mapping[str, float] = field(default_factory=dict)
    problem: str | None = None
    value: float | Mapping[str, float] | None = None
    task: Task = Task.SINGLE
    record: int | None = None
    name: str | None = None

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
        from tfrtool.training.tasks import TASKS

        path: dict[str, Any] = {"path": self.path}
        if self.record is not None:
            path |= {"record": self.record, "name": self.name}
        return {**path, **TASKS[self.task].prediction_json(self), "error": self.problem}


@takes(PredictOptions)
def predict(
    model: "SavedModel | PathLike", images: Paths, options: PredictOptions
) -> Iterator[Prediction]:
    """Classify images: ``for prediction in tfrtool.predict("run", "photos"): ...``.

    Images are decoded as in training: JPEGs that TensorFlow reads correctly by TensorFlow, others
    after the conversion that ``tfrtool write`` applies (rotated upright, transparency on white,
    first frame of an animation). They are resized as the loader resizes them.

    Memory is bounded by two batches of resized images, plus one image being decoded per core,
    however many images there are.

    Args:
        model: result of `load_model`, path of a model file, or directory of a run.
        images: files, directories, glob patterns or URLs of these, one or several; also shards,
            whose records need no labels.

    Yields:
        A prediction for each image, in order. It has a ``problem`` if the image can't be read.

    Raises:
        UsageError: a number is below 1, or the model is a URL.
        WeightsError: the model can't be loaded.
    """
    require_tensorflow(KERAS_MODELS)
    from tfrtool.training.own_model_file import load_any_model
    from tfrtool.training.saved_model import SavedModel

    if isinstance(model, SavedModel):
        options.check_unused()
        saved = model
    else:
        saved = load_any_model(model, options)
    return predict_files(saved, find_images(images), options)


def predict_files(
    saved: "SavedModel", files: Sequence[ImageFile], options: PredictOptions
) -> Iterator[Prediction]:
    """Do what `predict` does, for files from `find_images`."""
    import numpy as np

    from tfrtool.training.tasks import TASKS

    task, names = TASKS[saved.facts.task], saved.facts.output_names
    run, done = saved.graph(), 0
    total = sum(count_shard(Path(one.path))[0] if one.is_shard else 1 for one in files)
    for batch in _decoded(files, saved.facts.shape, options.batch_size):
        pixels = [found for _, found in batch if not isinstance(found, str)]
        rows = iter(run(np.stack(pixels)).numpy() if pixels else ())
        for image, found in batch:
            done += 1
            options.on_progress(Progress(what="predict", done=done, total=total, unit="images"))
            made = partial(
                Prediction,
                path=image.path,
                task=saved.facts.task,
                record=image.record,
                name=image.name,
            )
            if isinstance(found, str):
                yield made(problem=found)
                continue
            yield made(**task.prediction_fields(names, next(rows), options.top))


def _decoded(
    files: Sequence[ImageFile], shape: tuple[int, int, int], batch_size: int
) -> Iterator[list[tuple[_ImageToClassify, Any]]]:
    """Yield batches of images with pixels or a problem; the next batch is decoded meanwhile."""
    from tfrtool.images.decoder import quiet_pillow

    pool, images = ThreadPoolExecutor(cores()), _images_of(files)
    started: deque[Iterator[tuple[_ImageToClassify, Any]]] = deque()
    with quiet_pillow():
        try:
            while batch := list(islice(images, batch_size)):
                started.append(pool.map(lambda image: (image, image.read(shape)), batch))
                if len(started) == 2:
                    yield list(started.popleft())
            yield from map(list, started)
        finally:
            pool.shutdown(cancel_futures=True)


def _images_of(files: Sequence[ImageFile]) -> Iterator[_ImageToClassify]:
    """Yield the image of each file and of each record of a shard."""
    for file in files:
        if not file.is_shard:
            yield _ImageToClassify(file.path, partial(_read, file))
            continue
        for found in read_record_images(file.path):
            yield _ImageToClassify(
                file.path, partial(_read_record, found), found.record, found.name
            )


def _read(image: ImageFile, shape: tuple[int, int, int]) -> Any:
    """Return uint8 pixels of a shape, or the problem."""
    import numpy as np
    import tensorflow as tf

    from tfrtool.images.audit import audit_image, render_image
    from tfrtool.images.recipe import Encode, ImageRecipe

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
            drawn = render_image(data, ImageRecipe(encode=Encode.RAW))
            pixels = np.frombuffer(drawn.data, np.uint8).reshape(drawn.height, drawn.width, 3)
    except tf.errors.OpError as error:
        return _undecoded(error)
    except SourceError as error:
        return f"can't be decoded: {error.found}"
    return _resized(pixels, shape)


def _read_record(image: RecordImage, shape: tuple[int, int, int]) -> Any:
    """Return uint8 pixels of a shape, as the loader decodes them, or the problem."""
    import tensorflow as tf

    if image.decode is None:
        return image.problem
    try:
        return _resized(image.decode(), shape)
    except (tf.errors.OpError, ValueError) as error:
        return _undecoded(error)


def _undecoded(error: Exception) -> str:
    """Return why TensorFlow can't decode an image, without the name of its operation."""
    reason = " ".join(str(getattr(error, "message", error)).rpartition("} ")[2].split())[:200]
    return f"can't be decoded: {reason}"


def _resized(pixels: Any, shape: tuple[int, int, int]) -> Any:
    import tensorflow as tf

    from tfrtool.loading.decoding import as_channels, rounded

    return as_channels(rounded(tf.image.resize(pixels, shape[:2])), shape[2]).numpy()


def find_images(arguments: Paths) -> tuple[ImageFile, ...]:
    """Find the images of files, directories, patterns and URLs of these.

    A file is taken whatever its name. A directory stands for all files below it with names of
    images, and a pattern for its matches, and those below directories that it matches. Each path
    comes once, in the order of the arguments, and in natural order for each of them.
    """
    found: dict[str, ImageFile] = {}
    for argument in (arguments,) if isinstance(arguments, str | os.PathLike) else arguments:
        for image in _expand(os.fspath(argument)):
            found.setdefault(image.path, image)
    return tuple(found.values())


def _expand(argument: str) -> list[ImageFile]:
    shown = as_text(argument) if is_url(argument) else argument  # without secrets
    if not argument:  # Path would make the current directory of it
        return [ImageFile(argument, "the path is empty")]
    relative = is_pattern(argument) and not Path(argument).is_absolute()
    try:
        if is_url(argument):
            listing = list_store(argument)
        elif Path(argument).is_dir():
            listing = list_directory(argument)
        else:
            named = os.path.lexists(argument) or not is_pattern(argument)
            listing = None if named else list_matches(argument)
        if listing is None:
            return [ImageFile(shown, is_shard=_is_shard(argument))]
        images = []
        for entry in listing.entries:
            is_image, problem = is_image_name(entry.key), entry.problem
            if not is_image:
                problem = why_unread(entry.key, listing.reader) if problem is None else None
            if is_image or problem is not None:
                path = listing.reader.describe(Item(key=entry.key, label="-", bytes=entry.bytes))
                if not is_url(path):  # patterns are listed with absolute paths
                    path = str(Path(os.path.relpath(path) if relative else path))
                images.append(ImageFile(path, problem))
    except SourceError as error:
        return [ImageFile(shown if is_url(argument) else error.path or shown, error.what)]
    images.sort(key=lambda image: natural_order(image.path))
    return images or _find_shards(argument) or [ImageFile(shown, "no images found")]


def _find_shards(argument: str) -> list[ImageFile]:
    """Return the shards that a local directory or pattern without images stands for."""
    if is_url(argument):
        return []
    with suppress(ShardError, DatasetError):
        return [ImageFile(str(path), is_shard=True) for path in find_shards(argument)]
    return []


def _is_shard(argument: str) -> bool:
    """Return whether a local file that isn't named like an image starts with a record."""
    if is_url(argument) or is_image_name(argument):
        return False
    with suppress(OSError), open_regular(argument, buffering=0) as file:
        return starts_record(file.read(_HEAD))
    return False
