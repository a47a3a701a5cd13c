"""Looking into one shard: its records, its CRCs, its features, and the first records parsed."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, NamedTuple

from tfrtool.declare import takes
from tfrtool.examples.example import PayloadKind, decode_example
from tfrtool.examples.parsing import Parsed, fit_example
from tfrtool.examples.schema import Schema
from tfrtool.examples.schema_fold import FeatureStatistics
from tfrtool.examples.tfds_metadata import DATASET_INFO, info_beside
from tfrtool.inspection.profile import ProfileRequest, RecordSchema, ShardProfile
from tfrtool.inspection.shard_options import ShardOptions
from tfrtool.inspection.summary.summary_json import feature_json, value_json
from tfrtool.inspection.verify.payload_check import EXAMPLES, RecordFold, unparseable
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.count import indexed, skip_records
from tfrtool.records.framing import Fault, Record
from tfrtool.records.reader import RecordReader
from tfrtool.records.shard_sets import group_shards
from tfrtool.records.shards import Shard
from tfrtool.records.stream import Location, as_source, open_shard, path_of, size_of, total_bytes
from tfrtool.storage.json_values import Shown, to_json_values
from tfrtool.storage.remote_path import RemotePath

_READ_WHOLE = 1024 * 1024
"""Bytes up to which a shard is read whole from a store, too."""


class SchemaMatch(RecordFold):
    """Which records don't match a schema, or match only because of a default."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self._schema = schema
        self.hidden: dict[str, array[int]] = {}

    def add(self, records: Sequence[Record], rejected: set[int]) -> None:
        """Parse records."""
        for record in records:
            if record.index in rejected:
                continue
            example = decode_example(record.payload, PayloadKind.SEQUENCE_EXAMPLE)
            parsed = fit_example(example, self._schema)
            if parsed.misfits:
                reasons = "; ".join(map(str, parsed.misfits))
                self.faults.add(replace(unparseable(record, reasons), cause=None))
            for name in parsed.defaulted:
                self.hidden.setdefault(name, array("Q")).append(record.index)


class Sample(NamedTuple):
    """A record that is shown, and its features; None if it isn't an Example or SequenceExample."""

    record: Record
    parsed: Parsed | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ShardSummary(Shown):
    """Contents of one shard.

    Attributes:
        shard: path, size and compression of the file.
        records: number of intact records that were read.
        payload: type of the payloads.
        content: what most payloads of an unknown type hold, such as the name of a message.
        payload_bytes: total size of the payloads, without framing, in bytes.
        features: statistics of each feature.
        lost: number of damaged records.
        faults: the first `MAX_FAULTS` faults, in file order.
        fault_count: total number of faults.
        misfit_count: number of faults that are intact records which can't be parsed or don't match
            the schema.
        sample: the requested records.
        hidden: by feature name, indices of the records that lack the feature and for which the
            default in the schema is silently used.
        whole: whether the entire shard was read. If not, everything here refers to the records that
            were read.
        total: number of records in the shard. None if it was read only in part and neither metadata
            nor an index gives the number.
        counted_by: name of the file that ``total`` was taken from.
    """

    shard: Shard
    records: int
    payload: PayloadKind
    payload_bytes: int
    features: tuple[FeatureStatistics, ...]
    lost: int
    faults: tuple[Fault, ...]
    fault_count: int
    misfit_count: int
    sample: tuple[Sample, ...]
    hidden: Mapping[str, tuple[int, ...]]
    whole: bool = True
    total: int | None = None
    counted_by: str | None = None
    content: str = ""

    def to_json(self, *, raw: bool = False) -> dict[str, Any]:
        """Return the object that ``inspect shard --json`` prints for a shard.

        Args:
            raw: whether to include the serialized bytes and CRCs of each sampled record.
        """
        return {
            **to_json_values(self.shard),
            "records": self.total,
            **({} if self.whole else {"records_read": self.records, "counted_by": self.counted_by}),
            "payload": self.payload.value,
            **({"content": self.content} if self.content else {}),
            "payload_bytes": self.payload_bytes,
            "features": [feature_json(feature) for feature in self.features],
            "faults": to_json_values(self.faults),
            "fault_count": self.fault_count,
            "hidden_by_default": [
                {"name": name, "records": list(indices)} for name, indices in self.hidden.items()
            ],
            "sample": [_sample_json(record, parsed, raw) for record, parsed in self.sample],
        }


def _sample_json(record: Record, parsed: Parsed | None, raw: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "record": record.index,
        "offset": record.offset,
        "length": len(record.payload),
        "features": None,
    }
    if parsed is None:
        data["payload"] = value_json(record.payload)
    else:
        data["features"] = {name: value_json(value) for name, value in parsed.values.items()}
        if parsed.misfits:
            data["misfits"] = [str(misfit) for misfit in parsed.misfits]
    if raw:
        data["raw"] = repr(record.payload)
        data["length_crc"] = f"{record.length_crc:08x}"
        data["payload_crc"] = f"{record.payload_crc:08x}"
    return data


@takes(ShardOptions)
def inspect_shard(shard: Location, options: ShardOptions) -> ShardSummary:
    """Read a shard and summarize its contents.

    Of a remote shard larger than 1 MiB, only the records to show are read, unless ``whole`` is
    true. Memory is bounded by the longest record, the records to show and `MAX_FAULTS`.

    Args:
        shard: path of a shard, or a binary stream.

    Raises:
        ShardError: the file can't be opened or read. Damage is not an error: it is reported in
            ``faults``.
        UsageError: a number is negative.
    """
    limit, record, schema = options.limit, options.record, options.schema
    source = as_source(shard)
    size = None if isinstance(source, RemotePath) else total_bytes([source])
    features = RecordSchema("", values=False, expected_bytes=size or 0)
    folds: list[RecordFold] = [features]
    match = SchemaMatch(schema) if schema is not None else None
    profile = ShardProfile(source, ProfileRequest(), folds=[features, match] if match else folds)
    cut = False
    total: int | None = None
    shown: list[Record] = []
    with open_shard(source) as file:
        compression = detect_compression(file)
        partly = isinstance(source, RemotePath) and not options.whole
        partly = partly and size_of(source, file) > _READ_WHOLE
        start = 0, 0
        if partly and record and compression is Compression.NONE:
            start = skip_records(file, size_of(source, file), most=record)
            if start[1] == size_of(source, file):
                total, start = start[0], (0, 0)  # no such record: show what the first one is
            file.seek(start[1])
        reader = RecordReader(file, compression, position=start)

        def pieces() -> Iterator[Sequence[Record] | Fault]:
            nonlocal cut
            count = 0
            for piece in reader.pieces():
                if isinstance(piece, Fault):
                    yield piece
                    continue
                # How many are needed: those to show, or those up to the wanted one.
                needed = limit - count if record is None else record - piece[0].index + 1
                if partly and (needed <= len(piece) or total is not None):
                    cut = True
                    piece = piece[: 1 if total is not None else max(needed, 1)]
                if record is None:
                    shown.extend(piece[: max(needed, 0)])
                elif 0 < needed <= len(piece):
                    shown.append(piece[needed - 1])
                count += len(piece)
                yield piece
                if cut:
                    return

        profile.read(pieces())
        if profile.failure is not None:
            raise profile.failure
        found = Shard(path=path_of(source), bytes=size_of(source, file), compression=compression)
    counted_by = None
    if not cut:
        total = start[0] + profile.records
    elif total is None and isinstance(source, RemotePath):
        total, counted_by = _count_beside(source, file, found.bytes)
    kind, examples = profile.payload, profile.payload in EXAMPLES
    if schema is None:
        schema = features.schema.schema() if examples else Schema(())
    profile.finish()
    profile.add_checksum_style()
    return ShardSummary(
        shard=found,
        records=profile.records,
        payload=kind,
        content=profile.content if kind is PayloadKind.UNKNOWN else "",
        payload_bytes=profile.payload_bytes,
        features=features.schema.features() if examples else (),
        lost=profile.lost,
        faults=profile.faults,
        fault_count=profile.n_faults,
        misfit_count=profile.n_faults - profile.damage.count,
        sample=tuple(Sample(one, _parsed(one, kind, schema)) for one in shown),
        hidden={name: tuple(some) for name, some in (match.hidden if match else {}).items()},
        whole=not cut and start[0] == 0,
        total=total,
        counted_by=counted_by,
    )


def _count_beside(source: RemotePath, file: BinaryIO, size: int) -> tuple[int | None, str | None]:
    """Return how many records metadata or a short index say that a shard has, and which of them."""
    (shard_set,) = group_shards([source])
    (number,) = shard_set.shards
    info = info_beside(source.parent)
    for split in info.splits if info else ():
        lengths = split.shard_lengths
        if (
            split.name == shard_set.split
            and len(lengths) == (shard_set.count or 1)
            and number < len(lengths)
        ):
            return lengths[number], DATASET_INFO
    index = source.with_name(f"{source.name}.idx")
    with suppress(OSError):
        if index.stat().st_size <= _READ_WHOLE:
            known = indexed(file, source, size)
            return (len(known) - 1, index.name) if known else (None, None)
    return None, None


def _parsed(record: Record, kind: PayloadKind, schema: Schema) -> Parsed | None:
    if kind not in EXAMPLES:
        return None
    try:
        return fit_example(decode_example(record.payload, kind), schema)
    except ValueError:
        return None
