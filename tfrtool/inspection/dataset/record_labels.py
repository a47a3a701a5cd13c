"""The labels of a shard's records, in their order and in little memory."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from tfrtool.examples.example import DType, Feature, PayloadKind, classify_payload, decode_example
from tfrtool.examples.long_values import hollowed, whole
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.examples.roles import find_roles
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.inspection.first_of import FirstOf
from tfrtool.inspection.verify.payload_check import unparseable
from tfrtool.inspection.verify.verify_shard import ShardVerdict, digest_of
from tfrtool.records.framing import Fault
from tfrtool.records.reader import read_records
from tfrtool.records.shards import Shard
from tfrtool.records.stream import open_shard

Label = int | bytes

MAX_LABELS = 2**15
"""Different labels that are kept apart; ImageNet-21k, the largest in common use, has 21,841."""

FAULTS_KEPT = 1000
"""Faults that are kept of a shard; a file may be damaged in every record."""

_LONGEST_LABEL = 1024
"""Bytes of a string that is taken for a label: a caption or an image is none."""

_LOOKED_AT = 64
"""Records at the start of a shard in which its label feature is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRecords:
    """What the first records of a shard say.

    Attributes:
        payload: what they are, by the first one.
        label: the feature that is the label; None where that is not clear.
        candidates: the names of the features that could be one: a single whole number or text.
    """

    payload: PayloadKind
    label: str | None = None
    candidates: tuple[str, ...] = ()


def look_for_label(path: Path, info: DatasetInfo | None) -> FirstRecords:
    """Look for the label feature in the first records of a shard.

    Raises:
        ShardError: the file can't be read.
    """
    kind = PayloadKind.EMPTY
    candidates: dict[str, None] = {}
    with open_shard(path) as file:
        for _, item in zip(range(_LOOKED_AT), read_records(file), strict=False):
            if isinstance(item, Fault) or not item.payload:
                continue
            if kind is PayloadKind.EMPTY:
                kind = classify_payload(item.payload)
            if kind not in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE):
                break
            try:
                features = decode_example(item.payload, PayloadKind.SEQUENCE_EXAMPLE).features
            except ValueError:
                continue
            label = find_roles(features, info).label
            if label is not None:
                return FirstRecords(payload=kind, label=label)
            candidates |= dict.fromkeys(n for n, f in features.items() if _may_be_label(f))
    return FirstRecords(payload=kind, candidates=tuple(candidates))


def _may_be_label(feature: Feature) -> bool:
    if len(feature.values) != 1 or feature.dtype is DType.FLOAT32:
        return False
    value = feature.values[0]
    return not isinstance(value, bytes) or len(value) <= _LONGEST_LABEL


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLabels:
    """The labels of one shard.

    Two bytes a record: this is all that grows with the file.

    Attributes:
        shard: the file, its size and its compression.
        verdict: its number of records, and its damage, to which records count that are
            no tf.train.Example where the others are; the first `FAULTS_KEPT` of its faults.
        codes: for each record with a label, in order, the number of its label in `labels`.
        labels: the labels that occur, in the order in which they first do.
        unlabelled: how many records have no label: not one whole number or short string.
        overflowed: whether there are more different labels than `MAX_LABELS`; then `codes` and
            `labels` are empty.
    """

    shard: Shard
    verdict: ShardVerdict
    codes: array[int]
    labels: tuple[Label, ...]
    unlabelled: int
    overflowed: bool


def read_labels(
    path: Path, label: str | None, hashed: frozenset[Path] = frozenset()
) -> ShardLabels:
    """Read a shard to its end, and find the label of each of its records.

    Args:
        path: the shard.
        label: the name of the label feature; None where there is none, so that records are
            counted and their CRCs checked, but not parsed.
        hashed: the shards whose SHA-256 is wanted, where they are whole.

    Raises:
        ShardError: the file can't be read. Damage is no error: it is in the verdict.
    """
    key = None if label is None else label.encode("utf-8", "surrogateescape")
    codes, known = array("H"), dict[Label, int]()
    faults = FirstOf[Fault](FAULTS_KEPT)
    records = size = lost = unlabelled = 0
    overflowed = False
    shard = Shard.at(path)
    with open_shard(path) as file:
        for item in read_records(file):
            if isinstance(item, Fault):
                fault = item
                lost += fault.record is not None
            else:
                records += 1
                size += len(item.payload)
                if key is None:
                    continue
                try:
                    value = _label(item.payload, key)
                except DecodeError:
                    unlabelled += 1
                    fault = unparseable(item)
                else:
                    if value is None:
                        unlabelled += 1
                    elif not overflowed:
                        code = known.setdefault(value, len(known))
                        overflowed = code >= MAX_LABELS
                        if not overflowed:
                            codes.append(code)
                    continue
            faults.add(fault)
    verdict = ShardVerdict(
        path=path,
        shard=shard,
        records=records,
        lost=lost,
        payload_bytes=size,
        faults=tuple(faults.kept),
        n_faults=faults.count,
        sha256=digest_of(path) if path in hashed and not faults.count else None,
    )
    return ShardLabels(
        shard=shard,
        verdict=verdict,
        codes=array("H") if overflowed else codes,
        labels=() if overflowed else tuple(known),
        unlabelled=unlabelled,
        overflowed=overflowed,
    )


def _label(payload: bytes, key: bytes) -> Label | None:
    # Straight from the message: only one feature is wanted, of each record of the dataset. The
    # context of a SequenceExample has the place of an Example's features, to the byte.
    found = None
    for entry in pb.Example.FromString(hollowed(payload)).features.feature:
        if entry.key == key:
            found = entry.value  # of a key that comes twice the last counts, as in every map
    if found is None:
        return None
    values = found.int64_list.value or found.bytes_list.value
    if len(values) != 1:
        return None
    value: Label = values[0]
    if isinstance(value, bytes):
        (value,) = whole((value,), payload)
    return None if isinstance(value, bytes) and len(value) > _LONGEST_LABEL else value
