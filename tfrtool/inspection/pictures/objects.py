"""One of a record's images, small, with the boxes of the objects in it."""

from itertools import islice

from tfrtool.examples.example import PayloadKind, decode_example
from tfrtool.examples.objects.read_objects import read_objects
from tfrtool.images.looks import outlined
from tfrtool.images.pixels import Picture
from tfrtool.inspection.pictures.pictures import ImageRoles, pictures_of

MAX_OBJECTS = 1000
"""Objects that are shown of one image."""


def thumbnail(payload: bytes, roles: ImageRoles, box: int, number: int = 0) -> Picture:
    """Return one of a record's images, at most ``box`` pixels wide and high, with its boxes."""
    found = islice(pictures_of(payload, roles, box), number, None)
    _, _, picture = next(found, ("", "", Picture(problem="no such image")))
    if picture.image is None or number:
        return picture
    features = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE).features
    objects = read_objects(features, most=MAX_OBJECTS).objects
    return outlined(picture, [one.box for one in objects if one.can_be_drawn])
