"""``tfrtool convert``."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tfrtool.cli.jobs import outcome_of, show_job
from tfrtool.cli.output import Bars, Outcome, binary_output, emit_file, note, warn
from tfrtool.cli.parameters import INPUT_OR_STDIN, OUTPUT_OR_STDOUT, command, standard_input
from tfrtool.convert.convert_options import ConvertOptions
from tfrtool.convert.formats.format_specs import FORMATS, names_of_formats
from tfrtool.errors import TfrtoolError, UsageError, printable
from tfrtool.storage.scratch_folder import ScratchFolder


@command(
    "tfrtool convert shards/pets pets-hf --to hf",
    "tfrtool convert train.parquet shards --name pets --shards 4",
    "tfrtool convert 'shards/*.tfrecord*' rows.jsonl --select label",
    "tfrtool convert shards/pets exact --to parquet --exact --verify bytes",
    "tfrtool convert shards/pets - --to csv --select label",
    options=ConvertOptions,
)
@click.argument("source", nargs=-1, required=True, type=INPUT_OR_STDIN)
@click.argument("target", type=OUTPUT_OR_STDOUT)
def convert_command(source: tuple[str, ...], target: str, as_json: bool, **words: Any) -> Outcome:
    """Convert records between TFRecord and other formats.

    SOURCE is one or more files, quoted globs or directories of one format. TARGET is a directory,
    or a file such as rows.parquet. Splits, class names, images and TFDS metadata are kept. What
    TARGET can't store is reported before anything is written. With a format such as --from jsonl
    or --to csv, - is standard input or output.

    Exit code 3 means that damaged records, or records that aren't Examples, were skipped.
    """
    from tfrtool.convert.formats.conversion import convert
    from tfrtool.convert.formats.convert_notes import shorten_notes

    if target == "-" and as_json and not words["dry_run"]:
        raise UsageError("--json can't be used with standard output as TARGET")
    if (target, words["to"]) == ("-", "arrow"):
        binary_output()
    with _files_for_streams(source, target, words["from_format"], words["to"]) as paths:
        with Bars() as bars:
            on_note = (lambda _: None) if words["dry_run"] else note
            report = convert(*paths, **words, on_progress=bars, on_note=on_note)
        if target == "-" and not report.job.dry_run:
            with Path(paths[1]).open("rb") as file:
                emit_file(file)
            if report.job.corrupt:
                note(f"damaged and skipped: {report.job.corrupt:,}")
            for warning in report.job.warnings:
                warn(warning)
            return outcome_of(report.job)
    lines = [f"{report.source} to {report.target}"]
    if report.job.dry_run:
        lines += [f"  {name}: {kind}" for name, kind in report.columns.items()]
        lines += [f"not kept: {text}" for text in shorten_notes(report.losses)]
        lines += shorten_notes(report.notes)
    data = report.to_json() if as_json else None
    return show_job(report.job, as_json=as_json, data=data, more=map(printable, lines))


@contextmanager
def _files_for_streams(
    source: tuple[str, ...], target: str, source_format: str | None, target_format: str | None
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Give temporary files in place of standard input and output; errors name them ``-``."""
    if "-" not in (*source, target):
        yield source, target
        return
    if "-" in source and len(source) > 1:
        raise UsageError("standard input can't be used together with other sources", path="-")
    output_suffix = FORMATS[target_format].stream_suffix if target_format else ""
    if target == "-" and not output_suffix:
        names = names_of_formats(lambda spec: spec.stream_suffix)
        raise UsageError(f"standard output requires --to {names}", path="-")
    with ScratchFolder() as scratch:
        if "-" in source:
            suffix = ""
            if source_format:
                suffix = FORMATS[source_format].stream_suffix or f".{source_format}"
            source = (str(Path(scratch, f"stdin{suffix}")),)
            with Path(source[0]).open("xb") as file:
                shutil.copyfileobj(standard_input(), file)
        if target == "-":
            target = str(Path(scratch, f"stdout{output_suffix}"))
        try:
            yield source, target
        except TfrtoolError as error:
            if str(error.path).startswith(scratch):
                error.path = "-"
            raise
