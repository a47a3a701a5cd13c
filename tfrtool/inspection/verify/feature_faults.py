"""How records differ from what features.json says about them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from tfrtool.errors import named_record
from tfrtool.records.framing import FaultKind, Record
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:  # numpy and Arrow are loaded where there is a features.json
    from tfrtool.features.misfits import FieldMisfit

RECORDS_LISTED = 100
"""Records that are listed of a mismatch; all are counted."""

_MOST_MISMATCHES = 1000
"""Mismatches that are told apart; hostile shapes could make any number."""

_RECORDS_SHOWN, _VALUES_SHOWN = 5, 3


@dataclass(frozen=True, slots=True)
class RecordPosition:
    """Where a record is."""

    path: AnyPath
    record: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFault:
    """One way in which records differ from features.json.

    Attributes:
        path: the shard of the first such record.
        record: index of that record.
        offset: byte offset of that record, in the uncompressed stream.
        message: what is expected of the feature, what records have, and which records these are.
        feature: the feature; "" if it is about the record.
        expected: what features.json says.
        found: what the first records have instead.
        count: number of records.
        records: the first `RECORDS_LISTED` of them.
    """

    path: AnyPath
    record: int
    offset: int
    message: str
    feature: str
    expected: str
    found: tuple[str, ...]
    count: int
    records: tuple[RecordPosition, ...]
    kind: FaultKind = FaultKind.SCHEMA

    @property
    def title(self) -> str:
        """What it is about."""
        return f"feature {self.feature!r}" if self.feature else "record"

    @property
    def text(self) -> str:
        """What it is about, and the message."""
        return f"{self.title}: {self.message}" if self.feature else self.message


@dataclass(slots=True)
class _Group:
    """Records that differ from features.json in one way."""

    count: int = 0
    records: list[RecordPosition] = field(default_factory=list)
    found: dict[str, None] = field(default_factory=dict)

    def merge(self, other: "_Group", index: int) -> None:
        self.count += other.count
        for one in other.records[: RECORDS_LISTED - len(self.records)]:
            self.records.append(replace(one, record=one.record + index))
        self.found = dict.fromkeys([*self.found, *other.found][: _VALUES_SHOWN + 1])


class _Mismatch(NamedTuple):
    """What is the same of a group of misfits."""

    feature: str
    expected: str
    is_text: bool


class Mismatches:
    """Records that differ from features.json, by feature and by what is expected of it."""

    def __init__(self) -> None:
        self._groups: dict[_Mismatch, _Group] = {}

    def add(self, misfit: "FieldMisfit", path: AnyPath, record: Record) -> None:
        """Add a record."""
        position = RecordPosition(path, record.index, record.offset)
        key = _Mismatch(misfit.path, misfit.expected, misfit.is_text)
        self._group(key).merge(_Group(1, [position], {misfit.found: None}), 0)

    def merge(self, other: "Mismatches", index: int) -> None:
        """Add those of the next part, or of another shard."""
        for key, group in other._groups.items():
            self._group(key).merge(group, index)

    def _group(self, key: _Mismatch) -> _Group:
        if key not in self._groups and len(self._groups) >= _MOST_MISMATCHES:
            key = _Mismatch("", "what features.json says", is_text=False)
        return self._groups.setdefault(key, _Group())

    def faults(self) -> Iterator[FeatureFault]:
        """Yield what TFDS would refuse or read as something else."""
        for key, group in self._groups.items():
            if not key.is_text:
                first = group.records[0]
                yield FeatureFault(
                    path=first.path,
                    record=first.record,
                    offset=first.offset,
                    message=_message(key, group),
                    feature=key.feature,
                    expected=key.expected,
                    found=(*group.found,)[:_VALUES_SHOWN],
                    count=group.count,
                    records=tuple(group.records),
                )

    def warnings(self) -> Iterator[str]:
        """Yield what TFDS reads all the same."""
        for key, group in self._groups.items():
            if key.is_text:
                yield f"feature {key.feature!r}: {_message(key, group)}; TFDS reads these as bytes"


def _message(key: _Mismatch, group: _Group) -> str:
    """Return what was expected and what was found instead, and where."""
    found = ", ".join((*group.found,)[:_VALUES_SHOWN])
    found += ", ..." if len(group.found) > _VALUES_SHOWN else ""
    first = group.records[0]
    numbers = [str(one.record) for one in group.records if one.path == first.path]
    shown = numbers[:_RECORDS_SHOWN]
    where = f"records {', '.join(shown)} of {first.path.name}"
    if len(shown) == 1:
        where = named_record(first.path.name, first.record)
    where += f" at offset {first.offset}" if group.count == 1 else ""
    more = group.count - len(shown)
    where += f" and {more:,} more" if more else ""
    return f"expected {key.expected}, found {found}; {where}"
