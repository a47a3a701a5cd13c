"""Planning: which record goes into which shard of which split, fixed by keys and a seed.

By number, the shards of a split have as many records each. By size, they are cut where their bytes
are even; where images are re-encoded, these bytes are estimates. The plan depends on images and
options alone, so that the shards are the same on any number of workers and after interruptions.
"""

import marshal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from tfrtool.errors import UsageError, WriteError, human_count
from tfrtool.records.shard_sets import ShardName
from tfrtool.sources.items import Item, Source
from tfrtool.storage.sorted_rows import SortedRows
from tfrtool.writing.image_findings import SourceFindings
from tfrtool.writing.image_records import Finding, RecordMaker
from tfrtool.writing.record_sizes import RecordSizes
from tfrtool.writing.split_draws import SplitDraws, hasher
from tfrtool.writing.write_options import WriteOptions

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class PlannedImage(NamedTuple):
    """An image in its place.

    Attributes:
        position: its place among the items of the source.
        size: about how many bytes its record takes, with the frame.
        finding: what looking at it found; None where nobody has looked.
        item: the image.
    """

    position: int
    size: int
    finding: Finding | None
    item: Item


class PlannedImages(Sequence[PlannedImage]):
    """The images of a shard, in their order; pickled, they are a list of just these."""

    def __init__(self, rows: SortedRows[Any], places: range) -> None:
        """Take those at some places of a plan's rows."""
        self._rows, self._places = rows, places

    def __reduce__(self) -> tuple[Any, ...]:
        return list, ([*self],)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[PlannedImage]:
        return map(_planned, self._rows.read(self._places.start, self._places.stop))

    @overload
    def __getitem__(self, at: int) -> PlannedImage: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[PlannedImage]: ...
    def __getitem__(self, at: int | slice) -> PlannedImage | Sequence[PlannedImage]:
        if isinstance(at, slice):
            return [*self][at]
        return _planned(self._rows[self._places[at]])


def _planned(row: tuple[Any, ...]) -> PlannedImage:
    _, _, position, size, finding, item = row
    found = None if finding is None else Finding._make(finding)
    return PlannedImage(position, size, found, Item._make(item))


@dataclass(frozen=True, kw_only=True)
class PlannedShard:
    """A shard to write.

    Attributes:
        name: the file's name.
        images: its images, in their order.
        size: about how many bytes its records take.
    """

    name: ShardName
    images: Sequence[PlannedImage]
    size: int


def plan_shards(
    source: Source,
    options: WriteOptions,
    maker: RecordMaker,
    findings: SourceFindings | None = None,
    sizes: RecordSizes | None = None,
    scratch: Path | None = None,
    *,
    leave_out: bool = True,
) -> tuple[list[PlannedShard], str]:
    """Distribute images over splits and shards.

    The plan depends on the items, what was found of them, the options and the seed, and on nothing
    else. Exact copies go where the one of them with the smallest key goes, or together with their
    groups; but where the source itself has splits, it is not contradicted.

    Args:
        source: the images.
        options: where the shards go.
        maker: what makes the records.
        findings: what looking at the images found; it is needed to draw several splits.
        sizes: of the records; None where shards are cut by number, and images take these bytes.
        scratch: a folder for what is too much for memory.
        leave_out: whether images that were found bad have no place; else they leave their shards
            a record shorter, as those do that nobody has looked at.

    Returns:
        The shards, split by split, and a digest of the images and of what was found of them.

    Raises:
        UsageError: a split has fewer images than shards.
        WriteError: a split would be empty.
    """
    own, splits = source.splits, [*(source.splits or options.splits or ["train"])]
    draws = None
    if len(splits) > 1 and not own:
        if findings is None:
            raise ValueError("several splits are drawn of images that were looked at")
        draws = SplitDraws(source, maker, findings, options, scratch)
    order = hasher("order", options.seed) if options.shuffle else None
    numbers = {split: number for number, split in enumerate(splits)}
    counts, looked = [0] * len(splits), None if findings is None else iter(findings)
    rows = SortedRows[tuple[Any, ...]](scratch, by=2)
    facts = source.labels, source.features, leave_out
    digest, finding = blake2b(repr(facts).encode("utf-8", "surrogateescape"), digest_size=16), None
    for position, item in enumerate(source.items):
        if looked is not None:
            finding = next(looked)
            if leave_out and finding.problem is not None:
                continue
        elif sizes is not None:
            finding = sizes.findings.get(item.key)
        if draws is not None:
            number = draws.number(position, item)
        else:
            number = numbers[item.split] if own and item.split else 0
        counts[number] += 1
        size = item.bytes if sizes is None else sizes.size_of(item)
        found = None if finding is None else tuple(finding)
        fields = tuple(item)
        rows.add((number, order(item.key) if order else b"", position, size, found, fields))
        digest.update(marshal.dumps((fields, found), 2))  # whose bytes depend on the values alone
    planned: list[PlannedShard] = []
    ends = [*accumulate(counts, initial=0)]
    for split, (start, end) in zip(splits, pairwise(ends), strict=True):
        count = options.shards or 1
        if start == end and (own or options.may_lack_splits):
            continue
        if start == end:
            raise _empty_split(split, draws.led if draws else 0, ends[-1], len(splits))
        if count > end - start:
            shown = human_count(end - start, "image")
            raise UsageError(f"--shards {count} is too many: split {split!r} has {shown}")
        totals = _totals(rows, start, end)
        if options.shards:  # as TFDS does it
            bounds = [round((end - start) * index / count) for index in range(count + 1)]
        else:
            bounds = cut_by_size(totals, options.shard_bytes)
        for index, (first, last) in enumerate(pairwise(bounds)):
            name = ShardName(dataset=options.name, split=split, index=index, count=len(bounds) - 1)
            size = int(totals[last] - totals[first])
            images = PlannedImages(rows, range(start + first, start + last))
            planned.append(PlannedShard(name=name, images=images, size=size))
    return planned, digest.hexdigest()


def _empty_split(split: str, led: int, images: int, splits: int) -> WriteError:
    few = images - led < splits
    bound = f" ({led:,} of {images:,} images stay with their duplicates or groups)"
    return WriteError(
        f"split {split!r} would be empty{bound if led else ''}",
        expected=f"at least {splits} groups of images, one per split" if few else None,
        hint=None if few else "give it a larger fraction, or use another --seed",
    )


def _totals(rows: SortedRows[Any], start: int, end: int) -> "npt.NDArray[np.int64]":
    """Return the bytes of all records before each one of a split, and at last of all."""
    import numpy as np

    totals = np.zeros(end - start + 1, np.int64)
    sizes = (row[3] for row in rows.read(start, end))
    totals[1:] = np.fromiter(sizes, np.int64, end - start)
    return np.cumsum(totals, out=totals)


def cut_by_size(totals: "npt.NDArray[np.int64]", shard_bytes: int) -> list[int]:
    """Return where each shard starts, and the end: even ones, the fewest of at most so many bytes.

    A shard may have one record more, since none is cut. Each record goes to the even share that
    its middle lies in.

    Args:
        totals: the bytes of all records before each one, and at last of all.
        shard_bytes: how many a shard may have.
    """
    import numpy as np

    whole, records = int(totals[-1]), len(totals) - 1
    count = -(-whole // shard_bytes)
    middles = totals[:-1] + totals[1:]  # twice as large
    shares = [-(-2 * whole * share // count) for share in range(1, count)]
    starts = np.searchsorted(middles, np.array(shares, np.int64)).tolist()
    return [*dict.fromkeys([0, *(at for at in starts if 0 < at < records), records])]
