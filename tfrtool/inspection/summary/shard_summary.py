"""Looking into one shard: its records, its CRCs, its features, and the first records parsed."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tfrtool.examples.example import PayloadKind, decode_example
from tfrtool.examples.inference import SchemaFold
from tfrtool.examples.parsing import Parsed, parse_example
from tfrtool.examples.schema import Schema
from tfrtool.examples.statistics import FeatureStatistics
from tfrtool.inspection.summary.payloads import PayloadFold
from tfrtool.records.compression import detect_compression
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.records.reader import ReadOptions, read_records
from tfrtool.records.shards import Shard
from tfrtool.records.stream import Location, as_source, open_shard, path_of, size_of

__all__ = ["InspectOptions", "Sample", "ShardSummary", "inspect_shard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectOptions:
    """What to look at.

    Attributes:
        limit: how many records to parse and show, from the first on.
        record: the index of the one record to show instead.
        schema: parse with this; None parses with what is inferred.
        verify_payload: whether payload CRCs are checked.
    """

    limit: int = 3
    record: int | None = None
    schema: Schema | None = None
    verify_payload: bool = True

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ValueError(f"limit is at least 0, not {self.limit}")
        if self.record is not None and self.record < 0:
            raise ValueError(f"record is at least 0, not {self.record}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A record that is shown.

    Attributes:
        record: the record itself.
        kind: what its payload is.
        parsed: its features, parsed; None where it is neither Example nor SequenceExample.
    """

    record: Record
    kind: PayloadKind
    parsed: Parsed | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSummary:
    """What one shard holds.

    Attributes:
        shard: the file, its size and its compression.
        records: how many whole records it has.
        payload: what they are.
        payload_bytes: how many bytes all payloads have together, without frames.
        features: what was seen of each feature.
        faults: all damage, in the order of the file.
        sample: the records that were asked for.
        schema: what they were parsed with.
        hidden: by feature name, the indices of the records that miss it, and that a default of
            the schema would stand in for in silence.
        verified: whether payload CRCs were checked.
    """

    shard: Shard
    records: int
    payload: PayloadKind
    payload_bytes: int
    features: tuple[FeatureStatistics, ...]
    faults: tuple[Fault, ...]
    sample: tuple[Sample, ...]
    schema: Schema
    hidden: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    verified: bool = True


def inspect_shard(shard: Location, options: InspectOptions = InspectOptions()) -> ShardSummary:
    """Read the whole of a shard, and tell what is in it.

    Memory is bounded by the longest record and by the records that are shown.

    Args:
        shard: a file, or a binary stream.
        options: what to look at.

    Raises:
        ShardError: the file can't be opened or read. Damage is no error: it is in the faults.
    """
    source = as_source(shard)
    inspection = _Inspection(options)
    with open_shard(source) as file:
        compression = detect_compression(file)
        reading = ReadOptions(compression=compression, verify_payload=options.verify_payload)
        inspection.read(read_records(file, reading))
        size = size_of(source, file)
    return inspection.summary(Shard(path=path_of(source), bytes=size, compression=compression))


class _Inspection:
    """A fold over the records and faults of one shard."""

    def __init__(self, options: InspectOptions) -> None:
        self._options = options
        self._payloads = PayloadFold(SchemaFold())
        self._records = 0
        self._bytes = 0
        self._faults: list[Fault] = []
        self._shown: list[Record] = []
        self._hidden: dict[str, array[int]] = {}

    def read(self, items: Iterable[Record | Fault]) -> None:
        """Take in a shard."""
        options, add = self._options, self._payloads.add
        for item in items:
            if isinstance(item, Fault):
                self._faults.append(item)
                continue
            self._records += 1
            self._bytes += len(item.payload)
            if item.index == options.record or (
                options.record is None and len(self._shown) < options.limit
            ):
                self._shown.append(item)
            if add(item) and options.schema is not None:
                self._fit(item, options.schema)

    def _fit(self, record: Record, schema: Schema) -> None:
        parsed = parse_example(decode_example(record.payload, PayloadKind.SEQUENCE_EXAMPLE), schema)
        if parsed.misfits:
            reasons = "; ".join(map(str, parsed.misfits))
            self._faults.append(_misfit(record, reasons))
        for name in parsed.defaulted:
            self._hidden.setdefault(name, array("Q")).append(record.index)

    def summary(self, shard: Shard) -> ShardSummary:
        payloads = self._payloads
        examples = payloads.holds_examples
        faults = [*self._faults, *(payloads.strangers if examples else ())]
        schema = self._options.schema
        if schema is None:
            schema = payloads.schema.schema() if examples else Schema(())
        return ShardSummary(
            shard=shard,
            records=self._records,
            payload=payloads.kind,
            payload_bytes=self._bytes,
            features=payloads.schema.features() if examples else (),
            faults=tuple(sorted(faults, key=lambda fault: fault.offset)),
            sample=tuple(_sample(record, payloads.kind, schema) for record in self._shown),
            schema=schema,
            hidden={name: tuple(indices) for name, indices in self._hidden.items()},
            verified=self._options.verify_payload,
        )


def _misfit(record: Record, reason: str) -> Fault:
    return Fault(kind=FaultKind.PARSE, offset=record.offset, record=record.index, message=reason)


def _sample(record: Record, payload: PayloadKind, schema: Schema) -> Sample:
    if payload not in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE):
        return Sample(record=record, kind=payload, parsed=None)
    try:
        example = decode_example(record.payload, payload)
    except ValueError:
        return Sample(record=record, kind=PayloadKind.UNKNOWN, parsed=None)
    return Sample(record=record, kind=payload, parsed=parse_example(example, schema))
