"""Where images are kept between epochs: predicted from the shards, held against what is free."""

from __future__ import annotations

from dataclasses import dataclass

from tfrtool.errors import UsageError
from tfrtool.loading.pipeline.load_options import Cache, Recipe

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

_KINDS = {
    Cache.FEATURES: "of a frozen base's outputs",
    Cache.MEMORY: "of uint8 in memory",
    Cache.DISK: "of uint8 on disk",
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
    on_disk: bool = False  # whether they are in a cache on disk from an earlier run

    def bytes(self, cache: Cache, value_size: int = 1) -> int | None:
        """Return what a cache takes, of 1 (uint8) or 4 (float32) bytes a value; None if unknown."""
        pixels, features = self.image_size**2 * 3 * value_size, self.feature_size
        each = {
            Cache.FEATURES: None if features is None else features * _FLOAT + _LABEL,
            Cache.MEMORY: pixels + _IMAGE_OVERHEAD,
            Cache.DISK: pixels + _LABEL,
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
    if request.recipe is Recipe.NAIVE:
        return CachePlan(cache=Cache.NONE, reason="the naive recipe has none")
    if request.recipe is Recipe.NOTEBOOK:
        size = request.bytes(Cache.MEMORY, _FLOAT) or 0
        what = f"{_mib(size)} of float32 in memory, as published"
        hint = "--recipe tfrtool keeps a quarter of that, or what fits, or nothing"
        _require_room(what, size, request.free_memory, hint)
        return CachePlan(cache=Cache.MEMORY, reason=what)
    asked, why, obstacle = request.asked, "", ""
    if not request.base_frozen:
        obstacle = "there is no frozen base whose outputs could be kept"
    elif request.augmented:
        obstacle = "augmented images differ every epoch, and so do a base's outputs"
    if asked is Cache.FEATURES and obstacle:
        asked, why = None, f"not features, as {obstacle}; "
    if asked is not None:
        return CachePlan(cache=asked, reason=_as_asked(request, asked))
    cache, reason = _choose(request, obstacle)
    return CachePlan(cache=cache, reason=why + reason)


def _as_asked(request: CacheRequest, asked: Cache) -> str:
    """Return how much is kept where it was asked for; raise if there is no room for it."""
    size = request.bytes(asked)
    if asked is Cache.NONE or size is None:
        return "as asked for"
    what = f"{_mib(size)} {_KINDS[asked]}, as asked for"
    if asked is Cache.DISK and request.on_disk:
        return f"{what}, from an earlier run"
    free = request.free_disk if asked is Cache.DISK else request.free_memory
    hint = "--cache auto takes what fits; a smaller --image-size needs less"
    _require_room(what, size, free, hint)
    return f"{what}; {_free(free)}"


def _choose(request: CacheRequest, obstacle: str) -> tuple[Cache, str]:
    """Return where images are best kept, and why."""
    memory, why = request.free_memory, ""
    if not obstacle:
        size = request.bytes(Cache.FEATURES)
        # An unknown amount of free memory is trusted with these alone: they are kilobytes an image.
        if size is None or memory is None or size <= memory * _MODEST:
            numbers = "" if size is None else f": {_mib(size)} of float32, and {_free(memory)}"
            return Cache.FEATURES, f"the base is frozen, so its outputs are kept{numbers}"
        why = f"the frozen base's outputs would take {_mib(size)}; "
    if request.on_disk:
        return Cache.DISK, f"{why}they are on disk, from an earlier run"
    if request.epochs == 1:
        return Cache.NONE, f"{why}there is one epoch only"
    for cache, free in ((Cache.MEMORY, memory), (Cache.DISK, request.free_disk)):
        size = request.bytes(cache) or 0
        what = f"{_mib(size)} {_KINDS[cache]}, and {_free(free)}"
        if free is not None and size <= free * _MODEST:
            return cache, f"{why}{what}"
        why += f"not {what}; "
    return Cache.NONE, why.removesuffix("; ")


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
