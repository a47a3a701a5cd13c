"""Which model is trained, and what is known of it before it is built."""

from __future__ import annotations

import re

from tfrtool.errors import UsageError

CNN, MOBILENET_V2 = "cnn", "mobilenet_v2"
IMAGENET, NO_WEIGHTS = "imagenet", "none"

_USUAL_SIZE = 224
_SIZES = {
    CNN: 300,
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
    512: "vgg16 vgg19",
    576: "mobilenetv3small",
    768: "convnextsmall convnexttiny",
    960: "mobilenetv3large",
    1024: "convnextbase densenet121 mobilenet",
    1056: "nasnetmobile",
    1280: "mobilenetv2 efficientnetb0 efficientnetb1 efficientnetv2b0 efficientnetv2b1 "
    "efficientnetv2s efficientnetv2m efficientnetv2l",
    1408: "efficientnetb2 efficientnetv2b2",
    1536: "convnextlarge inceptionresnetv2 efficientnetb3 efficientnetv2b3",
    1664: "densenet169",
    1792: "efficientnetb4",
    1920: "densenet201",
    2048: "convnextxlarge efficientnetb5 inceptionv3 xception resnet50 resnet101 resnet152 "
    "resnet50v2 resnet101v2 resnet152v2",
    2304: "efficientnetb6",
    2560: "efficientnetb7",
    4032: "nasnetlarge",
}
"""Numbers that each base makes of an image, averaged over it: the last size of the output shape of
each constructor of keras.applications (3.15) with ``include_top=False, pooling="avg"``."""


def model_name(text: str) -> str:
    """Return the one name of a model, however it is spelt: efficientnetb0 for EfficientNet-B0.

    "mobilenet_v2" is Keras' MobileNetV2, and "cnn" five convolutions, as in the published
    horses_or_humans example. Whether Keras has a model of any other name is not asked here.

    Raises:
        UsageError: the text can't be a name.
    """
    key = re.sub(r"[-_ ]", "", str(text).lower())
    if not re.fullmatch(r"[a-z][a-z0-9]*", key):
        raise UsageError(
            "impossible name of a model",
            expected="mobilenet_v2, cnn or a name of keras.applications",
            found=repr(text),
        )
    return MOBILENET_V2 if key == "mobilenetv2" else key


def usual_size(model: str) -> int:
    """Return the size of images that a model was made for, in pixels both ways."""
    return _SIZES.get(model, _USUAL_SIZE)


def feature_size(model: str) -> int | None:
    """Return how many numbers a model's base makes of an image; None where that is not known."""
    key = model.replace("_", "")
    return next((size for size, models in _FEATURES.items() if key in models.split()), None)
