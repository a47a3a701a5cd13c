"""Files of images with their labels: Parquet, Arrow, WebDataset's tars, NumPy's arrays.

Parquet is as Hugging Face's ``datasets`` writes it. Its images are unpacked once, because a row
group is read from its start, and records are written in any order. Arrays are ``.npz`` with ``x``
and ``y``, or ``x_train``, ``y_train`` and so on. They are read row by row, never whole, and nothing
in them is unpickled.
"""

import glob
import json
import os
import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, NamedTuple

from tfrtool.errors import SourceError, os_errors_as, printable
from tfrtool.images.pixels import png_of
from tfrtool.sources.archives import OFFSET_BITS, PartReader, Spool, open_zip
from tfrtool.sources.folders.listing import SPLIT_NAMES, is_image_name
from tfrtool.sources.formats.json_rows import parse_json
from tfrtool.sources.formats.saved_datasets import saved_files
from tfrtool.sources.formats.tar_samples import TarSample, TarSamples
from tfrtool.sources.item_rows import FoundItem, ItemRows
from tfrtool.sources.items import ItemReader, Source
from tfrtool.sources.label_choice import KEEP
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import (
    TableColumns,
    check_label_column,
    find_columns,
    quoted,
)
from tfrtool.storage.limits import MAX_CLASSES, MAX_IMAGE_PIXELS, MAX_ROW_BYTES, unpacked_limit
from tfrtool.storage.opening import open_regular, size_of_file, stamp_of
from tfrtool.storage.remote_path import is_url

_NO_ROLES = TableColumns(None, None, None)
_COPY_HINT = "download or copy it again"


def sample_files(argument: str, suffix: str) -> list[str]:
    """Return the files of one kind that a pattern or a folder means, sorted; none for others.

    They are all that is in the folder, or in its folder ``data``, as Hugging Face has it, or in
    its folders of splits; but for texts about them.
    """
    if not os.path.isdir(argument):  # noqa: PTH112 - it may have any characters
        fits = argument.lower().endswith(suffix) and not os.path.lexists(argument)
        return sorted(glob.glob(argument, recursive=True)) if fits else []  # noqa: PTH207
    files, folders = list[str](), list[str]()
    with suppress(OSError), os.scandir(argument) as found:
        for entry in found:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                if entry.name.lower() not in ("data", *SPLIT_NAMES):
                    return []  # one class folder is enough
                folders.append(entry.path)
            elif is_image_name(entry.name):
                return []
            elif entry.name.lower().endswith(suffix):
                files.append(entry.path)
    if files and folders:
        return []
    return sorted(files) + [file for one in sorted(folders) for file in sample_files(one, suffix)]


def _split_of(file: str) -> str:
    """Return the split that the name of a file says, or that of its folder; "" for none."""
    for name in (Path(file).stem, Path(file).parent.name):
        words = re.split("[^a-z]+", name.lower())
        if splits := [SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES]:
            return splits[-1]
    return ""


def source_of(
    rows: ItemRows,
    files: Sequence[str],
    samples: Iterable[tuple[str, FoundItem]],
    reader: ItemReader,
    names: Sequence[str] | None = None,
    others: Sequence[str] = (),
) -> Source:
    """Make a source of samples, each given with its file, or with its split instead.

    Splits are those that the names of all files say. Labels are those ``names``, if there are any.
    The columns of a table are ``others``.
    """
    splits = {file: _split_of(file) for file in files}
    has_splits = all(splits.values()) and len(files) > 1
    group_by = rows.options.group_by or ""
    for file, sample in samples:
        wanted = [] if rows.columns is None else rows.columns.of([*sample.cells], _NO_ROLES)[1]
        split = splits[file] if has_splits else ""
        rows.add(sample._replace(split=split, group=sample.cells.get(group_by), names=wanted))
    return rows.source(reader, names, others)


_IMAGES = ("image", "img", "jpg", "png", "image_bytes", "bytes", "content")
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class ImageColumns:
    """The columns of a table of images."""

    image: str  # of bytes, or of structs of bytes and path
    label: str | None
    names: list[str] | None  # of the classes, if labels are numbers
    others: list[str]
    wanted: Sequence[str] = ()  # those of the others that become features or groups


def image_columns(path: str, label_column: str | None = None) -> ImageColumns | None:
    """Return the columns of a table of images; None if no column has bytes, or it isn't Parquet."""
    from tfrtool.sources.formats.parquet_reader import hugging_face_features, read_facts

    try:
        schema = read_facts(path).schema
    except SourceError:  # the reader of tables reports why, if it is one
        return None
    features = hugging_face_features(schema)
    types = {name: one.get("_type") for name, one in features.items()}
    paths = find_columns(schema.names).path
    images = [
        name
        for name in schema.names
        if _holds_bytes(schema.field(name).type)
        # Bytes next to paths are another feature.
        and (paths in (None, name) or name.lower() in _IMAGES)
    ]
    rank = {name: at for at, name in enumerate(reversed(_IMAGES), 1)}
    images.sort(key=lambda name: -rank.get(name.lower(), 0))
    if not images:
        return None
    image = next((name for name in images if types.get(name) == "Image"), images[0])
    classes = [name for name in schema.names if types.get(name) == "ClassLabel"]
    label = find_columns(schema.names, label_column).label
    if label_column is None and label not in classes and classes:
        label = classes[0]
    names: Any = features[label].get("names") if label and label in classes else None
    if isinstance(names, list) and 0 < len({*map(str, names)}) == len(names) <= MAX_CLASSES:
        names = [*map(str, names)]
    else:
        names = None
    others = [name for name in schema.names if name not in (image, label)]
    return ImageColumns(image, label, names, others)


def _holds_bytes(kind: Any) -> bool:
    import pyarrow.types as types

    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def read_parquet_images(
    files: Sequence[str], where: str, scratch: Path, options: SourceOptions
) -> Source | None:
    """List the images in Parquet files; None if they hold no images."""
    columns = image_columns(files[0], options.label_column)
    if columns is None:
        return None
    if columns.label is None:
        check_label_column(options.label_column, columns.others, where)
    rows = ItemRows(where, options, scratch)
    wanted = [name for name in columns.others if name == options.group_by]
    if columns.label is None and (rows.columns is None or options.about_labels):
        what, expected = "no label column", "a column such as 'label'"
        hint = "use --label-column NAME to read the labels from a column of another name"
        raise SourceError(
            what, path=where, expected=expected, found=quoted(columns.others) or None, hint=hint
        )
    if rows.columns is not None:
        roles, mine = rows.columns.of(columns.others, TableColumns(None, columns.label, None))
        wanted = [*dict.fromkeys((*mine, *wanted))]
        columns = replace(columns, label=roles.label)
    if options.labels == KEEP:
        columns = replace(columns, names=None)
    columns = replace(columns, wanted=wanted)
    with Spool(scratch, where) as spool:
        stems = [Path(file).stem for file in files]
        if len({*stems}) < len(stems):
            stems = [f"{Path(file).parent.name}/{Path(file).stem}" for file in files]
        samples = (
            (file, one)
            for file, stem in zip(files, stems, strict=True)
            for one in _parquet_samples(file, stem, columns, spool)
        )
        return source_of(rows, files, samples, spool.reader, columns.names, columns.others)


def _parquet_samples(
    path: str, stem: str, columns: ImageColumns, spool: Spool
) -> Iterator[FoundItem]:
    from tfrtool.sources.formats.parquet_reader import read_cells

    with open_regular(path) as file:
        spool.packed += size_of_file(file)
    wanted = [columns.image, *columns.wanted, *filter(None, (columns.label,))]
    for number, (image, *cells) in enumerate(read_cells(path, wanted), start=1):
        label = cells.pop() if columns.label else None
        name = ""
        if isinstance(image, dict):
            name, image = image.get("path") or "", image.get("bytes")
        name = posixpath.basename(str(name).replace("\\", "/"))[:_LONGEST_NAME]
        suffix = f"/{name}" if name and name.isprintable() else ""
        key = f"{stem}/{number:08d}{suffix}"
        if isinstance(label, int) and not isinstance(label, bool) and columns.names is not None:
            label = columns.names[label] if 0 <= label < len(columns.names) else ""
        if not isinstance(image, bytes) or not image:
            yield FoundItem(key, problem=f"row {number}: no image bytes in the table")
        elif isinstance(label, float | bool | list | dict):
            yield FoundItem(key, problem=f"row {number}: label is not a string or an integer")
        else:
            text = "" if label is None else str(label).strip()
            found = dict(zip(columns.wanted, cells, strict=True))
            yield FoundItem(key, text, len(image), spool.add(image), cells=found)


_LOOKED_AT = 100
"""Members that show what kind of tar a file is."""


def read_web_dataset(
    files: Sequence[str], where: str, scratch: Path, options: SourceOptions
) -> Source | None:
    """List the images of tars with their labels; None for another kind of tar, as of folders."""
    with open_regular(files[0]) as file, suppress(ValueError):
        if not any(map(_is_web_dataset, TarSamples(file, _LOOKED_AT))):
            return None
        stamps = []
        for path in files:
            with open_regular(path) as other:
                stamps.append(stamp_of(other))
        samples = (
            (path, one)
            for number, path in enumerate(files)
            for one in _tar_samples(path, number, options.label_column, several=len(files) > 1)
        )
        rows, reader = ItemRows(where, options, scratch), PartReader((*files,), (*stamps,))
        return source_of(rows, files, samples, reader)
    return None


def _is_web_dataset(sample: TarSample) -> bool:
    """Return whether a sample is WebDataset's.

    An image in a folder may have JSON or text next to it in a tar of class folders, too.
    """
    names = [sample.members[one][0].removeprefix("./") for one in sample.images[:1]]
    return bool(names) and (
        "cls" in sample.members
        or (not sample.members.keys().isdisjoint(("json", "txt")) and "/" not in names[0])
    )


def _tar_samples(
    path: str, number: int, label_column: str | None, *, several: bool
) -> Iterator[FoundItem]:
    """Yield the images of a tar; their keys start with its name if there are several tars."""
    start = f"{Path(path).stem}/" if several else ""
    with open_regular(path) as file:
        samples = TarSamples(file)
        try:
            for sample in samples:
                name, locator, size = sample.members[next(iter(sample.images or sample.members))]
                key = start + name.removeprefix("./")
                if not sample.images:
                    yield FoundItem(key, problem="no image in the sample")
                    continue
                outside = ".." in name.split("/")
                problem = "path leads outside the archive" if outside else None
                label, cells = _label_and_cells(sample, file, label_column)
                locator |= number << OFFSET_BITS
                yield FoundItem(key, label, size, locator, problem, cells)
        except ValueError as error:
            what = f"truncated or damaged tar archive{samples.where}: {error}"
            raise SourceError(what, path=path, hint=_COPY_HINT) from error


def _label_and_cells(
    sample: TarSample, file: BinaryIO, label_column: str | None
) -> tuple[str, dict[str, object]]:
    """Return the label of a sample, and the cells that may be columns.

    The label is the chosen key of ``.json``; otherwise ``.cls``, or a key of ``.json`` with a usual
    name. The other keys may be columns, and ``.txt`` as ``text``.
    """
    texts, cells, label = dict[str, bytes](), dict[str, object](), ""
    for extension in ("cls", "json", "txt"):
        if 0 < sample.members.get(extension, ("", 0, 0))[2] <= MAX_ROW_BYTES:
            texts[extension] = sample.read(file, extension)
    with suppress(ValueError, RecursionError):
        fields = parse_json(texts.get("json", b"{}"))
        cells = fields if isinstance(fields, dict) else {}
        name = find_columns([*cells], label_column).label
        if name is not None and type(cells[name]) in (str, int, list):
            found = cells.pop(name)
            label = json.dumps(found) if isinstance(found, list) else str(found).strip()
    with suppress(UnicodeDecodeError):
        if "txt" in texts:
            cells["text"] = texts["txt"].decode()
    with suppress(UnicodeDecodeError):
        if label_column is None and "cls" in texts:
            label = texts["cls"].decode().strip()
    return label, cells


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
    pairs, head = [], b""
    for path in files:
        try:
            with open_zip(path) as file:
                head = file.read(len(_ZIP))
                names = zipfile.ZipFile(file).namelist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
            if head != _ZIP:
                return None
            what = "truncated or damaged zip archive: its directory can't be read"
            raise SourceError(what, path=path, hint=_COPY_HINT) from error
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
            for sample in _array_samples(path, x, y, split, spool, several=len(files) > 1)
        )
        splits = [*dict.fromkeys(split for *_, split in pairs)]
        source = source_of(ItemRows(where, options, scratch), splits, samples, spool.reader)
    return replace(source, pixels=True)


def _array_samples(
    path: str, x: str, y: str, split: str, spool: Spool, *, several: bool
) -> Iterator[FoundItem]:
    import numpy

    start = f"{Path(path).stem}/" if several else ""
    start += f"{split if split != path else 'x'}/"
    try:
        with open_zip(path) as file, zipfile.ZipFile(file) as archive:
            size = size_of_file(file)
            spool.packed += size
            images, labels = (_array(archive, name, path, size) for name in (x, y))
            count, *sides = images.shape
            is_grey = len(sides) == 2
            if (
                images.dtype != numpy.uint8
                or not (is_grey or (len(sides) == 3 and sides[2] in (1, 3)))
                or not 0 < sides[0] * sides[1] <= MAX_IMAGE_PIXELS
            ):
                raise _refused(path, x, images)
            if labels.dtype.kind not in "iu" or labels.shape not in ((count,), (count, 1)):
                raise _refused(path, y, labels)
            for at in range(0, count, _LABELS_AT_ONCE):
                size = min(_LABELS_AT_ONCE, count - at)
                numbers = numpy.frombuffer(_bytes(labels, size), labels.dtype).tolist()
                for number, label in enumerate(numbers, at):
                    pixels = _bytes(images, 1, prod(sides))
                    data = png_of(pixels, sides[1], sides[0], (*sides, 1)[2])
                    locator = spool.add(data)
                    yield FoundItem(f"{start}{number:08d}.png", str(label), len(data), locator)
            if images.file.read(1) or labels.file.read(1):  # which checks their CRC-32, too
                raise ValueError("an array has more values than its shape")
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError) as error:
        what = f"truncated or damaged arrays: {printable(str(error)[:200])}"
        raise SourceError(what, path=path, hint=_COPY_HINT) from error


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


_KINDS = (
    *((suffix, read_parquet_images) for suffix in (".parquet", ".arrow", ".feather", ".ipc")),
    (".tar", read_web_dataset),
    (".npz", read_arrays),
)


def read_samples(argument: str, scratch: Path, options: SourceOptions) -> Source | None:
    """List such a file, or several that a folder or a pattern means; None for anything else."""
    if not is_url(argument) and (saved := saved_files(Path(argument))):
        source = read_parquet_images([*map(str, saved)], argument, scratch, options)
        if source is None:
            what = "the saved dataset has no column of encoded images"
            raise SourceError(what, path=argument, hint="use tfrtool convert for other columns")
        return source
    single = [argument] if is_url(argument) or os.path.isfile(argument) else []  # noqa: PTH113
    for suffix, read in _KINDS:
        files = sample_files(argument, suffix) or [
            file for file in single if file.lower().endswith(suffix)
        ]
        if files:
            with os_errors_as(SourceError, argument):
                return read(files, argument, scratch, options)
    return None
