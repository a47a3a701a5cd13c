"""Predictions as text: a line an image, in columns that stand still."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tfrtool.errors import printable
from tfrtool.training.predict.prediction import ImageFile, Prediction

__all__ = ["line_of"]

_WIDEST_PATH = 60
_WIDEST_LABEL = 30
"""Columns; what is longer moves the rest of its own line only."""


def line_of(images: Sequence[ImageFile], class_names: Sequence[str]) -> Callable[[Prediction], str]:
    """Return a function that renders a prediction: path, label, probability, the next label ...

    The columns are as wide as the images and the classes need, which is known before the first
    prediction is.
    """
    path = _width((image.path for image in images), _WIDEST_PATH)
    label = _width(class_names, _WIDEST_LABEL)

    def render(prediction: Prediction) -> str:
        cells = [f"{printable(prediction.path):{path}}"]
        for name, probability in prediction.classes.items():
            cells.append(f"{printable(name):{label}}  {probability:.4f}")
        return "  ".join(cells)

    return render


def _width(texts: Iterable[str], most: int) -> int:
    return min(max((len(printable(text)) for text in texts), default=0), most)
