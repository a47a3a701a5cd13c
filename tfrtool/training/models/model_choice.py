"""Which model is trained, how much of it, and how fast, before there is one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from tfrtool.errors import UsageError

__all__ = ["IMAGENET", "NO_WEIGHTS", "ModelName", "Trainable", "learning_rate", "learns_all"]

IMAGENET = "imagenet"
NO_WEIGHTS = "none"

_NAME = re.compile(r"[a-z][a-z0-9]*")
_MOBILENET_V2 = "mobilenetv2"

_USUAL_SIZE = 224
_SIZES = {
    "cnn": 300,
    "efficientnetb1": 240,
    "efficientnetb2": 260,
    "efficientnetb3": 300,
    "efficientnetb4": 380,
    "efficientnetb5": 456,
    "efficientnetb6": 528,
    "efficientnetb7": 600,
    "efficientnetv2b1": 240,
    "efficientnetv2b2": 260,
    "efficientnetv2b3": 300,
    "efficientnetv2l": 480,
    "efficientnetv2m": 480,
    "efficientnetv2s": 384,
    "inceptionresnetv2": 299,
    "inceptionv3": 299,
    "nasnetlarge": 331,
    "xception": 299,
}
"""Pixels both ways, where they are not the usual ones.

They are the ``default_size`` that each constructor of keras.applications (3.15) hands to
``obtain_input_shape``; a test asks all of them. The cnn's is that of the horses_or_humans example.
"""

_FEATURES = {
    **dict.fromkeys(("vgg16", "vgg19"), 512),
    "mobilenetv3small": 576,
    **dict.fromkeys(("convnextsmall", "convnexttiny"), 768),
    "mobilenetv3large": 960,
    **dict.fromkeys(("convnextbase", "densenet121", "mobilenet"), 1024),
    "nasnetmobile": 1056,
    **dict.fromkeys((_MOBILENET_V2, "efficientnetb0", "efficientnetb1"), 1280),
    **dict.fromkeys((f"efficientnetv2{size}" for size in ("b0", "b1", "s", "m", "l")), 1280),
    **dict.fromkeys(("efficientnetb2", "efficientnetv2b2"), 1408),
    **dict.fromkeys(("convnextlarge", "inceptionresnetv2"), 1536),
    **dict.fromkeys(("efficientnetb3", "efficientnetv2b3"), 1536),
    "densenet169": 1664,
    "efficientnetb4": 1792,
    "densenet201": 1920,
    **dict.fromkeys(("convnextxlarge", "efficientnetb5", "inceptionv3", "xception"), 2048),
    **dict.fromkeys((f"resnet{n}{v}" for n in (50, 101, 152) for v in ("", "v2")), 2048),
    "efficientnetb6": 2304,
    "efficientnetb7": 2560,
    "nasnetlarge": 4032,
}
"""Numbers that each base makes of an image, averaged over it: the last size of the output shape of
each constructor of keras.applications (3.15) with ``include_top=False, pooling="avg"``."""

_HEAD_RATE = 1e-3
"""Keras' own default for Adam."""

_WHOLE_RATE = 3e-4
"""On 1,000 photographs the cnn's validation accuracy after 5 epochs was 0.65, 0.57 and 0.64 with
this (seeds 0, 1 and 2), and 0.50, 0.51 and 0.64 with 0.001."""

_TUNING_RATE = _HEAD_RATE / 10
"""TensorFlow's tutorial on transfer learning tunes loaded layers at a tenth of the head's rate."""


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model's name, however it is spelt: EfficientNetB0, efficientnet_b0, efficientnet-b0.

    MOBILENET_V2 is Keras' MobileNetV2. CNN has five convolutions, as the published
    horses_or_humans example. All others are names of keras.applications; whether there is such a
    one is known only when Keras is asked.

    Attributes:
        value: in lower case, without separators; "mobilenet_v2" has one.
    """

    value: str

    MOBILENET_V2: ClassVar[ModelName]
    CNN: ClassVar[ModelName]

    def __post_init__(self) -> None:
        key = re.sub(r"[-_ ]", "", self.value.lower())
        if not _NAME.fullmatch(key):
            raise UsageError(
                "impossible name of a model",
                expected="mobilenet_v2, cnn or a name of keras.applications",
                found=repr(self.value),
            )
        object.__setattr__(self, "value", "mobilenet_v2" if key == _MOBILENET_V2 else key)

    @property
    def key(self) -> str:
        """The name in lower case and without any separator."""
        return self.value.replace("_", "")

    @property
    def image_size(self) -> int:
        """The size of images that the model was made for, in pixels both ways."""
        return _SIZES.get(self.key, _USUAL_SIZE)

    @property
    def feature_size(self) -> int | None:
        """How many numbers the base makes of an image; None where that is not known."""
        return _FEATURES.get(self.key)

    @property
    def weights(self) -> str:
        """What weights it starts from where none are given."""
        return NO_WEIGHTS if self == ModelName.CNN else IMAGENET


ModelName.MOBILENET_V2 = ModelName("mobilenet_v2")
ModelName.CNN = ModelName("cnn")


@dataclass(frozen=True, slots=True)
class Trainable:
    """What learns.

    AUTO is the head over loaded weights, and all where there are none; HEAD and ALL are these
    alone. Any other value is the name of a layer: it learns, and all layers after it do.

    Attributes:
        value: as the command line has it.
    """

    value: str

    AUTO: ClassVar[Trainable]
    HEAD: ClassVar[Trainable]
    ALL: ClassVar[Trainable]

    def __post_init__(self) -> None:
        if not self.value:
            raise UsageError(
                "nothing is said of what learns", expected="auto, head, all or a layer's name"
            )

    @property
    def layer(self) -> str | None:
        """The layer from which on the model learns; None where it is not told by a layer."""
        return None if self in (Trainable.AUTO, Trainable.HEAD, Trainable.ALL) else self.value


Trainable.AUTO = Trainable("auto")
Trainable.HEAD = Trainable("head")
Trainable.ALL = Trainable("all")


def learns_all(trainable: Trainable, weights: str) -> bool:
    """Return whether all of a model learns, and neither the head alone nor from a layer on."""
    if trainable == Trainable.AUTO:
        return weights == NO_WEIGHTS
    return trainable == Trainable.ALL


def learning_rate(model: ModelName, trainable: Trainable, weights: str) -> float:
    """Return the learning rate for Adam where none is given.

    It is 0.001 for a head, 0.0003 for what starts from random weights, and 0.0001 for loaded
    weights below a head, which larger steps would spoil.
    """
    tunes = trainable == Trainable.ALL or trainable.layer is not None
    if not tunes and not learns_all(trainable, weights):
        return _HEAD_RATE
    return _WHOLE_RATE if weights == NO_WEIGHTS or model == ModelName.CNN else _TUNING_RATE
