"""CIFAR's pickles: batches of pixels and labels, and the names of the classes next to them."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tfrtool.errors import SourceError, os_errors_as, printable, some_of
from tfrtool.records.shard_sets import SPLIT_NAMES
from tfrtool.sources.formats.unpacked import open_unpacked
from tfrtool.sources.items import Source, label_problem
from tfrtool.sources.packed.pixel_images import (
    PixelColumns,
    PixelImage,
    Sides,
    image_sides,
    pixel_source,
)
from tfrtool.sources.packed.safe_pickle import UnsafePickleError, read_pickle
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import check_chosen_columns, quoted
from tfrtool.storage.limits import MAX_CLASSES
from tfrtool.storage.opening import open_regular, size_of_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH_NAME = re.compile(
    rf"(?:(?:{'|'.join(SPLIT_NAMES)})_)?(?:data|batch|data_batch)(?:_[0-9]+)?"
    rf"|{'|'.join(SPLIT_NAMES)}|.*\.(?:pkl|pickle|p)(?:\.gz)?",
    re.IGNORECASE,
)
"""Names such as ``data_batch_1`` and ``test``."""

PICKLE_START = re.compile(rb"\x80[\x02-\x05]")
"""How pickles start, from protocol 2 on."""

_GZIP = b"\x1f\x8b"
META_NAMES = ("batches.meta", "meta")
"""Files of the names of classes, next to the batches."""

_PIXELS = ("data", "images", "x")
_LABELS = ("fine_labels", "labels", "label", "y")
_MAX_BYTES = 512 * 1024 * 1024
"""Size of a pickle, which is read at once. CIFAR-100 has 155 MB, a batch of ImageNet in 32 x 32
pixels 394 MB."""

_MOST_KEYS = 32
_MOST_IMAGES = 4_000_000
"""Images of a pickle. CIFAR-100 has 50,000."""

_ATOMS = (str, bytes, int, float, type(None))
_SHOWN = 5
_EXPECTED = "a pickled dict with data (uint8, N x pixels) and labels (N integers)"


class _Batch(NamedTuple):
    """A file of images."""

    path: str
    split: str


class _Contents(NamedTuple):
    """What a batch holds."""

    pixels: "NDArray[Any]"  # of the images, by rows
    sides: Sides
    columns: Mapping[str, Any]  # lists and arrays that have a value for each image


def read_batches(
    files: Sequence[str], where: str, scratch: Path, options: SourceOptions
) -> Source | None:
    """List the images of pickled batches; None for files of another kind."""
    batches = [_Batch(path, _split_of(path)) for path in files if _is_pickle(path)]
    if not batches:
        return None
    folders = sorted({os.path.dirname(batch.path) for batch in batches})  # noqa: PTH120
    if len(folders) > 1:
        shown = some_of([printable(folder) for folder in folders], _SHOWN)
        raise SourceError("several folders of batches", path=where, found=shown, hint="pass one")
    batches.sort(key=lambda batch: _numbered(batch.path))
    first = _read_batch(batches[0].path)
    label = options.label_column or next((one for one in _LABELS if one in first.columns), None)
    check_chosen_columns(options, [*first.columns], Path(where))
    if label is None:
        found = quoted([*first.columns]) or "none"
        raise SourceError("no labels", path=batches[0].path, expected=_EXPECTED, found=found)
    others, packed = [name for name in first.columns if name != label], 0
    del first
    for batch in batches:
        with open_regular(batch.path) as file:
            packed += size_of_file(file)
    splits = {batch.split for batch in batches}
    has_splits = len(splits) > 1 and "" not in splits
    names = _class_names(Path(folders[0]), label)
    return pixel_source(
        _images_of(batches, label, names, has_splits=has_splits),
        where,
        scratch,
        options,
        packed=packed,
        names=names,
        columns=PixelColumns(label, others),
    )


def _is_pickle(path: str) -> bool:
    with os_errors_as(SourceError, path), open_regular(path) as file:
        head = file.read(len(_GZIP))
        return bool(PICKLE_START.match(head)) or head == _GZIP


def _split_of(path: str) -> str:
    words = re.split("[^a-z]+", Path(path).name.lower())
    split = next((SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES), "")
    return split or ("train" if words[:2] == ["data", "batch"] else "")


def _numbered(path: str) -> list[tuple[int, str]]:
    """Return what sorts ``data_batch_10`` after ``data_batch_9``."""
    parts = re.split("([0-9]+)", Path(path).name)
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]


def _load(path: str) -> Mapping[str, Any]:
    """Return the dict in a pickle, with keys that are text; a `SourceError` for anything else."""
    with os_errors_as(SourceError, path), open_unpacked(Path(path), copied=True) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size > _MAX_BYTES:
            what = f"pickle has {size:,} bytes (limit {_MAX_BYTES:,})"
            raise SourceError(what, path=path, hint="convert it to an .npz file")
        try:
            content = read_pickle(file, size)
        except UnsafePickleError as error:
            what = f"pickle has {printable(str(error))}; nothing in it was run"
            raise SourceError(what, path=path, expected=_EXPECTED) from error
        except ValueError as error:
            what = f"truncated or damaged pickle: {printable(str(error)[:200])}"
            raise SourceError(what, path=path) from error
    if not isinstance(content, dict):
        found = f"a {type(content).__name__}"
        raise SourceError("unsupported pickle", path=path, expected=_EXPECTED, found=found)
    return {
        key.decode("latin-1") if isinstance(key, bytes) else str(key): value
        for key, value in content.items()
    }


def _read_batch(path: str) -> _Contents:
    import numpy

    content = _load(path)
    name = next((one for one in _PIXELS if isinstance(content.get(one), numpy.ndarray)), None)
    if name is None:
        found = quoted([*content]) or "an empty dict"
        raise SourceError("no array of pixels", path=path, expected=_EXPECTED, found=found)
    pixels = content[name]
    sides = _sides_of(pixels.shape[1:]) if pixels.dtype == numpy.uint8 else None
    if sides is None:
        found = f"{pixels.dtype} of shape {pixels.shape}"
        raise SourceError("unsupported array of pixels", path=path, expected=_EXPECTED, found=found)
    if pixels.ndim == 2 and sides[2] > 1:  # CIFAR has all of red first, then green and blue
        pixels = pixels.reshape(len(pixels), sides[2], *sides[:2]).transpose(0, 2, 3, 1)
    if len(pixels) > _MOST_IMAGES or len(content) > _MOST_KEYS:
        what = f"{len(pixels):,} images and {len(content):,} keys"
        raise SourceError(what, path=path, expected=f"{_MOST_IMAGES:,} and {_MOST_KEYS} at most")
    columns = dict[str, Any]()
    for other, values in content.items():
        is_array = isinstance(values, numpy.ndarray) and values.ndim == 1
        if other == name or not (is_array or isinstance(values, list)):
            continue
        if len(values) == len(pixels):
            if is_array or _has_short_values(values):
                columns[other] = values
        elif other in _LABELS:
            what = f"{len(values):,} {other} for {len(pixels):,} images"
            raise SourceError(what, path=path)
    return _Contents(pixels, sides, columns)


def _has_short_values(values: Sequence[object]) -> bool:
    """Return whether a list has numbers and texts alone, which may be the same text repeatedly."""
    if not all(isinstance(value, _ATOMS) for value in values):
        return False
    return sum(len(value) for value in values if isinstance(value, str | bytes)) <= _MAX_BYTES


def _sides_of(shape: tuple[int, ...]) -> Sides | None:
    """Return the sides of images, which may be rows of pixels of a square."""
    if len(shape) != 1:
        return image_sides(shape)
    for channels in (3, 1):
        side = isqrt(shape[0] // channels)
        if side * side * channels == shape[0]:
            return image_sides((side, side, channels))
    return None


def _class_names(folder: Path, label: str) -> Sequence[str] | None:
    """Return the names of the classes, from the file of them in the same folder; or None."""
    key = "label_names" if label == "labels" else label.removesuffix("s") + "_names"
    for path in (folder / name for name in META_NAMES):
        names = _load(str(path)).get(key) if path.is_file() else None
        if isinstance(names, list) and names:
            texts = [one.decode("latin-1") if isinstance(one, bytes) else one for one in names]
            is_valid = all(isinstance(text, str) and not label_problem(text) for text in texts)
            if not is_valid or len({*texts}) < len(texts) or len(texts) > MAX_CLASSES:
                raise SourceError(f"{key} is not a list of different names", path=path)
            return texts
    return None


def _images_of(
    batches: Sequence[_Batch], label: str, names: Sequence[str] | None, *, has_splits: bool
) -> Iterator[PixelImage]:
    numbers = dict.fromkeys((batch.split for batch in batches), 0)
    for batch in batches:
        pixels, sides, columns = _read_batch(batch.path)
        if label not in columns:
            found = quoted([*columns]) or "none"
            raise SourceError(f"no {printable(label)}", path=batch.path, found=found)
        start = f"{batch.split}/" if batch.split else ""
        for at in range(len(pixels)):
            cells = {name: _plain(values[at]) for name, values in columns.items()}
            text, problem = _label_text(cells[label], names)
            yield PixelImage(
                f"{start}{numbers[batch.split]:08d}.png",
                text,
                pixels[at].tobytes(),
                sides,
                batch.split if has_splits else "",
                cells,
                problem,
            )
            numbers[batch.split] += 1


def _plain(value: Any) -> Any:
    """Return a value of a list or an array as Python has it, and bytes as text."""
    value = value if isinstance(value, _ATOMS) else value.item()
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _label_text(value: object, names: Sequence[str] | None) -> tuple[str, str | None]:
    """Return a label, and why it isn't one."""
    if isinstance(value, str):
        return value, None
    if not isinstance(value, int) or isinstance(value, bool):
        return "", "label is not a string or an integer"
    if names is None:
        return str(value), None
    known = 0 <= value < len(names)
    return (names[value], None) if known else ("", f"label {value} has no name")
