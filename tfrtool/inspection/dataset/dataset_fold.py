"""What the shards of a dataset hold, put together: one numbering of labels, all faults."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tfrtool.examples.roles import LabelNames
from tfrtool.examples.tfds_metadata import DATASET_INFO
from tfrtool.inspection.dataset.dataset_layout import LocatedFault, ShardFile
from tfrtool.inspection.dataset.record_labels import MAX_LABELS, Label, ShardLabels
from tfrtool.records.framing import Fault, FaultKind
from tfrtool.records.shards import Shard

__all__ = ["DatasetFold", "ReadShard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadShard:
    """A shard that was read.

    Attributes:
        shard: the file, its size and its compression.
        expected: how many records the metadata says that it has; None where it says nothing.
        records: how many whole records it has.
        unlabelled: how many of them have no label.
        codes: the labels of the others in order, as the dataset numbers them.
    """

    shard: Shard
    expected: int | None
    records: int
    unlabelled: int
    codes: array[int]


class DatasetFold:
    """A fold over the shards of a dataset, in their order.

    Attributes:
        shards: what was read, by path.
        faults: what is wrong with them.
        more_faults: how many faults there are beyond those.
        overflowed: whether there are more different labels than `MAX_LABELS`; then there are no
            codes.
    """

    def __init__(self, names: LabelNames) -> None:
        self.shards: dict[Path, ReadShard] = {}
        self.faults: list[LocatedFault] = []
        self.more_faults = 0
        self.overflowed = False
        self._names = names
        self._codes: dict[Label, int] = {}

    @property
    def labelled(self) -> bool:
        """Whether any record has a label."""
        return self.overflowed or bool(self._codes)

    def add(self, file: ShardFile, found: ShardLabels) -> None:
        """Take in a shard."""
        self.shards[file.path] = ReadShard(
            shard=Shard.at(file.path),
            expected=file.expected,
            records=found.records,
            unlabelled=found.unlabelled,
            codes=self._renumbered(found),
        )
        self._add_faults(file, found)

    def _renumbered(self, found: ShardLabels) -> array[int]:
        if not (self.overflowed or found.overflowed):
            table = [self._codes.setdefault(label, len(self._codes)) for label in found.labels]
            if len(self._codes) <= MAX_LABELS:
                if table == list(range(len(table))):
                    return found.codes
                return array("H", map(table.__getitem__, found.codes))
        if not self.overflowed:
            self.overflowed = True
            self._codes.clear()
            for path, shard in self.shards.items():
                self.shards[path] = replace(shard, codes=array("H"))
        return array("H")

    def _add_faults(self, file: ShardFile, found: ShardLabels) -> None:
        faults = [
            fault
            for fault in found.faults
            # A shard may be empty, if that is what the metadata says.
            if not (fault.kind is FaultKind.EMPTY and file.expected == 0)
        ]
        # A record that is damaged is a fault of its own already, and not one of the count too.
        lost = sum(fault.kind is not FaultKind.PARSE for fault in faults) + found.more_faults
        if file.expected is not None and not 0 <= file.expected - found.records <= lost:
            message = (
                f"the shard does not agree with {DATASET_INFO}: "
                f"expected {file.expected} records, found {found.records}"
            )
            faults.append(Fault(kind=FaultKind.COUNT, offset=0, record=None, message=message))
        self.faults += [LocatedFault(path=file.path, fault=fault) for fault in faults]
        self.more_faults += found.more_faults

    def counts(self, paths: Iterable[Path]) -> Counter[int]:
        """Return how many records of some shards have each label, by its code."""
        counts: Counter[int] = Counter()
        for path in paths:
            counts.update(self.shards[path].codes)
        return counts

    def texts(self) -> dict[int, str]:
        """Return each label as text by its code, in the order of their values; no two are alike.

        Class names that the metadata has, and that no record has, come last, below zero.
        """
        texts: dict[int, str] = {}
        taken: set[str] = set()
        for label in sorted(self._codes, key=_order):
            text = self._names.text([label])
            if text is None:
                text = repr(label)
            if text in taken:
                text = f"{text} ({label!r})"
            taken.add(text)
            texts[self._codes[label]] = text
        unused = [name for name in dict.fromkeys(self._names.names) if name not in taken]
        if self._codes and len(texts) + len(unused) <= MAX_LABELS:
            texts |= {-1 - number: name for number, name in enumerate(unused)}
        return texts


def _order(label: Label) -> tuple[bool, Label]:
    return isinstance(label, bytes), label
