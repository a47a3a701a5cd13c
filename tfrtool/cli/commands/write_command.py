"""``tfrtool write``."""

from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.job_options import OUTPUT_OPTIONS, SHARD_OPTIONS, existing_policy, parse_splits
from tfrtool.cli.output import Outcome, emit, note, warn
from tfrtool.cli.parameters import (
    ENGINE,
    INPUT,
    OUTPUT_OR_URL,
    LocalPath,
    WholeNumber,
    command,
    image_size,
)
from tfrtool.errors import human_count, printable, some_of

if TYPE_CHECKING:
    from tfrtool.writing.write_report import WriteReport

_SHOWN = 5
"""Number of classes that a warning names."""


@command(
    "tfrtool write photos shards --split train=0.8 --split validation=0.2 --shards 4",
    "tfrtool write kagglecatsanddogs_5340.zip ~/tensorflow_datasets/pets/1.0.0",
    "tfrtool write labels.csv shards --resize 256 --dry-run",
    "tfrtool write tfds:cats_vs_dogs shards --shard-size 100MB",
    options={
        "Source": {
            "--label-from folder|filename=folder": "Take labels from folders (cat/1.jpg) or from "
            "file names (cat.1.jpg).",
            "--label-depth N": "Depth of the class folders below SOURCE: 2 for "
            "SOURCE/2024/cat/1.jpg.  [default: detected]",
            "--root DIR": "Look for the files of a table in DIR too, not only in the table's "
            "own folder.",
        },
        "Labels and features": {
            "--labels FILE|keep": "File of class names in order, one per line, or a "
            "label_map.pbtxt; or keep, to write integer labels unchanged.",
            "--label-column NAME": "Table column with the labels.  [default: detected]",
            "--multi-label SEPARATOR": "Read several labels per image, separated by SEPARATOR, "
            "such as ';'.",
            "--column NAME[:DTYPE] ...": "Also write this column of a table, as int64, float32 or "
            "string. Repeatable.",
            "--columns all": "Also write all other columns of a table.",
            "--layout tfds|tfod": "Feature names: those of TFDS (image, label), or of the TF "
            "Object Detection API.  [default: tfds, or tfod with --annotations]",
        },
        "Annotations": {
            "--annotations KIND:PATH ...": "Add boxes and masks from coco:PATH, voc:DIR, yolo:DIR "
            "or csv:PATH; SOURCE is the folder of images. Repeat to merge several.",
            "--masks polygons|png|none=polygons": "Write masks as COCO polygons, as PNG images, or "
            "not at all.",
        },
        "Splits and order": {
            "--split NAME=FRACTION ...": "Put this fraction of the images into a split. Repeat for "
            "each split. Not for a SOURCE with its own splits.  [default: all in train]",
            "--stratify": "Keep class proportions the same in every split.",
            "--group-by COLUMN|REGEX": "Keep images in the same split if they share a value in "
            "this column or a match of this regex on their file name.",
            "--seed N=0": "Random seed for splits and order.",
            "--no-shuffle": "Sort images by file name instead of shuffling them.",
        },
        "Images": {
            "--encode keep|jpeg|png|raw=keep": "Keep valid JPEGs byte for byte and convert the "
            "rest, or encode every image as JPEG, PNG or raw pixels.",
            "--resize N|WxH": "Scale the shorter side to N pixels, or the image to exactly W x H.",
            "--quality Q=95": "Quality of newly encoded JPEGs.",
            "--orient/--no-orient =true": "Rotate images upright according to their EXIF data.",
            "--check decode|header|tfds=decode": "How to find bad images: decode them, check only "
            "JPEG headers (faster, but misses truncated files), or apply TFDS' rule for "
            "cats_vs_dogs.",
            "--dedupe": "Skip exact duplicates and list them (exit code 3).",
            "--on-error skip|stop=skip": "Skip bad images and list them (exit code 3), or stop at "
            "the first.",
        },
        "Shards": SHARD_OPTIONS,
        "Output": {
            **OUTPUT_OPTIONS,
            "--dry-run": "Check the images and show the plan, without writing anything.",
        },
        "Execution": {
            "--workers N": "Maximum number of threads.  [default: number of cores]",
            **ENGINE,
        },
    },
    kinds={
        "DIR": LocalPath(exists=True, file_okay=False),
        "Q": WholeNumber(1, 100),
        "--workers": WholeNumber(1, 1024),
        "--label-depth": WholeNumber(1, 64),
    },
)
@click.argument("source", type=INPUT)
@click.argument("dataset", metavar="TARGET", type=OUTPUT_OR_URL)
def write_command(
    source: str,
    dataset: str,
    split: tuple[str, ...],
    column: tuple[str, ...],
    columns: str | None,
    no_shuffle: bool,
    resize: str | None,
    as_json: bool,
    **words: Any,
) -> Outcome:
    """Write images and labels to sharded TFRecord files.

    SOURCE is one of the following (detected automatically):

    - class folders, such as cat/1.jpg or train/cat/1.jpg
    - a zip or tar archive of class folders
    - a CSV, JSON Lines or Parquet table of paths and labels
    - Parquet with images, WebDataset tars, or .npz files
    - a quoted glob, such as 'photos/*/*.jpg'
    - tfds:NAME, a dataset of TensorFlow Datasets

    TARGET gets the shards, metadata that lets TFDS load them, and write_report.json, which lists
    every skipped image.

    Exit code 3 means that images or objects were skipped, or boxes were clipped.
    """
    from tfrtool.cli.render.write_text import write_page
    from tfrtool.writing.write import write

    existing = existing_policy(words)
    if words["compression"] != "none":
        warn(f"TFDS can't read {words['compression']} shards; tf.data and tfrtool can")
    with Bars() as bars:
        report = write(
            source,
            dataset,
            splits=parse_splits(split),
            columns=("all",) if columns else column,
            shuffle=not no_shuffle,
            resize=image_size(resize),
            existing=existing,
            on_progress=bars,
            starting=bars.loading_tensorflow,
            **words,
        )
    emit(report.to_json() if as_json else write_page(report))
    _warn_of(report)
    found = report.annotations
    skipped = report.rejected or (found and (found.rejected or found.clipped))
    return Outcome.DAMAGE if skipped and not report.complete else Outcome.FINE


def _warn_of(report: "WriteReport") -> None:
    from tfrtool.cli.render.write_text import shared_text

    for notice in report.notices:
        note(notice)
    if report.across_splits:
        count = human_count(report.count("across_splits"), "image")
        shown = shared_text(report.across_splits[0])
        warn(f"duplicates across splits: {count}, such as {shown}; use --dedupe to skip them")
    for name, split in report.splits.items():
        absent = [printable(label) for label, count in split.labels.items() if not count]
        if len(split.labels) - len(absent) == 1 and report.annotations is None:
            warn(f"split {name!r} has only one class; a classifier needs at least two")
        elif absent:
            warn(f"split {name!r} has no images of {some_of(absent, _SHOWN)}")
    for message in report.warnings:
        warn(message)
