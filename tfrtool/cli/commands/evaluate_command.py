"""``tfrtool evaluate``."""

import math
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.damage import warn_of_damage
from tfrtool.cli.output import Outcome, emit, warn_of_letters
from tfrtool.cli.parameters import INPUT, LOCAL_INPUT, command, resolve_dataset
from tfrtool.errors import human_count, printable
from tfrtool.page import Heading, Page, Table, facts, shortened
from tfrtool.training.evaluate_options import EvaluateOptions
from tfrtool.training.keras_backend import check_backend

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
    from tfrtool.loading.labels import Task

    names = [printable(name) for name in report.names]
    values = (_figure(value) for value in (report.precision, report.recall, report.f1))
    mean = "precision {}, recall {}, F1 {}".format(*values)
    ranked, near = [], (f"top-{top_k} accuracy", _figure(report.top_k_accuracy))
    if report.task is Task.MULTI:
        ranked = [("mean average precision", _figure(report.mean_average_precision))]
    page: list[str | Table] = [
        Heading(f"{printable(str(report.model))} on {printable(str(report.dataset))}"),
    ]
    split = ("split", f"{printable(report.split)}, {human_count(report.images, 'image')}")
    if report.task is Task.REGRESSION:
        errors = ("loss", report.loss), ("MAE", report.mae), ("RMSE", report.rmse)
        shown = ((name, f"{value:.6g}") for name, value in errors)
        page.append(facts(split, *shown, ("R2", _figure(report.r2))))
        if len(report.targets) > 1:
            each = [
                (printable(one.target), f"{one.mae:.6g}", f"{one.rmse:.6g}", _figure(one.r2))
                for one in report.targets
            ]
            figures = ("target", "MAE", "RMSE", "R2")
            page += [Heading("targets"), Table(head=figures, rows=each, right=range(1, 4))]
        return page
    page += [
        facts(
            split,
            ("accuracy", _figure(report.accuracy)),
            *([] if report.top_k_accuracy is None else [near]),
            ("loss", f"{report.loss:.4f}"),
            ("AUC", _figure(report.auc)),
            *ranked,
            ("classes", f"{len(names):,}; macro average: {mean}"),
        ),
    ]
    # The worst first, where not all can be shown; those without images last.
    classes = sorted(report.classes, key=lambda figures: 2.0 if figures.f1 is None else figures.f1)
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
    rows, regression = [], not report.classes
    for one in report.most_wrong[:_WORST]:
        labels, predicted = (", ".join(names) or "none" for names in (one.labels, one.predicted))
        sure = max((one.probabilities.get(name, 0.0) for name in one.predicted), default=None)
        record = "-" if one.record is None else f"{one.record:,}"
        last = f"{math.sqrt(one.loss):.6g}" if regression else _figure(sure)
        found = printable(labels), printable(predicted), last, record
        rows.append((*found, printable(one.shard.name)))
    third = "error" if regression else "probability"
    head = ("true label", "prediction", third, "record", "shard")
    return Table(head=head, rows=rows, right=(2, 3))


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
