"""What the payloads of one shard are, by majority, and the fold over those that are examples."""

from __future__ import annotations

from collections import Counter

from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.inference import SchemaFold
from tfrtool.inspection.verify.payload_check import PayloadVote, unparseable
from tfrtool.records.framing import Fault, Record

EXAMPLES = (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE)


class PayloadFold:
    """A fold over the records of one shard.

    Attributes:
        schema: the fold over the payloads that are Examples or SequenceExamples.
        unparseable: the records that are neither, among a majority that is.
        described: what the first records that are neither hold (`describe_bytes`), and how many
            of them.
    """

    def __init__(self, schema: SchemaFold) -> None:
        self.schema = schema
        self.unparseable: list[Fault] = []
        self.described: Counter[str] = Counter()
        self._vote = PayloadVote()

    def add(self, record: Record) -> bool:
        """Take in a record, and return whether it is an Example or a SequenceExample."""
        if self._vote.rejects_examples:
            return False
        kind = self._vote.add(record.payload)
        if kind is not None and kind not in EXAMPLES:
            self.described[describe_bytes(record.payload)] += 1
        fits = self.schema.add(record.payload, index=record.index)
        if not fits:
            self.unparseable.append(unparseable(record))
        if self._vote.rejects_examples:
            self.unparseable.clear()
        return fits

    @property
    def kind(self) -> PayloadKind:
        """What the payloads are."""
        return self._vote.kind(sequences=self.schema.sequences > 0)
