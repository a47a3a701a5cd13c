"""Which features are the image, the label and the name, by the first records of shards."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from tfrtool.examples.example import (
    Example,
    Feature,
    PayloadKind,
    Value,
    classify_payload,
    decode_example,
)
from tfrtool.examples.roles import (
    SAMPLE,
    Roles,
    find_roles,
    has_boxes,
    is_image,
    with_first_steps,
)
from tfrtool.examples.tfds_metadata import DatasetInfo, info_beside
from tfrtool.records.framing import Fault
from tfrtool.records.reader import read_shard
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.remote_path import AnyPath

FindImage = Callable[[Mapping[str, Feature], DatasetInfo | None], str | None]
Label = int | bytes

_LONGEST_LABEL = 1024
"""Bytes of a string that can be a label; longer ones are captions or images."""

NO_ROLES = Roles(image=None, label=None, name=None)


def find_encoded(features: Mapping[str, Feature], info: DatasetInfo | None) -> str | None:
    """Return the feature that holds an encoded image, or else a list of them."""
    image = find_roles(features, info).image
    if image is not None:
        return image
    firsts = {
        name: Feature(dtype=item.dtype, values=item.values[:1])
        for name, item in features.items()
        if len(item.values) > 1 and is_image(item.values[0])
    }
    return find_roles(firsts, info).image if firsts else None


class FirstRecords:
    """What the first records of shards hold. A role is that of the first record with one.

    Attributes:
        payload: type of the first payload that isn't empty.
        roles: which features are the image, the label and the name.
        features: the first values of each feature; an image may be in one record only.
        images: features that hold encoded images.
        labels: features that could be the label.
        has_boxes: whether there are boxes of objects.
        records: number of Examples.
        faults: damage between them.
    """

    def __init__(self, find_image: FindImage = find_encoded) -> None:
        """Begin; ``find_image`` may find images of other forms, too."""
        self._find_image = find_image
        self.payload = PayloadKind.EMPTY
        self.roles = NO_ROLES
        self.features: dict[str, Feature] = {}
        self.images: dict[str, None] = {}
        self.labels: dict[str, None] = {}
        self.has_boxes = False
        self.records = 0
        self.faults = CappedList[Fault]()

    def read(
        self, shards: Iterable[AnyPath], most: int | None = SAMPLE
    ) -> Iterator[Mapping[str, Feature]]:
        """Add the first records of each shard, and yield the features of each Example."""
        for path in shards:
            info = info_beside(path.parent)
            for item in islice(read_shard(path), most):
                if isinstance(item, Fault):
                    self.faults.add(item)
                    continue
                kind = classify_payload(item.payload)
                if self.payload is PayloadKind.EMPTY:
                    self.payload = kind
                if kind in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE):
                    yield self.add(decode_example(item.payload, kind), info)

    def add(self, example: Example, info: DatasetInfo | None) -> Mapping[str, Feature]:
        """Add a record, and return its features; a feature list is its first step."""
        features, known = with_first_steps(example), self.roles
        found = find_roles(features, info)
        self.roles = Roles(
            image=known.image or found.image or self._find_image(features, info),
            label=known.label or found.label,
            name=known.name or found.name,
            guess=known.guess or found.guess,
        )
        self.records += 1
        self.has_boxes |= has_boxes(features)
        for name, item in features.items():
            if not self.features.setdefault(name, item).values and item.dtype:
                self.features[name] = item
            if any(map(is_image, item.values[:1])):
                self.images[name] = None
            elif len(item.values) == 1 and as_label(item.values[0]) is not None:
                self.labels[name] = None
        return features


def as_label(value: Value) -> Label | None:
    """Return an integer, or bytes no longer than a name."""
    if isinstance(value, bytes):
        return value if len(value) <= _LONGEST_LABEL else None
    return value if isinstance(value, int) else None
