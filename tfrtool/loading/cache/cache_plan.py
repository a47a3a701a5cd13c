"""Where images are kept between epochs: predicted from the shards, held against what is free."""

from __future__ import annotations

from dataclasses import dataclass

from tfrtool.errors import UsageError
from tfrtool.loading.pipeline.load_options import Cache, Recipe

__all__ = ["CachePlan", "CacheRequest", "cache_bytes", "plan_cache"]

_MEBIBYTE = 2**20
_FLOAT = 4
_LABEL = 8

_MODEST = 0.5
"""The part of what is free that a cache may take unasked: the model and its batches need the rest,
and so do other processes, which may be as hungry by the time that the cache is full."""

_MOST = 0.9
"""The part that a cache may take where it was asked for."""

_IMAGE_OVERHEAD = 512
"""Bytes that tf.data's memory cache takes an image beside its pixels: the label, and what
describes two tensors. Measured as 416 with TensorFlow 2.21, over 200,000 images of 8 pixels."""


def cache_bytes(images: int, image_size: int, value_size: int = 1) -> int:
    """Return what a cache of images in memory takes, of 1 (uint8) or 4 (float32) bytes a value."""
    return images * (image_size * image_size * 3 * value_size + _IMAGE_OVERHEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRequest:
    """What a cache would be for, and what there is to keep it in.

    Attributes:
        images: how many, those to train on and those to validate on together.
        image_size: in pixels, both ways.
        epochs: how many times each image is wanted.
        asked: where they are to be kept; None is wherever is best.
        recipe: which pipeline; only ours has a choice.
        base_frozen: whether images go through a base that isn't trained.
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

    @property
    def published_bytes(self) -> int:
        """What the images take in memory as float32, as the published pipeline keeps them."""
        return cache_bytes(self.images, self.image_size, _FLOAT)


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
        size = request.published_bytes
        what = f"{_mib(size)} of float32 in memory, as published"
        hint = "--recipe tfrtool keeps a quarter of that, or what fits, or nothing"
        _require_room(what, size, request.free_memory, hint)
        return CachePlan(cache=Cache.MEMORY, bytes=size, reason=what)
    width, side = request.feature_size, request.image_size
    sizes = {
        Cache.FEATURES: None if width is None else request.images * (width * _FLOAT + _LABEL),
        Cache.MEMORY: cache_bytes(request.images, side),
        Cache.DISK: request.images * (side * side * 3 + _LABEL),
        Cache.NONE: 0,
    }
    cache, reason = _choose(request, sizes)
    return CachePlan(cache=cache, bytes=sizes[cache], reason=reason)


def _choose(request: CacheRequest, sizes: dict[Cache, int | None]) -> tuple[Cache, str]:
    """Return where images are kept, and why."""
    asked, why, obstacle = request.asked, "", None
    if not request.base_frozen:
        obstacle = "there is no frozen base whose outputs could be kept"
    elif request.augmented:
        obstacle = "augmented images differ every epoch, and so do a base's outputs"
    if asked is Cache.FEATURES and obstacle is not None:
        asked, why = None, f"not features, as {obstacle}; "
    if asked is not None:
        return asked, _as_asked(request, asked, sizes[asked])
    if obstacle is None:
        size, free = sizes[Cache.FEATURES], request.free_memory
        # An unknown amount of free memory is trusted with these alone: they are kilobytes an image.
        if size is None or free is None or _fits(size, free):
            numbers = "" if size is None else f": {_mib(size)} of float32, and {_free(free)}"
            return Cache.FEATURES, f"the base is frozen, so its outputs are kept{numbers}"
        why = f"the frozen base's outputs would take {_mib(size)}; "
    memory, disk = sizes[Cache.MEMORY] or 0, sizes[Cache.DISK] or 0
    memory_free, disk_free = _free(request.free_memory), _free(request.free_disk)
    if request.on_disk:
        return Cache.DISK, f"{why}{_mib(disk)} on disk, from an earlier run"
    if request.epochs == 1:
        return Cache.NONE, f"{why}there is one epoch only"
    if _fits(memory, request.free_memory):
        return Cache.MEMORY, f"{why}{_mib(memory)} of uint8, and {memory_free}"
    if _fits(disk, request.free_disk):
        return Cache.DISK, (
            f"{why}{_mib(disk)} on disk, where {disk_free}; in memory {memory_free}"
        )
    return Cache.NONE, (
        f"{why}{_mib(memory)} of uint8, and {memory_free} in memory, {disk_free} on disk"
    )


def _as_asked(request: CacheRequest, asked: Cache, size: int | None) -> str:
    """Return how much is kept there; raise if there is no room for it."""
    if asked is Cache.NONE or size is None:
        return "as asked for"
    if asked is Cache.DISK and request.on_disk:
        return f"{_mib(size)} from an earlier run, as asked for"
    what = {Cache.FEATURES: "a frozen base's outputs", Cache.DISK: "uint8 on disk"}
    what_for = f"{_mib(size)} of {what.get(asked, 'uint8 in memory')}"
    free = request.free_disk if asked is Cache.DISK else request.free_memory
    hint = "--cache auto takes what fits; a smaller --image-size needs less"
    _require_room(what_for, size, free, hint)
    return f"{what_for}, as asked for; {_free(free)}"


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
