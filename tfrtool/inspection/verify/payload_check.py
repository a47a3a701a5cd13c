"""Whether each payload of a shard is what its shard holds: parsed, but not looked into further."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from google.protobuf.message import DecodeError

from tfrtool.examples.example import (
    PayloadKind,
    classify_payload,
    holds_features,
    parse_message,
)
from tfrtool.examples.tf_parser import SHORT, are_canonical, canonical_keys, parser_problem
from tfrtool.records.framing import Fault, FaultKind, Record

_PROBATION = 64  # records after which a shard's payload kind is settled
box_mark = re.compile(rb"/bbox").search
"""What is in the names of all features of boxes; `in` takes half as long again to find it."""

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

    def vote(self, payload: bytes) -> PayloadKind | None:
        """Take in a record, and return what it is; None where the vote is over."""
        if not self._left:
            return None
        is_example = payload and canonical_keys(payload, sequences=False) is not None
        kind = PayloadKind.EXAMPLE if is_example else classify_payload(payload)
        self._first.append(kind)
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
        self.may_have_boxes = False  # whether any of those taken in may hold objects

    def problems(self, records: Sequence[Record]) -> Iterator[tuple[Record, str]]:
        """Take in records; yield those that can't be trained on as Examples, each with the reason.

        Before it is known what the shard holds, they count only if it turns out to hold examples
        (`holds_examples`).
        """
        for record in records[: self._left]:
            self.vote(record.payload)
        if self.others:
            return
        short = [one for _, _, one, _ in records if len(one) <= SHORT]
        are_good = are_canonical(short, sequences=self.sequences)
        if are_good and not self.may_have_boxes:
            self.may_have_boxes = box_mark(b"\n".join(short)) is not None
        for record in records:
            if not (are_good and len(record.payload) <= SHORT):
                problem = self.problem(record.payload)
                if problem is not None:
                    yield record, problem

    def problem(self, payload: bytes) -> str | None:
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
        if not self.may_have_boxes:
            self.may_have_boxes = box_mark(b"\n".join(keys)) is not None
        return None
