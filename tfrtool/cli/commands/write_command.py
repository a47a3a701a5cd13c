"""``tfrtool write``."""

from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.job_options import existing_of, splits_of
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
"""Classes that a warning names."""


@command(
    "tfrtool write photos shards --split train=0.8 --split validation=0.2 --shards 4",
    "tfrtool write kagglecatsanddogs_5340.zip ~/tensorflow_datasets/pets/1.0.0",
    "tfrtool write labels.csv shards --resize 256 --dry-run",
    "tfrtool write tfds:cats_vs_dogs shards --shard-size 100MB",
    options={
        "--name TEXT": "Dataset name; the default is made from DATASET's path.",
        "--version X.Y.Z": "Dataset version; the default is that in DATASET's path, or 1.0.0.",
        "--label-from folder|filename=folder": "Take labels from folders (cat/1.jpg) or from file "
        "names (cat.1.jpg).",
        "--root DIR": "Let a table's paths lead below DIR, too, and not only below its own folder.",
        "--annotations KIND:PATH ...": "Objects in the images: coco:PATH, voc:DIR, yolo:DIR or "
        "csv:PATH, where PATH is a file, a folder or a quoted pattern; repeat to merge several. "
        "SOURCE is the folder of the images.",
        "--masks polygons|png|none=polygons": "Outlines of objects: as COCO has them, as images, "
        "or not at all.",
        "--column NAME[:DTYPE] ...": "Write a further column of a table: int64, float32 or string; "
        "repeat for each.",
        "--columns all": "Write all columns of a table.",
        "--labels FILE|keep": "Names of the classes in their order, or a label_map.pbtxt; or keep "
        "integers as they are.",
        "--label-column NAME": "Column of a table that holds the labels; by default the one called "
        "label, class, category or the like.",
        "--label-depth N": "Depth of the folders that are classes, counted from 1 below SOURCE.",
        "--multi-label SEPARATOR": "Several labels an image, with this between them.",
        "--layout tfds|tfod": "Names of the features: image and label; or those of the TF Object "
        "Detection API, the default with --annotations.",
        "--split NAME=FRACTION ...": "A split and about its share of each class; repeat for each. "
        "The default is all in train. A SOURCE with splits of its own keeps those, and takes no "
        "others.",
        "--stratify": "Give each split its very share of each class.",
        "--group-by COLUMN|REGEX": "Images for which a column of the table, or a regular "
        "expression on their names, gives the same go into one split.",
        "--shards N": "Number of shards of each split.",
        "--shard-size SIZE": "Largest size of a shard before compression. No shard is larger by "
        "more than a tenth or one record, and the shards of a split are even. Not with --shards. "
        "The default is 128MiB.",
        "--seed N=0": "Seed of the splits and of the order of records.",
        "--no-shuffle": "Keep the order of the file names.",
        "--compression none|gzip|zlib=none": "Compression of the shards. TFDS reads uncompressed "
        "ones only.",
        "--check decode|header|tfds=decode": "What makes an image bad: it does not fully decode; "
        "its JPEG header is wrong (faster, but keeps truncated images); TFDS' own rule for "
        "cats_vs_dogs.",
        "--on-error skip|stop=skip": "Skip bad images and list them (exit code 3), or stop at the "
        "first.",
        "--dedupe": "Leave out exact copies of an image and list them (exit code 3): all but the "
        "first by name, in the first split that has one.",
        "--encode keep|jpeg|png|raw=keep": "Keep the bytes of good JPEGs and convert the rest; or "
        "encode all anew; raw: pixels.",
        "--resize N|WxH": "Scale the shorter side to N, or the image to exactly W x H.",
        "--quality Q=95": "Quality of the JPEGs that are made.",
        "--orient/--no-orient =true": "Turn images upright as their EXIF orientation says.",
        "--workers N": "Number of threads; the default is the number of cores.",
        **ENGINE,
        "--resume": "Resume an interrupted write.",
        "--overwrite": "Replace what tfrtool wrote to DATASET before.",
        "--dry-run": "Check the images and show the plan; write nothing.",
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
    """Write images and labels to sharded TFRecords.

    SOURCE: a directory of class folders (cat/1.jpg), with or without split folders above them; a
    zip or tar of such, read in place; a CSV, JSON Lines or Parquet table with a path and a label
    column; Parquet with the images in it, WebDataset's tars, or .npz with x and y; a quoted glob;
    or tfds:NAME. DATASET gets the shards, the metadata that makes them a
    TFDS dataset, and write_report.json, which tells what became of every image. Exit code 3 means
    that some were left out.
    """
    from tfrtool.cli.render.write_text import write_page
    from tfrtool.writing.write import write

    existing = existing_of(words)
    if words["compression"] != "none":
        warn(f"TFDS can't read {words['compression']} shards; tf.data and tfrtool can")
    with Bars() as bars:
        report = write(
            source,
            dataset,
            splits=splits_of(split),
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
        warn(f"in more than one split: {count}, such as {shown}; --dedupe leaves copies out")
    for name, split in report.splits.items():
        absent = [printable(label) for label, count in split.labels.items() if not count]
        if len(split.labels) - len(absent) == 1 and report.annotations is None:
            warn(f"split {name!r} has one class only; a classifier needs two")
        elif absent:
            warn(f"split {name!r} has no image of {some_of(absent, _SHOWN)}")
    for message in report.warnings:
        warn(message)
