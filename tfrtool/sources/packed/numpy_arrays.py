"""Images in NumPy's archives: ``x`` and ``y``, or ``x_train``, ``y_train`` and so on.

They are read row by row, never whole, and nothing in them is unpickled.
"""

import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

from tfrtool.errors import SourceError, printable
from tfrtool.images.pixels import png_of
from tfrtool.sources.archives import Spool, open_zip
from tfrtool.sources.folders.listing import SPLIT_NAMES
from tfrtool.sources.item_rows import FoundItem, ItemRows
from tfrtool.sources.items import Source
from tfrtool.sources.packed.packed_source import source_of
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.limits import MAX_IMAGE_PIXELS, unpacked_limit
from tfrtool.storage.opening import size_of_file

_COPY_HINT = "download or copy it again"
_NAME = re.compile(rf"(x)(?:_({'|'.join(SPLIT_NAMES)}))?\.npy")
_LABELS_AT_ONCE = 4096
_ZIP = b"PK\x03\x04"
_EXPECTED = "arrays x (uint8, N x H x W [x 1 or 3]) and y (integers, N)"


class _Array(NamedTuple):
    dtype: Any
    shape: tuple[int, ...]
    file: Any  # at its first value


def read_arrays(
    files: Sequence[str], where: str, scratch: Path, options: SourceOptions
) -> Source | None:
    """List the images in arrays; None for a file that isn't a zip."""
    pairs = list[tuple[str, str, str, str]]()
    for path in files:
        members = _members(path)
        if members is None:
            return None
        pairs += _find_pairs(path, members)
    if options.columns or options.label_column is not None:
        what = "--column and --label-column don't apply: arrays have only labels"
        raise SourceError(what, path=where)
    with Spool(scratch, where) as spool:
        samples = (
            (split, sample)
            for path, x, y, split in pairs
            for sample in _array_samples(path, x, y, split, spool, several=len(files) > 1)
        )
        splits = [*dict.fromkeys(split for *_, split in pairs)]
        source = source_of(ItemRows(where, options, scratch), splits, samples, spool.reader)
    return replace(source, pixels=True)


def _members(path: str) -> list[str] | None:
    """Return the names of the members of a zip; None for another file."""
    head = b""
    try:
        with open_zip(path) as file:
            head = file.read(len(_ZIP))
            return zipfile.ZipFile(file).namelist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
        if head != _ZIP:
            return None
        what = "truncated or damaged zip archive: its directory can't be read"
        raise SourceError(what, path=path, hint=_COPY_HINT) from error


def _find_pairs(path: str, members: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    """Yield pairs of arrays: the path, their names, and their split, or the path for none."""
    known = {name.lower(): name for name in members}
    found = {name: match[2] for name in known if (match := _NAME.fullmatch(name))}
    if not found or not all(f"y{name[1:]}" in known for name in found):
        shown = ", ".join(map(printable, members[:10]))
        raise SourceError("no pairs of arrays", path=path, expected=_EXPECTED, found=shown)
    for name, split in found.items():
        yield path, known[name], known[f"y{name[1:]}"], SPLIT_NAMES[split] if split else path


def _array_samples(
    path: str, x: str, y: str, split: str, spool: Spool, *, several: bool
) -> Iterator[FoundItem]:
    start = f"{Path(path).stem}/" if several else ""
    start += f"{split if split != path else 'x'}/"
    try:
        with open_zip(path) as file, zipfile.ZipFile(file) as archive:
            size = size_of_file(file)
            spool.packed += size
            images, labels = (_array(archive, name, path, size) for name in (x, y))
            _check_pair(path, (x, images), (y, labels))
            high, wide, channels = (*images.shape[1:], 1)[:3]
            for number, label in enumerate(_labels(labels)):
                data = png_of(_bytes(images, 1, high * wide * channels), wide, high, channels)
                yield FoundItem(f"{start}{number:08d}.png", str(label), len(data), spool.add(data))
            if images.file.read(1) or labels.file.read(1):  # which checks their CRC-32, too
                raise ValueError("an array has more values than its shape")
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError) as error:
        what = f"truncated or damaged arrays: {printable(str(error)[:200])}"
        raise SourceError(what, path=path, hint=_COPY_HINT) from error


def _check_pair(path: str, x: tuple[str, _Array], y: tuple[str, _Array]) -> None:
    """Raise a `SourceError` if arrays, given with their names, are not images and labels."""
    count, *sides = x[1].shape
    if (
        x[1].dtype != "uint8"
        or not (len(sides) == 2 or (len(sides) == 3 and sides[2] in (1, 3)))
        or not 0 < sides[0] * sides[1] <= MAX_IMAGE_PIXELS
    ):
        raise _refused(path, *x)
    if y[1].dtype.kind not in "iu" or y[1].shape not in ((count,), (count, 1)):
        raise _refused(path, *y)


def _labels(labels: _Array) -> Iterator[int]:
    import numpy

    count = labels.shape[0]
    for start in range(0, count, _LABELS_AT_ONCE):
        data = _bytes(labels, min(_LABELS_AT_ONCE, count - start))
        yield from numpy.frombuffer(data, labels.dtype).tolist()


def _array(archive: zipfile.ZipFile, name: str, path: str, packed: int) -> _Array:
    """Open an array; its header is believed where it fits the size that the archive says."""
    from numpy.lib import format as npy

    info, most = archive.getinfo(name), unpacked_limit(packed)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} has a compression that NumPy doesn't use")
    file = archive.open(info)
    try:
        version = npy.read_magic(file)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, by_columns, dtype = read(file)
    except (SyntaxError, TokenError, RecursionError, MemoryError, LookupError, TypeError) as error:
        raise ValueError(f"{name} has an invalid header") from error
    array = _Array(dtype, shape, file)
    if dtype.hasobject or (by_columns and len(shape) > 1) or not all(n > 0 for n in shape):
        raise _refused(path, name, array, " in Fortran order" if by_columns else "")
    size, declared = info.file_size - file.tell(), prod(shape) * dtype.itemsize
    if declared != size or size > most:
        what = f"{name} declares {declared:,} bytes of values"
        raise SourceError(what, path=path, expected=f"{size:,}, and at most {most:,}")
    return array


def _bytes(array: _Array, count: int, each: int = 1) -> bytes:
    size = count * each * array.dtype.itemsize
    if len(data := array.file.read(size)) != size:
        raise ValueError("an array ends early")
    return bytes(data)


def _refused(path: str, name: str, array: _Array, more: str = "") -> SourceError:
    found = f"{array.dtype} of shape {array.shape}{more}"
    return SourceError(f"unsupported array {name}", path=path, expected=_EXPECTED, found=found)
