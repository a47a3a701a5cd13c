"""What to train, on what, and how long: the keywords of `train`, checked."""

import enum
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from tfrtool.errors import DatasetError, UsageError, os_errors_as, printable, reason_of
from tfrtool.loading.options import Augment, Cache, Decoding, LoadOptions, Recipe, parse_augment
from tfrtool.storage.arguments import (
    OnError,
    as_local_path,
    as_member,
    as_path,
    check_least,
    make_options,
    option_name,
    parse_enum_fields,
    parse_path_fields,
)
from tfrtool.storage.opening import read_bounded
from tfrtool.training.devices.worker_cluster import StrategyKind
from tfrtool.training.models.model_choice import (
    CNN,
    IMAGENET,
    NO_WEIGHTS,
    is_own,
    known_sizes,
    model_name,
    own_name,
)
from tfrtool.training.models.optimizers import FACTORS, Optimizer, Schedule

KNOBS = ("cycle_length", "block_length", "parallel_calls", "shuffle_buffer", "prefetch")
"""The numbers of our loader; None for each is its own default."""

_LOADED = (
    *("split", "batch_size", "recipe", "seed", "cache_directory", "augment", "epochs"),
    *("decode", "deterministic", *KNOBS),
)
"""What has the same name in `LoadOptions`."""

RUN_FILE = "run.json"
"""What the record of a run's options is called in its directory."""

_OF_A_CALL = frozenset({"own", "out", "resume"})
"""What is not recorded."""

_FREE = _OF_A_CALL | {
    *("dataset", "cache_directory", "parallel_calls", "prefetch", "recipe", "export"),
    *("tensorboard", "profile", "shard_cache", "strategy", "worker_timeout"),
    "shares",
}
"""What may differ where a run is resumed: it changes where files are, or how fast it goes. Shares
are those of the workers."""

_WRITTEN_TO = {
    "tensorboard": "--tensorboard",
    "cache_directory": "--cache-dir",
    "shard_cache": "--shard-cache",
}
"""Folders that training writes to, by the names of their options."""

_AUTO = "auto"

_DAY = 86_400.0

_HEAD_RATE = 1e-3
"""Keras' own default for Adam."""

_RANDOM_RATE = 3e-4
"""On 1,000 photographs the cnn's validation accuracy after 5 epochs was 0.65, 0.57 and 0.64 with
this (seeds 0, 1 and 2), and 0.50, 0.51 and 0.64 with 0.001."""

_TUNING_RATE = _HEAD_RATE / 10
"""TensorFlow's tutorial on transfer learning tunes loaded layers at a tenth of the head's rate."""


class Precision(enum.Enum):
    """What a model computes in; the values are those of the CLI, and of Keras' dtype policies.

    BFLOAT16 has the range of float32, and 8 bits of precision instead of 24; it is for a frozen
    base alone, and what is saved computes in float32. Mixed layers compute in 16 bits, whenever
    they are used, and have weights in float32.
    """

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    MIXED_BFLOAT16 = "mixed_bfloat16"
    MIXED_FLOAT16 = "mixed_float16"

    @property
    def policy(self) -> str:
        """The dtype policy of the layers."""
        return Precision.FLOAT32.value if self is Precision.BFLOAT16 else self.value


class Export(enum.Enum):
    """In which form a model is saved, too; the values are those of the CLI."""

    SAVED_MODEL = "saved_model"
    TFLITE = "tflite"


class ClassWeights(enum.Enum):
    """How the loss of an image is weighted by its class: BALANCED, so that all count alike."""

    BALANCED = "balanced"


@dataclass(frozen=True, slots=True)
class FineTune:
    """A second phase of a run: layers from one on are trained, for so many epochs."""

    layer: str
    epochs: int | None = None  # as many as the first phase has

    @classmethod
    def of(cls, text: str) -> "FineTune":
        """Make it of "LAYER" or "LAYER:EPOCHS"."""
        layer, colon, epochs = text.partition(":")
        number = int(epochs) if epochs.isascii() and epochs.isdigit() and len(epochs) < 9 else 0
        if not layer or (colon and number < 1):
            raise UsageError(f"invalid --fine-tune {text!r}: expected LAYER or LAYER:EPOCHS")
        return cls(layer, number or None)

    def __str__(self) -> str:
        return self.layer if self.epochs is None else f"{self.layer}:{self.epochs}"


class RescaleTo(enum.Enum):
    """What pixel values become.

    MODEL is the range that the model was trained on, UNIT is 0 to 1. DATASET makes the mean of
    each channel 0 and its standard deviation 1 over the images that are trained on.
    """

    MODEL = "model"
    UNIT = "unit"
    DATASET = "dataset"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """The keywords of `train`, which says what each means; words become members."""

    dataset: Path
    split: str = "train"
    validation: str | float | None = None
    image_feature: str | None = None
    label_feature: str | None = None
    model: str = "mobilenet_v2"  # or what `own` says
    own: Any = None  # a function or a keras.Model, of which ``model`` is the name
    weights: str | None = None
    trainable: str = _AUTO
    image_size: int | None = None
    rescale: RescaleTo = RescaleTo.MODEL
    epochs: int = 5
    fine_tune: FineTune | None = None
    batch_size: int = 32
    learning_rate: float | None = None
    optimizer: Optimizer = Optimizer.ADAM
    schedule: Schedule = Schedule.CONSTANT
    class_weights: ClassWeights | None = None
    seed: int = 0
    recipe: Recipe = Recipe.TFRTOOL
    cache: Cache | None = None
    cache_directory: Path | None = None
    decode: Decoding = Decoding.EXACT
    cycle_length: int | None = None
    block_length: int | None = None
    parallel_calls: int | None = None
    shuffle_buffer: int | None = None
    prefetch: int | None = None
    deterministic: bool = True
    augment: Augment | None = None
    precision: Precision = Precision.FLOAT32
    on_error: OnError = OnError.STOP
    shard_cache: Path | None = None
    early_stopping: int | None = None
    out: Path | None = None
    resume: bool = False
    export: tuple[Export, ...] = ()  # or words, or one of them
    tensorboard: Path | None = None
    profile: bool = False
    strategy: StrategyKind = StrategyKind.AUTO
    worker_timeout: float = 600.0
    shares: int | None = None

    def __post_init__(self) -> None:
        self._take_words()
        self.loading(self.size)
        if not 32 <= self.size <= 4096:
            raise UsageError(f"--image-size must be from 32 to 4096, got {self.size}")
        check_least({"early_stopping": self.early_stopping}, {"early_stopping": 1})
        if self.learning_rate is not None and not 0 < self.learning_rate < 1e3:
            raise UsageError(
                f"--learning-rate must be above 0 and below 1000, got {self.learning_rate:g}"
            )
        if isinstance(self.validation, float) and not 0 < self.validation < 1:
            raise UsageError(
                "--validation must be a split name or a fraction between 0 and 1, got "
                f"{self.validation:g}"
            )
        if self.resume and self.out is None:
            raise UsageError("--resume requires the directory of the run", hint="use --out DIR")
        if self.export and self.out is None:
            raise UsageError("--export requires --out")
        if not 0 < self.worker_timeout <= _DAY:
            raise UsageError(
                f"--worker-timeout must be above 0 and at most {_DAY}, got {self.worker_timeout:g}"
            )
        if self.shares is not None and not 1 <= self.shares <= self.batch_size:
            raise UsageError(
                f"--shares must be from 1 to the batch size, {self.batch_size}, got {self.shares}"
            )
        if self.profile and self.profile_folder is None:
            raise UsageError("--profile requires a directory", hint="use --tensorboard or --out")
        if self.cache_directory is not None and self.cache not in (None, Cache.DISK):
            raise UsageError(f"--cache-dir and --cache {self.cache.value} cannot be used together")
        if self.weights == IMAGENET and (self.model == CNN or is_own(self.model)):
            raise UsageError(
                f"no ImageNet weights for --model {self.model}", expected="--weights none or FILE"
            )
        if self.recipe is not Recipe.TFRTOOL:
            # The published pipelines are compared, and not changed.
            recipe = f"cannot be used with --recipe {self.recipe.value}"
            if self.cache is not None:
                raise UsageError(f"--cache {recipe}, which has its own")
            if not self.deterministic:
                raise UsageError(f"--no-deterministic {recipe}")
            if self.strategy not in (StrategyKind.AUTO, StrategyKind.ONE):
                raise UsageError(f"--strategy {self.strategy.value} {recipe}")
            if self.resume:
                raise UsageError(f"--resume {recipe}: its order of images can't be restored")
        if self.fine_tune is not None and self.trained == "all" and not is_own(self.model):
            raise UsageError(
                "--fine-tune has nothing to add: all layers are trained already",
                hint="use --trainable head, or a layer after that of --fine-tune",
            )
        if self.precision is Precision.BFLOAT16 and not self.keeps_features:
            # A step of MobileNetV2 in bfloat16 took 1.5 times the CPU time of one in float32, on a
            # processor with AVX512_BF16: oneDNN has no fast ways back through its convolutions.
            raise UsageError(
                f"--precision {self.precision.value} requires a frozen base with cached features",
                hint="use a model of keras.applications, --trainable head, --cache features "
                "or auto, --recipe tfrtool, and no --augment",
            )

    def _take_words(self) -> None:
        """Make of words and strings what they stand for."""
        if not isinstance(self.model, str):
            if not callable(self.model):
                raise UsageError(
                    "invalid model",
                    expected="a name, a function of image size and number of classes, or a "
                    "keras.Model",
                    found=type(self.model).__name__,
                )
            object.__setattr__(self, "own", self.model)
            object.__setattr__(self, "model", own_name(self.model))
        for name, kind in (
            ("model", model_name),
            ("augment", parse_augment),
            ("fine_tune", FineTune.of),
        ):
            if isinstance(getattr(self, name), str) and not (name == "model" and self.own):
                object.__setattr__(self, name, kind(getattr(self, name)))
        if getattr(self.cache, "value", self.cache) == _AUTO:
            object.__setattr__(self, "cache", None)
        if self.cache is None and self.cache_directory is not None:
            object.__setattr__(self, "cache", Cache.DISK)
        parse_enum_fields(self, rescale=RescaleTo, recipe=Recipe, cache=Cache, precision=Precision)
        parse_enum_fields(self, on_error=OnError, optimizer=Optimizer, schedule=Schedule)
        export = [self.export] if isinstance(self.export, str | Export) else self.export or ()
        members = dict.fromkeys(as_member(Export, one, "export") for one in export)
        object.__setattr__(self, "export", tuple(members))
        parse_enum_fields(self, strategy=StrategyKind, class_weights=ClassWeights, decode=Decoding)
        parse_path_fields(self, "dataset", "cache_directory", "out", "tensorboard", "shard_cache")
        if self.weights is not None:
            object.__setattr__(self, "weights", str(as_path(self.weights)))
        if not self.trainable:
            raise UsageError(
                "invalid --trainable ''", expected="auto, head, all or the name of a layer"
            )

    def loading(self, image_size: int) -> LoadOptions:
        """Return how images are loaded to be trained on, as uint8 of this size, without a cache."""
        shared = {name: getattr(self, name) for name in _LOADED}
        return LoadOptions(image_size=image_size, rescale=None, **shared)

    def request(self) -> dict[str, Any]:
        """Return the options that a run's weights depend on, as JSON values by name."""
        values = {name: value for name, value in self._plain().items() if name not in _FREE}
        weights = self.initial_weights
        if weights not in (IMAGENET, NO_WEIGHTS):
            weights = Path(weights).name  # which may have been moved
        model = self.model
        if is_own(model):
            file, _, function = model.rpartition(":")
            model = f"{Path(file).name}:{function}"
        values |= {"model": model, "weights": weights, "learning_rate": self.rate}
        return {name.replace("_", " "): value for name, value in values.items()}

    def record(self) -> dict[str, Any]:
        """Return all options but the directory of the run, as JSON values; paths are absolute."""
        values = {name: one for name, one in self._plain().items() if name not in _OF_A_CALL}
        if self.weights not in (None, IMAGENET, NO_WEIGHTS):
            values["weights"] = str(as_path(str(self.weights)).absolute())
        return values

    def _plain(self) -> dict[str, Any]:
        def plain(value: Any) -> Any:
            if isinstance(value, Path):
                return str(value.absolute())
            return getattr(value, "value", str(value))

        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "own"}
        made: dict[str, Any] = json.loads(json.dumps(values, default=plain))
        return made

    @property
    def second_phase(self) -> "TrainOptions | None":
        """What the second phase is trained by, as if it were a run; None where there is none.

        Loaded layers are tuned at a tenth of the rate of what was trained before.
        """
        if self.fine_tune is None:
            return None
        return replace(
            self,
            trainable=self.fine_tune.layer,
            fine_tune=None,
            epochs=self.fine_tune.epochs or self.epochs,
            learning_rate=self.rate * _TUNING_RATE / _HEAD_RATE,
            cache=None if self.cache is Cache.FEATURES else self.cache,
            precision=Precision.FLOAT32 if self.precision is Precision.BFLOAT16 else self.precision,
        )

    @property
    def trained(self) -> str:
        """Which layers are trained: "head", "all", or the name of the first of them."""
        if self.trainable != _AUTO:
            return self.trainable
        return "all" if self.initial_weights == NO_WEIGHTS else "head"

    @property
    def freezes_base(self) -> bool:
        """Whether only a head is trained, on a base that gives an image the same features."""
        small = self.model == CNN or is_own(self.model)
        return not small and self.trained == "head"

    @property
    def keeps_features(self) -> bool:
        """Whether the frozen base's outputs are kept, if there is room for them."""
        ours = self.recipe is Recipe.TFRTOOL and self.cache in (None, Cache.FEATURES)
        return ours and self.freezes_base and self.augment is None

    @property
    def size(self) -> int:
        """The image size in pixels, the model's own where none is given."""
        if self.image_size is not None:
            return self.image_size
        shape = getattr(self.own, "input_shape", None)  # of a keras.Model that is built
        given = shape[1] if isinstance(shape, tuple) and len(shape) == 4 else None
        return given or known_sizes(self.model)[0]

    @property
    def rate(self) -> float:
        """The learning rate; without one, larger steps would spoil loaded weights below a head."""
        if self.learning_rate is not None:
            return self.learning_rate
        random = self.initial_weights == NO_WEIGHTS or self.model == CNN
        rate = _RANDOM_RATE if random else _TUNING_RATE
        if self.trained == "head":
            rate = _HEAD_RATE
        return rate * FACTORS.get(self.optimizer, 1.0)

    @property
    def initial_weights(self) -> str:
        """What weights to start from, the model's own default where none are given."""
        small = self.model == CNN or is_own(self.model)
        return self.weights or (NO_WEIGHTS if small else IMAGENET)

    @property
    def profile_folder(self) -> Path | None:
        """Where the trace of some steps goes; None for nowhere."""
        folder = self.tensorboard or (self.out and self.out / "profile")
        return folder if self.profile else None


def resumed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of `train`, ``dataset`` included, with those that a run recorded.

    Of a run that is resumed, its record has what the caller did not give.

    Raises:
        UsageError: an option contradicts the record, or the model is code, which nothing but the
            caller may name.
        DatasetError: the record can't be used.
    """
    given = {name: value for name, value in options.items() if (name, value) != ("dataset", None)}
    out = as_local_path(given["out"]) if given.get("out") is not None else None
    if not given.get("resume") or out is None or not os.path.lexists(out / RUN_FILE):
        if "dataset" not in given:
            hint = "pass it, or use --resume with the --out of an earlier run"
            raise UsageError("no DATASET given", hint=hint)
        return given
    path = out / RUN_FILE
    try:
        with os_errors_as(DatasetError, path):
            values = json.loads(read_bounded(path, follow=False))
        recorded = {"dataset": values["dataset"], **values["options"]}
        _check_types(recorded)
        before = make_options(TrainOptions, **recorded, out=out)
    except (UsageError, ValueError, LookupError, TypeError, RecursionError) as error:
        broken = isinstance(error, json.JSONDecodeError)
        what = f"unusable record of the run: {'not JSON' if broken else reason_of(error)}"
        raise DatasetError(what, path=path, hint="delete it and pass all options") from error
    if is_own(before.model) and "model" not in given:
        raise UsageError(
            f"the run's model {printable(before.model)[:200]} is your own code",
            path=path,
            hint="pass it again with --model",
        )
    for name in _WRITTEN_TO:
        place = recorded.pop(name, None)
        if place is not None and name not in given:
            _check_inside(out, name, place, path)
            given[name] = place
    now = make_options(TrainOptions, **{**recorded, **given})
    check_same(out, before.request(), now.request())
    return {**recorded, **given}


def _check_inside(out: Path, name: str, place: str, record: Path) -> None:
    """Check that a recorded folder, which training writes to, is in the directory of the run.

    The record may be somebody else's: it must not choose where files are made.
    """
    if not Path(place).resolve().is_relative_to(out.resolve()):
        option = _WRITTEN_TO[name]
        raise UsageError(
            f"the run wrote to {printable(place)[:200]}, which is outside its directory",
            path=record,
            hint=f"pass it again with {option}",
        )


def _check_types(recorded: Mapping[str, Any]) -> None:
    """Check that values have the types of their options, as JSON; a `TypeError` names one."""
    hints = get_type_hints(TrainOptions)
    for name, value in recorded.items():
        kinds = get_args(hints.get(name)) or (hints.get(name),)
        plain = {one if one in (bool, int, float, type(None)) else str for one in kinds}
        if name == "export":
            fits = isinstance(value, list) and all(isinstance(one, str) for one in value)
        else:
            fits = type(value) in plain or (type(value) is int and float in plain)
        if name in _OF_A_CALL or not fits:
            raise TypeError(f"{printable(name)[:100]} has the wrong type")


def check_same(
    out: Path, old: Mapping[str, Any], new: Mapping[str, Any], epochs_done: int = 0
) -> None:
    """Check that a run that is resumed is the one that was begun; there may be more epochs.

    Args:
        out: the directory of the run.
        old: what `TrainOptions.request` returned when it was begun, and of its dataset.
        new: what it returns now.
        epochs_done: how many epochs there may not be fewer of.

    Raises:
        UsageError: something differs; names it.
    """
    if new.get("schedule") != Schedule.COSINE.value and new.get("fine tune") is None:
        # More epochs may follow, and fewer than were done can't be asked for.
        old = {**old, "epochs": max(epochs_done, new["epochs"])}
    differ = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    if differ:
        expected, found = (
            ", ".join(
                f"{option_name(name.replace(' ', '_'))} {json.dumps(one.get(name))}"
                for name in differ
            )
            for one in (old, new)
        )
        raise UsageError(
            "its run was started with other options",
            path=out,
            expected=expected,
            found=found,
            hint="choose another directory for another run",
        )
