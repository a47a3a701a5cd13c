"""Whether each payload of a shard is what its shard holds: parsed, but not looked into further."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from google.protobuf.message import DecodeError

from tfrtool.examples.example import (
    PayloadKind,
    classify_payload,
    holds_features,
)
from tfrtool.examples.long_values import LARGE, hollowed
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.examples.tf_parser import parser_problem
from tfrtool.examples.whole_records import SHORT, shortened, whole_ones
from tfrtool.records.framing import Fault, FaultKind, Record

_PROBATION = 64  # records after which a shard's payload kind is settled
_DOUBTED = 3
"""Where one record is odd, the next often are: for so many times as many the batch is not tried."""

box_mark = re.compile(rb"/bbox").search
"""What is in the names of all features of boxes; `in` takes half as long again to find it."""

_ALIKE = 512
"""Bytes of a payload, on average, from which on it takes longer to tell which are the same than to
parse them all."""

NO_EXAMPLE = "not a tf.train.Example or SequenceExample"


def unparseable(record: Record, message: str = NO_EXAMPLE) -> Fault:
    """Return the fault that a record is whose bytes are whole, and not what they should be."""
    return Fault(
        kind=FaultKind.PARSE,
        offset=record.offset,
        record=record.index,
        message=message,
        cause="its checksum is valid, so it was written this way",
    )


def short_record(record: Record) -> Record:
    """Return a record that has the same problem, if any, with little of a payload that is long.

    One that may hold boxes is whole.
    """
    index, offset, payload, crc = record
    if SHORT < len(payload) <= LARGE:  # what is large is parsed in another way
        short = shortened(payload)
        if short is not None and box_mark(short) is None:
            return tuple.__new__(Record, (index, offset, short, crc))
    return record


class PayloadVote:
    """What the payloads of a shard are, by the majority of its first records."""

    def __init__(self, *, part: bool = False) -> None:
        """Begin with nothing; of a part, nothing is settled by its own first records."""
        self._first: list[PayloadKind] = []
        self._part = part
        self.others = False  # whether it is settled that they are no examples
        self.sequences = False  # whether some of all records have feature lists

    @property
    def _left(self) -> int:
        return _PROBATION - len(self._first)

    @property
    def votes(self) -> tuple[bool, bool]:
        """Whether there was a vote, and whether there are to be more."""
        return bool(self._first), self._left > 0

    def vote(self, payload: bytes, *, is_example: bool = False) -> PayloadKind | None:
        """Take in a record, and return what it is; None where the vote is over.

        ``is_example`` says that it is known for an Example, which may be without a byte.
        """
        if not self._left:
            return None
        known = PayloadKind.EXAMPLE if payload else PayloadKind.EMPTY
        self._first.append(kind := known if is_example else classify_payload(payload))
        self.others = not self._left and not self.holds_examples and not self._part
        return kind

    def join(self, other: "PayloadVote") -> None:
        """Take in the vote of a part that follows."""
        self._first += other._first[: self._left]
        self.sequences |= other.sequences
        self.others = not self._left and not self.holds_examples

    @property
    def holds_examples(self) -> bool:
        """Whether at least half of the payloads are examples; those that are empty may be."""
        kinds = Counter(self._first)
        others = kinds[PayloadKind.EVENT] + kinds[PayloadKind.UNKNOWN]
        return kinds[PayloadKind.EXAMPLE] + kinds[PayloadKind.SEQUENCE_EXAMPLE] >= others

    @property
    def kind(self) -> PayloadKind:
        """What the payloads are."""
        kinds = Counter(self._first)
        if set(kinds) <= {PayloadKind.EMPTY}:
            return PayloadKind.EMPTY
        if self.holds_examples:
            return PayloadKind.SEQUENCE_EXAMPLE if self.sequences else PayloadKind.EXAMPLE
        events = kinds[PayloadKind.EVENT] >= kinds[PayloadKind.UNKNOWN]
        return PayloadKind.EVENT if events else PayloadKind.UNKNOWN


class PayloadCheck(PayloadVote):
    """A fold over the records of one shard; it finds those that are no Examples among Examples.

    It finds those, too, that TensorFlow's parser refuses or reads otherwise. Nothing is asked of
    values, so that this costs a fraction of what a schema over all records costs.
    """

    def __init__(self, *, part: bool = False) -> None:
        super().__init__(part=part)
        self._odd = 0  # records of the next ones that are looked at one by one
        self.may_have_boxes = False  # whether any of those taken in may hold objects

    def problems(self, records: Sequence[Record]) -> Iterator[tuple[Record, str]]:
        """Take in records; yield those that can't be trained on as Examples, each with the reason.

        Before it is known what the shard holds, they count only if it turns out to hold examples
        (`holds_examples`).
        """
        if self.others:
            return
        short: Sequence[bytes | None] = [None] * len(records)
        known: Collection[bytes] = ()
        whole: Collection[bytes] = ()
        if self._odd > 0:
            self._odd -= len(records)
        else:
            short = [one if len(one) <= SHORT else shortened(one) for _, _, one, _ in records]
            known = [one for one in short if one is not None]
            if sum(map(len, known)) < _ALIKE * len(known):
                known = {*known}
            whole = whole_ones(known, sequences=self.sequences)
            if not whole:
                self._odd = _DOUBTED * len(records)
        if not self.may_have_boxes:
            self.may_have_boxes = box_mark(b"\n".join(whole)) is not None
        for record, held in zip(records[: self._left], short, strict=False):
            self.vote(record.payload, is_example=held in whole and not self.sequences)
        if self.others or (len(whole) == len(known) and None not in short):
            return
        for record in (one for one, held in zip(records, short, strict=True) if held not in whole):
            problem = self.problem(record.payload)
            if problem is not None:
                yield record, problem

    def problem(self, payload: bytes) -> str | None:
        """Return why a payload can't be trained on as an Example, or None."""
        try:
            parsed = hollowed(payload)
            message = pb.SequenceExample.FromString(parsed)  # or an Example, to the byte
        except DecodeError:
            return NO_EXAMPLE
        if not holds_features(message):
            return NO_EXAMPLE
        self.sequences |= message.HasField("feature_lists")
        if not self.may_have_boxes:
            self.may_have_boxes = any(box_mark(one.key) for one in message.context.feature)
        return parser_problem(payload, parsed, message)
