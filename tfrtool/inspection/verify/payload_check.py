"""Checks of each payload of a shard: what it is, whether it parses, and whether its objects fit."""

import abc
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any

from google.protobuf.message import DecodeError

from tfrtool.engines.split_shards import shift_record_index
from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import (
    PayloadKind,
    classify_payload,
    holds_features,
    parse_message,
)
from tfrtool.examples.tf_parser import SHORT, are_canonical, canonical_keys, parser_problem
from tfrtool.records.frames import HAS_BOXES, HAS_LISTS, Frames
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.remote_path import AnyPath

EXAMPLES = (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE)
NO_EXAMPLE = "not a tf.train.Example or SequenceExample"

_TOGETHER = 256
"""Records that are parsed together, in Python."""

_VOTES = 64
"""Records after which the payload kind of a shard is settled."""

_box_mark = re.compile(rb"/bbox").search
"""Part of the names of all box features; `in` takes half as long again."""


def unparseable(record: Record, message: str = NO_EXAMPLE) -> Fault:
    """Return the fault of a record that is intact but does not hold what it should."""
    return Fault(
        kind=FaultKind.PARSE,
        offset=record.offset,
        record=record.index,
        message=message,
        cause="its checksum is valid, so it was written this way",
    )


class RecordFold(abc.ABC):
    """One thing that is found in the records of a shard, or of a part of one.

    Attributes:
        faults: records that are not what they should be.
        sequences: whether any record is known to have feature lists.
        takes_all: whether it takes records of shards that hold no Examples, too.
    """

    takes_all = False

    def __init__(self) -> None:
        self.faults = CappedList[Fault]()
        self.sequences = False

    @abc.abstractmethod
    def add(self, records: Sequence[Record], rejected: set[int]) -> None:
        """Add records. Skip those whose index is ``rejected``, and add what can't be parsed."""

    def add_fault(self, fault: Fault) -> None:  # noqa: B027 - of those that need it
        """Add damage, before the intact records around it."""

    def flush(self) -> None:  # noqa: B027 - of those that need it
        """Take in records that were put off, at the end of a shard or of a part."""

    def reject(self, record: Record, rejected: set[int], reason: str = NO_EXAMPLE) -> None:
        """Report a record that no other fold has to look at."""
        rejected.add(record.index)
        self.faults.add(unparseable(record, reason))

    def can_merge(self, other: Any) -> bool:  # noqa: ARG002 - of those that need it
        """Return whether merging gives what one pass over all records gives."""
        return True

    def merge(self, other: Any, index: int) -> None:
        """Add the fold over the part that follows, whose first record has this index."""
        self.faults.merge(shift_record_index(other.faults, index))
        self.sequences |= other.sequences

    def finish(self) -> None:  # noqa: B027 - of those that need it
        """Settle the faults, once all records were added."""


class PayloadVote:
    """The payload kind of a shard, by the majority of its first records."""

    def __init__(self, *, part: bool) -> None:
        self._first: list[tuple[PayloadKind, str]] = []
        self._part = part  # the first records of a part settle nothing
        self.others = False  # whether it is settled that the payloads are not Examples

    def add(self, records: Sequence[Record]) -> None:
        """Add records until the vote is over."""
        for record in records[: _VOTES - len(self._first)]:
            payload, content = record.payload, ""
            if payload and canonical_keys(payload, sequences=False) is not None:
                kind = PayloadKind.EXAMPLE
            else:
                kind = classify_payload(payload)
                content = describe_bytes(payload) if kind is PayloadKind.UNKNOWN else ""
            self._first.append((kind, content))
        if len(self._first) == _VOTES and not self._part:
            self.others = not self.holds_examples

    def merge(self, other: "PayloadVote") -> None:
        """Add the vote of the part that follows."""
        self._first += other._first[: _VOTES - len(self._first)]

    @property
    def holds_examples(self) -> bool:
        """Whether at least half of the payloads are Examples; empty ones may be."""
        return self.kind() not in (PayloadKind.EVENT, PayloadKind.UNKNOWN)

    def kind(self, *, sequences: bool = False) -> PayloadKind:
        """Return the payload kind, where ``sequences`` is whether any record has feature lists."""
        kinds = Counter(kind for kind, _ in self._first)
        events, unknown = kinds[PayloadKind.EVENT], kinds[PayloadKind.UNKNOWN]
        examples = sum(kinds[kind] for kind in EXAMPLES)
        if not examples + events + unknown:
            return PayloadKind.EMPTY
        if examples >= events + unknown:
            return PayloadKind.SEQUENCE_EXAMPLE if sequences else PayloadKind.EXAMPLE
        return PayloadKind.EVENT if events >= unknown else PayloadKind.UNKNOWN

    @property
    def content(self) -> str:
        """What most payloads of an unknown kind hold, by `describe_bytes`."""
        contents = Counter(content for _, content in self._first if content)
        return max(contents, key=contents.__getitem__, default="")


class ParserCheck(RecordFold):
    """Whether each record parses, with protobuf and with TensorFlow, and has possible objects.

    Values are not decoded, so this takes a fraction of the time of a schema.
    """

    def __init__(self, directory: AnyPath | None, *, images: bool) -> None:
        """Set where class names are, and whether image sizes are compared with recorded ones."""
        super().__init__()
        self._directory, self._images = directory, images
        self._objects: Any = None  # an ObjectCheck
        self._may_have_boxes = False

    def add(self, records: Sequence[Record], rejected: set[int]) -> None:
        """Check records; those that are canonical together."""
        for record in self._others(records):
            problem = self._problem(record.payload)
            if problem is not None:
                self.reject(record, rejected, problem)
        if self._may_have_boxes:
            from tfrtool.inspection.verify.object_check import ObjectCheck  # for these alone

            check = self._objects = self._objects or ObjectCheck(self._directory, self._images)
            for record in records:
                if record.index not in rejected and _box_mark(record.payload):
                    problem = check.problem(record.payload)
                    if problem is not None:
                        self.faults.add(unparseable(record, problem))

    def _others(self, records: Sequence[Record]) -> Iterator[Record]:
        """Yield the records that are not known to be canonical."""
        checked = records.check_examples() if isinstance(records, Frames) else None
        if checked is not None:
            others, flags = checked
            self.sequences |= bool(flags & HAS_LISTS)
            self._may_have_boxes |= bool(flags & HAS_BOXES)
            yield from compress(records, others) if any(others) else ()
            return
        for at in range(0, len(records), _TOGETHER):
            part = [*records[at : at + _TOGETHER]]
            short = [one for _, _, one, _ in part if len(one) <= SHORT]
            are_good = are_canonical(short, sequences=self.sequences)
            if are_good and not self._may_have_boxes:
                self._may_have_boxes = _box_mark(b"\n".join(short)) is not None
            for record in part:
                if not (are_good and len(record.payload) <= SHORT):
                    yield record

    def _problem(self, payload: bytes) -> str | None:
        """Return why a payload can't be trained on as an Example, or None."""
        keys = canonical_keys(payload, sequences=self.sequences)
        if keys is None:
            try:
                message = parse_message(payload)
            except DecodeError:
                return NO_EXAMPLE
            if not holds_features(message):
                return NO_EXAMPLE
            is_sequence = message.HasField("feature_lists")
            self.sequences |= is_sequence
            if problem := parser_problem(payload, sequence=is_sequence):
                return problem
            keys = [entry.key for entry in message.context.feature]
        if not self._may_have_boxes:
            self._may_have_boxes = _box_mark(b"\n".join(keys)) is not None
        return None
