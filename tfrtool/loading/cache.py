"""Where images are kept between epochs: predicted from the shards, held against what is free."""

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import UsageError
from tfrtool.loading.options import Cache, Recipe
from tfrtool.storage.opening import open_regular

_MEBIBYTE = 2**20
_FLOAT = 4

_MODEST = 0.5
"""The part of what is free that a cache may take unasked: the model and its batches need the rest,
and so do other processes, which may be as hungry by the time that the cache is full."""

_MOST = 0.9
"""The part that a cache may take where it was asked for."""

_IMAGE_OVERHEAD = 504
"""Bytes that tf.data's memory cache takes an image beside its pixels and its label: what
describes two tensors. Measured as 416 with TensorFlow 2.21, over 200,000 images of 8 pixels."""

_KINDS = {
    Cache.FEATURES: "of a frozen base's outputs",
    Cache.MEMORY: "of uint8 in memory",
    Cache.DISK: "of uint8 on disk",
    Cache.NONE: "nothing",
}

_NO_LIMIT = 2**60
"""Version 1 says "no limit" with the highest number of pages that there can be (2**63 - 4096)."""

_LONGEST = 2**20
"""As much as is read of a file of the system's; the longest ones are some tens of kB."""

# The files of both versions of control groups: limits, usage, and what of it can be taken back.
# What is above memory.high is taken back at once, so that it is a limit as well.
_FILES: dict[int, tuple[tuple[str, ...], str, str]] = {
    1: (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
    2: (("memory.max", "memory.high"), "memory.current", "inactive_file"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRequest:
    """What a cache would be for, and what there is to keep it in."""

    images: int  # those to train on and those to validate on together
    image_size: int  # in pixels, both ways
    epochs: int  # how many times each image is wanted
    asked: Cache | None = None  # None is wherever is best
    recipe: Recipe = Recipe.TFRTOOL  # only ours has a choice
    base_frozen: bool = False  # whether images go through a base that isn't trained
    augmented: bool = False  # whether images differ from epoch to epoch
    feature_size: int | None = None  # numbers that the base makes of an image; None if unknown
    free_memory: int | None = None  # in bytes; None where that can't be told
    free_disk: int | None = None  # in bytes, where a cache on disk would be; likewise
    label_bytes: int = 8  # of a label: an int64, or a float32 for each class
    on_disk: bool = False  # whether they are in a cache on disk from an earlier run

    def bytes(self, cache: Cache, value_size: int = 1) -> int | None:
        """Return what a cache takes, of 1 (uint8) or 4 (float32) bytes a value; None if unknown."""
        pixels, features = self.image_size**2 * 3 * value_size, self.feature_size
        each = {
            Cache.FEATURES: None if features is None else features * _FLOAT + self.label_bytes,
            Cache.MEMORY: pixels + _IMAGE_OVERHEAD + self.label_bytes,
            Cache.DISK: pixels + self.label_bytes,
            Cache.NONE: 0,
        }[cache]
        return None if each is None else each * self.images


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlan:
    """Where images are kept between epochs, and why there, for people."""

    cache: Cache
    reason: str


def plan_cache(request: CacheRequest) -> CachePlan:
    """Decide where images are kept between epochs, before any is decoded.

    Unasked, that is the cheapest of these which fits into half of what is free: a frozen base's
    outputs; images in memory; images on disk. What was asked for is done if it can be, and if not
    because of what is trained, the reason says so. It is a `UsageError` if what was asked for, or
    what the recipe does, takes more than is free.
    """
    asked, why, obstacle = request.asked, "", ""
    if not request.base_frozen:
        obstacle = "no base is frozen"
    elif request.augmented:
        obstacle = "augmented images differ in every epoch"
    if request.recipe is Recipe.NAIVE:
        return CachePlan(cache=Cache.NONE, reason="the naive recipe has no cache")
    if request.recipe is Recipe.NOTEBOOK:
        hint = "use --recipe tfrtool, whose cache takes a quarter of that, or none"
        what, size = "of float32 in memory, as published", request.bytes(Cache.MEMORY, _FLOAT)
        return _as_asked(request, Cache.MEMORY, size, what, hint)
    if asked is Cache.FEATURES and obstacle:
        asked, why = None, f"not features, because {obstacle}; "
    if asked is not None:
        hint = "use --cache auto to cache what fits, or a smaller --image-size"
        what = f"{_KINDS[asked]}, as requested"
        return _as_asked(request, asked, request.bytes(asked), what, hint)
    cache, reason = _choose(request, obstacle)
    return CachePlan(cache=cache, reason=why + reason)


def _as_asked(
    request: CacheRequest, cache: Cache, size: int | None, what: str, hint: str
) -> CachePlan:
    """Keep images where it was asked for; raise if there is no room for them."""
    if cache is Cache.NONE or size is None:
        return CachePlan(cache=cache, reason="as requested")
    there = cache is Cache.DISK and request.on_disk
    free = request.free_disk if cache is Cache.DISK else request.free_memory
    if free is not None and size > free * _MOST and not there:
        raise UsageError(
            "the cache does not fit",
            expected=f"at most {_mib(int(free * _MOST))}, with {_free(free)}",
            found=f"{_mib(size)} {what}",
            hint=hint,
        )
    return CachePlan(cache=cache, reason=f"{_mib(size)} {what}; {_free(free)}")


def _choose(request: CacheRequest, obstacle: str) -> tuple[Cache, str]:
    """Return where images are best kept, and why."""
    memory, why = request.free_memory, ""
    if not obstacle:
        size = request.bytes(Cache.FEATURES)
        # An unknown amount of free memory is trusted with these alone: they are kilobytes an image.
        if size is None or memory is None or size <= memory * _MODEST:
            numbers = "" if size is None else f": {_mib(size)} of float32, with {_free(memory)}"
            return Cache.FEATURES, f"the base is frozen, so its outputs are cached{numbers}"
        why = f"no room for {_mib(size)} of the frozen base's outputs; "
    if request.on_disk:
        return Cache.DISK, f"{why}images are on disk from an earlier run"
    if request.epochs == 1:
        return Cache.NONE, f"{why}only one epoch"
    for cache, free in ((Cache.MEMORY, memory), (Cache.DISK, request.free_disk)):
        size = request.bytes(cache) or 0
        what = f"{_mib(size)} {_KINDS[cache]}, with {_free(free)}"
        if free is not None and size <= free * _MODEST:
            return cache, f"{why}{what}"
        why += f"no room for {what}; "
    return Cache.NONE, why.removesuffix("; ")


def _free(size: int | None) -> str:
    return "an unknown amount free" if size is None else f"{_mib(size)} free"


def _mib(size: int) -> str:
    digits = 0 if size >= 10 * _MEBIBYTE else 1
    return f"{size / _MEBIBYTE:,.{digits}f} MiB"


def free_disk(directory: Path) -> int | None:
    """Return how many bytes fit below a directory, which need not be there; None if unknown."""
    with contextlib.suppress(OSError, StopIteration):
        there = next(path for path in (directory, *directory.parents) if path.exists())
        return shutil.disk_usage(there).free
    return None


def available_memory(root: Path = Path("/")) -> int | None:
    """Return how much memory is free for this process, in bytes; None where that can't be told.

    It is the least of these, as far as they are there: what Linux says can be used without
    swapping (proc(5), MemAvailable); and what the limits of this process' control group leave, and
    those of each group around it (cgroups(7), versions 1 and 2), which psutil does not know. The
    directories ``proc`` and ``sys`` are in ``root``.
    """
    kibibytes = _number(root / "proc/meminfo", "MemAvailable:")
    bounds = [None if kibibytes is None else kibibytes * 1024]
    for line in _lines(root / "proc/self/cgroup"):  # number:controllers:path, by cgroups(7)
        number, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        if number == "0" and not controllers:
            top, files = root / "sys/fs/cgroup", _FILES[2]
        elif "memory" in controllers.split(","):
            top, files = root / "sys/fs/cgroup/memory", _FILES[1]
        else:
            continue
        # In a container its own group may be at the top, and nothing at the path.
        parts = [] if ".." in path else path.strip("/").split("/")
        groups = (top.joinpath(*parts[:depth]) for depth in range(len(parts) + 1))
        bounds += [_left(group, *files) for group in groups]
    return min((bound for bound in bounds if bound is not None), default=None)


def own_memory(what: str) -> int:
    """Return the memory of this process in bytes: VmRSS that it has, VmHWM the most that it had.

    That of getrusage(2) is at least that of the process which started this one. 0 is unknown.
    """
    return 1024 * (_number(Path("/proc/self/status"), f"{what}:") or 0)


def _left(group: Path, limits: tuple[str, ...], usage: str, reclaimable: str) -> int | None:
    """Return what the limit of a control group leaves; None where it has none."""
    numbers = [_number(group / name) for name in limits]
    limit = min((number for number in numbers if number is not None), default=_NO_LIMIT)
    used = _number(group / usage)
    if limit >= _NO_LIMIT or used is None:
        return None
    # Pages of files that nobody has used lately are given up as soon as memory is wanted.
    idle = _number(group / "memory.stat", reclaimable) or 0
    return max(limit - max(used - idle, 0), 0)


def _number(path: Path, name: str = "") -> int | None:
    """Return the number after a name in a file, or of a file that is one; None if it is none."""
    for line in _lines(path):
        if name and not line.startswith(f"{name} "):
            continue
        text = line.split(" ")[1] if name else line
        # int() takes more than the system writes: signs, underscores, other scripts, many digits.
        return int(text) if len(text) <= 20 and text.isascii() and text.isdigit() else None
    return None


def _lines(path: Path) -> list[str]:
    """Return the lines of a file, with single spaces; none where it can't be read."""
    try:
        with open_regular(path) as file:
            text = file.read(_LONGEST).decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return []
    return [" ".join(line.split()) for line in text.splitlines()]
