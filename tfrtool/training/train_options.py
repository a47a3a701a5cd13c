"""Options of a training run and the backend of Keras, checked before TensorFlow is loaded."""

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from tfrtool.declare import as_choice, declared, option
from tfrtool.errors import UsageError, printable
from tfrtool.images.recipe import parse_size
from tfrtool.loading.augment import Augment, as_augment
from tfrtool.loading.augmentations import BEFORE_RESIZE, DATASET_MEAN
from tfrtool.loading.options import (
    ImageSize,
    LoadOptions,
    OpenOptions,
    PathLike,
    PipelineOptions,
    as_image_size,
    image_shape,
    size_text,
)
from tfrtool.storage.arguments import (
    Paths,
    as_path,
    as_paths,
    parse_path_fields,
)
from tfrtool.storage.json_values import read_json
from tfrtool.storage.progress import OnProgress, no_progress
from tfrtool.storage.remote_path import RemotePath

CNN, MOBILENET_V2 = "cnn", "mobilenet_v2"
IMAGENET, NO_WEIGHTS = "imagenet", "none"
PICKLED = "a function of a module, FILE.py:FUNCTION or a keras.Model"
"""Models that can be sent to other processes."""

_BACKEND = "tensorflow"
"""Of Keras."""

HDF5 = (".h5", ".hdf5")
HDF5_HINT = "load it with keras.models.load_model, and save it as a .keras file"

_Kind = TypeVar("_Kind")

_SIZES = {
    "cnn": 300,
    **dict.fromkeys(("xception", "inceptionv3", "inceptionresnetv2"), 299),
    "nasnetlarge": 331,
    **{f"efficientnetb{n + 1}": size for n, size in enumerate((240, 260, 300, 380, 456, 528, 600))},
    **{f"efficientnetv2b{n + 1}": size for n, size in enumerate((240, 260, 300))},
    **{"efficientnetv2s": 384, "efficientnetv2m": 480, "efficientnetv2l": 480},
}
"""Image sizes of models other than 224 pixels: Keras' defaults (tests compare), and for the cnn
that of the horses_or_humans example."""

ADAM, CONSTANT = "adam", "constant"
"""The optimizer and the schedule of models that are not compiled."""

_AUTO = "auto"

_LEAST_SIDE = 32
"""Most models halve their images five times."""

_HEAD_RATE = 1e-3
"""Keras' default for Adam."""

_RANDOM_RATE = 3e-4
"""On 1,000 photographs the cnn's validation accuracy after 5 epochs was 0.65, 0.57 and 0.64 with
this (seeds 0, 1 and 2), and 0.50, 0.51 and 0.64 with 0.001."""

_TUNING_RATE = _HEAD_RATE / 10
"""TensorFlow's tutorial on transfer learning tunes loaded layers at a tenth of the head's rate."""


Precision = Literal["float32", "bfloat16", "mixed_bfloat16", "mixed_float16"]
"""Numeric type of the layers; the mixed ones and float32 are Keras' dtype policies."""

Head = Literal["softmax", "sigmoid"]
Outputs = Literal["probabilities", "logits"]

EXPORTS = ("saved_model", "tflite")

Strategy = Literal["auto", "one", "mirrored"]

ONE_MACHINE, SEVERAL_MACHINES = (
    "train uses the devices of one machine",
    "follow docs/how-to/several-machines.md to train on several machines",
)
"""An error of runs on several machines, and its hint."""

_RATE_FACTORS = {"sgd": 10.0, "lion": 0.1}
"""Default learning rates relative to Adam's. Keras' default for SGD is ten times that of Adam;
Lion's paper (Chen et al., 2023) uses a tenth to a third of AdamW's."""


def canonical_name(text: str) -> str:
    """Return a model's canonical name: "efficientnetb0" for "EfficientNet-B0".

    Names of functions ("package.module:function", "file.py:function") and of files ("saved.keras")
    are returned unchanged. Whether the model exists is not checked.
    """
    if is_saved(text) or re.fullmatch(r".+:[^\W\d]\w*", text) is not None:
        return text
    key = re.sub(r"[-_ ]", "", str(text).lower())
    if not re.fullmatch(r"[a-z][a-z0-9]*", key):
        raise UsageError(
            f"invalid --model {text!r}",
            expected="mobilenet_v2, cnn, a name of keras.applications, MODULE:FUNCTION or a .keras "
            "file",
            hint=HDF5_HINT if text.lower().endswith(HDF5) else None,
        )
    return MOBILENET_V2 if key == "mobilenetv2" else key


def is_own(model: str) -> bool:
    """Return whether a model's name is that of a user's function, file or ``keras.Model``."""
    return ":" in model or is_saved(model)


def is_saved(model: str) -> bool:
    """Return whether a model's name is that of a file which Keras saved."""
    return model.endswith(".keras")


def check_backend() -> None:
    """Raise a `UsageError` if Keras has another backend, or will have it once it is imported.

    It chooses one by the environment, else by its configuration.
    """
    keras = sys.modules.get("keras")
    backend = os.environ.get("KERAS_BACKEND") if keras is None else keras.config.backend()
    if not backend:
        with suppress(OSError, ValueError, RuntimeError):  # Keras ignores it, too
            home = os.environ.get("KERAS_HOME")
            folder = Path.home() / ".keras" if home is None else Path(home)
            config = read_json(folder / "keras.json")
            backend = str(config.get("backend", _BACKEND)) if isinstance(config, dict) else None
    if backend not in (None, "", _BACKEND):
        what = f"Keras is set to the backend {printable(str(backend))[:100]!r}, but tfrtool needs "
        raise UsageError(f"{what}{_BACKEND!r}", hint=f"set KERAS_BACKEND={_BACKEND}")


def ignore(_: object) -> None:
    """Do nothing."""


def _name_or_fraction(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


_resolved = partial(field, init=False, repr=False, compare=False)
_dataset = partial(option, group="Dataset")
_model = partial(option, group="Model")
_optimization = partial(option, group="Optimization")
_input = partial(option, group="Input pipeline")
_output = partial(option, group="Output")
_execution = partial(option, group="Execution")
_comparison = partial(option, group="Comparison")


@dataclass(frozen=True)
class TrainOptions(OpenOptions, PipelineOptions):
    """Options of a training run.

    Fields hold what they stand for: enumeration members for words, paths, a parsed augmentation.
    """

    dataset: Any = None
    _: KW_ONLY
    split: str = _dataset(
        "train",
        "Split to train on, or several as one, or slices as in TFDS, such as train[:80%].",
        metavar="NAME[,NAME...]",
    )
    validation: str | float | None = _dataset(
        None,
        "Split to validate on, or fraction of the training split to hold out.  [default: the split "
        "validation, valid or val, if any]",
        metavar="NAME|FRACTION",
        parse=_name_or_fraction,
        common=True,
    )
    validation_steps: int | None = _dataset(
        None,
        "Batches of validation images per epoch, of each shard in proportion.  [default: all]",
        metavar="N",
        least=1,
    )
    task: Literal["classification", "regression"] | None = _dataset(
        None,
        "Predict classes, or the numbers in --label-feature NAME[,NAME...].  [default: "
        "classification]",
    )
    model: Any = _model(
        MOBILENET_V2,
        "mobilenet_v2 or another model of keras.applications, cnn (five convolutional layers), or "
        "your own: a function of image size and number of classes that returns a keras.Model (also "
        "FILE.py:FUNCTION), or a .keras file.",
        metavar="NAME|MODULE:FUNCTION|FILE",
        common=True,
    )
    weights: str | None = _model(
        None,
        "Initial weights; imagenet is downloaded.  [default: imagenet, or none for cnn]",
        metavar="imagenet|none|FILE",
        path="local input",
        common=True,
    )
    trainable: str = _model(
        _AUTO,
        "Layers to train: only the head, all, or LAYER and those after it. auto means head with "
        "loaded weights, otherwise all. To fine-tune the model of another run, load it with "
        "--weights.",
        metavar="auto|head|all|LAYER",
        former="fine-tune",
        common=True,
    )
    image_size: ImageSize | None = _model(
        None,
        "Resize images to N x N or W x H pixels.  [default: the model's own size]",
        metavar="N|WxH",
        parse=parse_size,
        common=True,
    )
    head: Head | None = _model(
        None,
        "Last layer: one output per class, or for two classes a single sigmoid.  [default: "
        "softmax]",
    )
    outputs: Outputs | None = _model(
        None,
        "What a model of your own returns: probabilities, or logits, to which tfrtool applies "
        "softmax or sigmoid.  [default: as its compiled loss has it, or probabilities]",
    )
    rescale: Literal["model", "unit", "dataset", "none"] = _model(
        "model",
        "Scale pixels to the range that the model expects, to 0..1, or each channel to mean 0 and "
        "standard deviation 1 over the training images; or keep them at 0..255.",
    )
    precision: Precision = _model(
        "float32",
        "Precision of the layers. The mixed ones are for GPUs. bfloat16 is for a frozen base: it "
        "requires --trainable head, --cache features or auto, and no --augment.",
    )
    epochs: int = _optimization(5, "Number of epochs.", metavar="N", least=1, common=True)
    steps_per_epoch: int | None = _optimization(
        None,
        "Batches per epoch. The next epoch goes on with the images that follow.  [default: all "
        "images once]",
        metavar="N",
        least=1,
        most=2**31 - 1,
    )
    learning_rate: float | None = _optimization(
        None,
        "Learning rate. The default is 0.001 for a head and for cnn with --head sigmoid, 0.0003 "
        "for random and 0.0001 for loaded weights; ten times that for sgd, a tenth for lion. It "
        "replaces the rate of a compiled model.",
        metavar="X",
        above=0,
        most=1000,
        common=True,
    )
    optimizer: Literal["adam", "adamw", "sgd", "rmsprop", "lion"] | None = _optimization(
        None,
        "Optimizer; sgd has a momentum of 0.9.  [default: from a compiled model, or adam]",
    )
    schedule: Literal["constant", "cosine"] | None = _optimization(
        None,
        "Learning rate schedule: constant, or cosine decay to 0 at the last step.  [default: from "
        "a compiled model, or constant]",
    )
    warm_up: float | None = _optimization(
        None,
        "Raise the learning rate linearly from 0 over the first X epochs.",
        metavar="X",
        above=0,
        most=1000,
    )
    label_smoothing: float = _optimization(
        0.0,
        "Fraction of each label that is spread evenly over all classes. It raises the loss.",
        metavar="X",
        least=0,
        most=0.9,
    )
    balance_classes: bool = _optimization(
        False,
        "Weight the loss of each image so that all classes count equally.",
        former="class-weights",
    )
    early_stopping: int | None = _optimization(
        None,
        "Stop after N epochs without a lower val_loss (without validation, loss), and keep the "
        "best weights.",
        metavar="N",
        least=1,
        common=True,
    )
    cache: Literal["auto", "features", "memory", "disk", "none"] = _input(
        _AUTO,
        "What to keep between epochs: outputs of a frozen base, or decoded images in memory or on "
        "disk. auto picks what fits; with --cache-dir, disk.",
        common=True,
    )
    show_augment: PathLike | None = _input(
        None,
        "Draw the first training images as augmented, with their labels, as a PNG file before "
        "training.",
        metavar="FILE",
        path="local output",
        on_resume="call",
    )
    out: PathLike | None = _output(
        None,
        "Directory for model.keras, model.best.keras, history.json, history.png, labels.txt, "
        "run.json (how the run was made) and a checkpoint after each epoch.",
        metavar="DIR",
        path="local output",
        on_resume="call",
        common=True,
    )
    resume: bool = _output(
        False,
        "Continue the run in --out from its checkpoint, with the options in its run.json. You can "
        "raise --epochs. Pass code, DATASET and other paths outside --out again.",
        on_resume="call",
        common=True,
    )
    export: Any = _output(
        (),
        "Also save the model in this format in --out, and compare its predictions with "
        "model.keras. Repeatable.",
        metavar="saved_model|tflite",
        repeat=True,
        on_resume="free",
    )
    tensorboard: PathLike | None = _output(
        None,
        "Directory for TensorBoard logs.",
        metavar="DIR",
        path="local output",
        on_resume="free",
    )
    profile: bool = _output(
        False,
        "Profile ten steps for TensorBoard, in the --tensorboard directory or in the folder "
        "profile of --out.",
        on_resume="free",
    )
    strategy: Strategy = _execution(
        "auto",
        "Train on one device, or on all GPUs of this machine (mirrored). auto uses what is "
        "available.",
        metavar="auto|one|mirrored",
        on_resume="free",
    )
    compare: bool = _comparison(
        False,
        "Also measure this run, without cached features too, and the recipes naive and notebook, "
        "each in its own process: seconds of the first and later epochs, CPU time, memory, input "
        "wait.",
        on_resume="call",
    )
    compare_rounds: int = _comparison(
        3, "How often --compare runs each recipe.", metavar="N", least=1, on_resume="call"
    )
    callbacks: Sequence[Any] = option(
        (),
        "Keras callbacks, called as ``fit`` calls them. Setting ``model.stop_training`` ends the "
        "run. Their state is not part of checkpoints. With cached features, their ``model`` is "
        "the head.",
        cli=None,
        on_resume="call",
    )
    on_plan: Callable[[Any], None] = option(
        ignore,
        "called with the `TrainPlan` before the first step.",
        cli=None,
        on_resume="call",
    )
    on_epoch: Callable[[Any], None] = option(
        ignore,
        "called with the `EpochReport` of each epoch, once its checkpoint has been saved.",
        cli=None,
        on_resume="call",
    )
    on_progress: OnProgress = option(
        no_progress,
        "called after each step, and while the first epoch is prepared.",
        cli=None,
        on_resume="call",
    )

    # What options mean once those that were left out have a value; `_resolve` sets it.
    model_name: str = _resolved()  # "module:function" or "keras.Model:name" for a user's
    size: ImageSize = _resolved()  # in pixels; by default the model's own
    initial_weights: str = _resolved()  # by default "none" for the cnn and own models
    trained: str = _resolved()  # "head", "all", or the name of the first layer that is trained
    rate: float = _resolved()  # lower for loaded weights, which large steps would spoil
    policy: str = _resolved()  # Keras' dtype policy of the layers
    mixes: bool = _resolved()  # whether images and labels are mixed
    out_dir: Path | None = _resolved()
    log_dir: Path | None = _resolved()  # for TensorBoard
    profile_folder: Path | None = _resolved()  # for the trace of some steps

    def __post_init__(self) -> None:
        self._parse()
        super().__post_init__()
        self._resolve()
        self.loading(self.size)
        if isinstance(self.validation, float) and not 0 < self.validation < 1:
            raise UsageError(
                "--validation must be a split name or a fraction between 0 and 1, got "
                f"{self.validation:g}"
            )
        if self.resume and self.out is None:
            raise UsageError("--resume requires the directory of the run", hint="use --out DIR")
        if self.augment is not None or self.show_augment is not None:
            self._check_augment()
        if self.export and self.out is None:
            raise UsageError("--export requires --out")
        if self.profile and self.profile_folder is None:
            raise UsageError("--profile requires a directory", hint="use --tensorboard or --out")
        if self.outputs == "logits" and not is_own(self.model_name):
            raise UsageError("--outputs logits requires a model of your own")
        named = not is_own(self.model_name)
        if named and min(image_shape(self.size)[:2]) < _LEAST_SIDE:
            what = f"--image-size must be at least {_LEAST_SIDE} for --model {self.model_name}"
            raise UsageError(f"{what}, got {size_text(self.size)}")
        if self.channels == 1 and named and self.model != CNN:
            raise UsageError("--channels 1 requires --model cnn or a model of your own")
        if self.warm_up is not None and self.warm_up > self.epochs:
            raise UsageError(f"--warm-up {self.warm_up:g} must not exceed --epochs {self.epochs}")
        if self.cache_directory is not None and self.cache != "disk":
            raise UsageError("--cache-dir requires --cache disk")
        if self.weights == IMAGENET and not (named and self.model != CNN):
            what = f"no ImageNet weights for --model {self.model_name}"
            raise UsageError(what, expected="--weights none or FILE")
        if self.recipe != "tfrtool" and (
            self.cache != _AUTO
            or not self.deterministic
            or self.strategy not in ("auto", "one")
            or self.steps_per_epoch is not None
            or self.resume
        ):
            # The published pipelines are compared, and not changed.
            raise UsageError(
                "--cache, --no-deterministic, --strategy, --steps-per-epoch and --resume can't be "
                f"used with --recipe {self.recipe}"
            )
        frozen = self.model != CNN and (is_own(self.model_name) or self.trained == "head")
        if self.precision == "bfloat16" and not (
            frozen
            and self.recipe == "tfrtool"
            and self.cache in (_AUTO, "features")
            and self.augment is None
        ):
            # A step of MobileNetV2 in bfloat16 took 1.5 times the CPU time of one in float32, on a
            # processor with AVX512_BF16: oneDNN has no fast backward convolutions for it.
            raise UsageError(
                "--precision bfloat16 requires a frozen base with cached features",
                hint="use a model of keras.applications, --trainable head, --cache features "
                "or auto, --recipe tfrtool, and no --augment",
            )

    def _check_augment(self) -> None:
        if self.show_augment is not None:
            if Path(self.show_augment).suffix.lower() != ".png":
                raise UsageError("--show-augment requires a .png file", path=self.show_augment)
            if self.recipe != "tfrtool":
                raise UsageError("--show-augment requires --recipe tfrtool")
        augment = as_augment(self.augment)
        if augment is None:
            return
        if augment.needs_mean and self.rescale != "dataset":
            raise UsageError(f"--augment cutout with {DATASET_MEAN} requires --rescale dataset")
        if augment.is_before_resize and self.cache not in (_AUTO, "none"):
            raise UsageError(f"--augment with {BEFORE_RESIZE} requires --cache none or auto")

    def _parse(self) -> None:
        """Replace texts by what they stand for."""
        values: dict[str, object] = {}
        if isinstance(self.model, str):
            values["model"] = canonical_name(self.model)
        elif not callable(self.model):
            raise UsageError(
                "invalid model",
                expected="a name, a function of image size and number of classes, or a keras.Model",
                found=type(self.model).__name__,
            )
        if not hasattr(self.dataset, "directory"):  # an open one stays
            if isinstance(self.dataset, str | os.PathLike):
                values["dataset"] = as_path(self.dataset)
            elif self.dataset is not None:
                values["dataset"] = as_paths(self.dataset)
        if self.image_size is not None:
            values["image_size"] = as_image_size(self.image_size, "--image-size")
        if str(self.strategy) == "multi-worker":  # an earlier choice
            raise UsageError(ONE_MACHINE, hint=SEVERAL_MACHINES)
        if self.cache == _AUTO and self.cache_directory is not None:
            values["cache"] = "disk"
        export = (self.export,) if isinstance(self.export, str) else tuple(self.export)
        for one in export:
            as_choice(EXPORTS, one, "--export")
        values["export"] = tuple(dict.fromkeys(export))
        outputs = (one.name for one in declared(TrainOptions) if "output" in (one.spec.path or ""))
        parse_path_fields(self, *outputs)
        if self.weights is not None:
            values["weights"] = str(as_path(self.weights))
        if not self.trainable:
            raise UsageError("invalid --trainable ''", expected="auto, head, all or a layer")
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _resolve(self) -> None:
        """Decide what follows from the options."""
        name, size, rate = self.model, self.image_size, self.learning_rate
        if not isinstance(name, str):
            function = getattr(name, "__qualname__", None)
            name = f"{name.__module__}:{function}" if function else f"keras.Model:{name.name}"
        if size is None:
            shape = getattr(self.model, "input_shape", None)  # of a keras.Model that is built
            built = shape[2:0:-1] if isinstance(shape, tuple) and len(shape) == 4 else ()
            size = _SIZES.get(name.replace("_", ""), 224)
            size = as_image_size(built) if built and all(built) else size
        is_named = name != CNN and not is_own(name)
        weights = self.weights or (IMAGENET if is_named else NO_WEIGHTS)
        by_default = "all" if weights == NO_WEIGHTS else "head"
        trained = by_default if self.trainable == _AUTO else self.trainable
        if rate is None:
            rate = _TUNING_RATE if weights != NO_WEIGHTS else _RANDOM_RATE
            is_published = (name, self.head, weights) == (CNN, "sigmoid", NO_WEIGHTS)
            rate = _HEAD_RATE if trained == "head" or is_published else rate
            rate *= _RATE_FACTORS.get(self.optimizer or ADAM, 1.0)
        out, logs = (None if one is None else Path(one) for one in (self.out, self.tensorboard))
        values = {
            "model_name": name,
            "size": size,
            "initial_weights": weights,
            "trained": trained,
            "rate": rate,
            "policy": "float32" if self.precision == "bfloat16" else self.precision,
            "mixes": isinstance(self.augment, Augment) and self.augment.mixes,
            "out_dir": out,
            "log_dir": logs,
            "profile_folder": (logs or (out and out / "profile")) if self.profile else None,
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)

    @property
    def source(self) -> Paths:
        """What is opened: a directory, a glob pattern, or files."""
        source: Paths = getattr(self.dataset, "source", self.dataset)
        return source

    def loading(self, image_size: ImageSize) -> LoadOptions:
        """Return how training images are loaded: as uint8 of this size, without a cache."""
        shared = {one.name: getattr(self, one.name) for one in declared(PipelineOptions)}
        return LoadOptions(
            self.split,
            image_size=image_size,
            rescale=None,
            one_hot=self.mixes,
            epochs=self.epochs,
            **shared,
        )

    def to_json_values(self) -> dict[str, Any]:
        """Return the options that are recorded, as JSON values; paths are absolute."""

        def json_value(value: Any) -> Any:
            if isinstance(value, Path | RemotePath):
                return str(value.absolute())
            return getattr(value, "__qualname__", str(value))

        names = [one.name for one in declared(TrainOptions) if one.spec.on_resume != "call"]
        values = {name: getattr(self, name) for name in names} | {"model": self.model_name}
        parsed: dict[str, Any] = json.loads(json.dumps(values, default=json_value))
        return parsed
