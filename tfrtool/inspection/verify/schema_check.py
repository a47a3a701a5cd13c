"""Anomalies: how records differ from a schema, in TensorFlow Data Validation's terms."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from tfrtool.errors import human_count, printable
from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.example import DTYPES, DType, feature_key, feature_name, parse_message
from tfrtool.examples.schema_fold import MAX_NAME_BYTES, MAX_NAMES
from tfrtool.inspection.schema.data_schema import DataFeature, DataSchema
from tfrtool.inspection.verify.payload_check import RecordFold
from tfrtool.records.framing import Record
from tfrtool.storage.remote_path import AnyPath

RECORDS_LISTED = 100
"""Records that are listed of an anomaly; all are counted."""

_UNEXPECTED_STRING = "ENUM_TYPE_UNEXPECTED_STRING_VALUES"
_VALUES_SHOWN = 3
_LONGEST = 40


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """A record of a shard."""

    path: AnyPath
    record: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One way in which records differ from a schema.

    Attributes:
        anomaly: the name that TFDV has for it.
        feature: name of the feature.
        message: what was expected, and what was found.
        count: number of records; None if it is about all of them.
        records: the first `RECORDS_LISTED` of these.
    """

    anomaly: str
    feature: str
    message: str
    count: int | None
    records: tuple[RecordPlace, ...]


@dataclass(slots=True)
class _Found:
    """Records with one anomaly in one feature."""

    count: int = 0
    records: list[RecordPlace] = field(default_factory=list)
    values: dict[str, None] = field(default_factory=dict)  # a few, as text

    def add(self, locator: RecordPlace, value: str = "") -> None:
        self.count += 1
        if len(self.records) < RECORDS_LISTED:
            self.records.append(locator)
        if value and len(self.values) < _VALUES_SHOWN:
            self.values[value] = None

    def merge(self, other: "_Found", index: int) -> None:
        self.count += other.count
        for one in other.records[: RECORDS_LISTED - len(self.records)]:
            self.records.append(RecordPlace(one.path, one.record + index))
        self.values = dict.fromkeys([*self.values, *other.values][:_VALUES_SHOWN])


_Key = tuple[bytes, bool]
"""A feature's name, and whether it is a feature list."""


@dataclass(slots=True)
class _Counts:
    """What is counted of a feature of the schema."""

    present: int = 0
    values: int = 0  # of a feature with a domain
    unexpected: int = 0  # of these, those outside of it


class SchemaCheck(RecordFold):
    """Compares the features of records with a schema."""

    def __init__(self, schema: DataSchema, path: AnyPath) -> None:
        super().__init__()
        self._path = path
        self._specs = {(feature_key(one.name), one.is_list): one for one in schema.features}
        self.records = 0
        self.counts = {key: _Counts() for key in self._specs}
        self.absent = {key: _Found() for key in self._specs}
        self.found: dict[tuple[str, _Key], _Found] = {}
        self._room, self._unlisted = MAX_NAME_BYTES, _Found()

    def add(self, records: Sequence[Record], rejected: set[int]) -> None:
        """Check records."""
        for record in records:
            if record.index in rejected:
                continue
            try:
                message = parse_message(record.payload)
            except DecodeError:
                self.reject(record, rejected)
                continue
            self.records += 1
            locator = RecordPlace(self._path, record.index)
            features: dict[_Key, Any] = {
                (entry.key, False): entry.value for entry in message.context.feature
            }
            for entry in message.feature_lists.feature_list:
                features[entry.key, True] = entry.value
            self.sequences |= message.HasField("feature_lists")
            for key, feature in features.items():
                if key[1] or feature.WhichOneof("kind") is not None:
                    self._check(key, feature, locator)
            for key, absent in self.absent.items():
                feature = features.get(key)
                if feature is None or not (key[1] or feature.WhichOneof("kind")):
                    absent.add(locator)

    def _check(self, key: _Key, feature: Any, locator: RecordPlace) -> None:
        spec = self._specs.get(key)
        if spec is None:
            self._find("SCHEMA_NEW_COLUMN", key).add(locator)
            return
        counts = self.counts[key]
        counts.present += 1
        if not spec.checked:
            return
        if not spec.is_list:
            kinds = _wrong(spec, feature, spec.counts, counts)
        else:
            kinds = list(_wrong_count(len(feature.feature), spec.counts, None))
            for step in feature.feature:
                if step.WhichOneof("kind") is not None:
                    kinds += _wrong(spec, step, spec.step_counts, counts)
        for kind, value in dict(kinds).items():
            self._find(kind, key).add(locator, value)

    def _find(self, kind: str, key: _Key) -> _Found:
        """Return where to add records. Names of new features take limited memory."""
        if (kind, key) not in self.found:
            has_room = len(self.found) < MAX_NAMES and self._room >= len(key[0])
            if key not in self._specs and not has_room:
                return self._unlisted
            self.found[kind, key] = _Found()
            self._room -= len(key[0])
        return self.found[kind, key]

    def merge(self, other: "SchemaCheck", index: int) -> None:
        """Add the check of the next part, or of the next shard."""
        super().merge(other, index)
        self.records += other.records
        for key, counts in other.counts.items():
            mine = self.counts[key]
            mine.present += counts.present
            mine.values += counts.values
            mine.unexpected += counts.unexpected
            self.absent[key].merge(other.absent[key], index)
        for (kind, key), found in other.found.items():
            self._find(kind, key).merge(found, index)
        self._unlisted.merge(other._unlisted, index)

    def anomalies(self) -> Iterator[Anomaly]:
        """Yield how the records differ from the schema."""
        for key, spec in self._specs.items():
            yield from self._presence(key, spec)
        for (kind, key), found in self.found.items():
            if key not in self._specs:
                yield _anomaly(kind, key, "not in the schema", found)
                continue
            spec, counts = self._specs[key], self.counts[key]
            mass = 1 - counts.unexpected / max(counts.values, 1)
            if kind != _UNEXPECTED_STRING or mass < spec.min_domain_mass:
                yield _anomaly(kind, key, _message(kind, spec, found), found)
        if self._unlisted.count:
            message = (
                f"not in the schema: {self._unlisted.count:,} more, with too many names to list"
            )
            yield _anomaly("SCHEMA_NEW_COLUMN", (b"...", False), message, None)

    def _presence(self, key: _Key, spec: DataFeature) -> Iterator[Anomaly]:
        present = self.counts[key].present
        absent = self.absent[key] if self.absent[key].count else None  # the schema asks for more
        if not spec.checked or not self.records:
            return
        if not present:
            if spec.min_fraction > 0 or spec.min_count > 0:
                yield _anomaly("SCHEMA_MISSING_COLUMN", key, "no record has it", None)
            return
        share = f"present in {present:,} of {human_count(self.records, 'record')}"
        if present / self.records < spec.min_fraction:
            wanted = f"expected in at least {spec.min_fraction:.0%}"
            kind = "FEATURE_TYPE_LOW_FRACTION_PRESENT"
            yield _anomaly(kind, key, f"{share}, {wanted}", absent)
        if present < spec.min_count:
            message = f"{share}, expected in at least {spec.min_count:,}"
            yield _anomaly("FEATURE_TYPE_LOW_NUMBER_PRESENT", key, message, absent)


def _anomaly(kind: str, key: _Key, message: str, found: _Found | None) -> Anomaly:
    return Anomaly(
        anomaly=kind,
        feature=feature_name(key[0]),
        message=message,
        count=None if found is None else found.count,
        records=tuple(found.records) if found else (),
    )


def _message(kind: str, spec: DataFeature, found: _Found) -> str:
    """Return what was expected and what was found instead."""
    least, most = spec.counts
    bounds = f"{least:,} to {most:,}" if most is not None and most != least else f"{least:,}"
    bounds += " or more" if most is None else ""
    few = "at least " if kind.find("_SMALL_") > 0 else "at most "
    bound = spec.low if kind.find("_SMALL_") > 0 else spec.high
    expected = {
        "UNEXPECTED_DATA_TYPE": spec.dtype and spec.dtype.value,
        _UNEXPECTED_STRING: _domain(spec.domain or frozenset()),
        "INVALID_FEATURE_SHAPE": f"the shape {list(spec.shape or ())}",
        "FEATURE_TYPE_LOW_NUMBER_VALUES": f"{bounds} values",
        "FEATURE_TYPE_HIGH_NUMBER_VALUES": f"{bounds} values",
        "FLOAT_TYPE_HAS_NAN": "numbers",
        "FLOAT_TYPE_HAS_INF": "finite numbers",
    }.get(kind, f"{few}{bound}")
    return f"expected {expected}, found {', '.join(found.values)}"


def _domain(values: frozenset[bytes]) -> str:
    if len(values) > _VALUES_SHOWN:
        return f"one of {len(values):,} values"
    return " or ".join(map(_shown, sorted(values))) or "no value"


def _wrong(
    spec: DataFeature, feature: Any, counts: tuple[int, int | None], totals: _Counts
) -> list[tuple[str, str]]:
    """Return the anomalies of a feature's values in a record, each with what was found."""
    kind = feature.WhichOneof("kind")
    dtype, values = DTYPES[kind], getattr(feature, kind).value
    if spec.dtype not in (dtype, None):
        return [("UNEXPECTED_DATA_TYPE", dtype.value)]
    wrong = list(_wrong_count(len(values), counts, spec.shape))
    if dtype is DType.STRING:
        if spec.domain is not None:
            others = [value for value in values if value not in spec.domain]
            totals.values += len(values)
            totals.unexpected += len(others)
            wrong += [(_UNEXPECTED_STRING, _shown(one)) for one in others[:1]]
        return wrong
    name = "BOOL_TYPE" if spec.is_bool else "INT_TYPE" if dtype is DType.INT64 else "FLOAT_TYPE"
    unit = "FLOAT" if name == "FLOAT_TYPE" else "INT"
    numbers = values
    if dtype is DType.FLOAT32 and any(map(math.isnan, values)):
        numbers = [value for value in values if not math.isnan(value)]
        wrong += [("FLOAT_TYPE_HAS_NAN", "NaN")] if spec.disallow_nan else []
    if not numbers:
        return wrong
    low, high = min(numbers), max(numbers)
    if spec.disallow_inf and math.isinf(found := high if math.isinf(high) else low):
        wrong.append(("FLOAT_TYPE_HAS_INF", f"{found:g}"))
    if spec.low is not None and low < spec.low:
        wrong.append((f"{name}_SMALL_{unit}", f"{low:.9g}" if unit == "FLOAT" else str(low)))
    if spec.high is not None and high > spec.high:
        wrong.append((f"{name}_BIG_{unit}", f"{high:.9g}" if unit == "FLOAT" else str(high)))
    return wrong


def _wrong_count(
    count: int, limits: tuple[int, int | None], shape: tuple[int, ...] | None
) -> Iterator[tuple[str, str]]:
    least, most = limits
    if shape is not None:
        if count != math.prod(shape):
            yield "INVALID_FEATURE_SHAPE", str(count)
    elif count < least:
        yield "FEATURE_TYPE_LOW_NUMBER_VALUES", str(count)
    elif most is not None and count > most:
        yield "FEATURE_TYPE_HIGH_NUMBER_VALUES", str(count)


def _shown(value: bytes) -> str:
    text = decode_text(value)
    if text is None:
        return f"{len(value)} bytes of {describe_bytes(value)} data"
    text = printable(text)
    return repr(text if len(text) <= _LONGEST else text[:_LONGEST] + "...")


def find_anomalies(schema: DataSchema, checks: Iterable[SchemaCheck]) -> tuple[Anomaly, ...]:
    """Return how the records of all shards together differ from a schema."""
    total = SchemaCheck(schema, Path())
    for check in checks:
        total.merge(check, 0)
    return tuple(sorted(total.anomalies(), key=lambda anomaly: (anomaly.feature, anomaly.anomaly)))
