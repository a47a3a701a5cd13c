"""Where images are kept between epochs: predicted from the shards, held against what is free."""

from __future__ import annotations

from dataclasses import dataclass

from tfrtool.errors import UsageError
from tfrtool.loading.cache.memory import cache_bytes
from tfrtool.loading.pipeline.load_options import Cache, Recipe

__all__ = ["CachePlan", "CacheRequest", "plan_cache"]

_MEBIBYTE = 2**20
_FLOAT = 4
_LABEL = 8

_MODEST = 0.5
"""The part of what is free that a cache may take unasked: the model and its batches need the rest,
and so do other processes, which may be as hungry by the time that the cache is full."""

_MOST = 0.9
"""The part that a cache may take where it was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRequest:
    """What a cache would be for, and what there is to keep it in.

    Attributes:
        images: how many, those to train on and those to validate on together.
        image_size: in pixels, both ways.
        epochs: how many times each image is wanted.
        asked: where they are to be kept; None is wherever is best.
        recipe: which pipeline; only ours has a choice.
        base_frozen: whether images go through a base that doesn't learn.
        augmented: whether images are changed at random, so that they differ from epoch to epoch.
        feature_size: numbers in what the base makes of an image; None where that isn't known.
        free_memory: in bytes; None where that can't be told.
        free_disk: in bytes, where a cache on disk would be; None where that can't be told.
        on_disk: whether the images are in a cache on disk already, from an earlier run.
    """

    images: int
    image_size: int
    epochs: int
    asked: Cache | None = None
    recipe: Recipe = Recipe.TFRTOOL
    base_frozen: bool = False
    augmented: bool = False
    feature_size: int | None = None
    free_memory: int | None = None
    free_disk: int | None = None
    on_disk: bool = False

    def __post_init__(self) -> None:
        for name, least in (("images", 0), ("image_size", 1), ("epochs", 1)):
            self._require(name, least)
        for name in ("feature_size", "free_memory", "free_disk"):
            if getattr(self, name) is not None:
                self._require(name, 0)

    def _require(self, name: str, least: int) -> None:
        if getattr(self, name) < least:
            raise UsageError(
                f"impossible {name.replace('_', ' ')}",
                expected=f"at least {least}",
                found=getattr(self, name),
            )

    @property
    def memory_bytes(self) -> int:
        """What the images take in memory, as uint8."""
        return cache_bytes(self.images, self.image_size)

    @property
    def disk_bytes(self) -> int:
        """What the images and labels take on disk."""
        return self.images * (self.image_size * self.image_size * 3 + _LABEL)

    @property
    def published_bytes(self) -> int:
        """What the images take in memory as float32, as the published pipeline keeps them."""
        return cache_bytes(self.images, self.image_size, _FLOAT)

    @property
    def features_bytes(self) -> int | None:
        """What the base's outputs and the labels take in memory; None where that isn't known."""
        if self.feature_size is None:
            return None
        return self.images * (self.feature_size * _FLOAT + _LABEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlan:
    """Where images are kept between epochs.

    Attributes:
        cache: where.
        bytes: how many that takes there; None where it isn't known.
        reason: why there, for people, with the numbers that decided.
    """

    cache: Cache
    bytes: int | None
    reason: str


def plan_cache(request: CacheRequest) -> CachePlan:
    """Decide where images are kept between epochs, before any is decoded.

    Unasked, that is the cheapest of these which fits into half of what is free: a frozen base's
    outputs; images in memory; images on disk. What was asked for is done if it can be, and if not
    because of what is trained, the reason says so.

    Raises:
        UsageError: what was asked for, or what the recipe does, takes more than is free.
    """
    if request.recipe is Recipe.NAIVE:
        return CachePlan(cache=Cache.NONE, bytes=0, reason="the naive recipe has none")
    if request.recipe is Recipe.NOTEBOOK:
        return _published(request)
    plans = {
        None: _best,
        Cache.FEATURES: _asked_features,
        Cache.MEMORY: _asked_memory,
        Cache.DISK: _asked_disk,
        Cache.NONE: _asked_none,
    }
    return plans[request.asked](request)


def _published(request: CacheRequest) -> CachePlan:
    size, free = request.published_bytes, request.free_memory
    what = f"{_mib(size)} of float32 in memory, as published"
    _require_room(
        what, size, free, "--recipe tfrtool keeps a quarter of that, or what fits, or nothing"
    )
    return CachePlan(cache=Cache.MEMORY, bytes=size, reason=what)


def _best(request: CacheRequest) -> CachePlan:
    size, free = request.features_bytes, request.free_memory
    too_many = ""
    if _obstacle(request) is None:
        # An unknown amount of free memory is trusted with these alone: they are kilobytes an image.
        if size is None or free is None or _fits(size, free):
            return _features(request, "the base is frozen, so its outputs are kept")
        too_many = f"the frozen base's outputs would take {_mib(size)}; "
    plan = _best_for_images(request)
    return CachePlan(cache=plan.cache, bytes=plan.bytes, reason=too_many + plan.reason)


def _best_for_images(request: CacheRequest) -> CachePlan:
    memory, disk = request.memory_bytes, request.disk_bytes
    in_memory = f"{_mib(memory)} of uint8, and {_free(request.free_memory)}"
    on_disk = f"{_mib(disk)} on disk, where {_free(request.free_disk)}"
    if request.on_disk:
        return CachePlan(
            cache=Cache.DISK, bytes=disk, reason=f"{_mib(disk)} on disk, from an earlier run"
        )
    if request.epochs == 1:
        return CachePlan(cache=Cache.NONE, bytes=0, reason="there is one epoch only")
    if _fits(memory, request.free_memory):
        return CachePlan(cache=Cache.MEMORY, bytes=memory, reason=in_memory)
    if _fits(disk, request.free_disk):
        reason = f"{on_disk}; in memory {_free(request.free_memory)}"
        return CachePlan(cache=Cache.DISK, bytes=disk, reason=reason)
    reason = f"{in_memory} in memory, {_free(request.free_disk)} on disk"
    return CachePlan(cache=Cache.NONE, bytes=0, reason=reason)


def _obstacle(request: CacheRequest) -> str | None:
    """Return why a base's outputs can't be kept; None if they can."""
    if not request.base_frozen:
        return "there is no frozen base whose outputs could be kept"
    if request.augmented:
        return "augmented images differ every epoch, and so do a base's outputs"
    return None


def _features(request: CacheRequest, why: str) -> CachePlan:
    size = request.features_bytes
    how_many = "" if size is None else f"{_mib(size)} of float32, and {_free(request.free_memory)}"
    reason = ": ".join(part for part in (why, how_many) if part)
    return CachePlan(cache=Cache.FEATURES, bytes=size, reason=reason)


def _asked_features(request: CacheRequest) -> CachePlan:
    obstacle = _obstacle(request)
    if obstacle is not None:
        plan = _best_for_images(request)
        reason = f"not features, as {obstacle}; {plan.reason}"
        return CachePlan(cache=plan.cache, bytes=plan.bytes, reason=reason)
    size = request.features_bytes
    if size is not None:
        _require_room(
            f"a frozen base's outputs take {_mib(size)} in memory",
            size,
            request.free_memory,
            "--cache disk keeps images on disk, and --cache none nothing",
        )
    return _features(request, "as asked for")


def _asked_memory(request: CacheRequest) -> CachePlan:
    size = request.memory_bytes
    what = f"{_mib(size)} of uint8"
    _require_room(
        f"{what} in memory",
        size,
        request.free_memory,
        "--cache auto takes what fits, --cache disk keeps images on disk; "
        "a smaller --image-size needs less",
    )
    reason = f"{what}, as asked for; {_free(request.free_memory)}"
    return CachePlan(cache=Cache.MEMORY, bytes=size, reason=reason)


def _asked_disk(request: CacheRequest) -> CachePlan:
    size = request.disk_bytes
    if request.on_disk:
        reason = f"{_mib(size)} from an earlier run, as asked for"
        return CachePlan(cache=Cache.DISK, bytes=size, reason=reason)
    what = f"{_mib(size)} of uint8 on disk"
    _require_room(
        what,
        size,
        request.free_disk,
        "--cache auto takes what fits; a smaller --image-size needs less",
    )
    reason = f"{what}, as asked for; {_free(request.free_disk)}"
    return CachePlan(cache=Cache.DISK, bytes=size, reason=reason)


def _asked_none(request: CacheRequest) -> CachePlan:
    del request
    return CachePlan(cache=Cache.NONE, bytes=0, reason="as asked for")


def _fits(size: int, free: int | None) -> bool:
    return free is not None and size <= free * _MODEST


def _require_room(what: str, size: int, free: int | None, hint: str) -> None:
    if free is not None and size > free * _MOST:
        raise UsageError(
            f"the cache does not fit: {what}",
            expected=f"at most {_mib(int(free * _MOST))}, as {_free(free)}",
            found=_mib(size),
            hint=hint,
        )


def _free(size: int | None) -> str:
    return "an unknown amount is free" if size is None else f"{_mib(size)} are free"


def _mib(size: int) -> str:
    digits = 0 if size >= 10 * _MEBIBYTE else 1
    return f"{size / _MEBIBYTE:,.{digits}f} MiB"
