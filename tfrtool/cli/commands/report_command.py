"""``tfrtool report``."""

from typing import Any

import click

from tfrtool.cli.output import Bars, Outcome, emit, note, warn
from tfrtool.cli.parameters import INPUT, command
from tfrtool.errors import human_bytes, human_count
from tfrtool.page import Heading, facts
from tfrtool.view.view_options import ReportFileOption, ReportOptions


@command(
    "tfrtool report shards/pets --out pets.html",
    "tfrtool report 'data/*.tfrecord*' --out data.html --overwrite",
    options=(ReportFileOption, ReportOptions),
)
@click.argument("dataset", nargs=-1, type=INPUT, required=True)
def report_command(dataset: tuple[str, ...], out: str, as_json: bool, **words: Any) -> Outcome:
    """Write an HTML page that shows a dataset.

    DATASET is a directory of shards, or files and quoted globs. The page is one file of at most
    5 MB. It shows the first 200 faults, the balance and order of classes, example images, unusual
    and similar images, and statistics of each feature.

    Exit code 3 means that the dataset has faults, or that a part of the report failed.
    """
    from tfrtool.storage.json_values import to_json_values
    from tfrtool.view.report import report

    with Bars() as bars:
        written = report(dataset, out, on_progress=bars, **words)
    for text in written.notes:
        note(text)
    for step, why in written.errors.items():
        warn(f"the report is incomplete: {step}: {why}")
    if written.faults:
        count = human_count(written.faults, "fault")
        warn(f"{count}: see Problems in the report, or run {written.faults_command} to list them")
    shown = facts(
        ("shows", human_count(written.records, "record")), ("size", human_bytes(written.bytes))
    )
    values = to_json_values(written)
    emit(values if as_json else [Heading(values["out"]), shown])
    return Outcome.DAMAGE if written.faults or written.errors else Outcome.FINE
