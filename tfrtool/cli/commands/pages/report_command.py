"""``tfrtool report``."""

from typing import Any

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.output import Outcome, emit, note, warn
from tfrtool.cli.parameters import INPUT, OUTPUT_OR_URL, WORKERS, command
from tfrtool.cli.render.page import Heading, Table, facts
from tfrtool.errors import UsageError, human_bytes, human_count


@command(
    "tfrtool report shards/pets --out pets.html",
    "tfrtool report 'data/*.tfrecord*' --out data.html --overwrite",
    "tfrtool report --run runs/cnn --out run.html",
    options={
        "--out FILE!": "HTML file to write.",
        "--run RUN": "Show a training run instead of a dataset: the directory that tfrtool train "
        "--out wrote, with or without tfrtool evaluate --out.",
        "--overwrite": "Replace an existing file.",
        **WORKERS,
    },
    kinds={"RUN": INPUT, "FILE": OUTPUT_OR_URL},
)
@click.argument("dataset", nargs=-1, type=INPUT)
def report_command(
    dataset: tuple[str, ...], out: str, run: str | None, as_json: bool, **words: Any
) -> Outcome:
    """Write an HTML page that shows a dataset or a training run.

    DATASET is a directory of shards, or files and quoted globs. The page is one file of at most
    5 MB. It shows the first 200 faults, the balance and order of classes, example images, unusual
    and similar images, and statistics of each feature.

    Exit code 3 means that the dataset has faults, or that a part of the report failed.
    """
    if bool(dataset) == (run is not None):
        raise UsageError("expected either DATASET or --run RUN")
    from tfrtool.storage.json_values import to_json_values

    if run is not None:
        from tfrtool.view.run_report import run_report

        words.pop("workers")
        of_run = run_report(run, out, **words)
        _show(as_json, to_json_values(of_run), human_count(of_run.epochs, "epoch"))
        return Outcome.FINE
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
    _show(as_json, to_json_values(written), human_count(written.records, "record"))
    return Outcome.DAMAGE if written.faults or written.errors else Outcome.FINE


def _show(as_json: bool, written: dict[str, Any], shown: str) -> None:
    page: list[str | Table] = [
        Heading(written["out"]),
        facts(("shows", shown), ("size", human_bytes(written["bytes"]))),
    ]
    emit(written if as_json else page)
