"""Inferring a Schema: what the records of shards say about their features, as a fold."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

from google.protobuf.message import DecodeError

from tfrtool.examples.example import holds_features, parse_message
from tfrtool.examples.schema import Schema
from tfrtool.examples.statistics import FeatureStatistics

MAX_NAMES = 10_000
"""Names of features that are kept: more than the columns of any table that is known to us."""

MAX_NAME_BYTES = 4 * 1024 * 1024
"""Bytes of all those names together."""

MAX_COUNTED = 1_000
"""Features whose distinct values are counted; with `DISTINCT_VALUES` each that is 30 MB or so."""

_Columns = dict[bytes, FeatureStatistics]


class SchemaFold:
    """A fold over payloads that are Examples or SequenceExamples.

    Folds over parts can be merged into the fold over the whole, and pickled on the way. The
    order of the parts makes no difference up to `MAX_COUNTED` names; after that it decides of
    which features the distinct values are counted, and after `MAX_NAMES` which are kept at all.
    Memory is bounded by these.
    """

    def __init__(self, *, values: bool = False, source: str = "") -> None:
        """Begin with nothing.

        With ``values``, the values themselves are taken in: ranges, and how often each comes. That
        takes about as long again as all else. In the places of `ValueStatistics.first`, ``source``
        is what the records are called.
        """
        self.records = 0  # payloads that have been taken in
        self.sequences = 0  # those with feature lists
        self.skipped = 0  # features of records that were not, for there are too many names
        self._values = values
        self._source = source
        self._context: _Columns = {}
        self._lists: _Columns = {}
        self._name_bytes = 0
        self._last: list[FeatureStatistics] = []  # what the features of the last record went into

    def add(self, payload: bytes, *, index: int | None = None) -> bool:
        """Take in a payload, and return whether it is an Example or a SequenceExample.

        ``index`` is the record's in its source; by default the number of those before it.
        """
        try:
            message = parse_message(payload)
        except DecodeError:
            return False
        entries = list(message.context.feature)
        get = self._context.get
        columns: list[Any] = [get(entry.key) for entry in entries]
        # Most records have the features of the one before, in its order: then all names are known
        # and none comes twice.
        known = bool(columns) and columns == self._last and entries[0].HasField("value")
        if not known and not holds_features(message):
            return False
        place = self.records if index is None else index
        self.records += 1
        if not known:
            entries, columns = self._arranged(entries, self._context)
            self._last = columns
        self._take(columns, [entry.value for entry in entries], place)
        if message.HasField("feature_lists"):
            self.sequences += 1
            lists, columns = self._arranged(message.feature_lists.feature_list, self._lists)
            for column, entry in zip(columns, lists, strict=True):
                steps = entry.value.feature  # millions, maybe: never all as objects of Python
                column.lists.present += 1
                column.lists.stretch(len(steps), len(steps))
                self._take(repeat(column, len(steps)), steps, place)
        return True

    def _arranged(
        self, entries: Sequence[Any], columns: _Columns
    ) -> tuple[list[Any], list[FeatureStatistics]]:
        """Return the entries that count, each with its column."""
        last = {entry.key: entry for entry in entries}
        kept, found = [], []
        for key, entry in last.items():
            column = columns.get(key) or self._begin(key, columns)
            if column is None:
                self.skipped += 1
                continue
            kept.append(entry)
            found.append(column)
        if len(last) < len(entries):
            for key, count in Counter(entry.key for entry in entries).items():
                if count > 1 and key in columns:
                    columns[key].duplicates += 1
        return kept, found

    def _begin(self, key: bytes, columns: _Columns) -> FeatureStatistics | None:
        """Keep a new name, if there is room for it."""
        names = len(self._context) + len(self._lists)
        if names >= MAX_NAMES or self._name_bytes + len(key) > MAX_NAME_BYTES:
            return None
        self._name_bytes += len(key)
        counted = self._values and names < MAX_COUNTED
        columns[key] = FeatureStatistics(key, columns is self._lists, counted)
        return columns[key]

    def _take(self, columns: Iterable[Any], features: Iterable[Any], place: int) -> None:
        """Take in features, each into its column. This is the hot loop: 0.5 us a feature."""
        take_values = self._values
        for column, feature in zip(columns, features, strict=True):
            kind = feature.WhichOneof("kind")
            if kind is None:
                column.unset += 1
                continue
            values = getattr(feature, kind).value
            length = len(values)
            held = column.kinds.get(kind)
            if held is None:
                held = column.start(kind, (self._source, place))
            held.present += 1
            if not held.low <= length <= held.high:
                held.stretch(length, length)
            if kind == "bytes_list":
                held.describe(values)
            if take_values:
                held.take(kind, values)

    def merge(self, other: "SchemaFold") -> None:
        """Take in what another fold over other records has seen; that one is used up."""
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

    def follow(self, other: "SchemaFold", index: int) -> bool:
        """Take in a fold over records that follow, counted from ``index`` on, as one pass would.

        False, and nothing, where there are so many names that their order matters.
        """
        names = sum(len({*a, *b}) for a, b in zip(self._maps, other._maps, strict=True))
        size = self._name_bytes + other._name_bytes
        if names > MAX_COUNTED or size > MAX_NAME_BYTES or self.skipped or other.skipped:
            return False
        for columns in other._maps:
            for column in columns.values():
                for kind in column.kinds.values():
                    kind.first = kind.first[0], kind.first[1] + index
        self.merge(other)
        return True

    @property
    def _maps(self) -> tuple[_Columns, _Columns]:
        return self._context, self._lists

    def features(self) -> tuple[FeatureStatistics, ...]:
        """Return what was seen of each feature, by name, feature lists last."""
        return tuple(
            columns[key] for columns in (self._context, self._lists) for key in sorted(columns)
        )

    def schema(self) -> Schema:
        """Return the narrowest schema that all records fit, conflicts of type apart."""
        return Schema(tuple(item.spec(self.records) for item in self.features()))
