"""How large records become: computed, or estimated from a sample.

Of images that are kept, and of raw pixels of a fixed size, the size of a record is known before
it is written. Of images that are re-encoded it is not: then some are tried, and the sizes of the
others are estimated from theirs. The sample depends on images and options alone.
"""

import functools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tfrtool.engines.pool import run_in_order
from tfrtool.errors import WriteError
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import Encode
from tfrtool.records.framing import FRAME_SIZE
from tfrtool.sources.folders.listing import IMAGE_SUFFIXES
from tfrtool.sources.items import Item
from tfrtool.writing.image_records import Finding, RecordMaker

_NAMES = ("image", "image/filename", "label", "image/height", "image/width", "image/channels")

_SIDE = 255
"""Pixels: a number that takes as many bytes in a record as others up to 16,383."""

_LEAST_TRIED = 8
_MOST_TRIED = 128
"""Of each kind of file: the sizes of photographs vary by about a third, which leaves an error of
3 % in the mean of so many."""

_TRIED = 20
"""One image of so many is tried, so that trying costs little."""

_ENOUGH = 4
"""Different sizes of files that a line can be laid through."""

_Trial = tuple[int, int]
"""The bytes of a file, and of the image that is written of it."""


class RecordSizes:
    """The sizes of the records of a source, before they are written.

    Attributes:
        tried: how many images were tried to tell them.
        findings: what was found of those, by their keys; bad ones are left out.
        exact: whether all of them are known, if all bytes that can be kept are.
    """

    def __init__(self, items: Iterable[Item], maker: RecordMaker, workers: int) -> None:
        """Try some images, unless the sizes are known without that."""
        recipe = maker.recipe
        self._maker, self._usual = maker, maker.is_plain
        self._sides: tuple[int, ...] = ()
        self.tried, known = 0, False
        self.findings: dict[str, Finding] = {}
        if recipe.encode is Encode.RAW:
            self._sides = _SIDE, _SIDE, 3
            if recipe.resize and recipe.resize.width and recipe.resize.height:
                self._sides, known = (recipe.resize.height, recipe.resize.width, 3), True
        self.exact = self._usual and (known or not recipe.always)
        self._estimates: Mapping[str, Callable[[int], int]] = {}
        if not known:
            self._estimates = self._try_some(items, workers)

    def size_of(self, item: Item) -> int:
        """Return the bytes of an image's record, with the frame, before compression."""
        if self._estimates:
            image = self._estimates[_suffix(item.key)](item.bytes)
        else:
            image = math.prod(self._sides)
        label = self._maker.numbers[item.label] if self._usual else 0
        # Further features are about as many bytes, behind their names.
        return _record_size(image, item.key, label, self._sides) + len(item.extra)

    def _try_some(self, items: Iterable[Item], workers: int) -> dict[str, Callable[[int], int]]:
        """Try images of each kind of file that names tell: JPEGs are kept, others are not."""
        counts = Counter(_suffix(item.key) for item in items)
        wanted = {kind: frozenset(_spread(count)) for kind, count in counts.items()}
        seen = Counter[str]()
        chosen: dict[str, list[Item]] = {kind: [] for kind in counts}
        for item in items:
            kind = _suffix(item.key)
            if seen[kind] in wanted[kind]:
                chosen[kind].append(item)
            seen[kind] += 1
        estimates = {}
        for kind, some in chosen.items():
            trials = [*self._trials(some, workers)]
            self.tried += len(trials)
            estimates[kind] = _estimator(trials, always=self._maker.recipe.always)
        return estimates

    def _trials(self, items: Iterable[Item], workers: int) -> Iterator[_Trial]:
        """Do with some images what writing will do; bad ones are left out."""
        trying = self._maker.skipping()

        def attempt(item: Item) -> _Trial | None:
            data, finding = trying.look(item)
            if finding.problem is not None:
                return None
            self.findings[item.key] = finding
            try:
                rendered = trying.render(item, data, finding)
            except WriteError:  # codecs raise anything; the write will say what
                return None
            return item.bytes, len(data if rendered is None else rendered.data)

        with quiet_pillow():
            results = run_in_order(attempt, items, workers, computes=False)
            yield from (trial for trial in results if trial is not None)


def _suffix(key: str) -> str:
    suffix = key[key.rfind(".") :].lower()
    return suffix if suffix in IMAGE_SUFFIXES else ""


def _spread(count: int) -> list[int]:
    """Return some of so many images, evenly spread, and so from all classes."""
    some = min(count, max(_LEAST_TRIED, min(_MOST_TRIED, count // _TRIED)))
    return [(2 * n + 1) * count // (2 * some) for n in range(some)]


def _estimator(trials: Sequence[_Trial], *, always: bool) -> Callable[[int], int]:
    """Return a function from the size of a file to that of the image that is written.

    It is a straight line: for large photographs that are scaled to one size it is flat, for those
    that are encoded anew as they are it goes through 0.
    """
    kept = sum(size == before for before, size in trials)
    if not trials or (not always and 2 * kept >= len(trials)):
        return lambda before: before
    sizes = [size for _, size in trials]
    files = [before for before, _ in trials]
    if len(set(files)) < _ENOUGH:
        mean = round(statistics.fmean(sizes))
        return lambda _: mean
    slope, start = statistics.linear_regression(files, sizes)
    least = min(sizes)
    return lambda before: max(least, round(start + slope * before))


def _record_size(image: int, key: str, label: int, sides: Iterable[int]) -> int:
    """Return the size of a record of an image of so many bytes, with its frame."""
    length = len(key) if key.isascii() else len(key.encode("utf-8", "surrogateescape"))
    others = _others(length, _varint(label), *map(_varint, sides))
    return FRAME_SIZE + _field(_feature("image", image) + others)


@functools.lru_cache(maxsize=4096)
def _others(*sizes: int) -> int:
    """Return the size of all features but the image, given the sizes of their values."""
    return sum(map(_feature, _NAMES[1:], sizes))


def _feature(name: str, value: int) -> int:
    return _field(_field(len(name)) + _field(_field(_field(value))))


def _field(size: int) -> int:
    """Return the size of a field of a protobuf message with contents of ``size`` bytes."""
    return 1 + ((size.bit_length() + 6) // 7 or 1) + size


def _varint(number: int) -> int:
    return (number.bit_length() + 6) // 7 or 1
