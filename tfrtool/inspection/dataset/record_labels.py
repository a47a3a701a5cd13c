"""The labels of records, in order and in little memory, and the objects in their images."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from google.protobuf.message import DecodeError

from tfrtool.examples.example import (
    PayloadKind,
    Value,
    classify_payload,
    decode_example,
    parse_message,
)
from tfrtool.examples.objects.read_objects import has_boxes
from tfrtool.examples.roles import SAMPLE, find_roles, is_image
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.inspection.dataset.object_counts import ObjectCounts
from tfrtool.inspection.verify.payload_check import EXAMPLES, RecordFold
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard

Label = int | bytes

MAX_LABELS = 2**15
"""Different labels that are counted; ImageNet-21k, the largest in common use, has 21,841."""

_LONGEST_LABEL = 1024
"""Bytes of a string that can be a label; longer ones are captions or images."""

_CANDIDATES = 8


class FirstRecords(NamedTuple):
    """What the first records of a dataset hold."""

    payload: PayloadKind
    label: str | None = None
    candidates: tuple[str, ...] = ()  # features that could be the label
    has_boxes: bool = False


def look_for_label(paths: Iterable[Path], info: DatasetInfo | None) -> FirstRecords:
    """Look for the label feature in the first records of shards.

    Without a label, the first shard with records decides what the payload is.
    """
    first, boxes = FirstRecords(PayloadKind.EMPTY), False
    for path in paths:
        kind, candidates = PayloadKind.EMPTY, dict[str, None]()
        for item in islice(read_shard(path), SAMPLE):
            if not isinstance(item, Record) or not item.payload:
                continue
            if kind is PayloadKind.EMPTY:
                kind = classify_payload(item.payload)
            if kind not in EXAMPLES:
                break
            try:
                features = decode_example(item.payload, PayloadKind.SEQUENCE_EXAMPLE).features
            except ValueError:
                continue
            boxes |= has_boxes(features)
            label = find_roles(features, info).label
            if label is not None:
                return FirstRecords(kind, label, has_boxes=boxes)
            for name, feature in features.items():
                value = _as_label(feature.values[0]) if len(feature.values) == 1 else None
                if value is not None and not is_image(value):
                    candidates[name] = None
        if first.payload is PayloadKind.EMPTY:
            first = FirstRecords(kind, candidates=tuple(candidates)[:_CANDIDATES])
    return first._replace(has_boxes=boxes)


class LabelCounts(RecordFold):
    """The labels of a shard's records, at two bytes a record, and its objects.

    Attributes:
        labels: each label, in the order of first occurrence, with its code.
        codes: the code of each labelled record, in order.
        more: the codes of further labels, where a record has several.
        unlabelled: records without one integer or short string.
        overflowed: whether there are more labels than `MAX_LABELS`.
        objects: None if they were not asked for.
    """

    def __init__(self, label: str | None, is_list: bool, objects: Mapping[int, str] | None) -> None:
        super().__init__()
        self._key = None if label is None else label.encode("utf-8", "surrogateescape")
        self._is_list = is_list
        self.labels: dict[Label, int] = {}
        self.codes, self.more = array("H"), array("H")
        self.unlabelled = 0
        self.objects = None if objects is None else ObjectCounts(objects)

    @property
    def overflowed(self) -> bool:
        """Whether there are too many labels."""
        return len(self.labels) > MAX_LABELS

    def add(self, records: Sequence[Record], rejected: set[int]) -> None:
        """Add the labels and objects of records."""
        for record in records:
            labels: list[Label] = []
            if record.index not in rejected:
                try:
                    if self.objects is not None:
                        self.objects.add(record.payload)
                    labels = self._labels(record.payload)
                except (DecodeError, ValueError):
                    self.reject(record, rejected)
            if self._key is not None:
                self.unlabelled += not labels
                self._count(labels[:1], self.codes)
                self._count(labels[1:], self.more)

    def _labels(self, payload: bytes) -> list[Label]:
        # Straight from the message: only one feature is wanted, of every record. If a key occurs
        # twice, the last one counts, as in every protobuf map.
        found = None
        for entry in parse_message(payload).context.feature if self._key is not None else ():
            if entry.key == self._key:
                found = entry.value
        values = () if found is None else found.int64_list.value or found.bytes_list.value
        if len(values) != 1 and not self._is_list:
            return []
        return [label for label in map(_as_label, values) if label is not None]

    def _count(self, labels: Iterable[Label], codes: "array[int]") -> None:
        for label in labels:
            if not self.overflowed:
                codes.append(self.labels.setdefault(label, len(self.labels)))

    def merge(self, other: "LabelCounts", index: int) -> None:
        """Add the labels of the next part."""
        super().merge(other, index)
        self.unlabelled += other.unlabelled
        if self.objects is not None and other.objects is not None:
            self.objects.merge(other.objects)
        if other.overflowed:
            self.labels |= other.labels
        known = list(other.labels)
        for mine, others in ((self.codes, other.codes), (self.more, other.more)):
            self._count(map(known.__getitem__, others), mine)


def _as_label(value: Value) -> Label | None:
    """Return an integer, or bytes no longer than a name."""
    if isinstance(value, bytes):
        return value if len(value) <= _LONGEST_LABEL else None
    return value if isinstance(value, int) else None
