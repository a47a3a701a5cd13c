"""One training run, from the opened dataset to the saved model."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.loading.pipeline.load_options import Cache, Recipe
from tfrtool.storage.progress import OnProgress, silent
from tfrtool.training.features.extraction import Extraction
from tfrtool.training.features.precision import check_precision
from tfrtool.training.models.models import build_classifier, rescale_for
from tfrtool.training.run.checkpoints import (
    CHECKPOINTS,
    Checkpoints,
    RunState,
    check_same,
    crc_of,
    read_run,
    request_of,
    unusable,
)
from tfrtool.training.run.epoch_iterator import EpochIterator
from tfrtool.training.run.run_folder import run_directory, save_run
from tfrtool.training.run.train_options import RescaleTo, TrainOptions
from tfrtool.training.run.train_report import EpochReport, TrainPlan, TrainReport
from tfrtool.training.run.trainer import Spent, Trainer
from tfrtool.training.run.training_callbacks import EpochLogs, StepProgress, StepTrace
from tfrtool.training.run.training_data import TrainingData, find_training_data, plan_run_cache

OnPlan = Callable[[TrainPlan], None]
OnEpoch = Callable[[EpochReport], None]

_Iterators = tuple[EpochIterator, EpochIterator | None]


def run_training(
    options: TrainOptions,
    *,
    dataset: Dataset | None = None,
    callbacks: Sequence[Any] = (),
    on_plan: OnPlan = lambda _: None,
    on_epoch: OnEpoch = lambda _: None,
    on_progress: OnProgress = silent,
) -> TrainReport:
    """Train as `train` does, by options."""
    start = time.perf_counter(), time.process_time()
    check_precision(options.precision)
    with ExitStack() as stack:
        before = None
        if options.out is not None:
            stack.enter_context(run_directory(options.out, resume=options.resume))
            before = read_run(options.out)
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tfrtool-")))
        data = find_training_data(options, scratch, on_progress, dataset)
        run = _Run(options, data, before, on_progress, start)
        on_plan(run.plan)
        run.train(callbacks, on_epoch)
        return run.finish()


class _Run:
    """A run whose model is built, while its first images are decoded.

    Attributes:
        plan: what was decided.
    """

    def __init__(
        self,
        options: TrainOptions,
        data: TrainingData,
        before: RunState | None,
        on_progress: OnProgress,
        start: tuple[float, float],
    ) -> None:
        self._options, self._on_progress, self._start = options, on_progress, start
        self._request = request_of(options, data.original)
        if before is not None and options.out is not None:
            check_same(options.out, before.request, len(before.epochs), self._request)
        cache = plan_run_cache(options, data, None if before is None else before.cache)
        if before is not None:
            rescale = before.rescale
        elif options.rescale is RescaleTo.DATASET:
            rescale = data.measured_rescale(on_progress)
        else:
            rescale = rescale_for(options.model, unit=options.rescale is RescaleTo.UNIT)
        self._epochs = [] if before is None else list(before.epochs)
        self._seconds = [] if before is None else list(before.seconds)
        self._stopped = before is not None and before.stopped
        done, features = len(self._epochs), cache.cache is Cache.FEATURES
        self._data = data.changed(
            rescale=rescale,
            cache=Cache.NONE if features else cache.cache,  # a loader keeps no features
            first_epoch=done,
            epochs=max(options.epochs - done, 1),
        )
        self._source = self._begin(features)
        keras.utils.set_random_seed(options.seed)
        self._classifier = build_classifier(
            options.model,
            data.training.image_size,
            len(data.dataset.class_names),
            options.initial_weights,
            options.trainable,
        )
        core, head = self._classifier.core, self._classifier.head
        self._trainer = Trainer(core, options.rate, head if features else None)
        self._prepare_checkpoints(before)
        images, validated = data.images
        damage = data.dropped
        self.plan = TrainPlan(
            model=options.model,
            recipe=options.recipe.value,
            cache=cache.cache.value,
            cache_reason=cache.reason,
            image_size=data.training.image_size,
            class_names=data.dataset.class_names,
            train_images=images,
            validation_images=validated,
            trainable_parameters=sum(
                variable.value.shape.num_elements() for variable in core.trainable_variables
            ),
            learning_rate=options.rate,
            rescale=rescale,
            precision=options.precision.value,
            augment=None if options.augment is None else str(options.augment),
            deterministic=options.deterministic,
            left_out=() if damage is None else damage.lines,
            n_left_out=0 if damage is None else damage.n_left_out,
            epochs_before=done,
            profile=options.profile_folder,
        )

    @property
    def _is_over(self) -> bool:
        """Whether there is no epoch to come."""
        return self._stopped or len(self._epochs) >= self._options.epochs

    def _begin(self, features: bool) -> Extraction | _Iterators | None:
        """Begin to read what the first epoch will need, if there is one to come."""
        if self._is_over:
            return None
        if features:
            return Extraction(self._data)
        with self._data.naming_damage():
            iterators = self._data.iterators(self._on_progress)
            iterators[0].start()
        return iterators

    def _prepare_checkpoints(self, before: RunState | None) -> None:
        """Get ready to keep what changes, and bring back what a run before has kept."""
        options, model = self._options, self._trainer.model
        frozen = self._classifier.base.variables if self._classifier.frozen else []
        self._frozen, apart = crc_of(frozen), {id(variable) for variable in frozen}
        self._kept = [id(variable) not in apart for variable in model.weights]
        self._checkpoints, self._best = None, []
        if options.early_stopping is not None:
            self._best = [tf.Variable(weight.value) for weight in self._keep(model.weights)]
        if options.out is None or options.recipe is not Recipe.TFRTOOL:
            return
        changing = [one for one in self._classifier.core.variables if id(one) not in apart]
        state = [one.value for one in (*changing, *self._trainer.optimizer.variables)]
        self._checkpoints = Checkpoints(options.out, state, self._best)
        if before is not None:
            if before.frozen != self._frozen:
                reason = "the frozen weights are not those that the run began with"
                raise unusable(options.out / CHECKPOINTS, reason)
            self._checkpoints.restore(len(before.epochs))

    def _keep(self, weights: Sequence[Any]) -> list[Any]:
        """Return those of the model's weights that may change."""
        return [weight for weight, kept in zip(weights, self._kept, strict=True) if kept]

    def train(self, given: Sequence[Any], on_epoch: OnEpoch) -> None:
        """Train until all epochs are done, or a callback stops the training."""
        options, source, model = self._options, self._source, self._trainer.model
        if source is None:
            return
        iterators = source.iterators if isinstance(source, Extraction) else source
        own = [StepProgress(self._on_progress)]
        if options.tensorboard is not None:
            own.append(EpochLogs(options.tensorboard))
        stopper = self._stopper()
        with ExitStack() as stack:
            if options.profile_folder is not None:
                trace = StepTrace(options.profile_folder, iterators[0].steps)
                stack.callback(trace.stop)
                own.append(trace)
            callbacks = keras.callbacks.CallbackList(
                [*own, *given, *([] if stopper is None else [stopper])],
                model=model,
                epochs=options.epochs,
                steps=iterators[0].steps,
                verbose=0,
            )
            model.stop_training = False
            callbacks.on_train_begin()
            if stopper is not None and self._epochs:
                self._bring_back(stopper)
            spent = Spent()
            if isinstance(source, Extraction):
                base, rescale = self._classifier.base, self.plan.rescale
                iterators, spent = source.run(
                    base, rescale, options.precision, callbacks, self._on_progress
                )
            while not self._is_over:
                with self._data.naming_damage():
                    number = len(self._epochs) + 1
                    epoch = self._trainer.run_epoch(number, iterators, callbacks, spent)
                spent = Spent()
                self._epochs.append(epoch)
                self._stopped = model.stop_training
                self._save(stopper)
                on_epoch(epoch)
            callbacks.on_train_end()

    def _stopper(self) -> Any:
        """Return the callback for early stopping; None where nobody asked for it."""
        if self._options.early_stopping is None:
            return None
        return keras.callbacks.EarlyStopping(
            "loss" if self._data.validation is None else "val_loss",
            patience=self._options.early_stopping,
            mode="min",
            restore_best_weights=True,
        )

    def _bring_back(self, stopper: Any) -> None:
        """Give early stopping what it knew after the epochs that were done before."""
        best = self._best_epoch()
        stopper.best, stopper.best_epoch = best.monitored, best.epoch - 1
        stopper.wait = len(self._epochs) - best.epoch
        stopper.best_weights = self._best_weights()

    def _best_epoch(self) -> EpochReport:
        return min(self._epochs, key=lambda epoch: epoch.monitored)

    def _best_weights(self) -> list[Any]:
        best = iter(self._best)
        weights = self._trainer.model.get_weights()
        return [
            next(best).numpy() if kept else weight
            for weight, kept in zip(weights, self._kept, strict=True)
        ]

    def _save(self, stopper: Any) -> None:
        """Keep a checkpoint of the last epoch."""
        self._seconds.append(self._before + time.perf_counter() - self._start[0])
        if self._checkpoints is None:
            return
        if stopper is not None:
            for variable, weight in zip(self._best, self._keep(stopper.best_weights), strict=True):
                variable.assign(weight)
        state = RunState(
            request=self._request,
            cache=self.plan.cache,
            rescale=self.plan.rescale,
            frozen=self._frozen,
            epochs=tuple(self._epochs),
            seconds=tuple(self._seconds),
            stopped=self._stopped,
        )
        self._checkpoints.save(state)

    @property
    def _before(self) -> float:
        """Seconds that the run took before it was resumed."""
        done = self.plan.epochs_before
        return self._seconds[done - 1] if done else 0.0

    def finish(self) -> TrainReport:
        """Save what came of the run, with the weights of the best epoch if it was to look."""
        stopping = self._options.early_stopping is not None
        if stopping and self._source is None:
            self._trainer.model.set_weights(self._best_weights())
        wall, cpu = self._start
        report = TrainReport(
            plan=self.plan,
            epochs=tuple(self._epochs),
            seconds=self._before + time.perf_counter() - wall,
            cpu_seconds=time.process_time() - cpu,
            best_epoch=self._best_epoch().epoch if stopping else None,
            stopped_early=len(self._epochs) < self._options.epochs,
        )
        if self._options.out is not None:
            save_run(self._options.out, self._classifier.core, report)
        return report
