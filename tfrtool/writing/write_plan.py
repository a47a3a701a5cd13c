"""Planning: which record goes into which shard of which split, fixed by keys and a seed.

By number, the shards of a split have as many records each. By size, they are cut where their bytes
are even; where images are re-encoded, these bytes are estimates. The plan depends on images and
options alone, so that the shards are the same on any number of workers and after interruptions.
"""

import marshal
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from tfrtool.engines.pool import run_in_order
from tfrtool.errors import SourceError, WriteError
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import Encode
from tfrtool.records.compression import Compression
from tfrtool.records.framing import FRAME_SIZE
from tfrtool.records.shard_sets import ShardName
from tfrtool.sources.items import Item, Source
from tfrtool.storage.sorted_rows import SortedRows
from tfrtool.writing.image_findings import SourceFindings
from tfrtool.writing.image_task import Finding, ImageShard, PlannedImage, RecordMaker
from tfrtool.writing.run_options import too_many_shards
from tfrtool.writing.split_draws import draw_splits, hasher
from tfrtool.writing.write_options import WriteOptions

_TRIED = 16
"""Images of each suffix that are re-encoded to estimate the sizes of the others."""


class PlannedImages(Iterable[PlannedImage]):
    """The images of a shard, in their order; pickled, they are a list of just these."""

    def __init__(self, rows: SortedRows[Any], start: int, stop: int) -> None:
        self._rows, self._start, self._stop = rows, start, stop

    def __reduce__(self) -> tuple[Any, ...]:
        return list, ([*self],)

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[PlannedImage]:
        for _, _, position, size, finding, item in self._rows.read(self._start, self._stop):
            found = None if finding is None else Finding._make(finding)
            yield PlannedImage(position, size, found, Item._make(item))


def plan_shards(
    source: Source,
    options: WriteOptions,
    maker: RecordMaker,
    findings: SourceFindings | None = None,
    sizes: "RecordSizes | None" = None,
    scratch: Path | None = None,
    *,
    name: str = "data",
    skip_bad: bool = True,
) -> tuple[list[ImageShard], str]:
    """Distribute images over splits and shards.

    Exact copies go where the one of them with the smallest key goes, or together with their groups;
    but the source's own splits stay.

    Args:
        source: the images.
        options: where the shards go.
        maker: what makes the records.
        findings: the results of checking the images; needed to draw several splits.
        sizes: of the records; None takes those of the files.
        scratch: a folder for what is too much for memory.
        name: name of the dataset.
        skip_bad: whether bad images are not planned; else they leave their shards a record shorter,
            as those do that were not checked.

    Returns:
        The shards, split by split, and a digest of the images and of what was found of them.

    Raises:
        UsageError: a split has fewer images than shards.
        WriteError: a split would be empty.
    """
    splits, drawn, followers = [*(source.splits or options.splits or ["train"])], None, 0
    if len(splits) > 1 and not source.splits:
        if findings is None:
            raise ValueError("several splits are drawn of images that were checked")
        drawn, followers = draw_splits(source, maker, findings, options)
    order = hasher("order", options.seed) if options.shuffle else None
    numbers = {split: number for number, split in enumerate(source.splits)}
    rows, counts = SortedRows[tuple[Any, ...]](scratch, by=2), [0] * len(splits)
    facts = source.labels, source.features, skip_bad
    digest = blake2b(repr(facts).encode("utf-8", "surrogateescape"), digest_size=16)
    for position, item in enumerate(source.items):
        finding = None if findings is None else findings[position]
        if skip_bad and finding is not None and finding.problem is not None:
            continue
        number = numbers.get(item.split or "", 0) if drawn is None else int(drawn[position])
        counts[number] += 1
        size = item.bytes if sizes is None else sizes.size_of(item)
        found, fields = None if finding is None else tuple(finding), tuple(item)
        rows.add((number, order(item.key) if order else b"", position, size, found, fields))
        digest.update(marshal.dumps((fields, found), 2))  # whose bytes depend on the values alone
    shards = list[ImageShard]()
    for split, (start, end) in zip(splits, pairwise(accumulate(counts, initial=0)), strict=True):
        if start == end and not source.splits:
            raise _empty_split(split, followers, sum(counts), len(splits))
        if start < end:
            shards += _cut_split(rows, start, end, split, options, maker, name)
    return shards, digest.hexdigest()


def _cut_split(
    rows: SortedRows[Any],
    start: int,
    end: int,
    split: str,
    options: WriteOptions,
    maker: RecordMaker,
    name: str,
) -> list[ImageShard]:
    """Return the shards of a split, whose images are rows from ``start`` to ``end``."""
    sizes = (row[3] for row in rows.read(start, end))
    totals, count = array("q", accumulate(sizes, initial=0)), options.shards
    if count is None:
        bounds = cut_by_size(totals, options.shard_bytes)
    elif count > end - start:
        raise too_many_shards(count, split, end - start, "image")
    else:  # as TFDS does it
        bounds = [round((end - start) * index / count) for index in range(count + 1)]
    shards, compression = list[ImageShard](), Compression(options.compression)
    for index, (first, last) in enumerate(pairwise(bounds)):
        shard_name = ShardName(dataset=name, split=split, index=index, count=len(bounds) - 1)
        shard = ImageShard(
            name=str(shard_name),
            split=split,
            records=last - first,
            size=totals[last] - totals[first],
            images=PlannedImages(rows, start + first, start + last),
            maker=maker,
            compression=compression,
        )
        shards.append(shard)
    return shards


def _empty_split(split: str, followers: int, images: int, splits: int) -> WriteError:
    few = images - followers < splits
    bound = f" ({followers:,} of {images:,} images stay with their duplicates or groups)"
    return WriteError(
        f"split {split!r} would be empty{bound if followers else ''}",
        expected=f"at least {splits} groups of images, one per split" if few else None,
        hint=None if few else "give it a larger fraction, or use another --seed",
    )


def cut_by_size(totals: Sequence[int], shard_bytes: int) -> list[int]:
    """Return where each shard starts, and the end: even ones, the fewest of at most so many bytes.

    A shard may have one record more, since none is cut. Each record goes to the even share that
    its middle lies in.

    Args:
        totals: the bytes of all records before each one, and at last of all.
        shard_bytes: how many a shard may have.
    """
    total, records = totals[-1], len(totals) - 1
    count = -(-total // shard_bytes)

    def twice_middle(record: int) -> int:
        return totals[record] + totals[record + 1]

    shares = (-(-2 * total * share // count) for share in range(1, count))
    starts = [bisect_left(range(records), share, key=twice_middle) for share in shares]
    return [*dict.fromkeys([0, *(at for at in starts if 0 < at < records), records])]


class RecordSizes:
    """Sizes of records before they are written: of the file, or estimated from a sample.

    Attributes:
        tried: number of images that were re-encoded; 0 if all bytes are kept.
    """

    def __init__(self, source: Source, maker: RecordMaker, workers: int) -> None:
        """Try some images of each suffix."""
        self.tried, self._maker = 0, maker
        self._resized = maker.recipe.resize is not None or maker.recipe.encode is Encode.RAW
        counts = dict[str, int]()
        for item in source.items:
            suffix = _suffix(item.key)
            counts[suffix] = counts.get(suffix, 0) + 1
        seen, sample = dict.fromkeys(counts, 0), list[Item]()
        for item in source.items:
            suffix = _suffix(item.key)
            number, count = seen[suffix], counts[suffix]
            if number * _TRIED // count > (number - 1) * _TRIED // count:  # evenly spread
                sample.append(item)
            seen[suffix] += 1
        sums: dict[str, list[int]] = {suffix: [0, 0, 0] for suffix in counts}
        with quiet_pillow():
            tried = run_in_order(partial(_try, self._maker), sample, workers, computes=False)
            for item, size in zip(sample, tried, strict=True):
                if size is not None:
                    totals = sums[_suffix(item.key)]
                    totals[:] = totals[0] + 1, totals[1] + item.bytes, totals[2] + size
        self._sums = {suffix: totals for suffix, totals in sums.items() if totals[1] != totals[2]}
        if self._sums:
            self.tried = sum(count for count, *_ in sums.values())

    def size_of(self, item: Item) -> int:
        """Return the bytes of an image's record, with the frame, before compression."""
        image, (count, before, after) = item.bytes, self._sums.get(_suffix(item.key), (0, 0, 0))
        if count:
            image = round(after / count if self._resized else image * after / before)
        name = len(item.key.encode("utf-8", "surrogateescape"))
        number = self._maker.numbers.get(item.label, 0).bit_length()
        features = _feature(5, image) + _feature(14, name) + _feature(5, (number + 6) // 7 or 1)
        return FRAME_SIZE + _field(features) + len(item.extra)


def _suffix(key: str) -> str:
    return key[key.rfind(".") :].lower()[:8]


def _try(maker: RecordMaker, item: Item) -> int | None:
    try:
        data, finding = maker.check(item)
        rendered = None if finding.problem else maker.render(item, data, finding)
    except (SourceError, WriteError):  # the write will report it
        return None
    if finding.problem is not None:
        return None
    return len(data if rendered is None else rendered.data)


@lru_cache(4096)
def _feature(key: int, value: int) -> int:
    """Return the size of a feature whose name and only value are so many bytes long."""
    return _field(_field(key) + _field(_field(_field(value))))


def _field(size: int) -> int:
    """Return the size of a field of a protobuf message with contents of ``size`` bytes."""
    return 1 + ((size.bit_length() + 6) // 7 or 1) + size
