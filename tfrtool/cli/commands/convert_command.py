"""``tfrtool convert``."""

from typing import Any

import click

from tfrtool.cli.job_options import TARGET_OPTIONS, existing_of, pairs_of, show_job
from tfrtool.cli.output import Outcome, note
from tfrtool.cli.parameters import ENGINE, INPUT, OUTPUT_OR_URL, command
from tfrtool.errors import printable

_FORMATS = "tfrecord|parquet|hf|jsonl|csv|arrayrecord|webdataset"


@command(
    "tfrtool convert shards/pets pets-parquet --to hf",
    "tfrtool convert train.parquet shards --name pets --shards 4",
    "tfrtool convert 'shards/*.tfrecord*' rows.jsonl --select label,image/filename",
    "tfrtool convert shards/pets kept --to parquet --exact --verify bytes",
    options={
        f"--from {_FORMATS}": "The format of SOURCE; the default is told from names and bytes.",
        f"--to {_FORMATS}": "The format of TARGET; the default is told from its name, or is "
        "tfrecord for tables.",
        "--select A,B": "Keep these columns only.",
        "--rename OLD=NEW ...": "Give a column another name; repeat for each.",
        "--cast NAME:TYPE ...": "Make a column of a table int64, float32 or string; repeat for "
        "each.",
        "--label-feature NAME": "The column that is the label, for WebDataset's .cls members and "
        "for dataset_info.json.",
        "--delimiter CHAR": "The character between the columns of CSV, or tab. The default is "
        "found in each file, among comma, semicolon, tab and |.",
        "--exact": "Keep the payloads' own bytes, too, in a column _payload: the way back is byte "
        "for byte.",
        "--verify none|values|bytes=values": "Read TARGET back and compare all values with "
        "SOURCE, or the payloads byte for byte.",
        "--shards N": "Number of files of each split.",
        "--shard-size SIZE": "About what a file holds before compression. The default is 128MiB.",
        **TARGET_OPTIONS,
        **ENGINE,
        "--on-error skip|stop=skip": "Leave out damaged records and what is no Example among "
        "Examples (exit code 3), or stop at the first.",
    },
)
@click.argument("source", nargs=-1, required=True, type=INPUT)
@click.argument("target", type=OUTPUT_OR_URL)
def convert_command(
    source: tuple[str, ...],
    target: str,
    select: str | None,
    rename: tuple[str, ...],
    cast: tuple[str, ...],
    as_json: bool,
    **words: Any,
) -> Outcome:
    """Write records of one format as another.

    SOURCE: files, quoted globs and directories of one format. TARGET: a directory, or one file with
    an ending such as .parquet. Splits, class names, images and TFDS metadata go along; what TARGET
    can't keep is said before anything is written. Exit code 3 means that records were left out.
    """
    from tfrtool.cli.bars import Bars
    from tfrtool.convert.formats.conversion import convert, shorten_notes

    casts = pairs_of(cast, "NAME:TYPE", ":")
    existing, renamed = existing_of(words), pairs_of(rename, "OLD=NEW")
    with Bars() as bars:
        report = convert(
            source,
            target,
            from_format=words.pop("from"),
            select=(select or "").split(",") if select else (),
            rename=renamed,
            cast=casts,
            existing=existing,
            on_progress=bars,
            on_note=(lambda _: None) if words["dry_run"] else note,
            **words,
        )
    told = [f"{report.source} to {report.target}"]
    if report.job.dry_run:
        told += [f"  {name}: {kind}" for name, kind in report.columns.items()]
        told += [*(f"not kept: {text}" for text in shorten_notes(report.losses))]
        told += shorten_notes(report.notes)
    data, more = report.to_json(), map(printable, told)
    return show_job(report.job, as_json=as_json, data=data, more=more)
