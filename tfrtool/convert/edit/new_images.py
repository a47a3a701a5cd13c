"""Images that are added to a dataset: planned and written as `write` has written the others."""

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from tfrtool.convert.pipeline.carried import CarriedMetadata
from tfrtool.engines.pool import cores, map_shards
from tfrtool.errors import DatasetError, SourceError, UsageError, printable
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.dataset_files import DatasetFiles
from tfrtool.examples.example import decode_example
from tfrtool.examples.tfds_metadata import FEATURES, LABELS, REPORT, read_class_names
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import ImageRecipe, Resize
from tfrtool.records.compression import Compression
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard
from tfrtool.sources.folders.class_layout import LabelFrom
from tfrtool.sources.items import ItemTable, LeftOut, Source, Starting
from tfrtool.sources.label_choice import KEEP
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.arguments import as_size, as_text, option_name
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.json_files import reading_metadata, whole_number
from tfrtool.storage.limits import (
    MAX_LISTED,
)
from tfrtool.writing.image_findings import SourceFindings, integers, look_at_all
from tfrtool.writing.image_records import RecordMaker
from tfrtool.writing.image_shard import ImageShard
from tfrtool.writing.job import JobPlan
from tfrtool.writing.job_settings import JobSettings
from tfrtool.writing.record_sizes import RecordSizes
from tfrtool.writing.split_draws import splitter
from tfrtool.writing.write_options import Existing, WriteOptions
from tfrtool.writing.write_plan import PlannedImage, plan_shards

_SHOWN = 10
_COMPARED = 2**20
"""Images that are looked for in the dataset at a time: some 200 MB of digests."""

_THERE = "exact duplicate of an existing image"


def payloads_of(maker: RecordMaker, images: Sequence[PlannedImage]) -> list[bytes]:
    """Return the records of images that were looked at, and are good."""
    found = (image for image in images if image.finding is not None)
    return [
        maker.payload(one.item, maker.read_again(one.item, one.finding), one.finding)
        for one in found
        if one.finding is not None
    ]


def unclear_split(source: str | os.PathLike[str], before: Collection[str]) -> UsageError:
    """Return the error for what could go into several splits."""
    return UsageError(
        f"ambiguous split: the dataset has {', '.join(before)}",
        path=source,
        hint="use --split NAME",
    )


def plan_new_images(
    source: str | os.PathLike[str],
    scratch: Path,
    settings: JobSettings,
    before: DatasetFiles,
    carried: CarriedMetadata,
    compression: Compression,
    *,
    split: str | None,
    dedupe: bool,
    new_classes: bool,
    starting: Starting,
) -> tuple[JobPlan, ColumnsFold]:
    """List and look at the images of a source, give each a split, and plan the shards.

    It is the split that was named; or that of the source; or the one that `write` would draw; or
    the only one of the dataset, whose shards are those of ``before``. Else it is a `UsageError`.
    Classes have the numbers of the dataset, behind which come those that it hasn't, if they are
    wanted; what is carried along is told of these.

    Returns:
        The plan, and what the records will hold.
    """
    root = before.folders[0]
    if "image" in carried.written:
        raise DatasetError(
            "its images were re-encoded by tfrtool edit, so new images would not match them",
            path=root,
            hint="append TFRecord files instead",
        )
    for option in ("annotations", "columns", "multi_label", "layout", "labels"):
        said = carried.written.get(option)
        if said and (option != "labels" or said == KEEP):
            raise DatasetError(
                f"was written with {option_name(option)}, which images alone don't have",
                path=root,
                hint="write TFRecord files with the same options, and append those",
            )
    classes = read_class_names(root, "label")
    if classes is None:
        raise DatasetError(f"has no {LABELS}, which lists the classes in order", path=root)
    options = _options_of_write(
        carried.written,
        source=as_text(source),
        dataset=settings.folder,
        name=settings.name,
        version=settings.version,
        compression=compression,
        dedupe=dedupe,
        workers=settings.workers if isinstance(settings.workers, int) else cores(),
    )
    arguments = options.source, options.label_from, scratch, options.root, starting
    opened = open_source(*arguments, options=options.meaning)
    new = [label for label in opened.labels if label not in classes]
    labels = (*classes, *new)
    if new and not new_classes:
        raise UsageError(
            "has classes that the dataset lacks",
            path=source,
            expected=", ".join(classes[:_SHOWN]),
            found=", ".join(new[:_SHOWN]),
            hint="use --new-classes to add them",
        )
    if new:
        carried.labels[LABELS] = "".join(f"{label}\n" for label in labels)
    if new and carried.features is not None:
        with reading_metadata(root / FEATURES, "TFDS"):
            described = carried.features["featuresDict"]["features"]["label"]
            described["classLabel"]["numClasses"] = str(len(labels))
    # What was written knows neither its groups nor how many of a label a split wants.
    draws = len(options.splits) > 1 and not any(map(carried.written.get, ("stratify", "group_by")))
    if not (split or opened.splits or draws or len(before.splits) == 1):
        raise unclear_split(source, before.splits)
    source_of = replace(opened, labels=labels)
    maker = RecordMaker(source_of, options.recipe)
    findings = look_at_all(source_of, maker, options.workers, settings.on_progress, scratch)
    if dedupe and findings.any_good:
        findings.leave_out(_known(source_of, maker, findings, before.paths, options))
    if not findings.any_good:
        item, finding = next(zip(opened.items, findings, strict=True))
        what = f"{printable(item.key)}: {finding.problem}"
        raise SourceError(f"no image can be used ({what})", path=source)
    if dedupe:
        findings.leave_out_copies(source_of, maker)
    fractions = options.splits if draws else {next(iter(before.splits)): 1.0}
    draw, drawn, placed = splitter(fractions, options.seed), list[str](), ItemTable(scratch)
    for item, first in zip(opened.items, integers(findings.first_copies), strict=True):
        drawn.append(drawn[first - 1] if first else draw(item.key))
        placed.add(item._replace(split=split or item.split or drawn[-1]))
    splits = sorted({item.split for item in placed if item.split})
    source_of = replace(source_of, items=placed, splits=tuple(splits))
    sizes = RecordSizes(placed, maker, options.workers)
    planned, digest = plan_shards(source_of, options, maker, findings, sizes, scratch)
    tasks = [
        ImageShard(
            name=str(shard.name),
            split=shard.name.split,
            records=len(shard.images),
            size=sum(image.item.bytes for image in shard.images),
            room=shard.size,
            images=shard.images,
            maker=maker,
            compression=compression,
            tensorflow=False,
        )
        for shard in planned
    ]
    rejected = CappedList[LeftOut](MAX_LISTED)
    for item, finding in zip(placed, findings, strict=True):
        if finding.problem is not None:
            rejected.add(LeftOut(key=item.key, reason=finding.problem))
    for entry in opened.rejected:
        rejected.add(entry)
    more = rejected.more + opened.more_rejected
    warnings = (f"{more:,} more images are skipped, and not listed",) if more else ()
    come = ColumnsFold()
    come.add(payloads_of(maker, planned[0].images[:1]))
    return JobPlan(tasks=tasks, inputs=[digest], rejected=rejected.kept, warnings=warnings), come


def _options_of_write(said: Mapping[str, Any], **given: Any) -> WriteOptions:
    """Return options as the report of a `write` says them; others are ``given``."""
    with reading_metadata(REPORT, "tfrtool"):
        size = said.get("resize")
        recipe = ImageRecipe(
            resize=None if size is None else Resize(**size),
            **{key: said[key] for key in ("check", "encode", "quality", "orient") if key in said},
        )
        pairs = [str(split).rpartition("=") for split in said.get("splits", ())]
        folders = Path(given["source"]).is_dir()
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
            meaning=SourceOptions(
                label_depth=said.get("label_depth") if folders else None,
                label_column=None if folders else said.get("label_column"),
            ),
            skip_bad=True,
            existing=Existing.REFUSE,
            **given,
        )


def _known(
    source: Source,
    maker: RecordMaker,
    findings: SourceFindings,
    shards: Sequence[Path],
    options: WriteOptions,
) -> Iterator[tuple[int, str]]:
    """Yield images whose bytes, as they would be written, are in a shard already."""
    images = (
        (position, PlannedImage(position, 0, finding, item))
        for position, (item, finding) in enumerate(zip(source.items, findings, strict=True))
        if finding.problem is None
    )
    while some := [*islice(images, _COMPARED)]:
        places: dict[bytes, list[int]] = {}
        with quiet_pillow():
            for position, image in some:
                for digest in _images(*payloads_of(maker, [image])):
                    places.setdefault(digest, []).append(position)
        looked_for = partial(_known_images, wanted=frozenset(places))
        known = map_shards(looked_for, shards, options.workers)
        for digest in {digest for found in known for digest in found}:
            yield from ((position, _THERE) for position in places[digest])


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
