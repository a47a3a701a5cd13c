"""``tfrtool evaluate``."""

from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.damage import warn_of_damage
from tfrtool.cli.output import Outcome, emit, warn_of_letters
from tfrtool.cli.parameters import INPUT, LOCAL_INPUT, command, resolve_dataset
from tfrtool.errors import human_count, printable
from tfrtool.page import Heading, Page, Table, facts, shortened
from tfrtool.training.evaluate_options import EvaluateOptions

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
def evaluate_command(model: str, dataset: str, *, as_json: bool, **given: Any) -> Outcome:
    """Evaluate a model on a dataset and show its worst mistakes.

    MODEL is a model.keras file, or the directory that tfrtool train --out wrote. DATASET is a
    directory of shards with classes that the model knows.

    Exit code 3 means that damaged records were skipped.
    """
    path = resolve_dataset(dataset)
    with Bars() as bars:
        with bars.loading_tensorflow():
            from tfrtool.loading.tensors import start_devices
            from tfrtool.training.evaluation import evaluate

            start_devices()

        report = evaluate(model, path, **given, on_progress=bars)
    warn_of_damage(report.damage)
    emit(report.to_json() if as_json else _page(report, given["out"], given["top_k"]))
    if given["out"]:
        from tfrtool.images.letters import undrawn

        warn_of_letters(undrawn(report.names))
    return Outcome.DAMAGE if report.skipped else Outcome.FINE


def _page(report: "EvaluationReport", out: str | None, top_k: int) -> Page:
    """Return what ``evaluate`` shows: the figures, each class, what was taken for what."""
    from tfrtool.loading.labels import Task

    names = [printable(name) for name in report.names]
    mean = f"precision {report.precision:.4f}, recall {report.recall:.4f}, F1 {report.f1:.4f}"
    ranked, near = [], (f"top-{top_k} accuracy", _figure(report.top_k_accuracy))
    if report.task is Task.MULTI:
        ranked = [("mean average precision", _figure(report.mean_average_precision))]
    page: list[str | Table] = [
        Heading(f"{printable(str(report.model))} on {printable(str(report.dataset))}"),
        facts(
            ("split", f"{printable(report.split)}, {human_count(report.images, 'image')}"),
            ("accuracy", f"{report.accuracy:.4f}"),
            *([] if report.top_k_accuracy is None else [near]),
            ("loss", f"{report.loss:.4f}"),
            ("AUC", _figure(report.auc)),
            *ranked,
            ("classes", f"{len(names):,}; macro average: {mean}"),
        ),
    ]
    # The worst first, where not all can be shown; those without images last.
    classes = sorted(report.classes, key=lambda one: 2.0 if one.f1 is None else one.f1)
    classes = classes[:_CLASSES] if len(classes) > _CLASSES else [*report.classes]
    rows = [
        (
            printable(one.label),
            f"{one.images:,}",
            *(_figure(value) for value in (one.precision, one.recall, one.f1)),
        )
        for one in classes
    ]
    head = ("class", "images", "precision", "recall", "F1")
    page += [Heading("classes"), Table(head=head, rows=rows, right=range(1, 5))]
    page += shortened([], 0, len(names) - len(classes))
    if report.task is Task.SINGLE and len(names) <= _MATRIX:
        matrix = [
            (name, *(f"{report.confusion.get((n, m), 0):,}" for m in range(len(names))))
            for n, name in enumerate(names)
        ]
        page += [
            Heading("confusion matrix (rows: true label, columns: prediction)"),
            Table(head=("", *names), rows=matrix, right=range(1, len(names) + 1)),
        ]
    elif pairs := report.most_confused(_PAIRS):
        found = [(printable(one), printable(other), f"{n:,}") for one, other, n in pairs]
        page += [
            Heading("most confused"),
            Table(head=("true label", "prediction", "images"), rows=found, right=(2,)),
        ]
    if report.most_wrong:
        page += [Heading("worst mistakes"), _mistakes(report)]
    if out is not None:
        page += [Heading(f"written to {printable(out)}")]
    return page


def _mistakes(report: "EvaluationReport") -> Table:
    rows = []
    for one in report.most_wrong[:_WORST]:
        labels, predicted = (", ".join(names) or "none" for names in (one.labels, one.predicted))
        sure = max((one.probabilities[name] for name in one.predicted), default=None)
        record = "-" if one.record is None else f"{one.record:,}"
        found = printable(labels), printable(predicted), _figure(sure), record
        rows.append((*found, printable(one.shard.name)))
    head = ("true label", "prediction", "probability", "record", "shard")
    return Table(head=head, rows=rows, right=(2, 3))


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
