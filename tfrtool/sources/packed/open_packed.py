"""Detects files that hold many images, by their names: Parquet, Arrow, tars, NumPy's arrays."""

import glob
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tfrtool.errors import SourceError, os_errors_as
from tfrtool.sources.folders.listing import SPLIT_NAMES, is_image_name
from tfrtool.sources.formats.saved_datasets import saved_files
from tfrtool.sources.items import Source
from tfrtool.sources.packed.numpy_arrays import read_arrays
from tfrtool.sources.packed.parquet_images import read_parquet_images
from tfrtool.sources.packed.web_dataset_tars import read_web_dataset
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.remote_path import is_url

_READERS: Mapping[str, Callable[[Sequence[str], str, Path, SourceOptions], Source | None]] = {
    **dict.fromkeys((".parquet", ".arrow", ".feather", ".ipc"), read_parquet_images),
    ".tar": read_web_dataset,
    ".npz": read_arrays,
}
"""By the suffix of the files; the first one that a folder has counts."""


def read_packed(argument: str, scratch: Path, options: SourceOptions) -> Source | None:
    """List such a file, or several that a folder or a pattern means; None for anything else."""
    if not is_url(argument) and (saved := saved_files(Path(argument))):
        source = read_parquet_images([*map(str, saved)], argument, scratch, options)
        if source is None:
            what = "the saved dataset has no column of encoded images"
            raise SourceError(what, path=argument, hint="use tfrtool convert for other columns")
        return source
    files = _find_files(argument)
    suffix = next((one for one in _READERS if one in files), None)
    if suffix is None:
        return None
    with os_errors_as(SourceError, argument):
        return _READERS[suffix](files[suffix], argument, scratch, options)


def _find_files(argument: str) -> dict[str, list[str]]:
    """Return the files that a path or a pattern means, by their suffix."""
    if not is_url(argument) and os.path.isdir(argument):  # noqa: PTH112 - it may have any characters
        return _files_in(argument)
    suffix = _suffix_of(argument)
    if suffix is None:
        return {}
    if is_url(argument) or os.path.isfile(argument):  # noqa: PTH113
        return {suffix: [argument]}
    exists = os.path.lexists(argument)
    matches = [] if exists else sorted(glob.glob(argument, recursive=True))  # noqa: PTH207
    return {suffix: matches} if matches else {}


def _files_in(folder: str) -> dict[str, list[str]]:
    """Return the files of a folder by their suffix, if it has no other images.

    They are all that is in the folder, or in its folder ``data``, as Hugging Face has it, or in
    its folders of splits; but for texts about them.
    """
    files, folders = dict[str, list[str]](), list[str]()
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                if entry.name.lower() not in ("data", *SPLIT_NAMES):
                    return {}  # one class folder is enough
                folders.append(entry.path)
            elif is_image_name(entry.name):
                return {}
            elif suffix := _suffix_of(entry.name):
                files.setdefault(suffix, []).append(entry.path)
    if not folders:
        return {suffix: sorted(paths) for suffix, paths in files.items()}
    inner = dict[str, list[str]]()
    for path in sorted(folders):
        for suffix, paths in _files_in(path).items():
            inner.setdefault(suffix, []).extend(paths)
    return {suffix: paths for suffix, paths in inner.items() if suffix not in files}


def _suffix_of(name: str) -> str | None:
    return next((suffix for suffix in _READERS if name.lower().endswith(suffix)), None)
