"""Whether each payload of a shard is what its shard holds: parsed, but not looked into further."""

from collections import Counter

from google.protobuf.message import DecodeError

from tfrtool.examples.example import (
    PayloadKind,
    classify_payload,
    holds_features,
)
from tfrtool.examples.long_values import hollowed
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.examples.tf_parser import parser_problem
from tfrtool.records.framing import Fault, FaultKind, Record

_PROBATION = 64  # records after which a shard's payload kind is settled
# Features that are remembered: a hostile shard may name new ones in each record.
_FEATURES_KEPT = 10_000
NO_EXAMPLE = "no tf.train.Example or SequenceExample"

_parse = pb.SequenceExample.FromString  # an Example is one without feature lists, to the byte


def unparseable(record: Record, message: str = NO_EXAMPLE) -> Fault:
    """Return the fault that a record is whose bytes are whole, and not what they should be."""
    return Fault(
        kind=FaultKind.PARSE,
        offset=record.offset,
        record=record.index,
        message=message,
        cause="its CRC holds, so that it was written like this",
    )


class PayloadVote:
    """What the payloads of a shard are, by the majority of its first records."""

    def __init__(self) -> None:
        self._kinds: Counter[PayloadKind] = Counter()
        self._left = _PROBATION
        self.others = False  # whether it is settled that they are no examples
        self.sequences = False  # whether some of all records have feature lists

    def vote(self, payload: bytes) -> PayloadKind | None:
        """Take in a record, and return what it is; None where the vote is over."""
        if not self._left:
            return None
        self._left -= 1
        kind = classify_payload(payload)
        self._kinds[kind] += 1
        self.others = not self._left and not self.holds_examples
        return kind

    @property
    def holds_examples(self) -> bool:
        """Whether at least half of the payloads are examples; those that are empty may be."""
        kinds = self._kinds
        others = kinds[PayloadKind.EVENT] + kinds[PayloadKind.UNKNOWN]
        return kinds[PayloadKind.EXAMPLE] + kinds[PayloadKind.SEQUENCE_EXAMPLE] >= others

    @property
    def kind(self) -> PayloadKind:
        """What the payloads are."""
        if set(+self._kinds) <= {PayloadKind.EMPTY}:
            return PayloadKind.EMPTY
        if self.holds_examples:
            return PayloadKind.SEQUENCE_EXAMPLE if self.sequences else PayloadKind.EXAMPLE
        events = self._kinds[PayloadKind.EVENT] >= self._kinds[PayloadKind.UNKNOWN]
        return PayloadKind.EVENT if events else PayloadKind.UNKNOWN


class PayloadCheck(PayloadVote):
    """A fold over the records of one shard; it finds those that are no Examples among Examples.

    It finds those, too, that TensorFlow's parser refuses or reads otherwise. Nothing is asked of
    values, so that this costs a fraction of what a schema over all records costs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: set[tuple[bytes, str | None]] = set()  # names and types of features
        self._last: list[tuple[bytes, str | None]] | None = None  # those of a record, all known

    def problem(self, payload: bytes) -> str | None:
        """Take in a record; return why it can't be trained on as an Example, or None.

        Before it is known what the shard holds, the answer counts only if it turns out to hold
        examples (`holds_examples`).
        """
        if self._left:
            self.vote(payload)
        if self.others:
            return None
        try:
            parsed = hollowed(payload)
            message = pb.SequenceExample.FromString(parsed)  # or an Example, to the byte
        except DecodeError:
            return NO_EXAMPLE
        # The hot path: nothing is asked of features whose names and types have been met before.
        shape = [(entry.key, entry.value.WhichOneof("kind")) for entry in message.context.feature]
        known = shape == self._last
        if not known and shape and self._known.issuperset(shape):
            self._last, known = shape, True
        if known and not message.HasField("feature_lists"):
            return parser_problem(payload, parsed, message, complete=True)
        if not holds_features(message):
            return NO_EXAMPLE
        self.sequences |= message.HasField("feature_lists")
        problem = parser_problem(payload, parsed, message)
        if problem is None and len(self._known) < _FEATURES_KEPT:
            self._known.update(pair for pair in shape if all(pair))
        return problem
