"""``tfrtool evaluate``."""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.damage import warn_of_damage
from tfrtool.cli.output import Bars, Outcome, emit, warn_of_letters
from tfrtool.cli.parameters import INPUT, LOCAL_INPUT, command, resolve_dataset
from tfrtool.errors import human_count, printable
from tfrtool.page import Heading, Page, Table, facts, figure_text, shortened
from tfrtool.training.evaluate_options import EvaluateOptions
from tfrtool.training.train_options import check_backend

if TYPE_CHECKING:
    from tfrtool.training.evaluation import EvaluationReport

_MATRIX, _CLASSES, _PAIRS, _WORST = 12, 50, 10, 10
"""The most classes of a matrix in text, and the most lines of the other tables."""


@command(
    "tfrtool evaluate run shards --split test",
    "tfrtool evaluate run/model.keras shards --out evaluation",
    options=EvaluateOptions,
)
@click.argument("model", type=LOCAL_INPUT)
@click.argument("dataset", type=INPUT)
def evaluate_command(model: str, dataset: str, *, as_json: bool, **words: Any) -> Outcome:
    """Evaluate a model on a dataset and show its worst mistakes.

    MODEL is a model.keras file, the directory that tfrtool train --out wrote, or a .keras file of
    your own. DATASET is a directory of shards with classes that the model knows.

    Exit code 3 means that damaged records were skipped.
    """
    check_backend()
    path = resolve_dataset(dataset)
    with Bars() as bars:
        with bars.loading_tensorflow():
            from tfrtool.loading.tensors import start_devices
            from tfrtool.training.evaluation import evaluate

            start_devices()

        report = evaluate(model, path, **words, on_progress=bars)
    warn_of_damage(report.damage)
    emit(report.to_json() if as_json else [*_page(report, words["top_k"]), *_end(report, words)])
    if words["out"]:
        from tfrtool.images.letters import undrawn

        warn_of_letters(undrawn(report.names))
    return Outcome.DAMAGE if report.skipped else Outcome.FINE


def _page(report: "EvaluationReport", top_k: int) -> Page:
    """Return what ``evaluate`` shows: the figures, each class, what was taken for what."""
    from tfrtool.training.tasks import TASKS

    title = f"{printable(str(report.model))} on {printable(str(report.dataset))}"
    split = ("split", f"{printable(report.split)}, {human_count(report.images, 'image')}")
    page: list[str | Table] = [
        Heading(title),
        facts(split, *TASKS[report.task].figures(report, top_k)),
        *(_targets(report) if len(report.targets) > 1 else []),
        *(_classes(report) if report.classes else []),
    ]
    return page


def _targets(report: "EvaluationReport") -> Page:
    rows = [
        (printable(one.target), f"{one.mae:.6g}", f"{one.rmse:.6g}", figure_text(one.r2))
        for one in report.targets
    ]
    head = ("target", "MAE", "RMSE", "R2")
    return [Heading("targets"), Table(head=head, rows=rows, right=range(1, 4))]


def _classes(report: "EvaluationReport") -> Page:
    """Return the figures of classes, and which were confused."""
    # The worst first, where not all can be shown; those without images last.
    classes = sorted(report.classes, key=lambda figures: 2.0 if figures.f1 is None else figures.f1)
    classes = classes[:_CLASSES] if len(classes) > _CLASSES else [*report.classes]
    rows = [
        (
            printable(one.label),
            f"{one.images:,}",
            *map(figure_text, (one.precision, one.recall, one.f1)),
        )
        for one in classes
    ]
    head, names = ("class", "images", "precision", "recall", "F1"), report.names
    page: list[str | Table] = [
        Heading("classes"),
        Table(head=head, rows=rows, right=range(1, 5)),
        *shortened([], 0, len(names) - len(classes)),
    ]
    if report.confusion and len(names) <= _MATRIX:
        matrix = [
            (printable(name), *(f"{report.confusion.get((n, m), 0):,}" for m in range(len(names))))
            for n, name in enumerate(names)
        ]
        page += [
            Heading("confusion matrix (rows: true label, columns: prediction)"),
            Table(head=("", *map(printable, names)), rows=matrix, right=range(1, len(names) + 1)),
        ]
    elif pairs := report.most_confused(_PAIRS):
        found = [(printable(one), printable(other), f"{n:,}") for one, other, n in pairs]
        page += [
            Heading("most confused"),
            Table(head=("true label", "prediction", "images"), rows=found, right=(2,)),
        ]
    return page


def _end(report: "EvaluationReport", words: Mapping[str, Any]) -> Page:
    """Return the worst mistakes, and which files were written."""
    page: list[str | Table] = []
    if report.most_wrong:
        page += [Heading("worst mistakes"), _mistakes(report)]
    if words["out"] is not None:
        page += [Heading(f"written to {printable(words['out'])}")]
    if words["drop_list"] is not None:
        dataset, path = (shlex.quote(str(one)) for one in (report.dataset, words["drop_list"]))
        page += [
            Heading(f"listed in {printable(words['drop_list'])}; to drop these records:"),
            printable(f"tfrtool filter {dataset} TARGET --drop {path}"),
        ]
    return page


def _mistakes(report: "EvaluationReport") -> Table:
    from tfrtool.training.tasks import TASKS

    rows, task = [], TASKS[report.task]
    for one in report.most_wrong[:_WORST]:
        labels, predicted = (", ".join(names) or "none" for names in (one.labels, one.predicted))
        record = "-" if one.record is None else f"{one.record:,}"
        found = printable(labels), printable(predicted), task.mistake_text(one), record
        rows.append((*found, printable(one.shard.name)))
    head = ("true label", "prediction", task.mistake_figure, "record", "shard")
    return Table(head=head, rows=rows, right=(2, 3))
