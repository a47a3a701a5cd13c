"""``tfrtool report``."""

from typing import Any

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.output import Outcome, emit, note, warn
from tfrtool.cli.parameters import INPUT, OUTPUT_OR_URL, WORKERS, GroupedOption, command
from tfrtool.cli.render.page import Heading, Table, facts
from tfrtool.errors import UsageError, human_bytes, human_count


@command(
    "tfrtool report shards/pets --out pets.html",
    "tfrtool report 'data/*.tfrecord*' --out data.html --overwrite",
    "tfrtool report --run runs/cnn --out run.html",
    options={
        "--run RUN": "A folder that tfrtool train --out, and perhaps tfrtool evaluate --out, "
        "wrote: the page shows that run instead of a dataset.",
        "--overwrite": "Replace an existing file.",
        **WORKERS,
    },
    kinds={"RUN": INPUT},
)
@click.option(
    "--out",
    cls=GroupedOption,
    required=True,
    type=OUTPUT_OR_URL,
    metavar="FILE",
    help="The page to write, .html.",
)
@click.argument("dataset", nargs=-1, type=INPUT)
def report_command(
    dataset: tuple[str, ...], out: str, run: str | None, as_json: bool, **words: Any
) -> Outcome:
    """Write one HTML file that shows a dataset or a training run.

    DATASET: a directory with shards; or files and quoted globs. The page has what it is, every
    fault, balance and shuffling, examples of each class, unusual images and those that look alike,
    and the statistics of every feature. It is at most 5 MB. Exit code 3 means that something is
    wrong with the dataset, or could not be found out.
    """
    if bool(dataset) == (run is not None):
        raise UsageError("a report is of a dataset, or of a run: name one of them")
    from tfrtool.storage.plain import plain

    if run is not None:
        from tfrtool.view.run_report import run_report

        words.pop("workers")
        of_run = run_report(run, out, **words)
        _say(as_json, plain(of_run), human_count(of_run.epochs, "epoch"))
        return Outcome.FINE
    from tfrtool.view.report import report

    with Bars() as bars:
        written = report(dataset, out, on_progress=bars, **words)
    for text in written.notes:
        note(text)
    for step, why in written.errors.items():
        warn(f"not known ({step}): {why}")
    if written.faults:
        count = human_count(written.faults, "fault")
        warn(f"{count}: see Problems in the report, or run {written.faults_command} to list them")
    _say(as_json, plain(written), human_count(written.records, "record"))
    return Outcome.DAMAGE if written.faults or written.errors else Outcome.FINE


def _say(as_json: bool, written: dict[str, Any], shown: str) -> None:
    page: list[str | Table] = [
        Heading(written["out"]),
        facts(("shows", shown), ("size", human_bytes(written["bytes"]))),
    ]
    emit(written if as_json else page)
