"""The first Examples of shards, with which types are compared before all records are read."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from google.protobuf.message import DecodeError

from tfrtool.examples.example import DTYPES, DType, feature_name, parse_message
from tfrtool.features.types import Field, Kind, ListOf, Values
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard
from tfrtool.storage.remote_path import AnyPath

_RECORDS, _BYTES = 100, 16 * 1024 * 1024
"""Records that are read at most, and bytes of them, about."""


@dataclass(frozen=True)
class FirstExamples:
    """What the first records of shards show.

    Attributes:
        payloads: the Examples.
        keys: the names of their features.
    """

    payloads: Sequence[bytes]
    keys: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, shards: Sequence[AnyPath]) -> "FirstExamples":
        """Read the first Examples of the first shard that has any."""
        for shard in shards:
            payloads, keys, size = list[bytes](), set[str](), 0
            for item in islice(read_shard(shard), _RECORDS):
                if not isinstance(item, Record) or not item.payload:
                    continue
                with suppress(DecodeError):
                    message = parse_message(item.payload)
                    if message.HasField("feature_lists"):
                        continue
                    keys |= {feature_name(entry.key) for entry in message.context.feature}
                    payloads.append(item.payload)
                    size += len(item.payload)
                if size > _BYTES:
                    break
            if payloads:
                return cls(payloads, frozenset(keys))
        return cls(())

    def __reduce__(self) -> tuple[Any, ...]:
        return FirstExamples, (self.payloads, self.keys)  # and not the messages

    @cached_property
    def _records(self) -> Sequence[Mapping[str, Any]]:
        messages = map(parse_message, self.payloads)
        return [
            {feature_name(entry.key): entry.value for entry in message.context.feature}
            for message in messages
        ]

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
        info = {"optional": True, "empty_is_missing": True}  # in other records, perhaps
        values = Values(kind=Kind.BYTES, info=info)
        if dtype in (DType.INT64, DType.FLOAT32):
            values = Values(kind=Kind.NUMBER, dtype=dtype.value, info=info)
        is_single = all(len(found) == 1 for found in self.values(name))
        return values if is_single else ListOf(item=values)
