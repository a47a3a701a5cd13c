"""The verb: a saved model meets a split of a dataset."""

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from tfrtool.errors import DatasetError, UsageError, WeightsError, some_of
from tfrtool.loading.corrupt import naming_damage
from tfrtool.loading.dataset import Dataset, Split
from tfrtool.loading.labels import Task
from tfrtool.loading.open_dataset import open_dataset
from tfrtool.storage.arguments import OnError, as_local_path, as_member, check_least
from tfrtool.storage.progress import OnProgress, Progress, no_progress
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.training.evaluate.evaluation import ClassFigures, EvaluationReport, ImageResult
from tfrtool.training.evaluate.evaluation_files import EvaluationFiles, Mistake
from tfrtool.training.models.saved_model import SavedModel, load_model
from tfrtool.training.run.scores import EpochScores

_USUAL = ("test", "validation")
"""The splits that are evaluated where none is named: the first that is there."""

_NAMED = 5
_YES = 0.5
_EPSILON = 1e-7
"""By which Keras keeps probabilities away from 0 and 1 in its losses."""


def evaluate(
    model: SavedModel | str | os.PathLike[str],
    dataset: str | os.PathLike[str] | Dataset,
    *,
    split: str | None = None,
    batch_size: int = 32,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    top_losses: int = 36,
    on_error: str | OnError = "stop",
    on_progress: OnProgress = no_progress,
) -> EvaluationReport:
    """Evaluate a model: ``tfrtool.evaluate("run", "shards", out="evaluation")``.

    Images are read once, in record order, and decoded as in training. Memory is bounded by a few
    batches, the worst mistakes, and the number of confused pairs of classes.

    Args:
        model: result of `load_model`, path of a model file, or directory of a run.
        dataset: dataset directory, or an open dataset. Its classes are matched with those of the
            model by name.
        split: split to evaluate. None uses "test", "validation", or the only split.
        batch_size: number of images per batch.
        out: directory for predictions.jsonl, confusion.png, most_wrong.png and evaluation.json,
            which is written last. None writes nothing.
        overwrite: whether to replace existing files with these names.
        top_losses: maximum number of misclassified images to keep and draw.
        on_error: "stop" raises an error for damaged records; "skip" skips them.
        on_progress: called after each batch.

    Raises:
        UsageError: the split does not exist, the dataset has classes that the model does not know,
            or a file to write exists.
        DatasetError: the dataset can't be used.
        CorruptShardError: a shard is damaged; the error names the record.
        WeightsError: the model can't be loaded.
        WriteError: a file can't be written.
    """
    start = time.perf_counter()
    check_least(
        {"batch_size": batch_size, "top_losses": top_losses}, {"batch_size": 1, "top_losses": 0}
    )
    files = None
    if out is not None:
        files = EvaluationFiles(as_local_path(out), overwrite=overwrite)
    saved = model if isinstance(model, SavedModel) else load_model(model)
    skip = as_member(OnError, on_error, "on_error") is OnError.SKIP
    original = dataset if isinstance(dataset, Dataset) else open_dataset(dataset, on_error)
    name = _chosen_split(original, split)
    run = _Evaluation(saved, original, batch_size, top_losses)
    with contextlib.ExitStack() as stack:
        clean, dropped = original, None
        if skip:
            scratch = stack.enter_context(ScratchFolder())
            clean, dropped = original.drop_corrupt(scratch, splits=[name], on_progress=on_progress)
        lines = None if files is None else stack.enter_context(files.predictions())
        with naming_damage(clean, name):
            run.look(clean, name, lines, on_progress)
        report = EvaluationReport(
            model=saved.path,
            dataset=original.directory,
            split=name,
            **run.figures,
            most_wrong=tuple(mistake.result for mistake in run.mistakes),
            skipped=() if dropped is None else dropped.lines,
            n_skipped=0 if dropped is None else dropped.n_skipped,
            seconds=time.perf_counter() - start,
        )
    if files is not None:
        files.save(report, run.mistakes)
    return report


def _chosen_split(dataset: Dataset, split: str | None) -> str:
    names = [*dataset.splits]
    found = split or next((name for name in _USUAL if name in names), None)
    if found is None and len(names) > 1:
        raise UsageError(
            f"ambiguous split: the dataset has {', '.join(names)}",
            path=dataset.directory,
            hint="use --split NAME",
        )
    return dataset.split(found or names[0]).name


class _Evaluation:
    """A model at work on a dataset's images, and what has come of it so far."""

    def __init__(
        self, saved: SavedModel, dataset: Dataset, batch_size: int, top_losses: int
    ) -> None:
        self._saved, self._batch_size, self._top_losses = saved, batch_size, top_losses
        self._names, self._size = saved.facts.class_names, saved.facts.image_size
        self._numbers, self._dataset = self._matched(dataset), dataset
        self.mistakes: list[Mistake] = []  # those with the highest loss, highest first
        self._images, self._losses, self._hits = 0, 0.0, 0.0
        self._confusion = Counter[tuple[int, int]]()
        # Of each class: its images, those that were taken for it, and those that are both.
        self._counts = np.zeros((3, len(self._names)), np.int64)
        self._model = saved.graph()

    def _matched(self, dataset: Dataset) -> Any:
        """Return the model's class number for each of the dataset's."""
        task = self._saved.facts.task
        if dataset.task is not task:
            raise UsageError(
                "the labels don't match the model's task",
                path=dataset.directory,
                expected=task.value,
                found=dataset.task.value,
            )
        numbers = {name: number for number, name in enumerate(self._names)}
        unknown = [name for name in dataset.class_names if name not in numbers]
        if unknown:
            raise UsageError(
                "the dataset has classes that the model lacks",
                path=dataset.directory,
                expected=some_of(list(self._names), _NAMED),
                found=some_of(unknown, _NAMED),
            )
        return np.array([numbers[name] for name in dataset.class_names])

    @property
    def figures(self) -> dict[str, Any]:
        """What a report says of all images."""
        averages = self._scores.averages() or [None] * len(self._names)
        told = [average for average in averages if average is not None]
        counts = zip(self._names, self._counts.T.tolist(), averages, strict=True)
        return {
            "task": self._dataset.task,
            "images": self._images,
            "loss": self._losses / self._images,
            "accuracy": self._hits / self._images,
            "confusion": self._confusion,
            "mean_average_precision": sum(told) / len(told) if told else None,
            "classes": tuple(
                ClassFigures(
                    label=label,
                    images=images,
                    predicted=predicted,
                    right=right,
                    average_precision=average,
                )
                for label, (images, predicted, right), average in counts
            ),
        }

    def look(
        self, dataset: Dataset, name: str, lines: IO[bytes] | None, on_progress: OnProgress
    ) -> None:
        """Run all images of a split through the model, in the order of their records."""
        split, task = dataset.split(name), dataset.task
        batches = dataset.load(
            name,
            image_size=self._size,
            rescale=None,
            training=False,
            batch_size=self._batch_size,
            cycle_length=1,  # shard after shard
        )
        places = _places(split, self._dataset.split(name))
        self._scores = EpochScores(split.records)
        for pixels, labels in batches:
            scores = self._model(pixels).numpy().astype(np.float64)
            if not np.isfinite(scores).all():
                raise WeightsError("its probabilities are not finite", path=self._saved.path)
            truths, guesses = self._told(labels.numpy(), scores)
            losses = self._add(truths, guesses, scores)
            for row, loss in enumerate(losses.tolist()):
                result = self._result(next(places), truths[row], guesses[row], scores[row], loss)
                if result.labels != result.predicted:
                    self.mistakes.append(Mistake(result=result, pixels=pixels[row].numpy()))
                if lines is not None:
                    lines.write(json.dumps(result.to_json(task)).encode("ascii") + b"\n")
            # Of two alike, the first that came stays first.
            self.mistakes.sort(key=lambda mistake: -mistake.result.loss)
            del self.mistakes[self._top_losses :]
            done = self._images
            on_progress(Progress(what="evaluate", done=done, total=split.records, unit="images"))
        if self._images != split.records:
            raise DatasetError("the split has fewer records than counted")

    def _told(self, labels: Any, scores: Any) -> tuple[Any, Any]:
        """Return which classes images have, and which the model says: bool [n, classes] both."""
        truths, rows = np.zeros(scores.shape, np.bool_), np.arange(len(scores))
        if self._dataset.task is Task.MULTI:
            truths[:, self._numbers] = labels > 0
            return truths, scores >= _YES
        guesses = np.zeros_like(truths)
        truths[rows, self._numbers[labels]] = guesses[rows, scores.argmax(axis=1)] = True
        return truths, guesses

    def _add(self, truths: Any, guesses: Any, scores: Any) -> Any:
        """Count a batch, and return the loss of each image, float64 [n]."""
        bounded = np.clip(scores, _EPSILON, 1 - _EPSILON)
        if self._dataset.task is Task.MULTI:
            losses = -np.log(np.where(truths, bounded, 1 - bounded)).mean(axis=1)
            self._hits += float((truths == guesses).mean(axis=1).sum())
            self._scores.add(truths, scores.astype(np.float32))
        else:
            losses = -np.log(bounded[truths])
            pairs = zip(
                truths.argmax(axis=1).tolist(), guesses.argmax(axis=1).tolist(), strict=True
            )
            self._confusion.update(pairs)
            self._hits += int((truths & guesses).sum())
        self._images += len(losses)
        self._losses += float(losses.sum())
        self._counts += np.array([one.sum(axis=0) for one in (truths, guesses, truths & guesses)])
        return losses

    def _result(
        self, place: tuple[Path, int | None], truths: Any, guesses: Any, scores: Any, loss: float
    ) -> ImageResult:
        shard, record = place
        labels, predicted = (
            tuple(self._names[number] for number in np.flatnonzero(one).tolist())
            for one in (truths, guesses)
        )
        found = np.flatnonzero(truths | guesses).tolist()
        return ImageResult(
            shard=shard,
            record=record,
            labels=labels,
            predicted=predicted,
            probabilities={self._names[number]: float(scores[number]) for number in found},
            loss=loss,
        )


def _places(read: Split, original: Split) -> Iterator[tuple[Path, int | None]]:
    """Yield the shard and the number of each record.

    Records of a shard of which a copy without its damage is read have other numbers there: None.
    """
    own = {*original.shards}
    by_name = {path.name: path for path in original.shards}
    for path, length in zip(read.shards, read.lengths, strict=True):
        for record in range(length):
            yield (path, record) if path in own else (by_name.get(path.name, path), None)
