"""How large records become: computed, estimated from a sample, or measured.

Of images that are kept, and of raw pixels of a fixed size, the size of a record is known before
it is written. Of images that are encoded anew it is not: then some are tried, and the sizes of
the others are estimated from theirs. The sample depends on images and options alone.
"""

import functools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfrtool.engines.pool import run_in_order
from tfrtool.errors import WriteError, os_errors_as
from tfrtool.examples.objects.record_features import RecordFeatures
from tfrtool.images.audit import render_image
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import Encode
from tfrtool.records.framing import FRAME_SIZE, Record
from tfrtool.records.reader import read_records
from tfrtool.sources.folders.listing import IMAGE_SUFFIXES
from tfrtool.storage.opening import open_regular
from tfrtool.storage.scratch.external_sort import column, forgetting
from tfrtool.writing.image_audit import Audit, BadImage
from tfrtool.writing.write_plan import PlannedShard

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSizes:
    """The sizes of all records of a source.

    Attributes:
        records: by the position of the item: bytes with the frame, before compression.
        tried: how many images were tried to tell them.
        exact: whether all of them are known, if all bytes that can be kept are.
    """

    records: Sequence[int]
    tried: int
    exact: bool


def record_sizes(audit: Audit, workers: int) -> RecordSizes:
    """Tell the sizes of records before they are written; some images are tried."""
    recipe, items = audit.recipe, audit.source.items
    sides = (_SIDE, _SIDE, 3) if recipe.encode is Encode.RAW else ()
    known = False
    if sides and recipe.resize and recipe.resize.width and recipe.resize.height:
        sides, known = (recipe.resize.height, recipe.resize.width, 3), True
    sizes = column("Q", len(items), audit.scratch)
    kinds, tried, estimates = sizes, 0, [lambda _: math.prod(sides)]
    if not known:
        kinds, tried, estimates = _estimates(audit, workers)
    usual = audit.source.features == RecordFeatures()
    for position, (item, kind) in enumerate(
        forgetting(zip(items, kinds, strict=True), sizes, kinds)
    ):
        image = estimates[kind](item.bytes)
        label = audit.numbers[item.label] if usual else 0
        sizes[position] = _record_size(image, item.key, label, sides)
        if audit.source.beside:  # about as many bytes, behind the names of their features
            sizes[position] += len(audit.source.beside[position])
    exact = usual and (known or not recipe.always)
    return RecordSizes(records=sizes, tried=tried, exact=exact)


def _estimates(audit: Audit, workers: int) -> tuple[memoryview, int, list[Callable[[int], int]]]:
    """Try images of each kind of file that names tell: JPEGs are kept, others are not.

    Returns:
        The kind of each image, how many were tried, and for each kind what tells the sizes.
    """
    items, numbers = audit.source.items, dict[str, int]()
    kinds = column("B", len(items), audit.scratch)
    for position, item in enumerate(items):
        suffix = item.key[item.key.rfind(".") :].lower()
        suffix = suffix if suffix in IMAGE_SUFFIXES else ""
        kinds[position] = numbers.setdefault(suffix, len(numbers))
    counts = Counter(kinds)
    wanted = {kind: frozenset(_spread(count)) for kind, count in counts.items()}
    seen, chosen = [0] * len(counts), [list[int]() for _ in counts]
    for position, kind in enumerate(kinds):
        if seen[kind] in wanted[kind]:
            chosen[kind].append(position)
        seen[kind] += 1
    trials = [_try(audit, positions, workers) for positions in chosen]
    estimators = [_estimator(some, always=audit.recipe.always) for some in trials]
    return kinds, sum(map(len, trials)), estimators


def _spread(count: int) -> list[int]:
    """Return some of so many images, evenly spread, and so from all classes."""
    some = min(count, max(_LEAST_TRIED, min(_MOST_TRIED, count // _TRIED)))
    return [(2 * n + 1) * count // (2 * some) for n in range(some)]


def _try(audit: Audit, positions: Iterable[int], workers: int) -> list[_Trial]:
    """Do with some images what writing will do; bad ones are left out."""

    def attempt(position: int) -> _Trial | None:
        try:
            data = audit.read(position)
        except BadImage:
            return None
        if audit.recipe.always or position in audit.notable:
            try:
                data = render_image(data, audit.recipe).data
            except Exception:  # noqa: BLE001 - codecs raise anything; the write will say what
                return None
        return audit.source.items[position].bytes, len(data)

    with quiet_pillow():
        results = list(run_in_order(attempt, positions, workers, computes=False))
    return [trial for trial in results if trial is not None]


def _estimator(trials: Sequence[_Trial], *, always: bool) -> Callable[[int], int]:
    """Return what tells the size of an image that is written from that of its file.

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
    return 1 + _varint(size) + size


def _varint(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)


def measure(shards: Sequence[PlannedShard], folder: Path) -> memoryview:
    """Return the sizes of the records of whole shards, by the positions of their items."""
    audit = shards[0].audit
    sizes = column("Q", len(audit.source.items), audit.scratch)
    for shard in shards:
        path = folder / str(shard.name)
        failing = os_errors_as(WriteError, path, "can't be read back")
        with failing, open_regular(path, follow=False) as file:
            records = read_records(file, compression=shard.compression, verify_payload=False)
            for position, record in zip(shard.positions, records, strict=True):
                if isinstance(record, Record):
                    sizes[position] = FRAME_SIZE + len(record.payload)
    return sizes
