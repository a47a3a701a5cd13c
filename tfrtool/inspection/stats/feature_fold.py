"""What is seen of one feature, column by column."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrtool.examples.arrow.columns import Column, Form
from tfrtool.examples.content import describe_bytes, png_form
from tfrtool.examples.example import DTYPES, DType
from tfrtool.images.header import claimed_sides, is_jpeg, read_jpeg_header
from tfrtool.inspection.stats.number_fold import NumberFold
from tfrtool.inspection.stats.string_fold import StringFold

if TYPE_CHECKING:
    import pyarrow as pa

_IMAGE_STARTS = b"\xff\x89GIMRB\0"
"""First bytes of images, and of little else."""


class FeatureKey(NamedTuple):
    """Which feature; one whose records disagree on its type is told type by type."""

    key: bytes
    is_list: bool
    dtype: DType | None  # None where no kind is set


@dataclass(slots=True)
class ImageFold:
    """A fold over encoded images: what their headers say."""

    formats: Counter[str] = field(default_factory=Counter)
    channels: Counter[int] = field(default_factory=Counter)
    unreadable: int = 0  # headers that say no size
    width: NumberFold = field(default_factory=NumberFold)
    height: NumberFold = field(default_factory=NumberFold)

    def add(self, values: "pa.Array") -> None:
        """Take in those strings of an array that are images."""
        import pyarrow as pa
        import pyarrow.compute as pc

        starts = pa.array([_IMAGE_STARTS[n : n + 1] for n in range(len(_IMAGE_STARTS))])
        likely = pc.is_in(pc.binary_slice(values, 0, 1), value_set=starts.cast(pa.binary()))
        sides = []
        for value in values.filter(likely):
            data: bytes = value.as_py()
            content = describe_bytes(data[:18])
            if not content.startswith("image/"):
                continue
            self.formats[content] += 1
            header = read_jpeg_header(data) if is_jpeg(data) else None
            form = header or png_form(data)
            if form:
                self.channels[header.components if header else form[0]] += 1
            size = (header.width, header.height) if header else claimed_sides(data)
            if all(size):
                sides.append(size)
            else:
                self.unreadable += 1
        for fold, side in zip((self.width, self.height), zip(*sides, strict=True), strict=False):
            fold.add(np.array(side, np.int64))

    def merge(self, other: "ImageFold") -> None:
        """Take in what another fold has seen."""
        self.formats.update(other.formats)
        self.channels.update(other.channels)
        self.unreadable += other.unreadable
        self.width.merge(other.width)
        self.height.merge(other.height)


@dataclass(slots=True)
class FeatureFold:
    """A fold over one feature, or over its values of one type.

    Attributes:
        present: records that have it.
        lengths: values in one of them, or in a step of a feature list.
        steps: steps in one of them; of a feature list alone.
        numbers: its values; of strings their lengths in bytes.
        strings: its values, if they are strings.
        images: those of them that are encoded images.
    """

    present: int = 0
    lengths: NumberFold = field(default_factory=NumberFold)
    steps: NumberFold = field(default_factory=NumberFold)
    numbers: NumberFold = field(default_factory=NumberFold)
    strings: StringFold = field(default_factory=StringFold)
    images: ImageFold = field(default_factory=ImageFold)

    def add(self, part: "_Part", room: int) -> None:
        """Take in a part of a column."""
        import pyarrow.compute as pc

        self.present += part.present
        self.lengths.add(part.lengths, room)
        self.steps.add(part.steps, room)
        values = part.values
        if values is None or not len(values):
            return
        if part.dtype is DType.STRING:
            self.strings.add(values, room)
            self.images.add(values)
            values = pc.binary_length(values).cast("int64")
        self.numbers.add(values.to_numpy(zero_copy_only=False), room)

    def merge(self, other: "FeatureFold", room: int) -> None:
        """Take in what another fold has seen of the same feature."""
        self.present += other.present
        self.lengths.merge(other.lengths, room)
        self.steps.merge(other.steps, room)
        self.numbers.merge(other.numbers, room)
        self.strings.merge(other.strings, room)
        self.images.merge(other.images)


class _Part(NamedTuple):
    """What a column has of one type."""

    dtype: DType | None
    present: int
    lengths: NDArray[np.int64]
    steps: NDArray[np.int64]
    values: Any = None  # an Arrow array without nulls


_NONE = np.zeros(0, np.int64)


def column_parts(column: Column, array: "pa.Array") -> Iterator[_Part]:
    """Yield what a column holds, type by type."""
    import pyarrow.compute as pc

    # A feature without a kind counts as missing.
    present, steps = len(array) - array.null_count, _NONE
    if column.is_list:
        held = array.drop_null()
        steps = pc.list_value_length(held).to_numpy().astype(np.int64)
        array = held.flatten()
    if column.form is Form.SCALAR:
        yield _Part(column.dtype, present, np.ones(len(array), np.int64), steps, array)
    elif column.dtype is not None:
        yield _lists(column.dtype, array, present, steps)
    elif present:
        kinds = zip(DTYPES.values(), array.flatten(), strict=True)
        found = [(dtype, lists) for dtype, lists in kinds if lists.null_count < len(lists)]
        for dtype, lists in found:
            count = present if column.is_list else len(lists) - lists.null_count
            yield _lists(dtype, lists, count, steps)
        if not found:
            yield _Part(None, present if column.is_list else 0, _NONE, steps)


def _lists(dtype: DType, array: "pa.Array", present: int, steps: NDArray[np.int64]) -> _Part:
    import pyarrow.compute as pc

    held = array.drop_null()
    lengths = pc.list_value_length(held).to_numpy().astype(np.int64)
    return _Part(dtype, present, lengths, steps, held.flatten())
