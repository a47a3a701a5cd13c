"""The distributions of the values of features, folded over records."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tfrtool.examples.arrow.arrays import strings_array
from tfrtool.examples.arrow.columns import Column, Columns
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.content import describe_bytes, png_form
from tfrtool.examples.example import DTYPES, DType, PayloadKind, feature_key, feature_name
from tfrtool.examples.fields import Encoding, Kind, Struct, leaves_of
from tfrtool.examples.schema_fold import MAX_NAMES
from tfrtool.examples.tfds_features import LABEL_WORDS
from tfrtool.features.stored_layout import stored_leaf
from tfrtool.images.header import claimed_sides, is_jpeg, read_jpeg_header
from tfrtool.inspection.rows.batches import Batch, decode_records
from tfrtool.inspection.stats.distance import jensen_shannon, l_infinity
from tfrtool.inspection.stats.number_fold import EXACT_VALUES, NumberFold
from tfrtool.inspection.stats.string_fold import StringFold, string_json
from tfrtool.inspection.verify.payload_check import RecordFold
from tfrtool.records.framing import Fault, Record
from tfrtool.records.payloads import payloads_of

_IMAGE_STARTS = b"\xff\x89GIMRB\0"
"""First bytes of images, and of little else."""

_HEADER_BYTES = 1024 * 1024
"""Bytes of an image in which its header is looked for."""

COMMONEST = 20
"""Values that are listed with their counts; as many as TFDV lists by default."""

MAX_COMPONENTS = 64
"""Components of a tensor that have statistics of their own, at most."""

_MEASURED = ("lengths", "steps", "width", "height", "bytes")
Json = dict[str, Any]


class FeatureKey(NamedTuple):
    """A feature, or one of its types if records disagree on its type; or one of its components."""

    key: bytes
    is_list: bool
    dtype: DType | None  # None where no kind is set
    component: int | None = None  # the position of its values in the last dimension of tensors

    @property
    def name(self) -> str:
        """Its name as text."""
        name = feature_name(self.key)
        return name if self.component is None else f"{name}[{self.component}]"

    @property
    def type_name(self) -> str | None:
        """The name of its type."""
        return self.dtype and self.dtype.value

    def __str__(self) -> str:
        return f"{self.name}: {self.type_name or 'never set'}"


FeaturePart = tuple[DType | None, int, dict[str, NDArray[Any]], Any]
"""The values of one type in a column: the number of records, ``lengths`` and ``steps``, and the
values as an Arrow array without nulls."""


class FeatureFold:
    """A fold over one feature, or over its values of one type.

    Attributes:
        present: records that have it.
        numbers: its ``values``, or of strings their lengths in ``bytes``; ``lengths``, how many are
            in a record, or in a step of a feature list; ``steps`` of a list in a record; ``width``
            and ``height`` of images.
        strings: its values, if they are strings.
        formats: media types of those that are encoded images.
        channels: theirs, where their headers say them.
    """

    def __init__(self) -> None:
        self.present = 0
        self.numbers: defaultdict[str, NumberFold] = defaultdict(NumberFold)
        self.strings = StringFold()
        self.formats: Counter[str] = Counter()
        self.channels: Counter[int] = Counter()

    def add(self, part: FeaturePart, room: int) -> None:
        """Add a part of a column."""
        dtype, present, numbers, values = part
        self.present += present
        name = "values"
        if dtype is DType.STRING:
            self.strings.add(values, room)
            self._add_images(values, room)
            name, values = "bytes", pc.binary_length(values)
        for of, found in {**numbers, name: np.from_dlpack(values)}.items():
            self.numbers[of].add(found, room)

    def _add_images(self, values: pa.Array, room: int) -> None:
        starts = strings_array([bytes([byte]) for byte in _IMAGE_STARTS])
        likely = pc.is_in(pc.binary_slice(values, 0, 1), value_set=starts)
        sides = []
        for index in np.flatnonzero(np.from_dlpack(likely.cast(pa.uint8()))).tolist():
            value = values[index].as_buffer()  # no copy
            content = describe_bytes(value[:18].to_pybytes())
            if not content.startswith("image/"):
                continue
            data = value[:_HEADER_BYTES].to_pybytes()
            self.formats[content] += 1
            header = read_jpeg_header(data) if is_jpeg(data) else None
            form = header or png_form(data)
            if form:
                self.channels[header.components if header else form[0]] += 1
            sides.append((header.width, header.height) if header else claimed_sides(data))
        known = np.array([size for size in sides if all(size)], np.int64).reshape(-1, 2)
        self.numbers["width"].add(known[:, 0], room)
        self.numbers["height"].add(known[:, 1], room)

    def merge(self, other: "FeatureFold", room: int) -> None:
        """Add what another fold has seen of the same feature."""
        self.present += other.present
        self.strings.merge(other.strings, room)
        self.formats += other.formats
        self.channels += other.channels
        for name, numbers in other.numbers.items():
            self.numbers[name].merge(numbers, room)

    def to_json(self, key: FeatureKey, records: int, labels: Sequence[str]) -> Json:
        """Return what was seen of the feature, as docs/commands/inspect.md describes it."""
        shown = {name: fold.to_json() for name, fold in self.numbers.items()}
        data: Json = {
            "name": key.name,
            **({} if key.component is None else {"component": key.component}),
            "dtype": key.type_name,
            "present": self.present,
            "missing": records - self.present,
            "lengths": shown["lengths"],
        }
        if key.is_list:
            data |= {"list": True, "steps": shown["steps"]}
        counts: Mapping[Any, int] = {}
        if key.dtype is DType.STRING:
            counts, short = self.strings.counts, self.strings.error
            data |= {"bytes": shown["bytes"], "distinct": self.strings.distinct()}
            data |= {"distinct_exact": not short, "common_error": short}
        elif key.dtype is not None:
            counts, error = self.numbers["values"].distinct(), self.numbers["values"].error
            data |= {"values": shown["values"], "distinct": None if error else len(counts)}
            data |= {"distinct_exact": not error, "common_error": 0}
        if key.dtype in (DType.STRING, DType.INT64):
            order = sorted(counts, key=lambda value: (-counts[value], value))
            data["common"] = common = []
            for value in order[:COMMONEST]:
                found = value if isinstance(value, int) else string_json(value)
                common.append({"value": found, "count": counts[value]})
                if isinstance(value, int) and 0 <= value < len(labels) and labels[value]:
                    common[-1]["name"] = labels[value]
        if self.formats:
            data["images"] = {
                "formats": dict(sorted(self.formats.items())),
                "channels": {str(n): count for n, count in sorted(self.channels.items())},
                "unreadable": self.formats.total() - self.numbers["width"].count,
                "width": shown["width"],
                "height": shown["height"],
            }
        return data

    def distances(
        self, other: "FeatureFold", key: FeatureKey, records: tuple[int, int], *, is_class: bool
    ) -> list[Json]:
        """Return the distances to the same feature of other shards, where it may be a class."""
        numbers = list(_MEASURED) if key.component is None else []
        values, other_values = self.numbers["values"], other.numbers["values"]
        distances = {
            ("presence", "l_infinity"): l_infinity(
                {True: self.present, False: records[0] - self.present},
                {True: other.present, False: records[1] - other.present},
            ),
            ("format", "l_infinity"): l_infinity(self.formats, other.formats),
        }
        if key.dtype is DType.STRING:
            if not self.formats and not other.formats:
                totals = self.numbers["bytes"].count, other.numbers["bytes"].count
                counts = self.strings.counts, other.strings.counts
                distances["values", "l_infinity"] = l_infinity(*counts, totals)
        elif (is_class or _is_label(key)) and not values.error and not other_values.error:
            distances["values", "l_infinity"] = l_infinity(
                values.distinct(), other_values.distinct()
            )
        else:
            numbers.append("values")
        if key.component is not None:
            distances.clear()
        for of in numbers:
            distances[of, "jensen_shannon"] = jensen_shannon(self.numbers[of], other.numbers[of])
        title = {"feature": key.name, "dtype": key.type_name}
        return [
            {**title, "of": of, "measure": measure, "distance": distance}
            for (of, measure), distance in distances.items()
            if distance is not None
        ]


def _is_label(key: FeatureKey) -> bool:
    """Return whether integers are classes rather than numbers, by their names."""
    words = re.split(r"[^a-z]+", key.name.lower())
    return key.dtype is DType.INT64 and not LABEL_WORDS.isdisjoint(words)


def column_parts(column: Column, array: pa.Array) -> Iterator[FeaturePart]:
    """Yield what a column holds, type by type."""
    present, numbers = len(array) - array.null_count, {}
    if column.is_scalar:
        ones = np.ones(present, np.int64)
        yield column.dtype, present, {"lengths": ones}, array
        return
    if column.is_list:
        steps = array.drop_null()
        numbers["steps"] = np.from_dlpack(pc.list_value_length(steps))
        array = steps.flatten()
    kinds = [(column.dtype, array)]
    if column.dtype is None:
        kinds = list(zip(DTYPES.values(), array.flatten(), strict=True))
    parts = [(dtype, lists.drop_null()) for dtype, lists in kinds]
    # A feature without a kind counts as missing.
    for dtype, lists in [part for part in parts if len(part[1])] or [(column.dtype, parts[-1][1])]:
        lengths = np.from_dlpack(pc.list_value_length(lists))
        count = present if column.is_list else len(lists)
        yield dtype, count, {**numbers, "lengths": lengths}, lists.flatten()


def component_counts(root: Struct) -> dict[bytes, int]:
    """Return how many components the tensors of each stored feature have in their last dimension.

    Only those that have a fixed number of them, up to `MAX_COMPONENTS`, are included.
    """
    found = dict[bytes, int]()
    for leaf in leaves_of(root):
        values = leaf.values
        last = values.shape[-1] if values.shape else None
        is_stored = values.kind is Kind.NUMBER and values.encoding is Encoding.NONE
        if is_stored and last is not None and 1 < last <= MAX_COMPONENTS:
            found[feature_key(stored_leaf(leaf).values.key)] = last
    return found


def component_parts(part: FeaturePart, count: int) -> Iterator[FeaturePart]:
    """Yield the values of each component of tensors, of records that have only whole ones."""
    dtype, _, numbers, values = part
    lengths, array = numbers["lengths"], np.from_dlpack(values)
    fitting = lengths % count == 0
    if not fitting.all():
        array = array[np.repeat(fitting, lengths)]
    tensors, lengths = array.reshape(-1, count), lengths[fitting] // count
    if not len(lengths):
        return
    for component in range(count):
        yield dtype, len(lengths), {"lengths": lengths}, tensors[:, component].copy()


_HELD_VALUES = 2**23
"""Distinct values that all features together may hold before they become samples, roughly."""


class StatsFold(RecordFold):
    """The distributions of the features of records.

    Attributes:
        records: number of records.
        skipped: features that are not included because there are too many names.
        features: what is known of each.
    """

    def __init__(self, components: Mapping[bytes, int] | None = None) -> None:
        """Begin; ``components`` has the number of those of features whose values are tensors."""
        super().__init__()
        self._components = components or {}
        self.records = self.skipped = 0
        self.features: dict[FeatureKey, FeatureFold] = {}

    def add(self, records: Sequence[Record], rejected: set[int]) -> None:
        """Add the columns of records."""
        if rejected:
            records = [one for one in records if one.index not in rejected]
        self._add(records, rejected)

    def _add(self, records: Sequence[Record], rejected: set[int]) -> None:
        seen = ColumnsFold()
        seen.add(payloads_of(records))
        columns = seen.columns()
        if len(records) > columns.batch_records:  # a half of them may have fewer columns
            half = len(records) // 2
            self._add(records[:half], rejected)
            self._add(records[half:], rejected)
            return
        self.skipped += seen.skipped
        if not columns.parsed:
            for record in records:
                self.reject(record, rejected)
            return

        def drop(fault: Fault) -> None:
            rejected.add(fault.record or 0)
            self.faults.add(fault)

        for batch in decode_records(Path(), records, columns, drop):
            self._add_batch(batch, columns)

    def _add_batch(self, batch: Batch, columns: Columns) -> None:
        self.records += len(batch.records)
        self.sequences |= columns.kind is PayloadKind.SEQUENCE_EXAMPLE
        room = self._room(len(columns.columns) + sum(self._components.values()))
        for column, array in zip(columns.columns, columns.arrays(batch.table), strict=True):
            for part in column_parts(column, array):
                key = FeatureKey(column.key, column.is_list, part[0])
                self._add_part(key, part, room)
                count = 0 if column.is_list else self._components.get(column.key, 0)
                if count and part[0] in (DType.INT64, DType.FLOAT32):
                    for number, component in enumerate(component_parts(part, count)):
                        self._add_part(key._replace(component=number), component, room)

    def _add_part(self, key: FeatureKey, part: FeaturePart, room: int) -> None:
        fold = self._find(key)
        if fold is not None:
            fold.add(part, room)

    def merge(self, other: "StatsFold", index: int) -> None:
        """Add the distributions of the next part; the result depends on the order."""
        super().merge(other, index)
        self.records += other.records
        self.skipped += other.skipped
        room = self._room(len(other.features))
        for key, feature in other.features.items():
            fold = self._find(key)
            if fold is not None:
                fold.merge(feature, room)

    def _room(self, features: int) -> int:
        """Return how many different values each feature may hold."""
        return min(EXACT_VALUES, _HELD_VALUES // max(1, features, len(self.features)))

    def _find(self, key: FeatureKey) -> FeatureFold | None:
        if key not in self.features:
            if len(self.features) >= MAX_NAMES:
                self.skipped += 1
                return None
            self.features[key] = FeatureFold()
        return self.features[key]

    def known(self) -> list[FeatureKey]:
        """Return the features in order; without a type those that never have one."""
        typed = {key[:2] for key in self.features if key.dtype is not None}
        found = (key for key in self.features if key.dtype is not None or key[:2] not in typed)
        return sorted(
            found,
            key=lambda key: (
                key.is_list,
                key.key,
                str(key.dtype),
                -1 if key.component is None else key.component,
            ),
        )
