"""NumPy's ``.npz`` files: arrays of images and of labels, of one split or of several.

Arrays are ``x`` and ``y``, ``x_train`` and ``y_train`` as in Keras, or ``train_images`` and
``train_labels`` as in MedMNIST. They are read row by row, and nothing in them is unpickled.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

from tfrtool.errors import SourceError, UsageError, printable, some_of
from tfrtool.records.shard_sets import SPLIT_NAMES
from tfrtool.sources.archives import open_zip
from tfrtool.sources.items import Source
from tfrtool.sources.label_choice import KEEP, SEVERAL
from tfrtool.sources.packed.packed_source import split_of_file
from tfrtool.sources.packed.pixel_images import (
    COPY_HINT,
    PixelImage,
    image_sides,
    pixel_source,
)
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.limits import MAX_CLASS_NAME, MAX_CLASSES, unpacked_limit
from tfrtool.storage.opening import open_regular, size_of_file

_IMAGE_WORDS = frozenset({"x", "images", "image", "imgs", "img", "data"})
_LABEL_WORDS = frozenset({"y", "labels", "label", "targets", "target"})
_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_BATCH_VALUES, _BATCH_BYTES = 4096, 2**20
_MAX_HEADER = 10_000  # NumPy's own limit
_MAX_LABEL_BYTES = 4 * MAX_CLASS_NAME  # NumPy has four bytes per character
_SHOWN = 10
_ZIP = b"PK\x03\x04"
_EXPECTED = (
    "arrays such as x and y, or train_images and train_labels: images are uint8 of shape "
    "N x H x W [x 1 or 3], labels N integers, or N x K zeros and ones"
)
_DAMAGE = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError, NotImplementedError)


class _Pair(NamedTuple):
    """An array of images and that of their labels, members of one file."""

    path: str
    images: str
    labels: str
    split: str  # "" for none


class _Array(NamedTuple):
    dtype: Any
    shape: tuple[int, ...]
    file: Any  # at its first value

    @property
    def width(self) -> int:
        """Values of each row of an array with up to two axes."""
        return prod(self.shape[1:])


class _Classes(NamedTuple):
    """How labels are stored."""

    columns: int = 0  # of zeros and ones; 0 if labels are numbers or names
    several: bool = False  # whether an image has any number of classes


def read_arrays(
    files: Sequence[str], where: str, scratch: Path, options: SourceOptions
) -> Source | None:
    """List the images in arrays; None for a file that isn't a zip."""
    pairs, unused, packed = list[_Pair](), list[str](), 0
    for path in files:
        if (names := _member_names(path)) is None:
            return None
        found, others = _pairs_of(names, path)
        pairs += found
        unused += others
        with open_regular(path) as file:
            packed += size_of_file(file)
    classes = _classes_of(pairs)
    if classes.several:
        if options.labels == KEEP:
            what = "--labels keep doesn't apply: images have several labels"
            raise UsageError(what, path=where)
        options = replace(options, multi_label=SEVERAL)
    splits = [pair.split or split_of_file(pair.path) for pair in pairs]
    has_splits = all(splits) and len(pairs) > 1
    images = (
        image._replace(split=split if has_splits else "")
        for pair, split in zip(pairs, splits, strict=True)
        for image in _images_of(pair, classes, is_single=len(files) == 1)
    )
    names = [*map(str, range(classes.columns))] or None
    source = pixel_source(images, where, scratch, options, packed=packed, names=names)
    if classes.several and names:
        source = replace(source, labels=(*names,))
    if not unused:
        return source
    shown = some_of([printable(name) for name in unused], _SHOWN)
    return replace(source, notices=(*source.notices, f"arrays not written: {shown}"))


def _member_names(path: str) -> list[str] | None:
    head = b""
    try:
        with open_zip(path) as file:
            head = file.read(len(_ZIP))
            return zipfile.ZipFile(file).namelist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
        if head != _ZIP:
            return None
        what = "truncated or damaged zip archive: its directory can't be read"
        raise SourceError(what, path=path, hint=COPY_HINT) from error


def _pairs_of(names: Sequence[str], path: str) -> tuple[list[_Pair], list[str]]:
    """Return the pairs of arrays by their names, and the names of arrays that are in none."""
    found: dict[bool, dict[str, str]] = {True: {}, False: {}}  # of images and labels, by split
    for name in names:
        words = [word.lower() for word in _WORD.findall(name.removesuffix(".npy"))]
        roles = [word for word in words if word in _IMAGE_WORDS | _LABEL_WORDS]
        splits = [word for word in words if word in SPLIT_NAMES]
        if len(roles) != 1 or len(splits) > 1 or len(words) > len(roles) + len(splits):
            continue
        by_split = found[roles[0] in _IMAGE_WORDS]
        split = SPLIT_NAMES[splits[0]] if splits else ""
        if split in by_split:
            shown = f"{printable(by_split[split])} and {printable(name)}"
            what = "two arrays have the same meaning"
            raise SourceError(what, path=path, expected=_EXPECTED, found=shown)
        by_split[split] = name
    images, labels = found[True], found[False]
    if not images or images.keys() - labels.keys():
        shown = ", ".join(map(printable, names[:_SHOWN]))
        raise SourceError("no pairs of arrays", path=path, expected=_EXPECTED, found=shown)
    pairs = [_Pair(path, name, labels[split], split) for split, name in images.items()]
    paired = {name for pair in pairs for name in (pair.images, pair.labels)}
    return pairs, [name.removesuffix(".npy") for name in names if name not in paired]


def _classes_of(pairs: Sequence[_Pair]) -> _Classes:
    """Return how labels are stored in all pairs; columns of zeros and ones are read once for it."""
    found = set[_Classes]()
    for pair in pairs:
        with _damage_as_error(pair.path), open_zip(pair.path) as file:
            size = size_of_file(file)
            with zipfile.ZipFile(file) as archive:
                labels = _open_array(archive, pair.labels, pair.path, size)
                found.add(_classes_in(labels, pair))
    counts = {classes.columns for classes in found}
    if len(counts) > 1:
        shown = " and ".join(map(str, sorted(counts)))
        what = "arrays of labels have different numbers of columns"
        raise SourceError(what, path=pairs[0].path, found=shown)
    return _Classes(counts.pop(), any(classes.several for classes in found))


def _classes_in(labels: _Array, pair: _Pair) -> _Classes:
    kinds = "iuUS" if len(labels.shape) < 2 or labels.shape[1] == 1 else "iufb"
    is_long = labels.dtype.itemsize > _MAX_LABEL_BYTES
    is_wide = len(labels.shape) > 2 or labels.width > MAX_CLASSES
    if labels.dtype.kind not in kinds or is_wide or is_long:
        raise _unsupported(pair.path, pair.labels, labels)
    if labels.width == 1:
        return _Classes()
    several = False
    for rows in _batches(labels):
        if not ((rows == 0) | (rows == 1)).all():
            raise _unsupported(pair.path, pair.labels, labels, " with values other than 0 and 1")
        several |= bool((rows.sum(axis=1) != 1).any())
    return _Classes(labels.width, several)


def _images_of(pair: _Pair, classes: _Classes, *, is_single: bool) -> Iterator[PixelImage]:
    import numpy

    path, start = pair.path, "" if is_single else f"{Path(pair.path).stem}/"
    start += f"{pair.split or 'x'}/"
    with _damage_as_error(path), open_zip(path) as file:
        size = size_of_file(file)
        with zipfile.ZipFile(file) as archive:
            images = _open_array(archive, pair.images, path, size)
            labels = _open_array(archive, pair.labels, path, size)
            count, *shape = images.shape
            sides = image_sides(shape)
            if images.dtype != numpy.uint8 or sides is None:
                raise _unsupported(path, pair.images, images)
            if labels.shape[0] != count:
                raise _unsupported(path, pair.labels, labels, f" for {count:,} images")
            number = 0
            for rows in _batches(labels):
                for label in _texts(rows, classes):
                    pixels = _read_values(images, prod(sides))
                    yield PixelImage(f"{start}{number:08d}.png", label, pixels, sides)
                    number += 1
            if images.file.read(1) or labels.file.read(1):  # which checks their CRC-32, too
                raise ValueError("an array has more values than its shape")


def _texts(rows: Any, classes: _Classes) -> Iterator[str]:
    """Yield the labels of rows."""
    if classes.columns:
        for row in rows:
            yield SEVERAL.join(map(str, row.nonzero()[0].tolist()))
        return
    for (value,) in rows.tolist():
        yield value.decode(errors="replace") if isinstance(value, bytes) else str(value).strip()


@contextmanager
def _damage_as_error(path: str) -> Iterator[None]:
    """Turn errors of the libraries into a `SourceError` of a file."""
    try:
        yield
    except _DAMAGE as error:
        what = f"truncated or damaged arrays: {printable(str(error)[:200])}"
        raise SourceError(what, path=path, hint=COPY_HINT) from error


def _open_array(archive: zipfile.ZipFile, name: str, path: str, packed: int) -> _Array:
    """Open an array; its header is believed where it fits the size that the archive says."""
    from numpy.lib import format as npy

    info, most = archive.getinfo(name), unpacked_limit(packed)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} has a compression that NumPy doesn't use")
    file = archive.open(info)
    try:
        version = npy.read_magic(file)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        length = file.read(2 * version[0])
        if (count := int.from_bytes(length, "little")) > _MAX_HEADER:  # NumPy reads it first
            raise ValueError(f"{name} has a header of {count:,} bytes")
        shape, by_columns, dtype = read(io.BytesIO(length + file.read(count)))
    except (SyntaxError, TokenError, RecursionError, MemoryError, LookupError, TypeError) as error:
        raise ValueError(f"{name} has an invalid header") from error
    array = _Array(dtype, shape, file)
    in_columns = by_columns and len([side for side in shape if side != 1]) > 1
    if dtype.hasobject or in_columns or not shape or not all(side > 0 for side in shape):
        more = " in Fortran order" if in_columns else ""
        raise _unsupported(path, name, array, more)
    size, declared = info.file_size - file.tell(), prod(shape) * dtype.itemsize
    if declared != size or size > most:
        what = f"{name} declares {declared:,} bytes of values"
        raise SourceError(what, path=path, expected=f"{size:,}, and at most {most:,}")
    return array


def _batches(labels: _Array) -> Iterator[Any]:
    """Yield the rows of an array of labels, some at once, as arrays with two axes."""
    import numpy

    row_bytes = max(1, labels.width * labels.dtype.itemsize)
    step = max(1, min(_BATCH_VALUES, _BATCH_BYTES // row_bytes))
    for start in range(0, labels.shape[0], step):
        count = min(step, labels.shape[0] - start)
        data = _read_values(labels, count * labels.width)
        yield numpy.frombuffer(data, labels.dtype).reshape(count, labels.width)


def _read_values(array: _Array, count: int) -> bytes:
    size = count * array.dtype.itemsize
    if len(data := array.file.read(size)) != size:
        raise ValueError("an array ends early")
    return bytes(data)


def _unsupported(path: str, name: str, array: _Array, more: str = "") -> SourceError:
    found = f"{array.dtype} of shape {array.shape}{more}"
    what = f"unsupported array {printable(name)}"
    return SourceError(what, path=path, expected=_EXPECTED, found=found)
