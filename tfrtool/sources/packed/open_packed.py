"""Detects files that hold many images, by their names: Parquet, Arrow, tars, arrays of pixels."""

import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tfrtool.errors import SourceError, os_errors_as
from tfrtool.records.shard_sets import SPLIT_NAMES
from tfrtool.sources.folders.listing import is_clutter, is_image_name, is_pattern
from tfrtool.sources.formats.saved_datasets import saved_files
from tfrtool.sources.items import Source
from tfrtool.sources.packed.archived_arrays import UNPACKED, unpack_arrays
from tfrtool.sources.packed.idx_files import IDX_NAME, read_idx
from tfrtool.sources.packed.numpy_arrays import read_arrays
from tfrtool.sources.packed.parquet_images import read_parquet_images
from tfrtool.sources.packed.pickled_batches import (
    BATCH_NAME,
    META_NAMES,
    PICKLE_START,
    read_batches,
)
from tfrtool.sources.packed.pixel_tables import TABLE_SUFFIXES, read_pixel_tables
from tfrtool.sources.packed.web_dataset_tars import read_web_dataset
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import is_url

_READERS: Mapping[str, Callable[[Sequence[str], str, Path, SourceOptions], Source | None]] = {
    **dict.fromkeys((".parquet", ".arrow", ".feather", ".ipc"), read_parquet_images),
    ".tar": read_web_dataset,
    ".npz": read_arrays,
    "idx": read_idx,
    "pickle": read_batches,
    "pixels": read_pixel_tables,
}
"""By the suffix of the files, or a name for it; the first one that a folder has counts."""

_NAMES: Mapping[str, re.Pattern[str]] = {
    "idx": IDX_NAME,
    "pickle": BATCH_NAME,
    "pixels": re.compile(rf".*(?:{'|'.join(map(re.escape, TABLE_SUFFIXES))})", re.IGNORECASE),
}
"""Names of files of the kinds that have no suffix of their own."""

_STARTS: Mapping[str, re.Pattern[bytes]] = {"pickle": PICKLE_START}
"""The first bytes of files, which may have any name if one is passed by itself."""

_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
_HEAD = 8
_REMOTE_KINDS = frozenset({".parquet", ".arrow", ".feather", ".ipc", ".tar", ".npz", "pixels"})
"""Kinds that are read from object stores."""

_ARRAY_FOLDERS = re.compile(
    rf"raw|gzip|.*mnist.*|cifar-.*|{IDX_NAME.pattern}|data|{'|'.join(SPLIT_NAMES)}", re.IGNORECASE
)
"""Folders that files of arrays are kept in by those who publish or download them."""


def read_packed(argument: str, scratch: Path, options: SourceOptions) -> Source | None:
    """List such a file, or several that a folder or a pattern means; None for anything else."""
    if not is_url(argument) and (saved := saved_files(Path(argument))):
        source = read_parquet_images([*map(str, saved)], argument, scratch, options)
        if source is None:
            what = "the saved dataset has no column of encoded images"
            raise SourceError(what, path=argument, hint="use tfrtool convert for other columns")
        return source
    files = _find_files(argument, scratch)
    suffix = next((one for one in _READERS if one in files), None)
    if suffix is None:
        return None
    try:
        with os_errors_as(SourceError, argument):
            return _READERS[suffix](files[suffix], argument, scratch, options)
    except SourceError as error:
        if error.path and Path(error.path).parent == scratch / UNPACKED:
            error.path = f"{argument}/{Path(error.path).name}"  # which the user knows
        raise


def _is_array_name(name: str) -> bool:
    is_array = any(_NAMES[kind].fullmatch(name) for kind in ("idx", "pickle"))
    return is_array or name in META_NAMES or name.endswith("-mapping.txt")


def _find_files(argument: str, scratch: Path) -> dict[str, list[str]]:
    """Return the files of a path, a pattern, or an archive, which is unpacked, by their kind."""
    if not is_url(argument) and os.path.isdir(argument):  # noqa: PTH112 - it may have any characters
        return _files_in(argument)
    kind = _kind_of(os.path.basename(argument))  # noqa: PTH119
    if is_url(argument):
        return {kind: [argument]} if kind in _REMOTE_KINDS else {}
    if os.path.isfile(argument):  # noqa: PTH113
        is_archive = argument.lower().endswith(_ARCHIVES)
        folder = unpack_arrays(argument, scratch, _is_array_name) if is_archive else None
        if folder is not None and (files := _files_in(str(folder))):
            return files
        kind = kind or _kind_by_start(argument)
        return {} if kind is None else {kind: [argument]}
    if os.path.lexists(argument) or is_image_name(argument) or not is_pattern(argument):
        return {}
    matches = glob.iglob(argument, recursive=True)  # noqa: PTH207
    kinds = dict[str, list[str]]()
    for path in matches:
        kind = _kind_of(os.path.basename(path))  # noqa: PTH119
        if is_image_name(path) or os.path.isdir(path):  # noqa: PTH112 - a tree of images
            return {}
        if kind is not None:
            kinds.setdefault(kind, []).append(path)
    return {kind: sorted(paths) for kind, paths in kinds.items()}


def _files_in(folder: str) -> dict[str, list[str]]:
    """Return the files of a folder by their kind, if it has no other images.

    They are all that is in the folder, or in its folder ``data``, as Hugging Face has it, or in
    its folders of splits; but for texts about them.
    """
    files, folders = dict[str, list[str]](), list[str]()
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if is_clutter(entry.name):
                continue
            if entry.is_dir():
                if not _ARRAY_FOLDERS.fullmatch(entry.name):
                    return {}  # one class folder is enough
                folders.append(entry.path)
            elif is_image_name(entry.name):
                return {}
            elif kind := _kind_of(entry.name):
                files.setdefault(kind, []).append(entry.path)
    if not folders:
        return {kind: sorted(paths) for kind, paths in files.items()}
    inner = dict[str, list[str]]()
    for path in sorted(folders):
        for kind, paths in _files_in(path).items():
            inner.setdefault(kind, []).extend(paths)
    if "idx" in inner:  # of copies, the reader takes those in the outer folder
        files["idx"] = sorted([*files.get("idx", ()), *inner.pop("idx")])
        return {"idx": files["idx"]}
    return {kind: paths for kind, paths in inner.items() if kind not in files}


def _kind_of(name: str) -> str | None:
    lower = name.lower()
    suffix = next((one for one in _READERS if one[0] == "." and lower.endswith(one)), None)
    return suffix or next((kind for kind, names in _NAMES.items() if names.fullmatch(name)), None)


def _kind_by_start(path: str) -> str | None:
    with suppress(OSError), open_regular(path) as file:
        head = file.read(_HEAD)
        return next((kind for kind, start in _STARTS.items() if start.match(head)), None)
    return None
