"""The cache of decoded images on disk.

A cache is a folder whose name is a digest of all that it depends on. Its index lists its files.
Only what has such a name and such an index is ever read or deleted.
"""

import contextlib
import hashlib
import inspect
import json
import os
import re
import time
from pathlib import Path

import msgspec

from tfrtool.errors import DatasetError, WriteError, os_errors_as, os_reason
from tfrtool.loading.cache import cache_directory
from tfrtool.loading.dataset_facts import DatasetFacts
from tfrtool.loading.options import LoadOptions
from tfrtool.loading.tensors import TfDataset
from tfrtool.storage.atomic_files import (
    TEMPORARY,
    delete_leftovers,
    move,
    private_folder,
    temporary_folder,
)
from tfrtool.storage.opening import file_sha256, open_regular, read_bounded, size_of_file
from tfrtool.storage.progress import OnProgress, Progress

_VERSION = 4
"""Of the pixels and the order of a cache. Raise it when either changes."""

_WRITE_BATCH = 32
_UNUSED = 30 * 24 * 3600
"""Seconds after which a cache that no run has opened is deleted."""

_INDEX = "tfrtool_cache.json"
_PREFIX, _KEYS = "images", "images.index"
_FILE = re.compile(r"images\.(?:index|data-\d{5}-of-\d{5})")
"""What TensorFlow calls its files; `_KEYS` has the checksum of each image."""

_CACHE = re.compile("[0-9a-f]{32}")
_UNFINISHED = re.compile(re.escape(TEMPORARY) + r"[0-9a-f]{16}\.([0-9a-f]{32})")


class _CacheIndex(msgspec.Struct):
    """The index of a cache: its name, the sizes of its files, and the SHA-256 of `_KEYS`."""

    name: str
    files: dict[str, int]
    sha256: str


def cache_folder(dataset: DatasetFacts, options: LoadOptions, share: tuple[int, int]) -> Path:
    """Return the folder of a cache on disk, whose name is a digest of all that it depends on.

    The content of shards is identified by names, sizes and times of change: reading them would take
    as long as decoding them. ``share`` is the number of workers, and the worker's own.
    """
    from importlib.metadata import version

    split = dataset.local_split(options.split)
    with os_errors_as(DatasetError, dataset.directory, "can't be read"):
        stats = [shard.stat() for shard in split.shards]
    code = None
    if dataset.decode_function is not None:
        code = os.urandom(16).hex()  # without its source, no cache is known to fit
        with contextlib.suppress(OSError, TypeError):
            code = inspect.getsource(dataset.decode_function)
    facts = [
        *(_VERSION, version("tensorflow"), os.fspath(dataset.directory.resolve()), split.name),
        [path.name for path in split.shards],
        [(status.st_size, status.st_mtime_ns) for status in stats],
        *(dataset.image_feature, dataset.label_feature),
        *(repr(dataset.image_form), repr(dataset.label_form)),
        *(
            code,
            options.holdout,
            options.held_out,
            options.limit,
            options.shape,
            options.decode,
            options.training,
        ),
        *(options.cycle_length, options.block_length, options.shuffle_buffer, *share),
    ]
    digest = hashlib.sha256(json.dumps(facts).encode("ascii")).hexdigest()[:32]
    return cache_directory(options.cache_directory) / digest


def has_disk_cache(dataset: DatasetFacts, options: LoadOptions, share: tuple[int, int]) -> bool:
    """Return whether an earlier run has cached all of these images on disk."""
    return cache_folder(dataset, options, share).is_dir()


def disk_cache(
    dataset: DatasetFacts,
    options: LoadOptions,
    images: TfDataset,
    count: int,
    share: tuple[int, int],
) -> TfDataset:
    """Return images that are cached on disk; decode all of them first if they aren't there yet.

    Only this user may be able to write to the folder of all caches. A cache is complete when its
    folder has its name. Caches that no run has opened for 30 days are deleted.

    Raises:
        DatasetError: a file of the cache is not what was written.
        WriteError: the cache can't be written.
    """
    folder = cache_folder(dataset, options, share)
    directory = folder.parent
    with os_errors_as(WriteError, directory, "the cache can't be written"):
        directory.parent.mkdir(parents=True, exist_ok=True)
        private_folder(directory)
        _delete_unused(directory, folder)
        if not folder.is_dir():
            _write(folder, images, count, options.on_progress)
        os.utime(folder)
    _check(folder)
    return images.cache(os.fspath(folder / _PREFIX))


def _write(folder: Path, images: TfDataset, count: int, on_progress: OnProgress) -> None:
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False  # see `pipeline.load`
    with temporary_folder(folder) as scratch:
        cache = scratch / folder.name
        cache.mkdir(mode=0o700)
        try:
            labels = images.cache(os.fspath(cache / _PREFIX)).map(lambda _image, label: label)
            done = 0
            for batch in labels.batch(_WRITE_BATCH).with_options(options):
                done += len(batch)
                on_progress(Progress(what="caching", done=done, total=count, unit="images"))
        except (tf.errors.ResourceExhaustedError, tf.errors.UnknownError) as error:
            raise WriteError(f"the cache can't be written: {error.message}", path=folder) from error
        files = {path.name: path.stat().st_size for path in cache.iterdir()}
        index = _CacheIndex(name=folder.name, files=files, sha256=file_sha256(cache / _KEYS))
        (cache / _INDEX).write_bytes(msgspec.json.encode(index))
        try:
            move(cache, folder)
        except OSError:
            if not folder.is_dir():  # another run may have written it meanwhile
                raise


def _read_index(folder: Path) -> _CacheIndex | None:
    """Return the index of a cache; None if the folder is not one that `_write` made."""
    try:
        data = read_bounded(folder / _INDEX, follow=False)
        index = msgspec.json.decode(data, type=_CacheIndex)
    except (OSError, ValueError):
        return None
    is_ours = index.name == folder.name and all(map(_FILE.fullmatch, index.files))
    return index if is_ours and not folder.is_symlink() else None


def _check(folder: Path) -> None:
    """Raise a `DatasetError` if a file of a cache is not what `_write` made.

    TensorFlow would wait for a FIFO forever. It checks each image by a checksum in `_KEYS`.
    """
    hint = "delete this folder to decode the images again"
    index = _read_index(folder)
    if index is None:
        raise DatasetError("the disk cache has no usable index", path=folder, hint=hint)
    for name, size in index.files.items():
        try:
            with open_regular(folder / name, follow=False) as file:
                found = size_of_file(file)
            is_same = found == size
            if is_same and name == _KEYS:
                is_same = index.sha256 == file_sha256(folder / name, follow=False)
            problem = None if is_same else "it is not the file that was written"
        except OSError as error:
            problem = os_reason(error)
        if problem is not None:
            what = f"the disk cache is damaged: {name}: {problem}"
            raise DatasetError(what, path=folder, hint=hint)


def _delete_unused(directory: Path, keep: Path) -> None:
    """Delete caches that no run has opened for long, and what killed runs left of making some."""
    for path in sorted(directory.iterdir()):
        unfinished = _UNFINISHED.fullmatch(path.name)
        if unfinished is not None:
            delete_leftovers(directory / unfinished[1])
        elif path != keep and _is_unused(path):
            with contextlib.suppress(OSError), temporary_folder(path) as scratch:
                move(path, scratch / path.name)


def _is_unused(path: Path) -> bool:
    """Return whether a path is a cache of ours, with nothing else in it, that may be deleted."""
    if not _CACHE.fullmatch(path.name) or path.lstat().st_mtime > time.time() - _UNUSED:
        return False
    index = _read_index(path)
    if index is None:
        return False
    return {_INDEX, *index.files}.issuperset(found.name for found in path.iterdir())
