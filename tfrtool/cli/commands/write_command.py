"""``tfrtool write``."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.jobs import KEYS_SHOWN, head_text, reasons_lines, splits_lines
from tfrtool.cli.output import Bars, Outcome, emit, note, warn
from tfrtool.cli.parameters import INPUT, OUTPUT_OR_URL, command
from tfrtool.errors import human_count, printable, some_of
from tfrtool.page import Bad, Page, shortened
from tfrtool.writing.write_options import WriteOptions

if TYPE_CHECKING:
    from tfrtool.writing.image_findings import SharedImage
    from tfrtool.writing.write_report import AnnotationReport, WriteReport

_SHOWN = 5
"""Number of classes that a warning names."""


@command(
    "tfrtool write photos shards --split train=0.8 --split validation=0.2 --shards 4",
    "tfrtool write kagglecatsanddogs_5340.zip ~/tensorflow_datasets/pets/1.0.0",
    "tfrtool write labels.csv shards --resize 256 --dry-run",
    "tfrtool write tfds:cats_vs_dogs shards --shard-size 100MB",
    options=WriteOptions,
)
@click.argument("source", type=INPUT)
@click.argument("dataset", metavar="TARGET", type=OUTPUT_OR_URL)
def write_command(source: str, dataset: str, as_json: bool, **words: Any) -> Outcome:
    """Write images and labels to sharded TFRecord files.

    SOURCE is one of the following (detected automatically):

    - class folders, such as cat/1.jpg or train/cat/1.jpg
    - a zip or tar archive of class folders
    - a CSV, JSON Lines or Parquet table of paths and labels
    - Parquet with images, or WebDataset tars
    - .npz files, CIFAR's and MNIST's files, tables of pixels
    - a quoted glob, such as 'photos/*/*.jpg'
    - tfds:NAME, a dataset of TensorFlow Datasets

    TARGET gets the shards, metadata that lets TFDS load them, and write_report.json, which lists
    every skipped image.

    Exit code 3 means that images or objects were skipped, or boxes were clipped.
    """
    from tfrtool.writing.write import write

    if words["compression"] != "none":
        warn(f"TFDS can't read {words['compression']} shards; tf.data and tfrtool can")
    with Bars() as bars:
        words |= {"on_progress": bars, "starting": bars.loading_tensorflow}
        report = write(source, dataset, **words)
    emit(report.to_json() if as_json else _page(report))
    _warn_of(report)
    found = report.annotations
    skipped = report.rejected or (found and (found.rejected or found.clipped))
    return Outcome.DAMAGE if skipped and not report.complete else Outcome.FINE


def _warn_of(report: "WriteReport") -> None:
    for notice in report.notices:
        note(notice)
    if report.across_splits:
        count = human_count(report.count("across_splits"), "image")
        shown = _shared_text(report.across_splits[0])
        warn(f"duplicates across splits: {count}, such as {shown}; use --dedupe to skip them")
    for name, split in report.splits.items():
        absent = [printable(label) for label, count in split.labels.items() if not count]
        if len(split.labels) - len(absent) == 1 and report.annotations is None:
            warn(f"split {name!r} has only one class; a classifier needs at least two")
        elif absent and (len(absent) < len(split.labels) or report.annotations is not None):
            warn(f"split {name!r} has no images of {some_of(absent, _SHOWN)}")
    for message in report.warnings:
        warn(message)


def _page(report: "WriteReport") -> Page:
    """Return what ``write`` shows, done or planned."""
    records = human_count(sum(split.records for split in report.splits.values()), "record")
    about = "" if report.bytes_estimated_from is None else "about "
    lines = [
        head_text(report, f" {report.version}, {records}"),
        *splits_lines(report, "shard", about),
    ]
    if report.bytes_estimated_from is not None:
        tried = human_count(report.bytes_estimated_from, "image")
        lines.append(f"sizes and shard counts are estimated from {tried}")
    if report.converted:
        lines.append(f"converted: {report.count('converted'):,}")
        lines += reasons_lines((entry["key"], entry["reason"]) for entry in report.converted)
    if report.rejected:
        lines.append(Bad(f"skipped: {report.count('rejected'):,}"))
        lines += reasons_lines((entry.key, entry.reason) for entry in report.rejected)
    if report.duplicates:
        where = "" if report.across_splits else ", kept in the same split"
        lines.append(f"exact duplicates: {report.duplicates:,}{where}")
    if report.across_splits:
        count = human_count(report.count("across_splits"), "image")
        lines.append(Bad(f"in more than one split: {count}"))
        lines += shortened([f"  {_shared_text(one)}" for one in report.across_splits], KEYS_SHOWN)
    if report.annotations is not None:
        lines += _objects(report.annotations)
    if report.ignored:
        if report.annotations is None:
            names = [printable(entry.key) for entry in report.ignored[:KEYS_SHOWN]]
            more = report.count("ignored") - len(names)
            text = ", ".join(names) + (f" and {more:,} more" if more else "")
            lines.append(f"ignored, no image suffix: {text}")
        else:
            lines.append(f"not used: {human_count(report.count('ignored'), 'file')}")
            lines += reasons_lines((entry.key, entry.reason) for entry in report.ignored)
    return lines


def _shared_text(image: "SharedImage") -> str:
    """Return where the copies of an image are, those of one split by the first of them."""
    return " = ".join(f"{keys[0]} ({split})" for split, keys in image.items())


def _objects(found: "AnnotationReport") -> Iterator[str]:
    """Yield what became of annotated objects."""
    yield f"objects: {found.read:,} read, {found.written:,} written"
    if found.of_rejected_images:
        yield Bad(f"objects of skipped images: {found.of_rejected_images:,}")
    if found.dropped:
        yield f"objects dropped by options: {found.dropped:,}"
    rejected = found.read - found.written - found.of_rejected_images - found.dropped
    if rejected:
        yield Bad(f"skipped objects: {rejected:,}")
        parts = [(entry.key, *entry.reason.partition(": ")) for entry in found.rejected]
        yield from reasons_lines((f"{key}, {what}", why) for key, what, _, why in parts)
    if found.clipped:
        count = len(found.clipped) + found.truncated - (rejected - len(found.rejected))
        yield Bad(f"boxes clipped to their images: {count:,}")
        cut = [printable(f"  {entry.key}, {entry.reason}") for entry in found.clipped]
        yield from shortened(cut, KEYS_SHOWN, count, "see write_report.json")
