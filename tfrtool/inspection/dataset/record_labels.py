"""The labels of records, in order and in little memory, and the objects in their images."""

from array import array
from collections.abc import Iterable, Mapping, Sequence

from google.protobuf.message import DecodeError

from tfrtool.examples.example import parse_message
from tfrtool.examples.roles import Label, as_label
from tfrtool.inspection.dataset.object_counts import ObjectCounts
from tfrtool.inspection.verify.payload_check import RecordFold
from tfrtool.records.framing import Record

MAX_LABELS = 2**15
"""Different labels that are counted; ImageNet-21k, the largest in common use, has 21,841."""


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
        return [label for label in map(as_label, values) if label is not None]

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
