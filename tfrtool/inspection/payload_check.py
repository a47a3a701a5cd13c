"""Whether each payload of a shard is what its shard holds: parsed, but not looked into further."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from google.protobuf.message import DecodeError

from tfrtool.examples.example import (
    DType,
    PayloadKind,
    classify_payload,
    feature_name,
    feature_values,
    is_plausible_name,
    knows_all_fields,
)
from tfrtool.examples.proto import example_pb2 as pb

__all__ = ["PayloadCheck"]

_PROBATION = 64
"""Records after which a shard's payload kind is settled, by majority; as inspection does it."""

_FEATURES_KEPT = 10_000
"""Features whose types are remembered: a hostile shard may name new ones in each record."""

_parse = pb.SequenceExample.FromString  # an Example is one without feature lists, to the byte


class PayloadCheck:
    """A fold over the records of one shard; it finds the strangers that inspection finds.

    A record's features are walked once for their names and types, and nothing is asked of their
    values, so that this costs a fraction of what a schema over all records costs.
    """

    def __init__(self) -> None:
        self._kinds: Counter[PayloadKind] = Counter()
        self._probation = _PROBATION  # records until it is known what the shard holds
        self._strange = False  # after that, whether it holds no examples
        self._sequences = False
        self._seen: set[tuple[bytes, str | None]] = set()
        self._seen_lists: set[bytes] = set()
        self._types: dict[str, dict[DType, int]] = {}

    def fits(self, payload: bytes, index: int) -> bool:
        """Take in a record; return whether it is an Example, or in a shard that holds none.

        Before it is known what the shard holds, the answer counts only if it turns out to hold
        examples (`holds_examples`).
        """
        if self._probation:
            return self._try(payload, index)
        if self._strange:
            return True
        # The hot path: nothing is asked of a feature whose name and type have been met before.
        try:
            message = _parse(payload)
        except DecodeError:
            return False
        seen = self._seen
        for entry in message.context.feature:
            if (entry.key, entry.value.WhichOneof("kind")) not in seen:
                return self._learn(message, index, strict=False)
        if message.HasField("feature_lists"):
            return self._learn(message, index, strict=False)
        return True

    def _try(self, payload: bytes, index: int) -> bool:
        try:
            fits = self._learn(_parse(payload), index, strict=True)
        except DecodeError:
            fits = False
        if not payload:
            kind = PayloadKind.EMPTY
        else:
            kind = PayloadKind.EXAMPLE if fits else classify_payload(payload)
        self._kinds[kind] += 1
        self._probation -= 1
        self._strange = not self._probation and not self.holds_examples
        return fits

    @property
    def holds_examples(self) -> bool:
        """Whether at least half of the payloads are examples; those that are empty may be."""
        others = self._kinds[PayloadKind.EVENT] + self._kinds[PayloadKind.UNKNOWN]
        return self._kinds[PayloadKind.EXAMPLE] >= others

    @property
    def payload(self) -> PayloadKind:
        """What the payloads are."""
        known = +self._kinds
        if not known or set(known) == {PayloadKind.EMPTY}:
            return PayloadKind.EMPTY
        if self.holds_examples:
            return PayloadKind.SEQUENCE_EXAMPLE if self._sequences else PayloadKind.EXAMPLE
        events = self._kinds[PayloadKind.EVENT] >= self._kinds[PayloadKind.UNKNOWN]
        return PayloadKind.EVENT if events else PayloadKind.UNKNOWN

    @property
    def types(self) -> Mapping[str, Mapping[DType, int]]:
        """By feature, the types that its values have had, and the first record with each."""
        return self._types if self.holds_examples else {}

    def _learn(self, message: pb.SequenceExample, index: int, *, strict: bool) -> bool:
        """Check a message's names, and remember those of a message that passes."""
        if strict and not knows_all_fields(message):
            return False
        # Of a key that comes twice the last value counts, as for every protobuf map.
        context = {entry.key: entry for entry in message.context.feature}
        lists = {entry.key: entry for entry in message.feature_lists.feature_list}
        for key, entry in (*context.items(), *lists.items()):
            if key not in self._seen_lists and not is_plausible_name(key):
                return False
            if strict and not entry.HasField("value"):
                return False
        self._sequences |= message.HasField("feature_lists")
        for key, entry in context.items():
            if len(self._seen) < _FEATURES_KEPT:
                self._seen.add((key, entry.value.WhichOneof("kind")))
            self._note_type(key, entry.value, index)
        for key, item in lists.items():
            if len(self._seen_lists) < _FEATURES_KEPT:
                self._seen_lists.add(key)
            for step in item.value.feature:
                self._note_type(key, step, index)
        return True

    def _note_type(self, key: bytes, feature: pb.Feature, index: int) -> None:
        dtype, _ = feature_values(feature)
        name = feature_name(key)
        if dtype is not None and (name in self._types or len(self._types) < _FEATURES_KEPT):
            self._types.setdefault(name, {}).setdefault(dtype, index)
