"""``tfrtool convert``."""

from typing import Any

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.jobs import show_job
from tfrtool.cli.output import Outcome, note
from tfrtool.cli.parameters import INPUT, OUTPUT_OR_URL, command
from tfrtool.convert.convert_options import ConvertOptions
from tfrtool.errors import printable


@command(
    "tfrtool convert shards/pets pets-hf --to hf",
    "tfrtool convert train.parquet shards --name pets --shards 4",
    "tfrtool convert 'shards/*.tfrecord*' rows.jsonl --select label",
    "tfrtool convert shards/pets exact --to parquet --exact --verify bytes",
    options=ConvertOptions,
)
@click.argument("source", nargs=-1, required=True, type=INPUT)
@click.argument("target", type=OUTPUT_OR_URL)
def convert_command(source: tuple[str, ...], target: str, as_json: bool, **words: Any) -> Outcome:
    """Convert records between TFRecord and other formats.

    SOURCE is one or more files, quoted globs or directories of one format. TARGET is a directory,
    or a file such as rows.parquet. Splits, class names, images and TFDS metadata are kept. What
    TARGET can't store is reported before anything is written.

    Exit code 3 means that damaged records, or records that aren't Examples, were skipped.
    """
    from tfrtool.convert.formats.conversion import convert, shorten_notes

    with Bars() as bars:
        on_note = (lambda _: None) if words["dry_run"] else note
        report = convert(source, target, **words, on_progress=bars, on_note=on_note)
    lines = [f"{report.source} to {report.target}"]
    if report.job.dry_run:
        lines += [f"  {name}: {kind}" for name, kind in report.columns.items()]
        lines += [f"not kept: {text}" for text in shorten_notes(report.losses)]
        lines += shorten_notes(report.notes)
    data, more = report.to_json(), map(printable, lines)
    return show_job(report.job, as_json=as_json, data=data, more=more)
