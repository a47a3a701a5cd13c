"""What is seen of one feature, column by column."""

from collections import Counter, defaultdict
from collections.abc import Iterator
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


FeaturePart = tuple[DType | None, int, dict[str, NDArray[Any]], Any]
"""Of a column its values of one type: in how many records, their ``lengths`` and ``steps``, and
themselves as an Arrow array without nulls."""


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

    def __init__(self, room: int) -> None:
        self.present = 0
        self.numbers: defaultdict[str, NumberFold] = defaultdict(NumberFold)
        self.strings = StringFold(room)
        self.formats: Counter[str] = Counter()
        self.channels: Counter[int] = Counter()

    def add(self, part: FeaturePart, room: int) -> None:
        """Take in a part of a column."""
        import pyarrow.compute as pc

        dtype, present, numbers, values = part
        self.present += present
        name = "values"
        if dtype is DType.STRING:
            self.strings.add(values)
            self._add_images(values, room)
            name, values = "bytes", pc.binary_length(values).cast("int64")
        numbers[name] = values.to_numpy(zero_copy_only=False)
        for of, found in numbers.items():
            self.numbers[of].add(found, room)

    def _add_images(self, values: "pa.Array", room: int) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        starts = pa.array([bytes([byte]) for byte in _IMAGE_STARTS], pa.binary())
        likely = pc.is_in(pc.binary_slice(values, 0, 1), value_set=starts)
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
            sides.append((header.width, header.height) if header else claimed_sides(data))
        known = np.array([size for size in sides if all(size)], np.int64).reshape(-1, 2)
        self.numbers["width"].add(known[:, 0], room)
        self.numbers["height"].add(known[:, 1], room)

    def merge(self, other: "FeatureFold", room: int) -> None:
        """Take in what another fold has seen of the same feature."""
        self.present += other.present
        self.strings.merge(other.strings)
        self.formats += other.formats
        self.channels += other.channels
        for name, numbers in other.numbers.items():
            self.numbers[name].merge(numbers, room)


def column_parts(column: Column, array: "pa.Array") -> Iterator[FeaturePart]:
    """Yield what a column holds, type by type."""
    import pyarrow.compute as pc

    present, numbers = len(array) - array.null_count, {}
    if column.form is Form.SCALAR:
        ones = np.ones(present, np.int64)
        yield column.dtype, present, {"lengths": ones}, array
        return
    if column.is_list:
        held = array.drop_null()
        numbers["steps"] = pc.list_value_length(held).to_numpy()
        array = held.flatten()
    kinds = [(column.dtype, array)]
    if column.dtype is None:
        kinds = list(zip(DTYPES.values(), array.flatten(), strict=True))
    parts = [(dtype, lists.drop_null()) for dtype, lists in kinds]
    # A feature without a kind counts as missing.
    for dtype, lists in [part for part in parts if len(part[1])] or [(column.dtype, parts[0][1])]:
        lengths = pc.list_value_length(lists).to_numpy()
        count = present if column.is_list else len(lists)
        yield dtype, count, {**numbers, "lengths": lengths}, lists.flatten()
