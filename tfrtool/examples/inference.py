"""Inferring a Schema: what the records of a shard say about their features, as a fold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import (
    DType,
    feature_name,
    feature_values,
    is_plausible_name,
    knows_all_fields,
)
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.examples.schema import FeatureSpec, Schema

__all__ = ["FeatureStatistics", "SchemaFold"]


@dataclass(slots=True, kw_only=True)
class FeatureStatistics:
    """What has been seen of one feature.

    Attributes:
        name: the feature's name.
        is_list: whether it is a feature list of a SequenceExample.
        dtypes: how many records have values of each type. A feature list counts by its steps.
        present: how many records have it with a kind set; for a feature list, have it at all.
        unset: how many records have it without a kind.
        min_length: the fewest values in a record that has it; for a feature list, the fewest steps.
        max_length: the most.
        min_step: for a feature list, the fewest values in a step; None where there was no step.
        max_step: the most.
        content: how many values hold what (`describe_bytes`), for string features.
    """

    name: str
    is_list: bool = False
    dtypes: Counter[DType] = field(default_factory=Counter)
    present: int = 0
    unset: int = 0
    min_length: int = 0
    max_length: int = 0
    min_step: int | None = None
    max_step: int | None = None
    content: Counter[str] = field(default_factory=Counter)

    def add(self, message: pb.Feature) -> None:
        """Take in a record's feature."""
        dtype, values = feature_values(message)
        if dtype is None:
            self.unset += 1
            return
        self.dtypes[dtype] += 1
        self._add_length(len(values))
        if dtype is DType.STRING:
            for value in values:
                self.content[describe_bytes(value)] += 1  # type: ignore[arg-type]

    def add_list(self, message: pb.FeatureList) -> None:
        """Take in a record's feature list."""
        self._add_length(len(message.feature))
        for step in message.feature:
            dtype, values = feature_values(step)
            count = len(values)
            self.min_step = count if self.min_step is None else min(self.min_step, count)
            self.max_step = count if self.max_step is None else max(self.max_step, count)
            if dtype is None:
                self.unset += 1
                continue
            self.dtypes[dtype] += 1
            if dtype is DType.STRING:
                for value in values:
                    self.content[describe_bytes(value)] += 1  # type: ignore[arg-type]

    def _add_length(self, length: int) -> None:
        self.min_length = min(self.min_length, length) if self.present else length
        self.max_length = max(self.max_length, length)
        self.present += 1

    @property
    def dtype(self) -> DType | None:
        """The type of its values, the more common one where records disagree."""
        return self.dtypes.most_common(1)[0][0] if self.dtypes else None

    @property
    def described_content(self) -> str | None:
        """What its bytes hold: one description, "mixed", or None where there are no bytes."""
        kinds = [kind for kind in self.content if kind != "empty"] or list(self.content)
        if not kinds:
            return None
        return kinds[0] if len(kinds) == 1 else "mixed"

    def spec(self, records: int) -> FeatureSpec:
        """Return the narrowest spec that all ``records`` records fit, conflicts of type apart."""
        dtype = self.dtype or DType.STRING
        size = None
        if self.present == records:
            if not self.is_list:
                size = self.min_length if self.min_length == self.max_length else None
            elif self.min_step == self.max_step and not self.unset:
                size = self.min_step or None  # steps without values can't have a shape
        shape = None if size is None else () if size == 1 else (size,)
        return FeatureSpec(name=self.name, dtype=dtype, shape=shape, is_list=self.is_list)


class SchemaFold:
    """A fold over payloads that are Examples or SequenceExamples.

    Attributes:
        records: how many have been taken in.
        sequences: how many of them have feature lists.
    """

    def __init__(self) -> None:
        self.records = 0
        self.sequences = 0
        self._context: dict[bytes, FeatureStatistics] = {}
        self._lists: dict[bytes, FeatureStatistics] = {}

    def add(self, payload: bytes, *, strict: bool = True) -> bool:
        """Take in a payload, and return whether it is an Example or a SequenceExample.

        Args:
            payload: the serialized bytes.
            strict: whether fields that the message types don't know make it neither.
        """
        try:
            # An Example is a SequenceExample without feature lists, to the byte.
            message = pb.SequenceExample.FromString(payload)
        except DecodeError:
            return False
        if strict and not knows_all_fields(message):
            return False
        context = {entry.key: entry for entry in message.context.feature}
        lists = {entry.key: entry for entry in message.feature_lists.feature_list}
        for key, entry in (*context.items(), *lists.items()):
            if key not in self._context and key not in self._lists and not is_plausible_name(key):
                return False
            if strict and not entry.HasField("value"):
                return False
        self.records += 1
        self.sequences += message.HasField("feature_lists")
        for key, entry in context.items():
            statistics = self._context.get(key)
            if statistics is None:
                statistics = FeatureStatistics(name=feature_name(key))
                self._context[key] = statistics
            statistics.add(entry.value)
        for key, item in lists.items():
            statistics = self._lists.get(key)
            if statistics is None:
                statistics = FeatureStatistics(name=feature_name(key), is_list=True)
                self._lists[key] = statistics
            statistics.add_list(item.value)
        return True

    def features(self) -> tuple[FeatureStatistics, ...]:
        """Return what was seen of each feature, by name, feature lists last."""
        return (
            *(self._context[key] for key in sorted(self._context)),
            *(self._lists[key] for key in sorted(self._lists)),
        )

    def schema(self) -> Schema:
        """Return the narrowest schema that all records fit, conflicts of type apart."""
        specs = {(item.name, item.is_list): item.spec(self.records) for item in self.features()}
        return Schema(tuple(specs.values()))
