"""Arrays of NumPy as a source: ``.npz`` with ``x`` and ``y``, or ``x_train``, ``y_train`` ...

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
from tfrtool.sources.archives.archive_files import Spool
from tfrtool.sources.archives.zip_archive import open_zip
from tfrtool.sources.folders.listing import SPLIT_NAMES
from tfrtool.sources.item_rows import FoundItem, ItemRows
from tfrtool.sources.items import Source
from tfrtool.sources.samples.sample_source import source_of
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.limits import MAX_IMAGE_PIXELS, unpacked_limit
from tfrtool.storage.opening import size_of_file

_NAME = re.compile(rf"(x)(?:_({'|'.join(SPLIT_NAMES)}))?\.npy")
_LABELS_AT_ONCE = 4096
_EXPECTED = "arrays x (uint8, N x H x W [x 1 or 3]) and y (integers, N)"


class _Array(NamedTuple):
    dtype: Any
    shape: tuple[int, ...]
    file: Any  # at its first value


def read_arrays(
    files: Sequence[str], where: str, scratch: Path, options: SourceOptions
) -> Source | None:
    """List the images in arrays; None for what is no zip."""
    pairs = []
    for path in files:
        try:
            with open_zip(path) as file:
                names = zipfile.ZipFile(file).namelist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError):
            return None
        known = {name.lower(): name for name in names}
        found = {name: match[2] for name in known if (match := _NAME.fullmatch(name))}
        for name, split in found.items():
            if other := known.get(f"y{name[1:]}"):
                pairs.append((path, known[name], other, SPLIT_NAMES[split] if split else path))
        if not found or not all(f"y{name[1:]}" in known for name in found):
            shown = ", ".join(map(printable, names[:10]))
            raise SourceError("no pairs of arrays", path=path, expected=_EXPECTED, found=shown)
    if options.columns or options.label_column is not None:
        what = "--column and --label-column don't apply: arrays have only labels"
        raise SourceError(what, path=where)
    with Spool(scratch, where) as spool:
        samples = (
            (split, sample)
            for path, x, y, split in pairs
            for sample in _samples(path, x, y, split, spool, several=len(files) > 1)
        )
        splits = [*dict.fromkeys(split for *_, split in pairs)]
        source = source_of(ItemRows(where, options, scratch), splits, samples, spool.reader)
    return replace(source, pixels=True)


def _samples(
    path: str, x: str, y: str, split: str, spool: Spool, *, several: bool
) -> Iterator[FoundItem]:
    """Yield the images of an array, as PNG."""
    import numpy

    start = f"{Path(path).stem}/" if several else ""
    start += f"{split if split != path else 'x'}/"
    try:
        with open_zip(path) as file, zipfile.ZipFile(file) as archive:
            size = size_of_file(file)
            spool.packed += size
            images, labels = (_array(archive, name, path, size) for name in (x, y))
            count, *sides = images.shape
            if images.dtype != numpy.uint8 or not (
                len(sides) == 2 or (len(sides) == 3 and sides[2] in (1, 3))
            ):
                raise _refused(path, x, images)
            if not 0 < sides[0] * sides[1] <= MAX_IMAGE_PIXELS:
                raise _refused(path, x, images)
            if labels.dtype.kind not in "iu" or labels.shape not in ((count,), (count, 1)):
                raise _refused(path, y, labels)
            for at in range(0, count, _LABELS_AT_ONCE):
                some = min(_LABELS_AT_ONCE, count - at)
                numbers = numpy.frombuffer(_bytes(labels, some), labels.dtype).tolist()
                for number, label in enumerate(numbers, at):
                    pixels = _bytes(images, 1, prod(sides))
                    data = png_of(pixels, sides[1], sides[0], (*sides, 1)[2])
                    place = spool.add(data)
                    yield FoundItem(f"{start}{number:08d}.png", str(label), len(data), place)
            if images.file.read(1) or labels.file.read(1):  # which checks their CRC-32, too
                raise ValueError("an array has more values than its shape")
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError) as error:
        packed = isinstance(error, zlib.error)
        reason = "the compressed data is damaged" if packed else printable(str(error)[:200])
        what = f"truncated or damaged arrays: {reason}"
        raise SourceError(what, path=path, hint="download or copy it again") from error


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
    size = prod(shape) * dtype.itemsize
    if size != info.file_size - file.tell() or size > most:
        what = f"{name} declares {size:,} bytes of values"
        expected = f"{info.file_size - file.tell():,}, and at most {most:,}"
        raise SourceError(what, path=path, expected=expected)
    return array


def _bytes(array: _Array, count: int, each: int = 1) -> bytes:
    size = count * each * array.dtype.itemsize
    if len(data := array.file.read(size)) != size:
        raise ValueError("an array ends early")
    return bytes(data)


def _refused(path: str, name: str, array: _Array, more: str = "") -> SourceError:
    found = f"{array.dtype} of shape {array.shape}{more}"
    return SourceError(f"unsupported array {name}", path=path, expected=_EXPECTED, found=found)
