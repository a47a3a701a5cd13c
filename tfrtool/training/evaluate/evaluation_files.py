"""The files of an evaluation: predictions, confusion matrix, the worst mistakes, the report."""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tfrtool.errors import UsageError, WriteError, os_errors_as
from tfrtool.images.charts import MOST_CHARTED, draw_confusion, shortened_name
from tfrtool.images.pixels import Picture, draw_pixels
from tfrtool.images.sheet import MIN_THUMB, SheetLayout, Tile, draw_sheet, save_sheet
from tfrtool.loading.labels import Task
from tfrtool.storage.atomic_files import new_file
from tfrtool.training.evaluate.evaluation import EvaluationReport, ImageResult

PREDICTIONS, CONFUSION = "predictions.jsonl", "confusion.png"
SHEET, REPORT = "most_wrong.png", "evaluation.json"

_THUMB = 160
"""Pixels of an image's side on the sheet at most; smaller ones are enlarged by whole factors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """An image that was taken for another class: its pixels, uint8 [size, size, 3]."""

    result: ImageResult
    pixels: Any


class EvaluationFiles:
    """A folder for what an evaluation writes; the report comes last."""

    def __init__(self, folder: Path, *, overwrite: bool) -> None:
        """Make the folder; `UsageError` if something is there that would be replaced."""
        self.folder, self._overwrite = folder, overwrite
        with os_errors_as(WriteError, folder, "can't be written to"):
            folder.mkdir(parents=True, exist_ok=True)
            there = {path.name for path in folder.iterdir()}
        for name in (PREDICTIONS, CONFUSION, SHEET, REPORT):
            if name in there and not overwrite:
                raise UsageError(
                    "already exists", path=folder / name, hint="use --overwrite to replace it"
                )

    def predictions(self) -> AbstractContextManager[IO[bytes]]:
        """Give the file for lines of predictions."""
        return self._new(PREDICTIONS)

    def save(self, report: EvaluationReport, mistakes: Sequence[Mistake]) -> None:
        """Draw the pictures, and write the report."""
        title = f"{report.split}: {report.images:,} images, accuracy {report.accuracy:.3f}"
        with os_errors_as(WriteError, self.folder, "can't be written"):
            for name in (CONFUSION, SHEET):  # an earlier evaluation may have had them
                (self.folder / name).unlink(missing_ok=True)
            if report.task is Task.SINGLE and len(report.names) <= MOST_CHARTED:
                with self._new(CONFUSION) as file:
                    file.write(draw_confusion(report.confusion, report.names, title))
            if mistakes:
                side = mistakes[0].pixels.shape[0]
                thumb = max(_THUMB // side * side, MIN_THUMB) if side <= _THUMB else _THUMB
                layout = SheetLayout(images=len(mistakes), thumb=thumb)
                what = f"worst {len(mistakes):,} of {report.images:,} images: label, and below it "
                what += "the prediction with its probability"
                sheet = draw_sheet([_tile(one) for one in mistakes], layout, what)
                with self._new(SHEET) as file:
                    save_sheet(sheet, file, ".png")
            with self._new(REPORT) as file:
                text = json.dumps(report.to_json(), indent=2, allow_nan=False)
                file.write(f"{text}\n".encode("ascii"))

    @contextmanager
    def _new(self, name: str) -> Iterator[IO[bytes]]:
        path = self.folder / name
        with (
            os_errors_as(WriteError, path, "can't be written"),
            new_file(path, replace=self._overwrite) as file,
        ):
            yield file


def _tile(mistake: Mistake) -> Tile:
    result = mistake.result
    drawn = draw_pixels(mistake.pixels.tobytes(), mistake.pixels.shape, _THUMB)
    record = "" if result.record is None else f" #{result.record}"
    labels, predicted = (", ".join(one) or "none" for one in (result.labels, result.predicted))
    sure = max((result.probabilities[name] for name in result.predicted), default=0.0)
    label, note = shortened_name(labels, 18), shortened_name(predicted, 8)
    return Tile(Picture(drawn.image), label, f"{sure:.0%}{record}", note=note)
