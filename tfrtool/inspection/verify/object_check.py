"""Whether the objects in a record's image are possible: boxes, classes, lists, sizes."""

from contextlib import suppress

from tfrtool.examples.example import Example, PayloadKind, decode_example
from tfrtool.examples.objects.label_map import object_names
from tfrtool.examples.objects.read_objects import ReadObject, read_objects
from tfrtool.examples.roles import has_boxes
from tfrtool.storage.limits import MAX_OBJECTS_CHECKED
from tfrtool.storage.remote_path import AnyPath

_SHOWN = 3
_FREEBASE = "/m/"
"""Prefix of Open Images' class identifiers, which differ from the names in a label map."""


class ObjectCheck:
    """Finds the problems of objects, with the class names in a directory."""

    def __init__(self, directory: AnyPath | None, images: bool) -> None:
        """Begin; with ``images``, their sizes are compared with the recorded ones."""
        self._images = images
        self._names = {} if directory is None else object_names(directory)

    def problem(self, payload: bytes) -> str | None:
        """Return what is wrong with the objects of an Example, or None."""
        example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
        if not has_boxes(example.features):
            return None
        found = read_objects(example.features, most=MAX_OBJECTS_CHECKED)
        problems = [*found.problems]
        for at, parsed in enumerate(found.objects):
            doubts = (what for what in self._doubts(parsed) if what not in problems)
            problems += [f"object {at}: {what}" for what in doubts]
        if self._images and found.size:
            problems += _wrong_size(example, found.size)
        if (more := len(problems) - _SHOWN) > 0:
            problems[_SHOWN:] = [f"{more:,} more"]
        return "; ".join(problems) or None

    def _doubts(self, parsed: ReadObject) -> list[str]:
        problems = [parsed.problem] if parsed.problem else []
        if parsed.label is None or not self._names:
            return problems
        name = self._names.get(parsed.label)
        if name is None:
            problems.append(f"class number {parsed.label} is not in the label map")
        elif parsed.text not in ("", name) and not parsed.text.startswith(_FREEBASE):
            problems.append(
                f"class {parsed.label} is {name!r} in the label map, not {parsed.text!r}"
            )
        return problems


def _wrong_size(example: Example, size: tuple[int, int]) -> list[str]:
    from tfrtool.images.decoder import RefusedImageError, open_image, quiet_pillow

    for value in example.values("image/encoded")[:1]:
        if isinstance(value, bytes):
            with suppress(RefusedImageError), quiet_pillow(), open_image(value) as image:
                if image.size != size:
                    recorded, found = (" x ".join(map(str, one)) for one in (size, image.size))
                    return [f"recorded size is {recorded}, but the image is {found} pixels"]
    return []
