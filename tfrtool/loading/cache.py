"""Where images are kept between epochs: the choice, by what is free."""

import contextlib
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import UsageError
from tfrtool.loading.options import Cache, ImageSize, Recipe, image_shape
from tfrtool.storage.arguments import user_cache
from tfrtool.storage.opening import open_regular

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

_NO_LIMIT = 2**60
_LONGEST = 2**20
"""Bytes read of a file of the system's; the longest are some tens of kB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRequest:
    """What is to be cached, and how to learn how much space is free."""

    images: int  # to train and to validate on
    image_size: ImageSize  # in pixels
    epochs: int
    asked: Cache | None = None  # None chooses
    recipe: Recipe = "tfrtool"
    base_frozen: bool = False  # whether images go through a base that isn't trained
    augmented: bool = False
    before_resize: bool = False  # whether images are augmented before they are resized
    feature_size: int | None = None  # numbers that the base returns for an image
    free_memory: Callable[[], int | None]  # measures bytes; None if unknown
    free_disk: Callable[[], int | None]  # the same in the directory of the cache
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
        return self.free_disk() if cache == "disk" else self.free_memory()


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
    if request.before_resize:
        note = "images are augmented before they are resized"
        return CachePlan(cache="none", reason="; ".join([*notes, note]))
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


def cache_directory(requested: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of all caches, by default the user's.

    It is a `UsageError` without a home directory.
    """
    path = user_cache("images") if requested is None else Path(requested)
    if path is None:
        raise UsageError("no home directory for the cache", hint="set XDG_CACHE_HOME")
    return path


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
