"""The verb: a dataset of shards becomes a trained model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import keras

from tfrtool.errors import WeightsError
from tfrtool.loading.pipeline.load_options import Cache, Recipe, Rescale
from tfrtool.training.features.extraction import Extraction, begin_extraction
from tfrtool.training.features.features_precision import check_precision
from tfrtool.training.models.models import build_classifier, rescale_for
from tfrtool.training.models.trainable import Learner
from tfrtool.training.run.checkpoint import (
    CHECKPOINT,
    Checkpoint,
    check_same,
    read_checkpoint,
    unusable,
    write_checkpoint,
)
from tfrtool.training.run.clock import Clock
from tfrtool.training.run.epochs import Head, run_epoch
from tfrtool.training.run.feed import Feed
from tfrtool.training.run.listener import Listener, Phase, Step
from tfrtool.training.run.logs import Logs
from tfrtool.training.run.profile import Profiler
from tfrtool.training.run.request import request_of
from tfrtool.training.run.run_plan import Decided, describe_plan, plan_run_cache
from tfrtool.training.run.save import run_directory, save_run
from tfrtool.training.run.snapshots import Snapshots
from tfrtool.training.run.stopping import best_epoch, is_over
from tfrtool.training.run.train_options import RescaleTo, TrainOptions
from tfrtool.training.run.train_report import EpochReport, TrainPlan, TrainReport
from tfrtool.training.run.training_data import Material, find_material, measured_rescale

__all__ = ["Step", "train"]

_Feeds = tuple[Feed, Feed | None]


def train(
    options: TrainOptions,
    on_plan: Callable[[TrainPlan], None] = lambda _: None,
    on_epoch: Callable[[EpochReport], None] = lambda _: None,
    on_step: Callable[[Step], None] = lambda _: None,
    on_phase: Callable[[Phase], None] = lambda _: None,
) -> TrainReport:
    """Train a classifier on a dataset's images.

    Args:
        options: what, on what, and how long.
        on_plan: called once, before the first step.
        on_epoch: called after each epoch, when its checkpoint is whole.
        on_step: called after each step.
        on_phase: called while something is done before the first epoch.

    Raises:
        UsageError: the options don't go together with the dataset, or with the run to go on with.
        DatasetError: the dataset can't be trained on, or the checkpoint can't be used.
        CorruptShardError: a shard is damaged; names the record.
        WeightsError: the weights can't be had.
        WriteError: the directory can't be written to.
    """
    listener = Listener(on_plan=on_plan, on_epoch=on_epoch, on_step=on_step, on_phase=on_phase)
    start = Clock()
    check_precision(options.precision)
    checkpoint = None
    with ExitStack() as stack:
        if options.out is not None:
            stack.enter_context(run_directory(options.out, resume=options.resume))
            checkpoint = read_checkpoint(options.out) if options.resume else None
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tfrtool-")))
        material = find_material(options, scratch, on_phase)
        if checkpoint is not None and options.out is not None:
            check_same(options.out, checkpoint, request_of(options, material.original))
        run = _Run(options, material, checkpoint, listener)
        run.train(start)
        return run.finish(start)


class _Run:
    """One run, from the images to the saved model."""

    def __init__(
        self,
        options: TrainOptions,
        material: Material,
        checkpoint: Checkpoint | None,
        listener: Listener,
    ) -> None:
        """Build the model, while the first images are decoded."""
        self._options, self._listener = options, listener
        self._epochs = [] if checkpoint is None else list(checkpoint.epochs)
        self._best = () if checkpoint is None else checkpoint.best
        self._seconds_before = 0.0 if checkpoint is None else checkpoint.seconds
        self._request = request_of(options, material.original)
        cache = plan_run_cache(options, material, checkpoint)
        rescale = self._rescale(material, checkpoint)
        done = len(self._epochs)
        self._material = material.changed(
            rescale=rescale,
            # A loader keeps no features.
            cache=Cache.NONE if cache.cache is Cache.FEATURES else cache.cache,
            first_epoch=done,
            epochs=max(options.epochs - done, 1),
        )
        self._source = self._begin(cache.cache is Cache.FEATURES)
        keras.utils.set_random_seed(options.seed)
        self._classifier = build_classifier(
            options.model,
            material.training.image_size,
            len(material.dataset.class_names),
            options.initial_weights,
            options.trainable,
        )
        self._learner = self._make_learner()
        frozen = self._classifier.base.variables if self._classifier.frozen else []
        self._snapshots = Snapshots(self._learner, frozen)
        if checkpoint is not None:
            self._restore(checkpoint)
        decided = Decided(
            cache=cache,
            rescale=rescale,
            parameters=sum(v.value.shape.num_elements() for v in self._learner.weights),
            epochs_before=done,
        )
        self._plan = describe_plan(options, self._material, decided)
        listener.on_plan(self._plan)

    def _restore(self, checkpoint: Checkpoint) -> None:
        reason = None
        if self._options.early_stopping is not None and not checkpoint.best:
            reason = "the weights of its best epoch are missing"
        try:
            self._snapshots.restore(checkpoint.snapshot)
        except WeightsError as error:
            reason = error.what
        if reason is not None and self._options.out is not None:
            raise unusable(self._options.out / CHECKPOINT, reason)

    def _rescale(self, material: Material, checkpoint: Checkpoint | None) -> Rescale:
        if checkpoint is not None:
            return checkpoint.rescale
        if self._options.rescale is RescaleTo.DATASET:
            return measured_rescale(material, self._listener.on_phase)
        return rescale_for(self._options.model, self._options.rescale)

    def _is_over(self) -> bool:
        enough = len(self._epochs) >= self._options.epochs
        return enough or is_over(self._epochs, self._options.early_stopping)

    def _begin(self, featured: bool) -> Extraction | _Feeds | None:
        """Begin to read what the first epoch will need; nothing if there is none to come."""
        if self._is_over():
            return None
        if featured:
            return begin_extraction(self._material)
        with self._material.naming_damage():
            feeds = self._material.feeds(self._listener.on_phase)
            feeds[0].start()
        return feeds

    def _make_learner(self) -> Learner:
        options, classifier = self._options, self._classifier
        if isinstance(self._source, Extraction):
            return Learner(classifier.head, options.rate, classifier.base.output_shape[1:])
        size = self._material.training.image_size
        return Learner(classifier.core, options.rate, (size, size, 3))

    def train(self, start: Clock) -> None:
        """Train until all epochs are done, or no more are worth it."""
        if self._source is None:
            return
        source = self._source
        steps = (source.training if isinstance(source, Extraction) else source[0]).steps
        with (
            Logs(self._options.tensorboard) as logs,
            Profiler(self._plan.profile, steps) as profiler,
        ):
            feeds, before = self._feeds(source, profiler)

            def on_step(step: Step) -> None:
                profiler.step(last=step.done == step.total)
                self._listener.on_step(step)

            while not self._is_over():
                number = len(self._epochs) + 1
                with self._material.naming_damage():
                    epoch = run_epoch(self._learner, number, feeds, on_step, before)
                before = Head()
                self._epochs.append(epoch)
                logs.write(epoch)
                self._keep(self._seconds_before + start.wall)
                self._listener.on_epoch(epoch)

    def _feeds(self, source: Extraction | _Feeds, profiler: Profiler) -> tuple[_Feeds, Head]:
        if not isinstance(source, Extraction):
            return source, Head()

        def on_phase(phase: Phase) -> None:
            profiler.step(last=phase.done == phase.total)
            self._listener.on_phase(phase)

        base, precision = self._classifier.base, self._options.precision
        return source.run(base, self._plan.rescale, precision, on_phase)

    def _keep(self, seconds: float) -> None:
        """Keep the weights of the best epoch, and a checkpoint of the last."""
        if self._options.early_stopping is not None and self._is_best():
            self._best = self._snapshots.take_weights()
        if self._options.out is None or self._options.recipe is not Recipe.TFRTOOL:
            return
        checkpoint = Checkpoint(
            request=self._request,
            cache=self._plan.cache,
            rescale=self._plan.rescale,
            epochs=tuple(self._epochs),
            seconds=seconds,
            snapshot=self._snapshots.take(),
            best=self._best,
        )
        write_checkpoint(self._options.out, checkpoint)

    def _is_best(self) -> bool:
        return best_epoch(self._epochs) is self._epochs[-1]

    def finish(self, start: Clock) -> TrainReport:
        """Take the best weights, and save what came of the run."""
        stopping = self._options.early_stopping is not None
        if stopping:
            self._snapshots.restore_weights(self._best)
        report = TrainReport(
            plan=self._plan,
            epochs=tuple(self._epochs),
            seconds=self._seconds_before + start.wall,
            cpu_seconds=start.cpu,
            best_epoch=best_epoch(self._epochs).epoch if stopping else None,
            stopped_early=len(self._epochs) < self._options.epochs,
        )
        if self._options.out is not None:
            save_run(self._options.out, self._classifier.core, report)
        return report
