"""How records become batches."""

import enum
import os
from dataclasses import dataclass
from pathlib import Path

from tfrtool.declare import Options, option
from tfrtool.errors import UsageError
from tfrtool.storage.arguments import check_least, option_name, parse_enum_fields, parse_path_fields
from tfrtool.storage.progress import OnProgress, no_progress

_OURS = {
    **dict.fromkeys(("cycle_length", "block_length", "parallel_calls"), 1),
    **{"shuffle_buffer": 1, "prefetch": 0},
}
"""What the published recipes have no choice of, and the least that makes sense."""

_MOST_CALLS = 1024
_INPUT, _RUNS = "Input pipeline", "Execution"

_LEAST = {"image_size": 1, "batch_size": 1, "epochs": 1, **_OURS}
_LEAST |= {"first_epoch": 0, "first_step": 0}


_LARGEST_SIDE = 16_384

_KINDS: dict[str, tuple[type, float, str, float]] = {
    "flip": (bool, 1, "", 1),
    "flip-vertical": (bool, 1, "", 1),
    "rotate": (float, 180, "DEGREES", 0),
    "crop": (int, _LARGEST_SIDE, "PIXELS", 0),
    "cutout": (int, _LARGEST_SIDE, "PIXELS", 0),
    "brightness": (float, 1, "AMOUNT", 0.125),
    "contrast": (float, 1, "AMOUNT", 0.5),
    "saturation": (float, 1, "AMOUNT", 0.5),
    "hue": (float, 0.5, "AMOUNT", 0.2),
}
"""Of each augmentation the type of its number (bool for none), the largest one, what it is called
in messages, and the one where none is given (0 where one must be). The default amounts are those
of TF-Slim's inception_preprocessing.distort_color, which trained the Inception models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Augment:
    """How images are changed at random; each image of each epoch anew, and in this order.

    Every number is the most, and drawn evenly. 0 leaves an operation out. What comes into view
    from beyond an image's edges is its reflection.
    """

    flip: bool = False  # left becomes right in half of the images
    flip_vertical: bool = False
    crop: int = 0  # a shift by so many pixels both ways
    rotate: float = 0.0  # about the centre by so many degrees, left or right; bilinear
    brightness: float = 0.0  # this part of the full range is added or taken away
    contrast: float = 0.0  # distances from a channel's mean are multiplied by 1 plus or minus this
    saturation: float = 0.0  # (of hue, saturation and value) is multiplied in the same way
    hue: float = 0.0  # is turned by this part of the full circle, either way
    cutout: int = 0  # a grey square of so many pixels a side, which an edge may cut off

    def __str__(self) -> str:
        """Return what `parse_augment` makes this from."""
        parts = []
        for name, (_, _, _, default) in _KINDS.items():
            value = getattr(self, name.replace("-", "_"))
            if value:
                number = f"={str(value).removesuffix('.0')}"
                parts.append(name if value == default else name + number)
        return ",".join(parts)


def parse_augment(text: str) -> Augment:
    """Read names separated by commas, some with ``=NUMBER``, such as ``flip,rotate=40,hue``.

    The order has no meaning. It is a `UsageError` if a name is unknown or given twice, or a number
    is missing or impossible.
    """
    values: dict[str, float] = {}
    for notation in text.split(","):
        name, equals, number = (part.strip() for part in notation.partition("="))
        if name not in _KINDS:
            choices = ", ".join(map(_notation, _KINDS))
            raise UsageError(f"invalid --augment {name!r}", expected=choices)
        field = name.replace("-", "_")
        if field in values:
            raise UsageError(f"--augment has {name} twice")
        kind, most, _, value = _KINDS[name]
        if equals:
            try:
                value = 0 if kind is bool else kind(number)
            except ValueError:
                value = 0
        if not 0 < value <= most:
            expected = _notation(name)
            if kind is not bool:
                whole = "a whole number " if kind is int else ""
                expected += f", {whole}above 0 and up to {most:,g}"
            raise UsageError(f"invalid --augment {notation!r}", expected=expected)
        values[field] = kind(value)
    return Augment(**values)  # type: ignore[arg-type]  # each field's own type, by its kind


def _notation(name: str) -> str:
    kind, _, unit, default = _KINDS[name]
    if kind is bool:
        return name
    return f"{name}[={unit}]" if default else f"{name}={unit}"


class Recipe(enum.Enum):
    """Which pipeline is built: ours, the published one, or a sequential one."""

    TFRTOOL = "tfrtool"
    NOTEBOOK = "notebook"
    NAIVE = "naive"


class Cache(enum.Enum):
    """What is kept between epochs, and where; the values are those of the CLI.

    MEMORY and DISK keep decoded images as uint8. FEATURES keeps what a frozen base makes of them,
    in memory: it is for training, and no loader has it. NONE decodes again in every epoch.
    """

    FEATURES = "features"
    MEMORY = "memory"
    DISK = "disk"
    NONE = "none"


class Decoding(enum.Enum):
    """How JPEGs are decoded that are larger than asked for; the values are those of the CLI.

    FAST decodes them at a half, a quarter or an eighth of their size, where that is still at least
    what was asked for both ways. EXACT, and other formats, are decoded whole.
    """

    EXACT = "exact"
    FAST = "fast"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescale:
    """The linear map from pixel values, 0 to 255, to what a model takes: ``x * scale + offset``.

    Both numbers are for all channels, or for each of the three that come out.
    """

    scale: float | tuple[float, float, float]
    offset: float | tuple[float, float, float]
    bgr: bool = False  # the channels are reversed first, as models that came from Caffe want them


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdout:
    """A part of a split: every so many records, counted shard after shard.

    Which they are is decided by the shards and the fraction alone, so that it is the same in every
    epoch, with every recipe and cache, and in every process.
    """

    fraction: float  # the part that is held out, above 0 and below 1
    held_out: bool  # whether this is that part, or the rest

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1:
            raise UsageError(f"fraction must be between 0 and 1, got {self.fraction}")

    def count(self, records: int) -> int:
        """Return how many of ``records`` records belong to this part."""
        held = self.count_held(records)
        return held if self.held_out else records - held

    def count_held(self, records: int) -> int:
        """Return how many of ``records`` records are held out."""
        return int(records * self.fraction)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How records become batches of images and labels, as `Dataset.load` explains."""

    image_size: int
    split: str = "train"
    rescale: Rescale | None = Rescale(scale=1 / 255, offset=0.0)  # last, in float32
    batch_size: int = 32  # of all replicas together, where a strategy distributes them
    recipe: Recipe = Recipe.TFRTOOL
    cache: Cache = Cache.NONE
    cache_directory: Path | None = None
    decode: Decoding = Decoding.EXACT
    augment: Augment | None = None
    training: bool = True
    seed: int = 0
    epochs: int = 1
    first_epoch: int = 0
    first_step: int = 0  # of the first epoch; the steps before it are left out
    deterministic: bool = True
    cycle_length: int | None = None  # None here and below is the default of our recipe
    block_length: int | None = None
    parallel_calls: int | None = None
    shuffle_buffer: int | None = None
    prefetch: int | None = None
    holdout: Holdout | None = None

    def __post_init__(self) -> None:
        parse_enum_fields(self, recipe=Recipe, cache=Cache, decode=Decoding)
        parse_path_fields(self, "cache_directory")
        check_least({name: getattr(self, name) for name in _LEAST}, _LEAST)
        if (self.parallel_calls or 1) > _MOST_CALLS:  # each has memory set aside
            raise UsageError(
                f"--parallel-calls must be at most {_MOST_CALLS}, got {self.parallel_calls}"
            )
        if not 0 <= self.seed < 2**32:
            raise UsageError(f"--seed must be from 0 to {2**32 - 1}, got {self.seed}")
        if self.cache is Cache.FEATURES:
            raise UsageError("--cache features applies to training only")
        # The published pipelines are compared, and not changed.
        ours = [] if self.recipe is Recipe.TFRTOOL else [*_OURS]
        ours += ["augment"] if self.recipe is Recipe.NOTEBOOK else []
        chosen = {name for name in ours if getattr(self, name) is not None}
        if self.recipe is not Recipe.TFRTOOL:
            chosen |= {"first_step"} if self.first_step else set()
            chosen |= {"decode"} if self.decode is not Decoding.EXACT else set()
        for name in sorted(chosen):
            raise UsageError(
                f"{option_name(name)} cannot be used with --recipe {self.recipe.value}"
            )


@dataclass(frozen=True, kw_only=True)
class BenchOptions(Options):
    """What to load, and how often."""

    split: str = option("train", "Split to load.", metavar="NAME", group="Dataset")
    image_feature: str | None = option(
        None, "Feature with the images.  [default: detected]", metavar="NAME", group="Dataset"
    )
    label_feature: str | None = option(
        None, "Feature with the labels.  [default: detected]", metavar="NAME", group="Dataset"
    )
    decode_function: str | None = option(
        None,
        "Function that decodes records of other forms.",
        metavar="FILE.py:FUNCTION",
        group="Dataset",
    )
    image_size: int = option(
        224, "Resize images to N x N pixels.", metavar="N", least=8, most=4096, group=_INPUT
    )
    batch_size: int = option(32, "Number of images per batch.", metavar="N", least=1, group=_INPUT)
    decode: Decoding = option(
        Decoding.EXACT, "How tfrtool decodes JPEGs that are larger than needed.", group=_INPUT
    )
    shard_cache: str | os.PathLike[str] | None = option(
        None,
        "Local directory for shards that are downloaded from an object store.  "
        "[default: in the user cache directory]",
        metavar="DIR",
        path="local output",
        group=_INPUT,
    )
    epochs: int = option(
        2, "Epochs per run: a first, and later ones.", metavar="N", least=2, group=_RUNS
    )
    rounds: int = option(
        3, "How often to measure each pipeline.", metavar="N", least=1, group=_RUNS
    )
    limit: int = option(
        2000, "Images to load at least, in whole shards.", metavar="N", least=1, group=_RUNS
    )
    on_progress: OnProgress = option(no_progress, "called before each run.", cli=None)
