"""The first Examples of shards, with which types are compared before all records are read."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from google.protobuf.message import DecodeError

from tfrtool.examples.example import DTYPES, DType, feature_name, parse_message
from tfrtool.examples.fields import Field, ListOf, Null, stored_values
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard
from tfrtool.storage.remote_path import AnyPath

CONTEXT, LISTS = "context", "feature_lists"
"""What the names of a SequenceExample's features start with."""

_RECORDS, _BYTES = 100, 16 * 1024 * 1024
"""Records that are read at most, and bytes of them, about."""


@dataclass(frozen=True)
class FirstExamples:
    """What the first records of shards show.

    Attributes:
        payloads: the records.
        is_sequence: whether they are SequenceExamples.
    """

    payloads: Sequence[bytes]
    is_sequence: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return FirstExamples, (self.payloads, self.is_sequence)  # and not the messages

    @classmethod
    def of(cls, shards: Sequence[AnyPath]) -> "FirstExamples":
        """Read the first Examples of the first shard that has any.

        If there are none, these are SequenceExamples. Their features have the names ``context/a``
        and ``feature_lists/b``.
        """
        sequences = cls(())
        for shard in shards:
            payloads, examples = list[bytes](), list[bytes]()
            for item in islice(read_shard(shard), _RECORDS):
                if not isinstance(item, Record) or not item.payload:
                    continue
                with suppress(DecodeError):
                    if not parse_message(item.payload).HasField("feature_lists"):
                        examples.append(item.payload)
                    payloads.append(item.payload)
                if sum(map(len, payloads)) > _BYTES:
                    break
            if examples:
                return cls(examples)
            if payloads and not sequences.payloads:
                sequences = cls(payloads, is_sequence=True)
        return sequences

    @cached_property
    def keys(self) -> frozenset[str]:
        """The names of the features."""
        return frozenset(name for record in self._records for name in record)

    @cached_property
    def _records(self) -> Sequence[Mapping[str, pb.Feature]]:
        return [self._features(parse_message(payload)) for payload in self.payloads]

    def _features(self, message: pb.SequenceExample) -> dict[str, pb.Feature]:
        """Return the features of a record; a feature list is one with the values of all steps."""
        entries = message.context.feature
        if not self.is_sequence:
            return {feature_name(entry.key): entry.value for entry in entries}
        found = {f"{CONTEXT}/{feature_name(entry.key)}": entry.value for entry in entries}
        for steps in message.feature_lists.feature_list:
            values = pb.Feature()
            for step in steps.value.feature:
                values.MergeFrom(step)
            found[f"{LISTS}/{feature_name(steps.key)}"] = values
        return found

    def values(self, name: str) -> list[Sequence[Any]]:
        """Return the values of a feature in each record that has any."""
        found = list[Sequence[Any]]()
        for record in self._records:
            kind = record[name].WhichOneof("kind") if name in record else None
            if kind is not None and len(values := getattr(record[name], kind).value):
                found.append(values)
        return found

    def stored_type(self, name: str) -> DType | None:
        """Return the type of a feature's values; None if it has none here, or several types."""
        kinds = {record[name].WhichOneof("kind") for record in self._records if name in record}
        kinds.discard(None)
        return DTYPES[kinds.pop()] if len(kinds) == 1 else None

    def field_of(self, name: str) -> Field:
        """Return a feature as it is stored, as far as these records show."""
        dtype = self.stored_type(name)
        values = stored_values(dtype or DType.STRING, Null.ANY.info)  # in other records, perhaps
        is_single = all(len(found) == 1 for found in self.values(name))
        return values if is_single else ListOf(item=values)
