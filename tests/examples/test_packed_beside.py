"""What is told of an image, as bytes: a plan's fingerprint is made of them."""

from __future__ import annotations

from tfrtool.examples.objects.annotation import ExtraFeatures, ImageAnnotation, ObjectAnnotation


def test_equal_values_have_equal_bytes() -> None:
    """Whether two objects share a text or each has its own; else a resumed write would not know."""
    shared, apart = "a pose", "".join(["a ", "pose"])
    packed = []
    for poses in ((shared, shared), (shared, apart)):
        objects = tuple(ObjectAnnotation(1.0, 2.0, 3.5, 4.0, 1, pose=pose) for pose in poses)
        packed.append(ExtraFeatures(annotation=ImageAnnotation(8, 8, objects)).pack())
    assert packed[0] == packed[1]
    assert ExtraFeatures.unpack(packed[0]).annotation == ImageAnnotation(8, 8, objects)
