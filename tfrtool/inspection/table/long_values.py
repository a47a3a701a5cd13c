"""What the values are that a table of records has no room for, such as sound and videos."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrtool.errors import human_bytes
from tfrtool.examples.content import describe_bytes

LONGEST, LONGEST_TEXT = 1024, 16 * 1024
"""Bytes of a value and of a text that is kept; longer ones, such as images, are null."""

_HEAD = 2048
"""First bytes of a value that are looked at: two frames of an MP3 file, and more."""


def describe_long(
    arrays: Mapping[str, pa.Array], records: int
) -> list[list[tuple[str, str]] | None]:
    """Return for each record the columns with too long values, and their kinds and sizes.

    Of a list, it is the first value that is too long.
    """
    found: list[list[tuple[str, str]] | None] = [None] * records
    for name, array in arrays.items():
        is_list = pa.types.is_list(array.type)
        values = array.flatten() if is_list else array
        is_text = pa.types.is_string(values.type)
        if not (is_text or pa.types.is_binary(values.type)):
            continue
        sizes = np.asarray(pc.fill_null(pc.binary_length(values), 0))
        long = np.flatnonzero(sizes > (LONGEST_TEXT if is_text else LONGEST))
        if not len(long):
            continue
        rows = np.asarray(pc.list_parent_indices(array))[long] if is_list else long
        first, at = np.unique(rows, return_index=True)
        for row, index in zip(first.tolist(), long[at].tolist(), strict=True):
            head = b"" if is_text else bytes(memoryview(values[index].as_buffer())[:_HEAD])
            kind = "text" if is_text else describe_bytes(head)
            text = f"{kind}, {human_bytes(int(sizes[index]))}"
            found[row] = [*(found[row] or ()), (name, text)]
    return found
