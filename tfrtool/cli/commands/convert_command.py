"""``tfrtool convert``."""

from typing import Any

import click

from tfrtool.cli.job_options import OUTPUT_OPTIONS, existing_policy, parse_pairs, show_job
from tfrtool.cli.output import Outcome, note
from tfrtool.cli.parameters import EXECUTION, INPUT, ON_ERROR, OUTPUT_OR_URL, command
from tfrtool.errors import printable

_FORMATS = "tfrecord|parquet|hf|jsonl|csv|arrayrecord|webdataset"


@command(
    "tfrtool convert shards/pets pets-hf --to hf",
    "tfrtool convert train.parquet shards --name pets --shards 4",
    "tfrtool convert 'shards/*.tfrecord*' rows.jsonl --select label",
    "tfrtool convert shards/pets exact --to parquet --exact --verify bytes",
    options={
        "Source": {
            f"--from {_FORMATS}": "Format of SOURCE.  [default: detected]",
            "--delimiter CHAR": "Column delimiter of CSV files, or tab.  [default: detected]",
            **ON_ERROR,
        },
        "Labels and features": {
            "--select A,B": "Keep only these columns.",
            "--rename OLD=NEW ...": "Rename a column. Repeatable.",
            "--cast NAME:TYPE ...": "Convert a column of a table to int64, float32 or string. "
            "Repeatable.",
            "--label-feature NAME": "Label column, for .cls members of WebDataset and for "
            "dataset_info.json.  [default: detected]",
            "--exact": "Also keep the exact payloads, in a column _payload, so that converting "
            "back gives the same bytes.",
        },
        "Shards": {
            "--shards N": "Number of files per split.",
            "--shard-size SIZE": "Approximate size of a file before compression, such as 100MB. "
            "Not with --shards.  [default: 128MiB]",
        },
        "Output": {
            f"--to {_FORMATS}": "Format of TARGET.  [default: by suffix, or tfrecord for tables]",
            "--verify none|values|bytes=values": "Read TARGET back and compare all values, or "
            "the payloads byte for byte.",
            **OUTPUT_OPTIONS,
        },
        "Execution": EXECUTION,
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
    """Convert records between TFRecord and other formats.

    SOURCE is one or more files, quoted globs or directories of one format. TARGET is a directory,
    or a file such as rows.parquet. Splits, class names, images and TFDS metadata are kept. What
    TARGET can't store is reported before anything is written.

    Exit code 3 means that damaged records, or records that aren't Examples, were skipped.
    """
    from tfrtool.cli.bars import Bars
    from tfrtool.convert.formats.conversion import convert, shorten_notes

    casts = parse_pairs("--cast", cast, "NAME:TYPE, such as price:float32", ":")
    renamed = parse_pairs("--rename", rename, "OLD=NEW, such as class=label")
    existing = existing_policy(words)
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
    lines = [f"{report.source} to {report.target}"]
    if report.job.dry_run:
        lines += [f"  {name}: {kind}" for name, kind in report.columns.items()]
        lines += [f"not kept: {text}" for text in shorten_notes(report.losses)]
        lines += shorten_notes(report.notes)
    data, more = report.to_json(), map(printable, lines)
    return show_job(report.job, as_json=as_json, data=data, more=more)
