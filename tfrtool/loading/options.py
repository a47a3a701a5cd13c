"""Options of datasets and their loading, each declared once."""

import os
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Literal

from tfrtool.declare import Options, declared, option
from tfrtool.errors import UsageError
from tfrtool.images.recipe import LARGEST_SIDE
from tfrtool.loading.augment import Augment, as_augment, augment_help, parse_augment
from tfrtool.loading.augmentations import BEFORE_RESIZE
from tfrtool.storage.arguments import parse_path_fields
from tfrtool.storage.progress import OnProgress, no_progress

PathLike = str | os.PathLike[str]

_HIGHEST = 2**31 - 1
"""TensorFlow's numbers of images and steps have 32 bits."""

Recipe = Literal["tfrtool", "notebook", "naive"]
"""Which pipeline is built: tfrtool's own, the published one of notebooks, or a sequential one."""

Cache = Literal["features", "memory", "disk", "none"]
"""What is kept between epochs, and where: the outputs of a frozen base, in memory, which is for
training and no loader has; images as uint8, in memory or on disk; or nothing."""

Decoding = Literal["exact", "fast"]
"""How JPEGs are decoded that are larger than needed. Fast decodes them at a half, a quarter or an
eighth of their size if the result is still large enough both ways."""


ImageSize = int | tuple[int, int]
"""In pixels: of both sides, or width and height."""

Channels = Literal[1, 3]
"""Gray, or RGB."""


def as_image_size(size: Any, option: str = "image_size") -> ImageSize:
    """Return a size as an int if it is square; `UsageError` if it is not one."""
    sides = (
        [size] if isinstance(size, int) else list(size) if isinstance(size, tuple | list) else []
    )
    valid = all(type(side) is int and 1 <= side <= LARGEST_SIDE for side in sides)
    if not valid or len(sides) not in (1, 2):
        expected = f"N or (width, height), from 1 to {LARGEST_SIDE:,} pixels"
        shown = size_text((sides[0], sides[1])) if len(sides) == 2 else repr(size)
        raise UsageError(f"invalid {option} {shown}"[:100], expected=expected)
    return (sides[0], sides[1]) if sides[1:] not in ([], sides[:1]) else sides[0]


def image_shape(size: ImageSize, channels: int = 3) -> tuple[int, int, int]:
    """Return the height, width and channels of images of a size."""
    width, height = (size, size) if isinstance(size, int) else size
    return height, width, channels


def size_text(size: ImageSize) -> str:
    """Return a size as the command line has it: 224, or 224x160."""
    return str(size) if isinstance(size, int) else f"{size[0]}x{size[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescale:
    """The linear map from pixel values, 0 to 255, to what a model takes: ``x * scale + offset``.

    Both numbers are for all channels, or for each of those that come out.
    """

    scale: float | tuple[float, ...]
    offset: float | tuple[float, ...]
    bgr: bool = False  # the channels are reversed first, as models that came from Caffe want them


_dataset = partial(option, group="Dataset")
_input = partial(option, group="Input pipeline")
_execution = partial(option, group="Execution")
_load = partial(option, cli=None)


_AUTOTUNE = "autotune"
"""The key of ``--loader`` that has no number."""


def _loader(key: str, text: str, *, least: int = 1, most: int = _HIGHEST, **more: Any) -> Any:
    """Declare a number of tfrtool's own pipeline, a key of ``--loader``; None for its default."""
    return _input(None, text, cli=f"--loader {key}", least=least, most=most, **more)


@dataclass(frozen=True, kw_only=True)
class BatchOptions(Options):
    """How many images are loaded at once."""

    batch_size: int = _input(
        32, "Number of images per batch.", metavar="N", least=1, most=_HIGHEST, common=True
    )


@dataclass(frozen=True, kw_only=True)
class PipelineOptions(BatchOptions):
    """How records become batches, for `tfrtool.Dataset.load` and for runs of training."""

    channels: Channels = option(3, "Channels of the images: 3 for RGB, 1 for gray.", group="Model")
    seed: int = option(
        0,
        "Random seed for image order and augmentation, and in training for initial weights.",
        metavar="N",
        group="Optimization",
        least=0,
        most=2**32 - 1,
    )
    recipe: Recipe = _input(
        "tfrtool",
        "tfrtool's own pipeline, or for comparison the common tf.data pipeline of notebooks or a "
        "naive sequential one.",
        on_resume="free",
    )
    cache_directory: PathLike | None = _input(
        None,
        "Directory of the disk cache.  [default: in the user cache directory]",
        metavar="DIR",
        cli="--cache-dir",
        path="local output",
        on_resume="free",
    )
    decode: Decoding = _input(
        "exact",
        "fast decodes large JPEGs at 1/2, 1/4 or 1/8 of their size, but not below the image size.",
    )
    augment: Augment | str | None = _input(
        None, augment_help(), metavar="LIST", parse=parse_augment, common=True
    )
    cycle_length: int | None = _loader(
        "cycle",
        "Shards to read in parallel.  [default: 4, or 16 while training fills a cache in memory]",
    )
    block_length: int | None = _loader(
        "block", "Consecutive records to take from a shard.  [default: 1]"
    )
    parallel_calls: int | None = _loader(
        "calls", "Images to decode ahead.  [default: 8 per core]", most=1024, on_resume="free"
    )
    batched_parse: int | None = _loader(
        "parse", "Records to parse at once.  [default: 1]", most=1024, on_resume="free"
    )
    shuffle_buffer: int | None = _loader(
        "shuffle",
        "Images in the shuffle buffer.  [default: all images cached in memory, 128 MiB of those "
        "cached on disk, otherwise 1024 or 32 MiB of records]",
    )
    prefetch: int | None = _loader(
        "prefetch", "Batches to prefetch.  [default: 2]", least=0, on_resume="free"
    )
    autotune: bool = _input(
        False,
        "Let tf.data tune calls, prefetch and threads while it runs.",
        cli=f"--loader {_AUTOTUNE}",
        on_resume="free",
    )
    deterministic: bool = _input(
        True,
        "Use the image order given by the seed, or take images as soon as they are ready.",
        cli="--deterministic/--no-deterministic",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "augment", as_augment(self.augment))
        parse_path_fields(self, "cache_directory")


LOADER_KEYS = {
    one.flag.removeprefix("--loader "): one.name
    for one in declared(PipelineOptions)
    if one.flag.startswith("--loader ")
}
"""The options that ``--loader`` sets, by their keys."""


def parse_loader(text: str) -> dict[str, int | None]:
    """Parse ``cycle=8,prefetch=auto,autotune``: return options and values, None for auto."""
    values = dict[str, int | None]()
    for part in text.split(","):
        key, equals, number = (word.strip() for word in part.partition("="))
        if key not in LOADER_KEYS or (key == _AUTOTUNE and equals):
            keys = ", ".join(one for one in LOADER_KEYS if one != _AUTOTUNE)
            expected = f"{_AUTOTUNE}, or KEY=N, where KEY is one of {keys}"
            raise UsageError(f"invalid --loader {part.strip()[:100]!r}", expected=expected)
        if LOADER_KEYS[key] in values:
            raise UsageError(f"--loader has {key} twice")
        if key == _AUTOTUNE:
            values[key] = True
            continue
        if number != "auto" and not (number.isascii() and number.isdigit() and len(number) < 10):
            shown = repr(number[:100])
            raise UsageError(f"invalid --loader {key} {shown}", expected="a whole number or auto")
        values[LOADER_KEYS[key]] = None if number == "auto" else int(number)
    return values


def _loader_help() -> str:
    """Return the help of ``--loader``."""
    texts = {one.name: one.spec.help.partition("  [")[0] for one in declared(PipelineOptions)}
    keys = [f"{key}: {texts[name].lower()}" for key, name in LOADER_KEYS.items()]
    return f"Numbers of tfrtool's own pipeline, such as cycle=8,prefetch=auto. {' '.join(keys)}"


@dataclass(frozen=True, kw_only=True)
class LoaderOption(Options):
    """What the command line has for the options in `LOADER_KEYS`."""

    loader: Mapping[str, int | None] | None = _input(
        None, _loader_help(), metavar="KEY=N[,KEY=N...]", parse=parse_loader
    )


@dataclass(frozen=True, kw_only=True)
class FeatureOptions(Options):
    """Where the images and labels of a dataset are."""

    image_feature: str | None = _dataset(
        None, "Feature with the images.  [default: detected]", metavar="NAME"
    )
    label_feature: str | None = _dataset(
        None,
        "Feature with the labels: class numbers, class names, or vectors of 0 and 1; or features "
        "A,B of 0 and 1, one per label.  [default: detected]",
        metavar="NAME",
        common=True,
    )
    decode_function: str | Callable[[Any], Any] | None = _dataset(
        None, "Function that decodes records of other forms.", metavar="FILE.py:FUNCTION"
    )
    shard_cache: PathLike | None = _input(
        None,
        "Local directory for shards that are downloaded from an object store.  [default: in the "
        "user cache directory]",
        metavar="DIR",
        path="local output",
        on_resume="free",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decode_function is not None and (self.image_feature or self.label_feature):
            raise UsageError("--decode-function excludes --image-feature and --label-feature")


@dataclass(frozen=True, kw_only=True)
class OpenOptions(FeatureOptions):
    """How a directory of shards is opened as a dataset."""

    on_error: Literal["stop", "skip"] = _dataset(
        "stop",
        "Stop at the first damaged record, or skip damaged records and list them (exit code 3).",
    )
    task: Literal["classification", "regression"] | None = _dataset(
        None,
        "What the labels are: classes, or numbers to predict. None takes what an evaluated model "
        "predicts, or classes.",
        cli=None,
    )


@dataclass(frozen=True)
class LoadOptions(PipelineOptions):
    """How records become batches of images and labels."""

    split: str = _load(
        "train",
        'name of the split, or several as one, or slices as in TFDS: "train[:80%]+test[10:20]".',
    )
    _: KW_ONLY
    image_size: ImageSize = _load(
        ..., "size to which images are resized, in pixels: N for N x N, or (width, height)."
    )
    rescale: Rescale | tuple[float, float] | None = _load(
        (1 / 255, 0.0),
        "(scale, offset) applied to the pixel values 0 to 255: ``value * scale + offset``. None "
        "returns them unchanged, as uint8.",
    )
    holdout: float | None = _load(
        None,
        "fraction of the split to hold out, between 0 and 1, or None. The held-out records depend "
        "only on the shards and this number.",
    )
    held_out: bool = _load(False, "whether to load the held-out part instead of the rest.")
    limit: int | None = _load(
        None,
        "largest number of images to load, the first ones of each shard in proportion to its "
        "size. None loads all.",
        least=1,
    )
    one_hot: bool = _load(
        False,
        "whether labels are one-hot vectors, float32 [batch, classes], instead of class numbers.",
    )
    cache: Cache = _load(
        "none",
        'where to keep decoded images. "features" is for training only. The recipe "notebook" '
        'always caches float32 in memory, "naive" never caches.',
    )
    training: bool = _load(
        True,
        "whether the order changes from epoch to epoch. Otherwise the order is fixed and images "
        "are not augmented.",
    )
    epochs: int = _load(
        1,
        "number of epochs per iterator. A batch never spans two epochs.",
        least=1,
        most=_HIGHEST,
    )
    first_epoch: int = _load(
        0,
        "number of the first epoch. Order and augmentation depend only on the seed and this "
        "number.",
        least=0,
        most=_HIGHEST,
    )
    first_step: int = _load(
        0,
        "number of batches to skip in the first epoch, to continue where an earlier iterator "
        "stopped. The cardinality is then unknown, since later iterators may have full epochs.",
        least=0,
        most=_HIGHEST,
    )
    context: Any = _load(
        None,
        "the ``tf.distribute.InputContext`` passed by ``distribute_datasets_from_function``. The "
        "pipeline then reads its worker's share of the records, in batches of its replicas' share.",
    )
    on_progress: OnProgress = _load(
        no_progress, "called regularly while a cache on disk is written."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "image_size", as_image_size(self.image_size))
        if self.holdout is not None and not 0 < self.holdout < 1:
            raise UsageError(f"holdout must be between 0 and 1, got {self.holdout}")
        if self.cache == "features":
            raise UsageError("--cache features applies to training only")
        augment = as_augment(self.augment)
        if augment is not None and self.training:
            self._check_augment(augment)
        if self.recipe == "tfrtool":
            return
        # The published pipelines are compared, and not changed.
        refused = {"first_step", "decode", *LOADER_KEYS.values()}
        refused |= {"augment"} if self.recipe == "notebook" else set()
        for one in declared(LoadOptions):
            if one.name in refused and getattr(self, one.name) != one.default:
                raise UsageError(f"{one.flag} can't be used with --recipe {self.recipe}")

    def _check_augment(self, augment: Augment) -> None:
        if augment.mixes and not self.one_hot:
            raise UsageError("mixup and cutmix require one_hot")
        if augment.mixes and self.recipe != "tfrtool":
            raise UsageError("mixup and cutmix require --recipe tfrtool")
        others = self.recipe != "tfrtool", self.decode != "exact", self.cache != "none"
        if augment.is_before_resize and any(others):
            expected = "--recipe tfrtool, --decode exact and no cache"
            raise UsageError(f"--augment with {BEFORE_RESIZE} requires {expected}")

    @property
    def early_augment(self) -> Augment | None:
        """The augmentation, if it changes images before they are resized."""
        augment = as_augment(self.augment) if self.training else None
        return augment if augment is not None and augment.is_before_resize else None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the images."""
        return image_shape(self.image_size, self.channels)

    @property
    def linear(self) -> Rescale | None:
        """What pixel values become; None leaves them as uint8."""
        if self.rescale is None or isinstance(self.rescale, Rescale):
            return self.rescale
        scale, offset = self.rescale
        return Rescale(scale=scale, offset=offset)

    def count(self, records: int) -> int:
        """Return how many of a split's records are loaded."""
        count = self.count_held(records)
        count = count if self.held_out else records - count
        return count if self.limit is None else min(count, self.limit)

    def count_held(self, records: int) -> int:
        """Return how many of a split's records are held out."""
        return int(records * (self.holdout or 0))


@dataclass(frozen=True, kw_only=True)
class BenchOptions(FeatureOptions, BatchOptions):
    """What to load, and how often."""

    split: str = _dataset("train", "Split to load.", metavar="NAME")
    image_size: int = _input(224, "Resize images to N x N pixels.", metavar="N", least=8, most=4096)
    decode: Decoding = _input("exact", "How tfrtool decodes JPEGs that are larger than needed.")
    epochs: int = _execution(2, "Epochs per run: a first, and later ones.", metavar="N", least=2)
    rounds: int = _execution(3, "How often to measure each pipeline.", metavar="N", least=1)
    limit: int = _execution(2000, "Images to load at least, in whole shards.", metavar="N", least=1)
    on_progress: OnProgress = option(no_progress, "called before each run.", cli=None)
