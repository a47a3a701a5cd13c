"""One fold over payloads: what has been seen of each feature, and the schema that follows."""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Any, Self

from google.protobuf.message import DecodeError

from tfrtool.examples.content import PixelForm, describe_bytes, is_plain_text, is_utf8, png_form
from tfrtool.examples.example import (
    DTYPES,
    LISTS,
    DType,
    Value,
    feature_name,
    holds_features,
    parse_message,
)
from tfrtool.examples.schema import FeatureSpec, Schema

MAX_NAMES, MAX_NAME_BYTES = 10_000, 4 * 1024 * 1024
"""Names of features that are kept, and their bytes."""

DISTINCT_VALUES, DISTINCT_BYTES = 100, 64
"""Distinct values that are counted, more than most labels have; and the longest such string."""

DESCRIBED = 64
"""Strings of one list that are looked into; a list of words or frames holds one sort of thing."""

_BATCH = 64 * 1024
"""Values of a list that are Python objects at a time."""

Place = tuple[str, int]
"""A source, such as a shard's path, and the index of a record in it."""


@dataclass(slots=True)
class ValueStatistics:
    """A feature's values of one type. All from ``minimum`` on is counted only if asked for."""

    first: Place = ("", 0)  # the first record that has some
    present: int = 0  # records, or steps of a feature list, that have some
    low: int = sys.maxsize  # the fewest values in one of them
    high: int = -1  # the most
    several: int = 0  # records, or steps, that have more than one value
    empty: int = 0  # those that have none
    is_text: bool = True  # whether all strings are plain text, if that is looked for
    is_utf8: bool = True  # whether all of them are valid UTF-8
    content: Counter[str] = field(default_factory=Counter)  # strings by what `describe_bytes` says
    minimum: int | float | None = None  # of the numbers that are finite, or the fewest bytes
    maximum: int | float | None = None
    nan: int = 0
    infinite: int = 0
    distinct: Counter[Value] | None = None  # how often each occurs; None if too many or too long
    pixels: set[PixelForm | None] = field(default_factory=set)  # of PNGs; None of other strings

    def stretch(self, low: int, high: int) -> None:
        """Add numbers of values."""
        self.low, self.high = min(self.low, low), max(self.high, high)

    def describe(self, values: Iterable[bytes]) -> None:
        """Count what the first strings of a list hold."""
        content = self.content
        for value in islice(values, DESCRIBED):
            name = describe_bytes(value)
            content[name] = content.get(name, 0) + 1

    def take(self, kind: str, values: Sequence[Any]) -> None:
        """Add the values: their range, and how often each occurs."""
        if len(values) > _BATCH:  # millions, maybe: never all as objects of Python
            for start in range(0, len(values), _BATCH):
                self.take(kind, values[start : start + _BATCH])
            return
        countable = measures = list(values)
        if kind == "bytes_list":
            self.pixels.update(map(png_form, countable[:DESCRIBED]))
            measures = [len(value) for value in countable]
        # Float32 values are too small for the sum of a list to overflow: it is finite if they are.
        elif kind == "float_list" and not math.isfinite(sum(countable)):
            finite = [value for value in countable if math.isfinite(value)]
            nan = sum(map(math.isnan, countable))
            self.nan += nan
            self.infinite += len(countable) - len(finite) - nan
            countable = measures = finite
        if measures:
            self.widen(min(measures), max(measures))
        if kind == "bytes_list" and (self.maximum or 0) > DISTINCT_BYTES:
            self.distinct = None
        self.count(countable)

    def count(self, values: Iterable[Value] | Counter[Value] | None) -> None:
        """Count values, as far as distinct ones are counted; None if there are too many."""
        if values is None:
            self.distinct = None
        elif self.distinct is not None:
            self.distinct.update(values)
            if len(self.distinct) > DISTINCT_VALUES:
                self.distinct = None

    def widen(self, low: float | None, high: float | None) -> None:
        """Add the least and the greatest of some values."""
        if low is not None and (self.minimum is None or low < self.minimum):
            self.minimum = low
        if high is not None and (self.maximum is None or high > self.maximum):
            self.maximum = high

    def merge(self, other: "ValueStatistics") -> None:
        """Add what another fold has seen of the same type."""
        self.stretch(other.low, other.high)
        self.first = min(self.first, other.first)
        self.widen(other.minimum, other.maximum)
        self.present += other.present
        self.several += other.several
        self.empty += other.empty
        self.is_text &= other.is_text
        self.is_utf8 &= other.is_utf8
        self.nan += other.nan
        self.infinite += other.infinite
        self.pixels |= other.pixels
        self.content.update(other.content)
        self.count(other.distinct)


@dataclass(slots=True)
class FeatureStatistics:
    """What has been seen of one feature."""

    key: bytes  # its name, as the bytes that the records hold
    is_list: bool = False  # whether it is a feature list of a SequenceExample
    counted: bool = False  # whether its distinct values are counted
    kinds: dict[str, ValueStatistics] = field(default_factory=dict)  # by the list in the message
    lists: ValueStatistics = field(default_factory=ValueStatistics)  # of a feature list, its steps
    unset: int = 0  # records, or steps of a feature list, that have it without a kind
    duplicates: int = 0  # records that have it more than once; the last one counts
    shape: tuple[int | None, ...] = ()  # of its values, if metadata has one
    image_shape: tuple[int | None, ...] = ()  # height, width and channels, if metadata has them

    def start(self, kind: str, first: Place) -> ValueStatistics:
        """Begin with a kind that has not been seen before."""
        distinct = Counter[Value]() if self.counted else None
        statistics = self.kinds[kind] = ValueStatistics(first=first, distinct=distinct)
        return statistics

    def merge(self, other: "FeatureStatistics") -> None:
        """Add what another fold has seen of the same feature."""
        for name, kind in other.kinds.items():
            (self.kinds.get(name) or self.start(name, kind.first)).merge(kind)
        self.lists.merge(other.lists)
        self.unset += other.unset
        self.duplicates += other.duplicates

    @property
    def name(self) -> str:
        """Its name as text; bytes that are not UTF-8 become lone surrogates."""
        return feature_name(self.key)

    @property
    def values(self) -> dict[DType, ValueStatistics]:
        """The values of each type."""
        return {dtype: self.kinds[name] for name, dtype in DTYPES.items() if name in self.kinds}

    @property
    def dtypes(self) -> dict[DType, int]:
        """How many records have values of each type."""
        return {dtype: kind.present for dtype, kind in self.values.items()}

    @property
    def dtype(self) -> DType | None:
        """The type of its values, the most common one where records disagree."""
        kinds = self.kinds
        most = max(kinds, key=lambda kind: (kinds[kind].present, DTYPES[kind].value), default="")
        return DTYPES.get(most)

    @property
    def present(self) -> int:
        """How many records have it with a kind set; for a feature list, have it at all."""
        if self.is_list:
            return self.lists.present
        return sum(kind.present for kind in self.kinds.values())

    @property
    def conflict(self) -> bool:
        """Whether records disagree on its type, so that no description fits all of them."""
        return len(self.kinds) > 1

    @property
    def lengths(self) -> tuple[int, int]:
        """The fewest and the most values in a record that has it; of a feature list, steps."""
        return (self.lists.low, self.lists.high) if self.is_list else self._span() or (0, 0)

    @property
    def steps(self) -> tuple[int, int] | None:
        """The fewest and the most values in a step of a feature list; None without a step."""
        return self._span() if self.is_list else None

    def _span(self) -> tuple[int, int] | None:
        lengths = [n for kind in self.kinds.values() for n in (kind.low, kind.high)]
        if self.is_list and self.unset:  # steps without a kind have no values
            lengths.append(0)
        return (min(lengths), max(lengths)) if lengths else None

    @property
    def content(self) -> Counter[str]:
        """How many values hold what (`describe_bytes`), for string features."""
        return self.kinds.get("bytes_list", ValueStatistics()).content

    @property
    def described_content(self) -> str | None:
        """Content of its bytes: one description, "mixed", or None if there are no bytes."""
        kinds = [kind for kind in self.content if kind != "empty"] or list(self.content)
        return None if not kinds else kinds[0] if len(kinds) == 1 else "mixed"

    @property
    def range(self) -> ValueStatistics:
        """Its values of the most common type."""
        return self.kinds[LISTS[self.dtype]] if self.dtype else ValueStatistics()

    def size(self, records: int) -> int | None:
        """Return how many values each of ``records`` records (or each step) has; None if any."""
        span = self._span() or (None if self.is_list else (0, 0))
        if self.present != records or self.conflict or span is None or span[0] != span[1]:
            return None
        # Steps without values, or a kind, can't have a shape.
        return span[0] or (None if self.is_list else 0)

    def spec(self, records: int) -> FeatureSpec:
        """Return the narrowest spec that all ``records`` records fit, conflicts of type apart.

        Values of one size have the shape that metadata has, if it fits, and otherwise a flat one.
        """
        size = self.size(records)
        shape: tuple[int, ...] | None = None
        if size is not None:
            shape = () if size == 1 else (size,)
        sizes = tuple(size for size in self.shape if size is not None)
        if sizes and sizes == self.shape and math.prod(sizes) == size:
            shape = sizes
        dtype = self.dtype or DType.STRING
        return FeatureSpec(name=self.name, dtype=dtype, shape=shape, is_list=self.is_list)


_Features = dict[bytes, FeatureStatistics]


class SchemaFold:
    """A fold over payloads that are Examples or SequenceExamples.

    Folds over parts can be merged and pickled. Beyond `MAX_NAMES`, the order of the parts decides
    which names are kept.

    Attributes:
        records: payloads that have been added.
        sequences: those with feature lists.
        skipped: features of records that were not added, because there are too many names.
    """

    def __init__(
        self, *, values: bool = False, content: bool = True, text: bool = False, source: str = ""
    ) -> None:
        """Begin with nothing.

        Args:
            values: whether to add ranges and how often each value occurs, which doubles the time.
            content: whether to describe strings by their bytes.
            text: whether to find out which strings are all plain text.
            source: what the records are called in the places of `ValueStatistics.first`.
        """
        self.records = self.sequences = self.skipped = 0
        self._values, self._content, self._text, self._source = values, content, text, source
        self._maps: tuple[_Features, _Features] = ({}, {})  # the context, and feature lists
        self._name_bytes = 0
        self._last: list[FeatureStatistics] = []  # what the features of the last record went into

    @classmethod
    def continued(cls, other: "SchemaFold") -> Self:
        """Return a fold of this class that goes on where another one has stopped."""
        fold = cls.__new__(cls)
        fold.__dict__.update(other.__dict__)
        return fold

    def add_payload(self, payload: bytes, *, index: int | None = None) -> bool:
        """Add a payload, and return whether it is an Example or a SequenceExample.

        ``index`` is the record's in its source; by default the number of those before it.
        """
        try:
            message = parse_message(payload)
        except DecodeError:
            return False
        entries, (context, lists) = list(message.context.feature), self._maps
        columns: list[Any] = [context.get(entry.key) for entry in entries]
        # Most records have the features of the one before, in its order: then all names are known
        # and none comes twice.
        known = bool(columns) and columns == self._last and entries[0].HasField("value")
        if not known and not holds_features(message):
            return False
        record_index = self.records if index is None else index
        self.records += 1
        if not known:
            entries, columns = self._arranged(entries, context)
            self._last = columns
        self._take(columns, [entry.value for entry in entries], record_index)
        if message.HasField("feature_lists"):
            self.sequences += 1
            found = self._arranged(message.feature_lists.feature_list, lists)
            for entry, column in zip(*found, strict=True):
                steps = entry.value.feature  # millions, maybe: never all as objects of Python
                column.lists.present += 1
                column.lists.stretch(len(steps), len(steps))
                self._take(repeat(column, len(steps)), steps, record_index)
        return True

    def _arranged(
        self, entries: Sequence[Any], columns: _Features
    ) -> tuple[list[Any], list[FeatureStatistics]]:
        """Return the entries that count, and the column of each."""
        last = {entry.key: entry for entry in entries}
        effective, found = [], []
        for key, entry in last.items():
            column = columns.get(key) or self._begin(key, columns)
            if column is None:
                self.skipped += 1
                continue
            effective.append(entry)
            found.append(column)
        if len(last) < len(entries):
            for key, count in Counter(entry.key for entry in entries).items():
                if count > 1 and key in columns:
                    columns[key].duplicates += 1
        return effective, found

    def _begin(self, key: bytes, columns: _Features) -> FeatureStatistics | None:
        """Keep a new name, if there is room for it."""
        names = sum(map(len, self._maps))
        if names >= MAX_NAMES or self._name_bytes + len(key) > MAX_NAME_BYTES:
            return None
        self._name_bytes += len(key)
        columns[key] = FeatureStatistics(key, columns is self._maps[1], self._values)
        return columns[key]

    def _take(self, columns: Iterable[Any], features: Iterable[Any], record_index: int) -> None:
        """Add features, each to its column. This is the hot loop: 0.5 us a feature."""
        take_values, describe, text = self._values, self._content, self._text
        for column, feature in zip(columns, features, strict=True):
            kind = feature.WhichOneof("kind")
            if kind is None:
                column.unset += 1
                continue
            values = getattr(feature, kind).value
            length = len(values)
            statistics = column.kinds.get(kind)
            if statistics is None:
                statistics = column.start(kind, (self._source, record_index))
            statistics.present += 1
            if not statistics.low <= length <= statistics.high:
                statistics.stretch(length, length)
            if length != 1:
                statistics.several += length > 1
                statistics.empty += length == 0
            if describe and kind == "bytes_list":
                statistics.describe(values)
            if text and kind == "bytes_list" and statistics.is_utf8:
                statistics.is_text = statistics.is_text and all(map(is_plain_text, values))
                statistics.is_utf8 = statistics.is_text or all(map(is_utf8, values))
            if take_values:
                statistics.take(kind, values)

    def merge(self, other: "SchemaFold") -> None:
        """Add what another fold over other records has seen; that one is used up."""
        self.records += other.records
        self.sequences += other.sequences
        self.skipped += other.skipped
        self._last = []
        for columns, more in zip(self._maps, other._maps, strict=True):
            for key, column in more.items():
                mine = columns.get(key) or self._begin(key, columns)
                if mine is None:
                    self.skipped += column.present + (0 if column.is_list else column.unset)
                else:
                    mine.merge(column)

    def has_room(self, other: "SchemaFold") -> bool:
        """Return whether all names of both surely have room, so that their order doesn't matter."""
        names = sum(len({*a, *b}) for a, b in zip(self._maps, other._maps, strict=True))
        size = self._name_bytes + other._name_bytes
        return names <= MAX_NAMES and size <= MAX_NAME_BYTES and not (self.skipped or other.skipped)

    def follow(self, other: "SchemaFold", index: int) -> None:
        """Add a fold over records that follow, counted from ``index`` on."""
        for columns in other._maps:
            for column in columns.values():
                for kind in column.kinds.values():
                    kind.first = kind.first[0], kind.first[1] + index
        self.merge(other)

    def features(self) -> tuple[FeatureStatistics, ...]:
        """Return what was seen of each feature, by name, feature lists last."""
        return tuple(columns[key] for columns in self._maps for key in sorted(columns))

    def schema(self) -> Schema:
        """Return the narrowest schema that all records fit, conflicts of type apart."""
        return Schema(tuple(item.spec(self.records) for item in self.features()))
