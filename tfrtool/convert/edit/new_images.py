"""Images that are added to a dataset: planned and written as `write` has written the others."""

import contextlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tfrtool.convert.pipeline.job import FileTask
from tfrtool.convert.pipeline.job_report import Written
from tfrtool.convert.pipeline.shard_sink import ShardSink
from tfrtool.convert.pipeline.tally import Tally
from tfrtool.engines.processes import map_shards
from tfrtool.engines.threads import run_in_order
from tfrtool.errors import UsageError
from tfrtool.examples.example import decode_example
from tfrtool.examples.tfds_metadata import REPORT
from tfrtool.images.audit import ImageVerdict
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import ImageRecipe, Resize
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard
from tfrtool.sources.folders.class_layout import LabelFrom
from tfrtool.sources.items import LeftOut, Starting
from tfrtool.sources.open_source import open_source
from tfrtool.storage.json_files import reading_metadata, whole_number
from tfrtool.storage.progress import OnProgress
from tfrtool.storage.words import as_size
from tfrtool.writing.image_audit import Audit
from tfrtool.writing.record_sizes import record_sizes
from tfrtool.writing.shard_writer import payload_of
from tfrtool.writing.write import check_images
from tfrtool.writing.write_options import Existing, WriteOptions
from tfrtool.writing.write_plan import PlannedShard, plan_shards, splitter

_THERE = "an exact copy of an image that is there already"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewImagesTask(FileTask):
    """A shard of images."""

    shard: PlannedShard
    workers: int

    @property
    def fingerprint(self) -> str:
        """A digest of the images, their labels and what is done to them."""
        return self.shard.fingerprint

    def write(self, path: Path) -> Written:
        """Write the shard."""
        audit, positions = self.shard.audit, self.shard.positions
        make = partial(payload_of, audit, labels=_numbers(audit))
        with quiet_pillow(), ShardSink(path, self.shard.compression) as sink:
            sink.write(run_in_order(make, positions, self.workers, computes=False))
        return Written(tally=sink.tally, read=Tally())


def options_of_write(said: Mapping[str, Any], **given: Any) -> WriteOptions:
    """Return options as a write_report.json says them; others are ``given``."""
    with reading_metadata(REPORT, "tfrtool"):
        size = said.get("resize")
        recipe = ImageRecipe(
            resize=None if size is None else Resize(**size),
            **{key: said[key] for key in ("check", "encode", "quality", "orient") if key in said},
        )
        pairs = [str(split).rpartition("=") for split in said.get("splits", ())]
        total = sum(float(share) for *_, share in pairs) or 1.0  # six digits of each are told
        return WriteOptions(
            splits={name: float(share) / total for name, _, share in pairs},
            shards=None,
            shard_bytes=as_size(whole_number(said.get("shard_bytes", 128 * 1024**2))),
            seed=said.get("seed", 0),
            shuffle=bool(said.get("shuffle", True)),
            recipe=recipe,
            label_from=LabelFrom(said.get("label_from", "folder")),
            root=None,
            skip_bad=True,
            existing=Existing.REFUSE,
            **given,
        )


def audit_new_images(
    options: WriteOptions,
    scratch: Path,
    labels: Sequence[str],
    shards: Sequence[Path],
    on_progress: OnProgress,
    starting: Starting,
) -> Audit:
    """List and look at the images of a source; classes have the numbers that a dataset gives them.

    New classes come after those. Copies are problems, if they are to be left out: images whose
    bytes, as they would be written, are in a shard already; and all but one of the same new ones.
    """
    source = open_source(options.source, options.label_from, scratch, options.root, starting)
    new = [label for label in source.labels if label not in labels]
    audit = Audit(replace(source, labels=(*labels, *new)), options.recipe)
    audit.look_at_all(options.workers, on_progress)
    if options.dedupe:
        places: dict[bytes, list[int]] = {}
        numbers = _numbers(audit)
        with quiet_pillow():
            for at in audit.good:
                for digest in _images(payload_of(audit, at, numbers)):
                    places.setdefault(digest, []).append(at)
        wanted = frozenset(places)
        known = map_shards(partial(_known_images, wanted=wanted), shards, options.workers)
        for digest in {digest for found in known for digest in found}:
            audit.notable.update(dict.fromkeys(places[digest], ImageVerdict(problem=_THERE)))
    check_images(audit, options, on_progress)
    return audit


def rejected_images(audit: Audit) -> list[LeftOut]:
    """Return the images that are left out."""
    items = audit.source.items
    bad = (LeftOut(key=items[at].key, reason=why) for at, why in audit.problems.items())
    return [*audit.source.rejected, *bad]


def first_payload(audit: Audit) -> bytes:
    """Return the payload of the first image that is good."""
    return payload_of(audit, audit.good[0], _numbers(audit))


def _numbers(audit: Audit) -> Mapping[str, int]:
    return {label: number for number, label in enumerate(audit.source.labels)}


def _known_images(path: Path, wanted: frozenset[bytes]) -> set[bytes]:
    """Return those of some digests that an image in a shard has."""
    found: set[bytes] = set()
    for item in read_shard(path):
        if isinstance(item, Record):
            with contextlib.suppress(ValueError):
                found.update(wanted.intersection(_images(item.payload)))
    return found


def _images(payload: bytes) -> list[bytes]:
    """Return digests of the images of a record."""
    values = decode_example(payload).values("image")
    return [blake2b(v, digest_size=16).digest() for v in values if isinstance(v, bytes)]


def unclear_split(source: str | os.PathLike[str], before: Collection[str]) -> UsageError:
    """Return the error for what could go into several splits."""
    return UsageError(
        "nothing tells which split this is for",
        path=source,
        expected="--split NAME",
        found=f"the splits {', '.join(before)}",
    )


def plan_new_images(
    audit: Audit, options: WriteOptions, before: Collection[str], split: str | None
) -> list[FileTask]:
    """Give each image a split, and plan the shards.

    It is the split that was named; or that of the source; or the one that `write` would draw; or
    the only one that the dataset has ``before``. Else it is a `UsageError`.
    """
    items, own = audit.source.items, bool(audit.source.splits)
    if split is None and not own and len(options.splits) < 2 and len(before) > 1:
        raise unclear_split(options.source, before)
    fractions = options.splits if len(options.splits) > 1 else {next(iter(before)): 1.0}
    draw, leaders = splitter(fractions, options.seed), audit.leaders
    placed = tuple(
        replace(item, split=split or item.split or draw(items[leaders[at]].key))
        for at, item in enumerate(items)
    )
    splits = tuple(sorted({str(item.split) for item in placed}))
    audit.source = replace(audit.source, items=placed, splits=splits)
    sizes = record_sizes(audit, options.workers).records
    return [
        NewImagesTask(
            name="",
            split=shard.name.split,
            records=len(shard.positions),
            size=sum(items[position].bytes for position in shard.positions),
            shard=shard,
            workers=options.workers,
        )
        for shard in plan_shards(audit, options, sizes)
    ]
