"""The distributions of all features, folded over the records of a shard."""

from collections.abc import Sequence
from pathlib import Path

from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.schema_fold import MAX_NAMES
from tfrtool.inspection.rows.batches import Batch, decode_records
from tfrtool.inspection.stats.feature_fold import FeatureFold, FeatureKey, column_parts
from tfrtool.inspection.stats.number_fold import EXACT_VALUES
from tfrtool.inspection.verify.payload_check import RecordFold
from tfrtool.records.framing import Fault, Record

_HELD_VALUES = 2**23
"""Distinct values that all features together may hold before they become samples, roughly."""


class StatsFold(RecordFold):
    """The distributions of the features of records.

    Attributes:
        records: number of records.
        skipped: features that are not included because there are too many names.
        features: what is known of each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.records = self.skipped = 0
        self.features: dict[FeatureKey, FeatureFold] = {}

    def add(self, records: Sequence[Record], rejected: set[int]) -> None:
        """Add the columns of records."""
        self._add([one for one in records if one.index not in rejected], rejected)

    def _add(self, records: list[Record], rejected: set[int]) -> None:
        seen = ColumnsFold()
        seen.add([record.payload for record in records])
        columns = seen.columns()
        if len(records) > columns.batch_records:  # a half of them may have fewer columns
            half = len(records) // 2
            self._add(records[:half], rejected)
            self._add(records[half:], rejected)
            return
        self.skipped += seen.skipped
        if not columns.parsed:
            for record in records:
                self.reject(record, rejected)
            return

        def drop(fault: Fault) -> None:
            rejected.add(fault.record or 0)
            self.faults.add(fault)

        for batch in decode_records(Path(), records, columns, drop):
            self._add_batch(batch, columns)

    def _add_batch(self, batch: Batch, columns: Columns) -> None:
        self.records += len(batch.records)
        self.sequences |= columns.kind is PayloadKind.SEQUENCE_EXAMPLE
        room = self._room(len(columns.columns))
        for column, array in zip(columns.columns, columns.arrays(batch.table), strict=True):
            for part in column_parts(column, array):
                fold = self._find(FeatureKey(column.key, column.is_list, part[0]))
                if fold is not None:
                    fold.add(part, room)

    def merge(self, other: "StatsFold", index: int) -> None:
        """Add the distributions of the next part; the result depends on the order."""
        super().merge(other, index)
        self.records += other.records
        self.skipped += other.skipped
        room = self._room(len(other.features))
        for key, feature in other.features.items():
            fold = self._find(key)
            if fold is not None:
                fold.merge(feature, room)

    def _room(self, features: int) -> int:
        """Return how many different values each feature may hold."""
        return min(EXACT_VALUES, _HELD_VALUES // max(1, features, len(self.features)))

    def _find(self, key: FeatureKey) -> FeatureFold | None:
        if key not in self.features:
            if len(self.features) >= MAX_NAMES:
                self.skipped += 1
                return None
            self.features[key] = FeatureFold()
        return self.features[key]

    def known(self) -> list[FeatureKey]:
        """Return the features in order; without a type those that never have one."""
        typed = {key[:2] for key in self.features if key.dtype is not None}
        found = (key for key in self.features if key.dtype is not None or key[:2] not in typed)
        return sorted(found, key=lambda key: (key.is_list, key.key, str(key.dtype)))
