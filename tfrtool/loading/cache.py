"""Where images are kept between epochs: the choice, by what is free, and the cache on disk."""

import contextlib
import hashlib
import inspect
import json
import math
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import DatasetError, UsageError, WriteError, os_errors_as
from tfrtool.loading.dataset_facts import DatasetFacts
from tfrtool.loading.options import Cache, ImageSize, LoadOptions, Recipe, image_shape
from tfrtool.loading.tensors import TfDataset
from tfrtool.storage.arguments import user_cache
from tfrtool.storage.atomic_files import move, private_folder
from tfrtool.storage.opening import open_regular
from tfrtool.storage.progress import OnProgress, Progress

_MODEST, _MOST = 0.5, 0.9
"""The parts of the free space that a cache may take by default, and on request. The model, its
batches and other processes need the rest."""

_IMAGE_OVERHEAD = 504
"""Bytes that tf.data's memory cache takes for an image besides its pixels and label: what describes
two tensors. Measured as 416 with TensorFlow 2.21, over 200,000 images of 8 pixels."""

_KINDS = {
    "features": "of a frozen base's outputs",
    "memory": "of uint8 in memory",
    "disk": "of uint8 on disk",
}

_VERSION = 4
"""Of the pixels and the order of a cache on disk. Raise it when either changes."""

_WRITE_BATCH = 32
_UNUSED = 30 * 24 * 3600
"""Seconds after which a cache on disk that no run has opened is deleted."""

_NO_LIMIT = 2**60
_LONGEST = 2**20
"""Bytes read of a file of the system's; the longest are some tens of kB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRequest:
    """What is to be cached, and how much space is free."""

    images: int  # to train and to validate on
    image_size: ImageSize  # in pixels
    epochs: int
    asked: Cache | None = None  # None chooses
    recipe: Recipe = "tfrtool"
    base_frozen: bool = False  # whether images go through a base that isn't trained
    augmented: bool = False
    feature_size: int | None = None  # numbers that the base returns for an image
    free_memory: int | None = None  # in bytes; None if unknown
    free_disk: int | None = None  # in bytes, in the directory of the cache; None if unknown
    label_bytes: int = 8  # size of a label
    channels: int = 3  # of images
    on_disk: bool = False  # whether an earlier run has left all of them on disk

    def bytes(self, cache: Cache, value_size: int = 1) -> int:
        """Return the size of a cache, with 1 (uint8) or 4 (float32) bytes a value."""
        values = math.prod(image_shape(self.image_size, self.channels)) * value_size
        if cache == "features":
            values = (self.feature_size or 2048) * 4
        overhead = _IMAGE_OVERHEAD if cache == "memory" else 0
        return (values + overhead + self.label_bytes) * self.images

    def free(self, cache: Cache) -> int | None:
        """Return the free bytes where a cache would be; None if unknown."""
        return self.free_disk if cache == "disk" else self.free_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlan:
    """Where images are kept between epochs, and why, for people."""

    cache: Cache
    reason: str


def plan_cache(request: CacheRequest) -> CachePlan:
    """Choose where images are kept between epochs, before any is decoded.

    By default that is the cheapest that fits in half of the free space: a frozen base's outputs,
    images in memory, images on disk. `UsageError` if what was requested doesn't fit.
    """
    asked, notes = request.asked, list[str]()
    frozen = request.base_frozen and not request.augmented
    if request.recipe == "notebook":
        return _requested(request, "memory", "of float32 in memory", 4)
    if request.recipe == "naive" or asked == "none":
        return CachePlan(cache="none", reason="as requested")
    if asked == "features" and not frozen:
        asked = None
        notes.append("not features, because no base is frozen or images are augmented")
    if asked is not None:
        return _requested(request, asked, _KINDS[asked])
    if not frozen and request.on_disk:
        note = "images are on disk from an earlier run"
        return CachePlan(cache="disk", reason="; ".join([*notes, note]))
    if not frozen and request.epochs == 1:
        return CachePlan(cache="none", reason="; ".join([*notes, "only one epoch"]))
    order: tuple[Cache, ...] = ("features", "memory", "disk")
    for cache in order[not frozen :]:
        size, free = request.bytes(cache), request.free(cache)
        what = f"{_mib(size)} {_KINDS[cache]}, with {_mib(free)} free"
        # Features are kilobytes an image, so an unknown amount of free memory is enough for them.
        if size <= (free or 0) * _MODEST or (cache == "features" and free is None):
            return CachePlan(cache=cache, reason="; ".join([*notes, what]))
        notes.append(f"no room for {what}")
    return CachePlan(cache="none", reason="; ".join(notes))


def _requested(request: CacheRequest, cache: Cache, what: str, value_size: int = 1) -> CachePlan:
    """Return a requested cache; raise if it does not fit."""
    size, free = request.bytes(cache, value_size), request.free(cache)
    exists = cache == "disk" and request.on_disk
    if free is not None and size > free * _MOST and not exists:
        raise UsageError(
            "the cache does not fit",
            expected=f"at most {_mib(int(free * _MOST))}, with {_mib(free)} free",
            found=f"{_mib(size)} {what}",
            hint="use --recipe tfrtool and --cache auto to cache what fits, or a smaller "
            "--image-size",
        )
    return CachePlan(cache=cache, reason=f"{_mib(size)} {what}, as requested; {_mib(free)} free")


def _mib(size: int | None) -> str:
    if size is None:
        return "an unknown amount"
    return f"{size / 2**20:,.{0 if size >= 10 * 2**20 else 1}f} MiB"


def free_disk(directory: Path) -> int | None:
    """Return the free bytes on the disk of a directory, which need not exist; None if unknown."""
    with contextlib.suppress(OSError, StopIteration):
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        return shutil.disk_usage(existing).free
    return None


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the memory that this process can still take, in bytes; None if unknown.

    It is the least of what Linux can give without swapping (proc(5), MemAvailable), and what the
    limits of this process's control groups leave (cgroups(7), version 2). ``proc`` and ``sys`` are
    in ``root``.
    """
    kibibytes = _number(root / "proc/meminfo", "MemAvailable:")
    bounds = [] if kibibytes is None else [kibibytes * 1024]
    top = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        path = line.removeprefix("0::/").split("/")
        if not line.startswith("0::/") or ".." in path:
            continue
        for group in (top.joinpath(*path[:depth]) for depth in range(len(path) + 1)):
            limits = [_number(group / name) for name in ("memory.max", "memory.high")]
            used = _number(group / "memory.current")
            if used is not None:
                # Pages of files that nobody used lately are given up when memory is wanted.
                used = max(used - (_number(group / "memory.stat", "inactive_file") or 0), 0)
                bounds += [max(limit - used, 0) for limit in limits if limit is not None]
    return min(bounds, default=None)


def own_memory(what: str) -> int:
    """Return the memory of this process in bytes: VmRSS, or VmHWM for the peak; 0 if unknown.

    That of getrusage(2) is at least that of the process which started this one.
    """
    return 1024 * (_number(Path("/proc/self/status"), f"{what}:") or 0)


def _number(path: Path, name: str = "") -> int | None:
    """Return the number after a name in a file, or the number that a file consists of."""
    for words in map(str.split, _lines(path)):
        if words and name in ("", words[0]):
            text = words[1] if name and len(words) > 1 else words[0]
            return int(text) if len(text) <= 20 and text.isascii() and text.isdigit() else None
    return None


def _lines(path: Path) -> list[str]:
    with contextlib.suppress(OSError, ValueError), open_regular(path) as file:
        return file.read(_LONGEST).decode("utf-8", "replace").splitlines()
    return []


def default_cache_directory() -> Path:
    """Return the user's directory for caches; `UsageError` without a home directory."""
    path = user_cache("images")
    if path is None:
        raise UsageError("no home directory for the cache", hint="set XDG_CACHE_HOME")
    return path


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
            options.shape,
            options.decode,
            options.training,
        ),
        *(options.cycle_length, options.block_length, options.shuffle_buffer, *share),
    ]
    digest = hashlib.sha256(json.dumps(facts).encode("ascii")).hexdigest()[:32]
    return Path(options.cache_directory or default_cache_directory()) / digest


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

    The folder of all caches must be private. A cache is complete when its folder has its name.
    Caches that no run has opened for 30 days are deleted.
    """
    folder = cache_folder(dataset, options, share)
    directory = folder.parent
    with os_errors_as(WriteError, directory, "the cache can't be written"):
        directory.parent.mkdir(parents=True, exist_ok=True)
        private_folder(directory)
        for old in directory.iterdir():
            if old != folder and old.lstat().st_mtime < time.time() - _UNUSED:
                shutil.rmtree(old, ignore_errors=True)
        if not folder.is_dir():
            _write(folder, images, count, options.on_progress)
        os.utime(folder)
    return images.cache(os.fspath(folder / "images"))


def _write(folder: Path, images: TfDataset, count: int, on_progress: OnProgress) -> None:
    import tensorflow as tf

    scratch = Path(tempfile.mkdtemp(prefix="tmp-", dir=folder.parent))
    options = tf.data.Options()
    options.autotune.enabled = False  # see `pipeline.load`
    try:
        labels = images.cache(os.fspath(scratch / "images")).map(lambda _image, label: label)
        done = 0
        for batch in labels.batch(_WRITE_BATCH).with_options(options):
            done += len(batch)
            on_progress(Progress(what="caching", done=done, total=count, unit="images"))
        try:
            move(scratch, folder)
        except OSError:
            if not folder.is_dir():  # another run may have written it meanwhile
                raise
    except (tf.errors.ResourceExhaustedError, tf.errors.UnknownError) as error:
        raise WriteError(f"the cache can't be written: {error.message}", path=folder) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
