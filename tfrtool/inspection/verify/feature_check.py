"""Comparing records with what features.json says about them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress

from google.protobuf.message import DecodeError

from tfrtool.errors import SchemaError
from tfrtool.examples.example import (
    DTYPES,
    feature_key,
    feature_name,
    holds_features,
    parse_message,
)
from tfrtool.examples.fields import Struct, leaves_of
from tfrtool.examples.schema_fold import MAX_NAME_BYTES, MAX_NAMES
from tfrtool.examples.short_payloads import LONG, empty_strings
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.feature_match import FeatureMatch
from tfrtool.features.leaf_build import STRINGS
from tfrtool.features.misfits import FieldMisfit
from tfrtool.features.stored_layout import stored_features, stored_leaf
from tfrtool.inspection.verify.feature_faults import Mismatches
from tfrtool.inspection.verify.payload_check import RecordFold
from tfrtool.records.frames import Frames
from tfrtool.records.framing import Record
from tfrtool.storage.remote_path import AnyPath

_BATCH_RECORDS, _BATCH_BYTES = 4096, 16 * 1024 * 1024
"""Records that are compared at once: with fewer, each would take several times as long."""


class FeatureCheck(RecordFold):
    """Compares each record with the features that features.json declares.

    Attributes:
        mismatches: how records differ.
        checked: number of records that were compared.
        others: how many records have each feature that features.json doesn't name.
    """

    def __init__(self, root: Struct, path: AnyPath) -> None:
        super().__init__()
        self._columns: FeatureColumns | None = FeatureColumns.of(root)
        self._match = FeatureMatch.of(root)
        self._path = path
        self._dtypes = {one.key: one.dtype for one in stored_features(root)}
        self._byte_keys = _keys_of_bytes(root)
        self._batch, self._batch_bytes = list[Record](), 0
        self.mismatches = Mismatches()
        self.checked = 0
        self.others = Counter[bytes]()
        self._room = MAX_NAME_BYTES

    def add(self, records: Sequence[Record], rejected: set[int]) -> None:
        """Compare records, many at once."""
        if isinstance(records, Frames) and self._match is not None and not rejected:
            differing = self._match.differing(records)
            fitting = differing.count(0)
            self.checked += fitting
            if fitting < len(records) // 2:  # then it takes more time than it saves
                self._match = None
            records = [*compress(records, differing)] if fitting < len(records) else []
        for record in records:
            if record.index in rejected:
                continue
            if len(record.payload) > LONG:
                payload = empty_strings(record.payload, self._byte_keys)
                record = Record(record.index, record.offset, payload, record.payload_crc)
            self._batch.append(record)
            self._batch_bytes += len(record.payload)
            if len(self._batch) == _BATCH_RECORDS or self._batch_bytes > _BATCH_BYTES:
                self.flush()

    def flush(self) -> None:
        """Compare the records that were put off."""
        records, self._batch, self._batch_bytes = self._batch, [], 0
        if records and self._columns is not None:
            self._compare(self._columns, records)

    def finish(self) -> None:
        """Release what is needed only to compare: there may be as many checks as shards."""
        self._columns, self._dtypes, self._byte_keys = None, {}, frozenset()
        self._match = None

    def _compare(self, columns: FeatureColumns, records: Sequence[Record]) -> None:
        try:
            found = columns.compare([one.payload for one in records])
        except SchemaError as error:  # they take more memory than a batch may
            middle = len(records) // 2
            if middle:
                self._compare(columns, records[:middle])
                self._compare(columns, records[middle:])
            else:
                misfit = FieldMisfit("", "a record of less memory", error.what)
                self.mismatches.add(misfit, self._path, records[0])
            return
        self.checked += len(records)
        self._add_others(found.other_keys)
        for row, by_feature in sorted(found.misfits.items()):
            for misfit in by_feature.values():
                self.mismatches.add(misfit, self._path, records[row])
        for row, reason in found.damaged.items():
            self._add_damaged(records[row], reason)

    def _add_damaged(self, record: Record, reason: str) -> None:
        """Add a record that isn't decoded: its features have other types, or it is no Example."""
        try:
            message = parse_message(record.payload)
        except DecodeError:
            message = None
        if message is None or not holds_features(message):
            self.checked -= 1
            self.reject(record, set())
            return
        misfits = list[FieldMisfit]()
        for entry in message.context.feature:
            name, kind = feature_name(entry.key), entry.value.WhichOneof("kind")
            expected = self._dtypes.get(name)
            if kind is not None and expected not in (None, DTYPES[kind]):
                what = f"{expected.value} values"
                misfits.append(FieldMisfit(name, what, f"{DTYPES[kind].value} values"))
        for misfit in misfits or [FieldMisfit("", "a tf.train.Example", reason)]:
            self.mismatches.add(misfit, self._path, record)

    def _add_others(self, others: Mapping[bytes, int]) -> None:
        """Count features; their names take limited memory."""
        for key, count in others.items():
            if key not in self.others:
                if len(self.others) >= MAX_NAMES or self._room < len(key):
                    continue
                self._room -= len(key)
            self.others[key] += count

    def merge(self, other: "FeatureCheck", index: int) -> None:
        """Add the check of the next part."""
        super().merge(other, index)
        self.mismatches.merge(other.mismatches, index)
        self.checked += other.checked
        self._add_others(other.others)


def _keys_of_bytes(root: Struct) -> frozenset[bytes]:
    """Return the keys of images and other bytes, whose number matters alone."""
    return frozenset(
        feature_key(stored_leaf(leaf).values.key)
        for leaf in leaves_of(root)
        if leaf.values.kind in STRINGS
    )
