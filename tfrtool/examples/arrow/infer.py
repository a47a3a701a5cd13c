"""Inferring the columns of payloads, as a fold."""

from collections.abc import Sequence
from dataclasses import dataclass

from tfrtool.examples.arrow.columns import Column, Columns, Form
from tfrtool.examples.example import (
    DType,
    Feature,
    PayloadKind,
    classify_payload,
    decode_example,
    feature_key,
)
from tfrtool.examples.inference import MAX_NAME_BYTES, MAX_NAMES

_PARSED = (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE)


@dataclass(slots=True)
class _Seen:
    records: int = 0
    dtypes: frozenset[DType | None] = frozenset()
    single: bool = True

    def take(self, feature: Feature) -> None:
        self.dtypes |= {feature.dtype}
        self.single &= len(feature.values) == 1


class ColumnsFold:
    """A fold over payloads; folds over parts can be merged, and pickled on the way."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.kinds: dict[PayloadKind, int] = {}
        self.left_out = 0
        self._seen: dict[tuple[bool, bytes], _Seen] = {}
        self._name_bytes = 0

    def add(self, payloads: Sequence[bytes]) -> None:
        """Take in payloads."""
        for payload in payloads:
            kind = classify_payload(payload)
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
            if kind not in _PARSED:
                continue
            example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
            for name, feature in example.features.items():
                seen = self._find(False, feature_key(name))
                if seen is not None:
                    seen.records += 1
                    seen.take(feature)
            for name, steps in example.feature_lists.items():
                seen = self._find(True, feature_key(name))
                if seen is not None:
                    seen.records += 1
                    for step in steps:
                        seen.take(step)

    def _find(self, is_list: bool, key: bytes) -> _Seen | None:
        seen = self._seen.get((is_list, key))
        if seen is None:
            if len(self._seen) >= MAX_NAMES or self._name_bytes + len(key) > MAX_NAME_BYTES:
                self.left_out += 1
                return None
            self._name_bytes += len(key)
            seen = self._seen[is_list, key] = _Seen()
        return seen

    def merge(self, other: "ColumnsFold") -> None:
        """Take in what another fold over other payloads has seen."""
        for kind, count in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + count
        self.left_out += other.left_out
        for (is_list, key), more in other._seen.items():
            seen = self._find(is_list, key)
            if seen is not None:
                seen.records += more.records
                seen.dtypes |= more.dtypes
                seen.single &= more.single

    def columns(self) -> Columns:
        """Return the narrowest columns that hold all payloads of the commonest sort."""
        found = self.kinds
        if not any(kind in found for kind in _PARSED):
            for kind in (PayloadKind.EVENT, PayloadKind.UNKNOWN):
                if kind in found:
                    return Columns(kind)
            return Columns(PayloadKind.EXAMPLE if found else PayloadKind.EMPTY)
        sequence = PayloadKind.SEQUENCE_EXAMPLE in found
        records = sum(found.get(kind, 0) for kind in (*_PARSED, PayloadKind.EMPTY))
        columns = [
            self._column(is_list, key, seen, records)
            for (is_list, key), seen in sorted(self._seen.items())
        ]
        kind = PayloadKind.SEQUENCE_EXAMPLE if sequence else PayloadKind.EXAMPLE
        return Columns(kind, tuple(columns))

    @staticmethod
    def _column(is_list: bool, key: bytes, seen: _Seen, records: int) -> Column:
        dtype = next(iter(seen.dtypes), None) if len(seen.dtypes) == 1 else None
        if dtype is None:
            form = Form.FEATURE
        else:
            scalar = not is_list and seen.single and seen.records == records
            form = Form.SCALAR if scalar else Form.LIST
        return Column(key=key, form=form, dtype=dtype, is_list=is_list)
