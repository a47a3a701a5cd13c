"""Images that are added to a dataset: planned and written as `write` has written the others."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tfrtool.convert.edit.shard_tasks import tally_of
from tfrtool.convert.pipeline.job import FileTask
from tfrtool.convert.pipeline.job_report import Written
from tfrtool.convert.pipeline.tally import Tally
from tfrtool.engines.processes import map_shards
from tfrtool.errors import SourceError, UsageError
from tfrtool.examples.example import decode_example
from tfrtool.examples.tfds_metadata import REPORT
from tfrtool.images.audit import ImageVerdict
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import ImageRecipe, Resize
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard
from tfrtool.records.shard_sets import ShardName
from tfrtool.sources.items import Starting
from tfrtool.sources.open_source import open_source
from tfrtool.storage.json_files import reading_metadata, whole_number
from tfrtool.storage.progress import OnProgress
from tfrtool.storage.words import as_size
from tfrtool.writing.image_audit import Audit
from tfrtool.writing.record_sizes import record_sizes
from tfrtool.writing.shard_writer import payload_of, write_shards
from tfrtool.writing.write_options import Existing, WriteOptions
from tfrtool.writing.write_plan import PlannedShard, plan_shards, splitter

_THERE = "an exact copy of an image that is there already"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewImagesTask(FileTask):
    """A shard of images; ``starting`` gives the context in which TensorFlow is loaded."""

    shard: PlannedShard
    workers: int
    starting: Starting

    @property
    def fingerprint(self) -> str:
        """A digest of the images, their labels and what is done to them."""
        return self.shard.fingerprint

    def write(self, path: Path) -> Written:
        """Write the shard with TFRecordWriter, and read it back."""
        name = ShardName.parse(path.name) or self.shard.name
        shard = replace(self.shard, name=name)
        list(write_shards([shard], path.parent, self.workers, _unheard, self.starting))
        return Written(tally=tally_of(path), read=Tally())


def _unheard(_: int) -> None:
    """Take no notice of progress within a shard."""


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
            existing=Existing.REFUSE,
            **given,
        )


def audit_new_images(
    options: WriteOptions,
    scratch: Path,
    labels: Sequence[str],
    *,
    new_classes: bool,
    on_progress: OnProgress,
    starting: Starting,
) -> Audit:
    """List and look at the images of a source; classes have the numbers that a dataset gives them.

    New classes come after those; it is a `UsageError` if there are some, and they are not wanted.
    """
    source = open_source(options.source, options.label_from, scratch, options.root, starting)
    new = [label for label in source.labels if label not in labels]
    if new and not new_classes:
        raise UsageError(
            "holds classes that the dataset does not have",
            path=options.source,
            expected=", ".join(labels[:10]),
            found=", ".join(new[:10]),
            hint="--new-classes appends them to its list",
        )
    audit = Audit(replace(source, labels=(*labels, *new)), options.recipe)
    audit.look_at_all(options.workers, on_progress)
    for at, problem in audit.problems.items():
        if not options.skip_bad:
            where = source.reader.describe(source.items[at])
            hint = "--on-bad skip leaves such images out"
            raise SourceError(problem, path=where, hint=hint)
    return audit


def leave_out_known(audit: Audit, shards: Sequence[Path], workers: int | None) -> None:
    """Call images problems whose bytes, as they would be written, are in a shard already.

    Exact copies among the new ones, all but one, are problems too.
    """
    labels = {label: number for number, label in enumerate(audit.source.labels)}
    places: dict[bytes, list[int]] = {}
    with quiet_pillow():
        for at in audit.good:
            for digest in _images(payload_of(audit, at, labels)):
                places.setdefault(digest, []).append(at)
    known = map_shards(partial(_known_images, wanted=frozenset(places)), shards, workers)
    for digest in {digest for found in known for digest in found}:
        audit.notable.update(dict.fromkeys(places[digest], ImageVerdict(problem=_THERE)))
    audit.leave_out_copies()


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


def unclear_split(source: str, before: Collection[str]) -> UsageError:
    """Return the error for what could go into several splits."""
    return UsageError(
        "nothing tells which split this is for",
        path=source,
        expected="--split NAME",
        found=f"the splits {', '.join(before)}",
    )


def plan_new_images(
    audit: Audit, options: WriteOptions, before: Collection[str], split: str | None
) -> list[PlannedShard]:
    """Give each image a split, and plan the shards.

    It is the split that was named; or that of the source; or the one that `write` would draw; or
    the only one that the dataset has ``before``. Else it is a `UsageError`.
    """
    items, own = audit.source.items, bool(audit.source.splits)
    if split is None and not own and len(options.splits) < 2 and len(before) > 1:
        raise unclear_split(options.source, before)
    if not audit.good:
        raise SourceError(
            f"none of the {len(items)} images can be added",
            path=options.source,
            found="; ".join(sorted(set(audit.problems.values()))[:3]),
        )
    fractions = options.splits if len(options.splits) > 1 else {next(iter(before)): 1.0}
    draw, leaders = splitter(fractions, options.seed), audit.leaders
    placed = tuple(
        replace(item, split=split or item.split or draw(items[leaders[at]].key))
        for at, item in enumerate(items)
    )
    splits = tuple(sorted({str(item.split) for item in placed}))
    audit.source = replace(audit.source, items=placed, splits=splits)
    return plan_shards(audit, options, record_sizes(audit, options.workers).records)
