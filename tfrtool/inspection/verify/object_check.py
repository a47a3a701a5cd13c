"""Whether the objects in a record's image can be what it says: boxes, classes, lists, sizes."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tfrtool.examples.example import Example, PayloadKind, decode_example
from tfrtool.examples.objects.label_map import object_names
from tfrtool.examples.objects.read_objects import ReadObject, has_boxes, read_objects
from tfrtool.inspection.verify.payload_check import box_mark, unparseable
from tfrtool.records.framing import Fault, Record
from tfrtool.storage.limits import MAX_OBJECTS_CHECKED

_SHOWN = 3
_FREEBASE = "/m/"
"""What the texts of Open Images' classes start with, which are identifiers beside a label map's
names for people."""


class ObjectCheck:
    """Finds those records of a shard whose objects can't be."""

    def __init__(self, directory: Path | None, *, images: bool) -> None:
        """Begin; with ``images``, their sizes are held against those that records say."""
        self._directory, self._images = directory, images
        self._names: Mapping[int, str] | None = None

    def faults(self, records: Iterable[Record]) -> Iterator[Fault]:
        """Yield a fault for each of these records, which are Examples, that has a problem."""
        for record in records:
            if box_mark(record.payload) and (problem := self._problem(record.payload)):
                yield unparseable(record, problem)

    def _problem(self, payload: bytes) -> str | None:
        example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
        if not has_boxes(example.features):
            return None
        if self._names is None:
            self._names = {} if self._directory is None else object_names(self._directory)
        found = read_objects(example.features, most=MAX_OBJECTS_CHECKED)
        problems = [*found.problems]
        for at, one in enumerate(found.objects):
            doubts = (what for what in self._doubts(one) if what not in problems)
            problems += [f"object {at}: {what}" for what in doubts]
        if self._images and found.size:
            problems += _wrong_size(example, found.size)
        more = len(problems) - _SHOWN
        return "; ".join(problems[:_SHOWN] + [f"{more:,} more"] * (more > 0)) or None

    def _doubts(self, one: ReadObject) -> list[str]:
        problems = [one.problem] if one.problem else []
        if one.label is None or not self._names:
            return problems
        name = self._names.get(one.label)
        if name is None:
            problems.append(f"class number {one.label} is not in the label map")
        elif one.text not in ("", name) and not one.text.startswith(_FREEBASE):
            problems.append(f"class {one.label} is {name!r} in the label map, not {one.text!r}")
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
