"""What the payloads of one shard are, by majority, and the fold over those that are examples."""

from __future__ import annotations

from collections import Counter

from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import PayloadKind, classify_payload
from tfrtool.examples.inference import SchemaFold
from tfrtool.records.framing import Fault, FaultKind, Record

__all__ = ["PayloadFold"]

_PROBATION = 64
"""Records after which a shard's payload kind is settled, by majority."""


class PayloadFold:
    """A fold over the records of one shard.

    Attributes:
        schema: the fold over the payloads that are Examples or SequenceExamples.
        strangers: the records that are neither, among a majority that is.
        described: what the first records that are neither hold (`describe_bytes`), and how many
            of them.
    """

    def __init__(self, schema: SchemaFold) -> None:
        self.schema = schema
        self.strangers: list[Fault] = []
        self.described: Counter[str] = Counter()
        self._records = 0
        self._kinds: Counter[PayloadKind] = Counter()
        self._holds_examples = True

    def add(self, record: Record) -> bool:
        """Take in a record, and return whether it is an Example or a SequenceExample."""
        if not self._holds_examples:
            return False
        if self._records < _PROBATION:
            fits = self._add_on_probation(record)
        else:
            fits = self.schema.add(record.payload, strict=False, index=record.index)
        if not fits:
            self.strangers.append(
                Fault(
                    kind=FaultKind.PARSE,
                    offset=record.offset,
                    record=record.index,
                    message="no tf.train.Example or SequenceExample",
                )
            )
        return fits

    def _add_on_probation(self, record: Record) -> bool:
        payload = record.payload
        fits = self.schema.add(payload, strict=True, index=record.index)
        if not payload:
            kind = PayloadKind.EMPTY
        else:
            kind = PayloadKind.EXAMPLE if fits else classify_payload(payload)
        if not fits:
            self.described[describe_bytes(payload)] += 1
        self._kinds[kind] += 1
        self._records += 1
        if self._records == _PROBATION and not self._examples_prevail():
            self._holds_examples = False
            self.strangers.clear()
        return fits

    def _examples_prevail(self) -> bool:
        """Return whether at least half of the payloads are examples; empty ones may be."""
        others = self._kinds[PayloadKind.EVENT] + self._kinds[PayloadKind.UNKNOWN]
        return self._kinds[PayloadKind.EXAMPLE] >= others

    @property
    def kind(self) -> PayloadKind:
        """What the payloads are."""
        known = +self._kinds
        if not known or set(known) == {PayloadKind.EMPTY}:
            return PayloadKind.EMPTY
        if self._examples_prevail():
            sequences = self.schema.sequences
            return PayloadKind.SEQUENCE_EXAMPLE if sequences else PayloadKind.EXAMPLE
        events, others = self._kinds[PayloadKind.EVENT], self._kinds[PayloadKind.UNKNOWN]
        return PayloadKind.EVENT if events >= others else PayloadKind.UNKNOWN

    @property
    def holds_examples(self) -> bool:
        """Whether the payloads are Examples or SequenceExamples."""
        return self.kind in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE)
