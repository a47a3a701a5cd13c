"""An evaluation as text."""

from tfrtool.cli.render.page import Heading, Page, Table, facts, shortened
from tfrtool.errors import human_count, printable
from tfrtool.training.evaluate.evaluation import EvaluationReport

_MATRIX, _CLASSES, _PAIRS, _WORST = 12, 50, 10, 10
"""The most classes of a matrix in text, and the most lines of the other tables."""


def evaluation_page(report: EvaluationReport, out: str | None) -> Page:
    """Return what ``evaluate`` shows: the figures, each class, what was taken for what."""
    names = [printable(name) for name in report.names]
    mean = ", ".join(f"{name} {report.mean(name):.4f}" for name in ("precision", "recall", "f1"))
    page: list[str | Table] = [
        Heading(f"{printable(str(report.model))} on {printable(str(report.dataset))}"),
        facts(
            ("split", f"{printable(report.split)}, {human_count(report.images, 'image')}"),
            ("accuracy", f"{report.accuracy:.4f}"),
            ("loss", f"{report.loss:.4f}"),
            ("classes", f"{len(names):,}; their means: {mean}"),
        ),
    ]
    # The worst first, where not all can be shown.
    classes = sorted(report.classes, key=lambda one: -1.0 if one.f1 is None else one.f1)
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
    if len(names) <= _MATRIX:
        matrix = [
            (name, *(f"{report.confusion.get((n, m), 0):,}" for m in range(len(names))))
            for n, name in enumerate(names)
        ]
        page += [
            Heading("confusion: a row a label, a column a prediction"),
            Table(head=("", *names), rows=matrix, right=range(1, len(names) + 1)),
        ]
    elif pairs := report.most_confused(_PAIRS):
        found = [(printable(one), printable(other), f"{n:,}") for one, other, n in pairs]
        page += [
            Heading("most confused"),
            Table(head=("label", "predicted", "images"), rows=found, right=(2,)),
        ]
    if report.most_wrong:
        wrong = [
            (
                printable(one.label),
                printable(one.predicted),
                f"{one.probability:.4f}",
                "-" if one.record is None else f"{one.record:,}",
                printable(one.shard.name),
            )
            for one in report.most_wrong[:_WORST]
        ]
        head = ("label", "predicted", "probability", "record", "shard")
        page += [Heading("most wrong"), Table(head=head, rows=wrong, right=(2, 3))]
    if out is not None:
        page += [Heading(f"written to {printable(out)}")]
    return page


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
