"""Which model is trained, and what is known of it before it is built."""

import re
from typing import Any

from tfrtool.errors import UsageError

CNN, MOBILENET_V2 = "cnn", "mobilenet_v2"
IMAGENET, NO_WEIGHTS = "imagenet", "none"
PICKLED = "a function of a module, FILE.py:FUNCTION or a keras.Model"
"""The models that other processes can have."""

_USUAL_SIZE = 224
_KNOWN = {
    (300, None): "cnn",
    (224, 512): "vgg16 vgg19",
    (224, 576): "mobilenetv3small",
    (224, 768): "convnextsmall convnexttiny",
    (224, 960): "mobilenetv3large",
    (224, 1024): "convnextbase densenet121 mobilenet",
    (224, 1056): "nasnetmobile",
    (224, 1280): "mobilenetv2 efficientnetb0 efficientnetv2b0",
    (224, 1536): "convnextlarge",
    (224, 1664): "densenet169",
    (224, 1920): "densenet201",
    (224, 2048): "convnextxlarge resnet50 resnet101 resnet152 resnet50v2 resnet101v2 resnet152v2",
    (240, 1280): "efficientnetb1 efficientnetv2b1",
    (260, 1408): "efficientnetb2 efficientnetv2b2",
    (299, 1536): "inceptionresnetv2",
    (299, 2048): "inceptionv3 xception",
    (300, 1536): "efficientnetb3 efficientnetv2b3",
    (331, 4032): "nasnetlarge",
    (380, 1792): "efficientnetb4",
    (384, 1280): "efficientnetv2s",
    (456, 2048): "efficientnetb5",
    (480, 1280): "efficientnetv2l efficientnetv2m",
    (528, 2304): "efficientnetb6",
    (600, 2560): "efficientnetb7",
}
"""Pixels both ways that models were made for, and numbers that their bases make of an image.

They are the ``default_size`` that each constructor of keras.applications (3.15) hands to
``obtain_input_shape``, and the last size of its output shape with ``include_top=False,
pooling="avg"``; tests ask Keras. The cnn's size is that of the horses_or_humans example.
"""


def model_name(text: str) -> str:
    """Return the one name of a model, however it is spelt: efficientnetb0 for EfficientNet-B0.

    "mobilenet_v2" is Keras' MobileNetV2, and "cnn" five convolutions, as in the published
    horses_or_humans example. Whether Keras has a model of any other name is not asked here, nor
    whether there is a function where "package.module:function" or "file.py:function" says.

    Raises:
        UsageError: the text can't be a name.
    """
    if re.fullmatch(r".+:[^\W\d]\w*", text) is not None:
        return text
    key = re.sub(r"[-_ ]", "", str(text).lower())
    if not re.fullmatch(r"[a-z][a-z0-9]*", key):
        raise UsageError(
            f"invalid --model {text!r}",
            expected="mobilenet_v2, cnn, a name of keras.applications or MODULE:FUNCTION",
        )
    return MOBILENET_V2 if key == "mobilenetv2" else key


def own_name(model: Any) -> str:
    """Return what a function or a ``keras.Model`` of the user's is called: "module:function"."""
    function = getattr(model, "__qualname__", None)
    return f"{model.__module__}:{function}" if function else f"keras.Model:{model.name}"


def is_own(model: str) -> bool:
    """Return whether a name is that of a model of the user's, and none of ours or of Keras'."""
    return ":" in model


def known_sizes(model: str) -> tuple[int, int | None]:
    """Return the pixels both ways that a model was made for, and the size of its base's outputs.

    The second is how many numbers the base makes of an image; None where that is not known.
    """
    key = model.replace("_", "")
    known = (sizes for sizes, names in _KNOWN.items() if key in names.split())
    return next(known, (_USUAL_SIZE, None))
