"""The labels of a shard's records, in their order and in little memory."""

from array import array
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from google.protobuf.message import DecodeError

from tfrtool.examples.example import (
    PayloadKind,
    Value,
    classify_payload,
    decode_example,
    parse_message,
)
from tfrtool.examples.objects.read_objects import has_boxes
from tfrtool.examples.roles import SAMPLE, find_roles, is_image
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.inspection.dataset.object_counts import ObjectCounts
from tfrtool.inspection.verify.payload_check import unparseable
from tfrtool.inspection.verify.verify_shard import ShardVerdict, digest_of
from tfrtool.records.framing import Fault
from tfrtool.records.reader import read_records, read_shard
from tfrtool.records.shards import Shard
from tfrtool.records.stream import open_shard
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.opening import hashed_while_read

Label = int | bytes

MAX_LABELS = 2**15
"""Different labels that are kept apart; ImageNet-21k, the largest in common use, has 21,841."""

FAULTS_KEPT = 1000
"""Faults that are kept of a shard; a file may be damaged in every record."""

_LONGEST_LABEL = 1024
"""Bytes of a string that is taken for a label: a caption or an image is none."""

_CANDIDATES = 8


class FirstRecords(NamedTuple):
    """What the first records of a shard are, which feature is their label, or which could be it."""

    payload: PayloadKind
    label: str | None = None
    candidates: tuple[str, ...] = ()
    has_boxes: bool = False  # whether there are features of objects in images


def look_for_label(paths: Iterable[Path], info: DatasetInfo | None) -> FirstRecords:
    """Look for the label feature in the first records of shards.

    Where none has a label, the first shard with records says what they are.
    """
    first, boxes = FirstRecords(PayloadKind.EMPTY), False
    for path in paths:
        kind = PayloadKind.EMPTY
        candidates: dict[str, None] = {}
        for item in islice(read_shard(path), SAMPLE):
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
            boxes |= has_boxes(features)
            label = find_roles(features, info).label
            if label is not None:
                return FirstRecords(kind, label, has_boxes=boxes)
            for name, feature in features.items():
                value = _as_label(feature.values[0]) if len(feature.values) == 1 else None
                if value is not None and not is_image(value):
                    candidates[name] = None
        if first.payload is PayloadKind.EMPTY:
            first = FirstRecords(kind, candidates=tuple(candidates)[:_CANDIDATES])
    return first._replace(has_boxes=boxes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLabels:
    """The labels of one shard: two bytes a record are all that grows with the file.

    Records that are no tf.train.Example where the others are count to its faults.
    """

    shard: Shard
    verdict: ShardVerdict  # with the first `FAULTS_KEPT` of its faults
    codes: "array[int]"  # for each record with a label, in order, the number of that in `labels`
    more: "array[int]"  # likewise of each further label, where a record has a list of them
    labels: tuple[Label, ...]  # in the order in which they first occur
    unlabelled: int  # records without one whole number or short string
    overflowed: bool  # more labels than `MAX_LABELS`; then `codes` and `labels` are empty
    objects: ObjectCounts | None  # None where they were not asked for


def read_labels(
    path: Path,
    label: str | None,
    hashed: Collection[Path] = (),
    objects: Mapping[int, str] | None = None,
    *,
    listed: bool = False,
) -> ShardLabels:
    """Read a shard to its end, and find the label of each of its records.

    Without a ``label`` or objects, records are counted and their CRCs checked, but not parsed.
    ``hashed`` are the shards whose SHA-256 is wanted, where they are whole; ``objects`` are the
    names of the classes of objects by their numbers, if these are to be counted. Whether a record
    has a list of labels, metadata says (``listed``): several numbers may be a vector otherwise.
    """
    key = None if label is None else label.encode("utf-8", "surrogateescape")
    codes, more, known = array("H"), array("H"), dict[Label, int]()
    rest: list[Label] | None = [] if listed else None
    faults = CappedList[Fault](FAULTS_KEPT)
    records = size = lost = unlabelled = 0
    counts = None if objects is None else ObjectCounts(objects)
    shard = Shard.at(path)
    with open_shard(path) as file, hashed_while_read(file, path in hashed) as sha256:
        for item in read_records(file):
            if isinstance(item, Fault):
                faults.add(item)
                lost += item.record is not None
                continue
            records += 1
            size += len(item.payload)
            if counts is not None:
                try:
                    counts.add(item.payload)
                except ValueError:
                    faults.add(unparseable(item))
                    unlabelled += key is not None
                    continue
            if key is None:
                continue
            value = None
            try:
                value = _label(item.payload, key, rest)
            except DecodeError:
                faults.add(unparseable(item))
            if value is None:
                unlabelled += 1
            elif len(known) <= MAX_LABELS:
                codes.append(known.setdefault(value, len(known)))
            while rest:
                if len(known) <= MAX_LABELS:
                    more.append(known.setdefault(rest[-1], len(known)))
                del rest[-1]
    overflowed = len(known) > MAX_LABELS
    verdict = ShardVerdict(
        path=path,
        shard=shard,
        records=records,
        lost=lost,
        payload_bytes=size,
        faults=tuple(faults.kept),
        n_faults=faults.count,
        sha256=(sha256[0] if sha256 else digest_of(path))
        if path in hashed and not faults.count
        else None,
    )
    return ShardLabels(
        shard=shard,
        verdict=verdict,
        codes=array("H") if overflowed else codes,
        more=array("H") if overflowed else more,
        labels=() if overflowed else tuple(known),
        unlabelled=unlabelled,
        overflowed=overflowed,
        objects=counts,
    )


def _label(payload: bytes, key: bytes, rest: list[Label] | None) -> Label | None:
    """Return a record's label, or the first of a list, whose ``rest`` is added to that."""
    # Straight from the message: only one feature is wanted, of each record of the dataset. The
    # context of a SequenceExample has the place of an Example's features, to the byte.
    found = None
    for entry in parse_message(payload).context.feature:
        if entry.key == key:
            found = entry.value  # of a key that comes twice the last counts, as in every map
    if found is None:
        return None
    values = found.int64_list.value or found.bytes_list.value
    if len(values) != 1:
        if rest is None or not values:
            return None
        rest += (label for label in map(_as_label, values) if label is not None)
        return rest.pop(0) if rest else None
    return _as_label(values[0])


def _as_label(value: Value) -> Label | None:
    """Return a whole number, or bytes no longer than a name."""
    if isinstance(value, bytes):
        return value if len(value) <= _LONGEST_LABEL else None
    return value if isinstance(value, int) else None
