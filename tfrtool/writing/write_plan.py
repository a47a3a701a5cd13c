"""Planning: which record goes into which shard of which split, fixed by keys and a seed.

By number, the shards of a split have as many records each. By size, they are cut where their bytes
are even. If these bytes were estimated and a shard is more than a tenth too large, or a tenth off
the mean of its split, all are cut and written once more by the sizes that the records turned out to
have. That can't miss: each cut is within half a record of its place. The first cut depends on
images and options alone, and the second one on that; so the shards are the same on any number of
workers and after interruptions.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, islice, pairwise
from typing import Any

from tfrtool.errors import UsageError, WriteError, human_count
from tfrtool.examples.objects.record_features import RecordFeatures
from tfrtool.records.compression import Compression
from tfrtool.records.shard_sets import ShardName
from tfrtool.storage.scratch.external_sort import ExternalSort, column, forgetting, pieces, rising
from tfrtool.writing.image_audit import Audit
from tfrtool.writing.split_draws import draw_splits, firsts_of, hasher
from tfrtool.writing.write_options import WriteOptions, check_shard_count

_FORMAT = 1
"""To be counted up when the same plan is to give other bytes than before."""


@dataclass(frozen=True, kw_only=True)
class PlannedShard:
    """A shard to write: the images at these positions in the source of an audit, in this order."""

    name: ShardName
    positions: Sequence[int]
    compression: Compression
    audit: Audit

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all that the shard's bytes depend on, once its images are known."""
        return next(_fingerprints([self]))

    def __getstate__(self) -> dict[str, Any]:
        return self.part().__dict__ if isinstance(self.positions, memoryview) else self.__dict__

    def part(self) -> "PlannedShard":
        """Return the same shard with nothing but its own images, for another process.

        It is what a pickled shard becomes. It has the same fingerprint, and `write_shard` makes the
        same bytes of it.
        """
        audit = self.audit.part(self.positions)
        return replace(self, positions=range(len(self.positions)), audit=audit)


def _fingerprints(shards: Sequence[PlannedShard]) -> Iterator[str]:
    """Yield those of shards of one audit."""
    abouts = _abouts(shards[0].audit, (shard.positions for shard in shards))
    for shard in shards:
        digest = hashlib.blake2b(digest_size=16)
        facts = (_FORMAT, shard.compression.value, shard.audit.recipe, shard.audit.source.labels)
        digest.update(repr(facts).encode("utf-8", "surrogateescape"))
        if (features := shard.audit.source.features) != RecordFeatures():
            digest.update(repr(features).encode("utf-8", "surrogateescape"))
        for about in islice(abouts, len(shard.positions)):
            digest.update(about)
        yield digest.hexdigest()


def _abouts(audit: Audit, groups: Iterable[Sequence[int]]) -> Iterator[bytes]:
    """Yield what a fingerprint depends on of each of these images, in order."""
    items, digests, notable = audit.source.items, audit.digests, audit.notable
    for some in pieces(groups):
        abouts = [b""] * sum(map(len, some))
        for at, position in rising(some, digests, notable.codes):
            item = items[position]
            about = (item.key, item.label, digests[position], position in notable)
            abouts[at] = repr(about).encode("utf-8", "surrogateescape")
            if audit.source.beside:
                abouts[at] += audit.source.beside[position]
        yield from abouts


def plan_digest(shards: Sequence[PlannedShard], version: str) -> str:
    """Return a digest of all that the files of a dataset of some version depend on."""
    # Each shard is told its own, for the images of many are looked up faster than those of one.
    unknown = [shard for shard in shards if "fingerprint" not in vars(shard)]
    for shard, known in zip(unknown, _fingerprints(unknown) if unknown else (), strict=True):
        vars(shard)["fingerprint"] = known
    facts = (version, sorted((str(shard.name), shard.fingerprint) for shard in shards))
    return hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()


def plan_shards(
    audit: Audit, options: WriteOptions, sizes: Sequence[int] | None
) -> list[PlannedShard]:
    """Distribute the images that are good, or yet unknown, over splits and shards.

    The plan depends on the keys, sizes and contents of the items, the options and the seed, and on
    nothing else. Exact copies go where the one of them with the smallest key goes, or together with
    their groups; but where the
    source itself has splits, it is not contradicted. Sizes are those of records by their positions;
    without any, shards are cut by number.
    """
    own = audit.source.splits
    splits = [*(own or options.splits or ["train"])]
    members, ends = _members(audit, options, splits)
    planned = []
    for split, (start, end) in zip(splits, pairwise(ends), strict=True):
        chosen, count = members[start:end], options.shards or 1
        if not chosen and own:
            continue  # all of its images are bad
        if not chosen:
            led, whole = sum(map(bool, firsts_of(audit))), len(members)
            few = whole - led < len(splits)
            bound = f" ({led:,} of {whole:,} images stay with their duplicates or groups)"
            raise WriteError(
                f"split {split!r} would be empty{bound if led else ''}",
                expected=f"at least {len(splits)} groups of images, one per split" if few else None,
                hint=None if few else "give it a larger fraction, or use another --seed",
            )
        if count > len(chosen):
            images = human_count(len(chosen), "image")
            raise UsageError(f"--shards {count} is too many: split {split!r} has {images}")
        if sizes is None:  # as TFDS does it
            bounds = [round(len(chosen) * index / count) for index in range(count + 1)]
        else:
            ordered = column("Q", len(chosen), audit.scratch)
            for at, position in rising([chosen], ordered, sizes):
                ordered[at] = sizes[position]
            bounds = cut_by_size(ordered, options.shard_bytes)
        for index, (first, last) in enumerate(pairwise(bounds)):
            planned.append(
                PlannedShard(
                    name=ShardName(
                        dataset=options.name, split=split, index=index, count=len(bounds) - 1
                    ),
                    positions=chosen[first:last],
                    compression=options.compression,
                    audit=audit,
                )
            )
    check_shard_count(len(planned), len(splits))
    return planned


def _members(
    audit: Audit, options: WriteOptions, splits: Sequence[str]
) -> tuple[memoryview, list[int]]:
    """Return the positions of the images that are written, split by split, each in its order.

    With them comes where each split starts, and the end.
    """
    items, own = audit.source.items, audit.source.splits
    draw, columns = None, tuple[object, ...]()
    if len(splits) > 1 and not own:
        draw, columns = draw_splits(audit, options)
    order = hasher("order", options.seed) if options.shuffle else None
    numbers = {split: number for number, split in enumerate(splits)}
    counts = [0] * len(splits)

    def placed() -> Iterator[tuple[int, bytes, int]]:
        for position, (item, code) in enumerate(zip(items, audit.notable.codes, strict=True)):
            if code & 1:
                continue
            split = item.split if own else None
            if draw is not None:
                split = draw(position, item)
            number = numbers[split or splits[0]]
            counts[number] += 1
            yield number, order(item.key) if order else b"", position

    rows = ExternalSort(audit.scratch, forgetting(placed(), *columns, audit.notable.codes))
    members = column("Q", len(rows), audit.scratch)
    for at, (_, _, position) in enumerate(forgetting(rows, members)):
        members[at] = position
    return members, [*accumulate(counts, initial=0)]


def cut_by_size(sizes: Sequence[int], shard_bytes: int) -> list[int]:
    """Return where each shard starts, and the end: even ones, the fewest of at most so many bytes.

    A shard may have one record more, since none is cut.
    """
    whole = sum(forgetting(sizes, sizes))
    count = -(-whole // shard_bytes)
    starts, end, last = [0], 0, 0
    for at, size in enumerate(forgetting(sizes, sizes)):
        start, end = end, end + size
        # Each record goes to the even share that its middle lies in.
        share = (start + end) * count // (2 * whole)
        if at and share != last:
            starts.append(at)
        last = share
    return [*starts, len(sizes)]


def fits(shards: Iterable[tuple[str, int]], shard_bytes: int) -> bool:
    """Return whether shards, given by their split and bytes, keep to the size, and are even.

    None is larger than the size by more than a tenth, or a tenth off the mean of its split; and
    none is a tenth smaller than an even share of the fewest shards that are a tenth below the size.
    """
    splits: dict[str, list[int]] = {}
    for split, size in shards:
        splits.setdefault(split, []).append(size)
    for sizes in splits.values():
        mean = sum(sizes) / len(sizes)
        share = sum(sizes) / math.ceil(sum(sizes) / (0.9 * shard_bytes))
        if min(sizes) < 0.9 * max(mean, share) or max(sizes) > 1.1 * min(mean, shard_bytes):
            return False
    return True
