"""Boxes of objects in tables, as records have them: in shares of the sides of their images."""

from contextlib import suppress
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tfrtool.errors import SchemaError
from tfrtool.examples.arrow.foreign import flat_values
from tfrtool.examples.arrow.value_types import nested_array

BOXES = "objects/bbox"
BoxFormat = Literal["coco", "voc", "yolo"]

SIZES = ("width", "height")
IMAGE = "image"


def relative_boxes(batch: pa.RecordBatch, form: BoxFormat) -> pa.RecordBatch:
    """Return a batch whose column ``objects/bbox`` has ymin, xmin, ymax, xmax in shares.

    Pixels are divided by the columns ``width`` and ``height``, or else by the size of ``image``.

    Args:
        batch: rows with lists of four numbers in ``objects/bbox``.
        form: what the numbers are: x, y, width and height in pixels (coco), xmin, ymin, xmax and
            ymax in pixels (voc), or the center, width and height in shares (yolo).

    Raises:
        SchemaError: the column does not exist, a box isn't four numbers, or a size is unknown.
    """
    at = batch.schema.get_field_index(BOXES)
    if at < 0:
        raise SchemaError(f"--boxes needs a column {BOXES!r}")
    array = batch.column(at)
    try:
        values, rows = flat_values(array)
        counts = np.bincount(rows, minlength=len(array))
        leaves = pc.list_flatten(array, recursive=True)
        numbers = np.asarray(values, np.float64).reshape(-1, 4)
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise SchemaError(f"column {BOXES!r}: boxes must be lists of four numbers") from error
    if leaves.null_count or (counts % 4).any():
        raise SchemaError(f"column {BOXES!r}: boxes must be lists of four numbers")
    x0, y0, x1, y1 = numbers.T
    if form == "yolo":
        x0, y0 = x0 - x1 / 2, y0 - y1 / 2
    if form != "voc":
        x1, y1 = x0 + x1, y0 + y1
    if form != "yolo":
        needed = np.unique(rows)
        width, height = _sizes(batch, needed)[np.searchsorted(needed, rows[::4])].T
        x0, x1, y0, y1 = x0 / width, x1 / width, y0 / height, y1 / height
    shares = np.stack([y0, x0, y1, x1], axis=1).astype(np.float32).ravel()
    places = np.flatnonzero(np.asarray(array.is_valid()))
    boxes = nested_array(pa.array(shares), (-1, 4), len(array), places, counts[places])
    return batch.set_column(at, BOXES, boxes)


def _sizes(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the width and height of the images of some rows."""
    from tfrtool.images.decoder import RefusedImageError, read_frame

    found = np.zeros((len(rows), 2))
    names = batch.schema.names
    for index, row in enumerate(rows.tolist()):
        if {*SIZES} <= {*names}:
            with suppress(TypeError, ValueError):  # zeros are an error
                found[index] = [batch.column(name)[row].as_py() or 0 for name in SIZES]
        elif IMAGE in names:
            image = batch.column(IMAGE)[row].as_py()
            data = image.get("bytes") if isinstance(image, dict) else image
            try:
                frame = read_frame(data or b"")
            except RefusedImageError as error:
                raise SchemaError("--boxes can't read the size of an image") from error
            found[index] = frame.width, frame.height
    if not (found > 0).all():
        raise SchemaError("--boxes needs the columns 'width' and 'height', or images in 'image'")
    return found
