"""Annotations that are turned and scaled with their image."""

from __future__ import annotations

import pytest

from tfrtool.examples.objects.annotation import ImageAnnotation, ObjectAnnotation
from tfrtool.writing.image_task import _INVERSE

_ONE = ObjectAnnotation(
    *(10, 20, 50, 80), label=0, area=2400, segmentation="[[10,20,50,20,50,80]]",
    keypoints=(10, 20, 2, 0, 0, 0),
)  # fmt: skip


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_orientation_is_put_back(orientation: int) -> None:
    """Turned, made half as large and put back, all is where it was; what is nowhere stays there."""
    whole = ImageAnnotation(200, 100, (_ONE,))
    width, height = (100, 200) if orientation >= 5 else (200, 100)
    turned = whole.moved(orientation, width // 2, height // 2)
    assert turned.objects[0].area == 600
    assert turned.objects[0].keypoints[3:] == (0, 0, 0)
    (back,) = turned.moved(_INVERSE.get(orientation, orientation), 200, 100).objects
    assert back[:4] == pytest.approx(_ONE[:4])
    assert back.keypoints == pytest.approx(_ONE.keypoints)
