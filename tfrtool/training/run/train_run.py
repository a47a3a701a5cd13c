"""One training run, from the opened dataset to the saved model."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfrtool.errors import TrainingError, UsageError
from tfrtool.loading.cache import CachePlan
from tfrtool.loading.labels import Task
from tfrtool.loading.options import Cache, Recipe
from tfrtool.loading.pipeline import load
from tfrtool.records.crc import crc32c
from tfrtool.storage.progress import OnProgress, Progress, activity
from tfrtool.training.devices.devices import Devices
from tfrtool.training.devices.worker_cluster import StrategyKind
from tfrtool.training.features.extraction import batches_of_features
from tfrtool.training.features.frozen_base import freeze
from tfrtool.training.models.exporting import Exported, export_model
from tfrtool.training.models.models import (
    build_classifier,
    check_layer,
    dtype_policy,
    fine_tuned,
    rescale_for,
)
from tfrtool.training.models.optimizers import make_optimizer
from tfrtool.training.models.saved_model import MODEL_FILE, load_model
from tfrtool.training.run.checkpoints import (
    CHECKPOINTS,
    Checkpoints,
    RunState,
    crc_of,
    request_of,
    unusable,
)
from tfrtool.training.run.part_facts import balanced_weights, is_cheap, look_at
from tfrtool.training.run.run_files import save_history, save_run
from tfrtool.training.run.train_options import Precision, RescaleTo, TrainOptions, check_same
from tfrtool.training.run.train_report import EpochReport, TrainPlan, TrainReport
from tfrtool.training.run.train_warnings import plan_warnings
from tfrtool.training.run.trainer import EpochIterator, Trainer
from tfrtool.training.run.training_callbacks import EpochLogs, StepTrace
from tfrtool.training.run.training_data import TrainingData, agree_on_cache, plan_run_cache

_TUNING = 2
"""The phase in which a run fine-tunes."""

OnEpoch = Callable[[EpochReport], None]

_FOR_THE_BASE = 32
"""Images decoded for a base at a time, a multiple of what it takes."""

_AHEAD = 8
"""Such batches that are decoded while the model is built: 39 MB at 224 pixels."""


class TrainingRun:
    """A run whose model is built, while its first images are decoded; ``plan`` is what it will be.

    Where features are kept, the first images are all images, and go through the base once.
    """

    def __init__(
        self,
        options: TrainOptions,
        data: TrainingData,
        devices: Devices,
        before: RunState | None,
        on_progress: OnProgress,
    ) -> None:
        self._options, self._devices, self._on_progress = options, devices, on_progress
        if devices.kind is not StrategyKind.ONE and isinstance(options.own, keras.Model):
            raise UsageError(
                f"a built keras.Model can't be trained with --strategy {devices.kind.value}",
                hint="pass a function that returns it",
            )
        # The order of images depends on it, and on nothing else of the devices.
        shares = devices.shares if devices.shares > 1 else None
        request = {**request_of(options, data.original), "shares": shares}
        if before is not None and options.out is not None:
            check_same(options.out, before.request, request, len(before.epochs))
        done = 0 if before is None else len(before.epochs)
        devices.check_same(crc32c(json.dumps(request, sort_keys=True).encode("ascii")), done)
        if before is not None:
            rescale = before.rescale
        elif options.rescale is RescaleTo.DATASET:
            rescale = data.measured_rescale(on_progress)
        else:
            rescale = rescale_for(options.model, unit=options.rescale is RescaleTo.UNIT)
        self._epochs = [] if before is None else before.epochs
        self._phase = self._epochs[-1].phase if self._epochs else 1
        self._whole, self._request, self._rescale = data, request, rescale
        cache = self._plan_loading(None if before is None else before.cache)
        weighted = options.class_weights is not None
        if weighted and data.dataset.task is Task.MULTI:
            raise UsageError("--class-weights requires one class per image")
        facts = look_at(data) if weighted or is_cheap(data) else []
        self._class_weights = balanced_weights(facts[0].counts) if weighted else ()
        keras.utils.set_random_seed(options.seed)
        classes, size = data.dataset.class_names, data.training.image_size
        with devices.strategy.scope(), dtype_policy(options.precision.policy):
            self._classifier = build_classifier(
                options.model,
                size,
                len(classes),
                options.initial_weights,
                options.trained,
                options.own,
                task=data.dataset.task,
            )
        if options.fine_tune is not None:
            check_layer(self._classifier, options.fine_tune.layer, options.model)
        if self._phase == _TUNING:
            self._tune()
        self._make_trainer(before)
        images, *validated = data.images
        damage = data.dropped
        self.plan = TrainPlan(
            options=options,
            devices=devices.facts,
            cache=cache,
            rescale=rescale,
            image_size=size,
            class_names=classes,
            task=data.dataset.task,
            notes=data.dataset.notes,
            train_images=images,
            validation_images=sum(validated),
            trainable_parameters=sum(
                variable.value.shape.num_elements()
                for variable in self._classifier.core.trainable_variables
            ),
            skipped=() if damage is None else damage.lines,
            n_skipped=0 if damage is None else damage.n_skipped,
            epochs_before=done,
            phase=self._phase,
            class_weights=self._class_weights,
            warnings=plan_warnings(options, data, facts),
        )

    @property
    def _now(self) -> TrainOptions:
        """What the phase is trained by."""
        second = self._options.second_phase
        return self._options if self._phase == 1 or second is None else second

    @property
    def _of_phase(self) -> list[EpochReport]:
        return [epoch for epoch in self._epochs if epoch.phase == self._phase]

    def _plan_loading(self, before: Cache | None) -> CachePlan:
        """Decide how a phase keeps its images, and begin to load them if it has epochs left."""
        options, devices = self._now, self._devices
        cache = agree_on_cache(plan_run_cache(options, self._whole, before, devices), devices)
        self._cache, self._features = cache.cache, cache.cache is Cache.FEATURES
        self._data = self._whole.changed(
            rescale=self._rescale,
            cache=Cache.NONE if self._features else cache.cache,  # a loader keeps no features
            first_epoch=len(self._epochs),
            epochs=max(options.epochs - len(self._of_phase), 1),
        )
        self._iterators = [] if self._is_over else self._begin_to_load()
        return cache

    def _tune(self) -> None:
        """Have the layers of the second phase be trained."""
        tuning = self._options.fine_tune
        if tuning is not None:
            self._classifier = fine_tuned(self._classifier, tuning.layer, self._options.model)

    def _make_trainer(self, before: RunState | None) -> None:
        """Make what trains a phase, and bring back what a run before has kept of it."""
        options, data = self._now, self._data
        core, head = self._classifier.core, self._classifier.head
        steps = -(-data.images[0] // options.batch_size) * options.epochs
        with self._devices.strategy.scope():
            optimizer = make_optimizer(
                options.optimizer,
                options.rate,
                options.schedule,
                steps,
                scaled=options.precision is Precision.MIXED_FLOAT16,
            )
            self._trainer = Trainer(
                core,
                optimizer,
                head if self._features else None,
                data.dataset.task,
                self._class_weights,
            )
        frozen = self._classifier.base.variables if self._classifier.frozen else []
        self._state = RunState(
            request=self._request,
            cache=self._cache,
            rescale=self._rescale,
            frozen=crc_of(frozen),
            epochs=self._epochs,
        )
        self._prepare_checkpoints(before, {id(variable) for variable in frozen})

    def _begin_to_load(self) -> list[EpochIterator]:
        """Return the batches to train on, and those to validate on if any."""
        data, training, devices = self._data, self._data.training, self._devices
        if self._features:
            ahead = _AHEAD if training.prefetch is None else training.prefetch
            data = data.once(batch_size=_FOR_THE_BASE * devices.shares, prefetch=ahead)
        # The published pipelines are read as they are in the notebooks: anew each epoch.
        at_once = training.recipe is Recipe.TFRTOOL
        iterators = []
        for part, images in zip(data.parts, data.images, strict=True):
            # The base would wait when it comes to the second.
            ahead, steps = self._features or part.training, -(-images // part.batch_size)
            make = partial(load, data.dataset, part, on_progress=self._on_progress)
            with data.naming_damage():
                if self._features:
                    share = devices.share(images, part.batch_size)
                    batches, ranges = devices.own(make)
                    images, steps = share.images(images), steps * ranges
                else:
                    batches = devices.batches(make, ahead=ahead)
                iterators.append(
                    EpochIterator(batches, images, steps, at_once=at_once, ahead=ahead)
                )
        return iterators

    def _prepare_checkpoints(self, before: RunState | None, frozen: set[int]) -> None:
        """Get ready to keep what changes, and bring back what a run before has kept."""
        options, core = self._options, self._classifier.core
        self._weights = [weight for weight in core.weights if id(weight) not in frozen]
        self._best: list[Any] = []
        if options.early_stopping is not None:
            self._best = [tf.Variable(weight.value) for weight in self._weights]
        self._checkpoints = None
        if options.out is None or options.recipe is not Recipe.TFRTOOL:
            return
        changing = [one for one in core.variables if id(one) not in frozen]
        state = [one.value for one in (*changing, *self._trainer.optimizer.variables)]
        saves = self._devices.number == 0
        self._checkpoints = Checkpoints(options.out, state, self._best, saves=saves)
        if before is not None:
            if before.frozen != self._state.frozen:
                reason = "its frozen weights differ from those of the run"
                raise unusable(options.out / CHECKPOINTS, reason)
            self._checkpoints.restore(len(before.epochs))

    @property
    def _best_epoch(self) -> int:
        """The best epoch of the phase."""
        return min(self._of_phase, key=lambda epoch: epoch.monitored).epoch

    @property
    def _is_over(self) -> bool:
        """Whether all epochs of the phase are done, or none was better for long enough."""
        done, patience = len(self._of_phase), self._options.early_stopping
        late = (
            patience is not None and done > 0 and len(self._epochs) - self._best_epoch >= patience
        )
        return late or done >= self._now.epochs

    def train(self, given: Sequence[Any], on_epoch: OnEpoch) -> None:
        """Train until all phases are over, or a callback stops the run."""
        stopped = self._train_phase(given, on_epoch)
        if self._phase == 1 and self._options.fine_tune is not None and not stopped:
            self._take_best()
            self._phase = _TUNING
            self._iterators = []  # and the images that it keeps
            self._plan_loading(None)
            self._tune()
            self._make_trainer(None)
            self._train_phase(given, on_epoch)

    def _train_phase(self, given: Sequence[Any], on_epoch: OnEpoch) -> bool:
        """Train until the phase is over; return whether a callback stopped it."""
        if self._is_over:
            return False
        options, model, iterators = self._options, self._trainer.model, self._iterators
        own = [keras.callbacks.LambdaCallback(on_train_batch_end=self._tell)]
        chief = self._devices.number == 0
        if options.tensorboard is not None and chief:
            own.append(EpochLogs(options.tensorboard))
        with ExitStack() as stack:
            if options.profile_folder is not None and chief:
                trace = StepTrace(options.profile_folder, iterators[0].steps)
                stack.callback(trace.stop)
                own.append(trace)
            callbacks = keras.callbacks.CallbackList(
                [*own, *given],
                model=model,
                epochs=len(self._epochs) - len(self._of_phase) + self._now.epochs,
                steps=self._steps,
                verbose=0,
            )
            model.stop_training = False
            callbacks.on_train_begin()
            start, waited = time.perf_counter(), 0.0
            with self._data.naming_damage():
                if self._features:
                    size, rescale = self.plan.image_size, self.plan.rescale
                    base = freeze(self._classifier.base, size, rescale, options.precision)
                    start = time.perf_counter()
                    made = batches_of_features(
                        base, iterators, self._data, self._devices, callbacks, self._on_progress
                    )
                    waited = sum(iterator.waited for iterator in iterators)
                    iterators = made
                while not (self._is_over or model.stop_training):
                    number = len(self._epochs) + 1
                    epoch = self._epoch(number, iterators, callbacks, start, waited)
                    self._epochs.append(epoch)
                    self._keep()
                    on_epoch(epoch)
                    # A callback may be of one worker's alone.
                    stops = self._devices.gather(int(bool(model.stop_training)))
                    model.stop_training = any(stop for (stop,) in stops)
                    start, waited = time.perf_counter(), 0.0
            callbacks.on_train_end()
        return bool(model.stop_training)

    def _epoch(self, number: int, *given: Any) -> EpochReport:
        self._on_progress(activity(f"epoch {number}"))
        try:
            return replace(self._trainer.run_epoch(number, *given), phase=self._phase)
        except TrainingError as error:
            error.what = f"epoch {number}: {error.what}"
            error.hint = f"try a --learning-rate lower than {self._now.rate:g}"
            if self._checkpoints is not None and number > 1:
                error.hint += f"; the checkpoint of epoch {number - 1} is kept"
            raise

    @property
    def _steps(self) -> int:
        return -(-self.plan.train_images // self._options.batch_size)

    def _tell(self, batch: int, logs: Any) -> None:
        progress = Progress(
            what=f"epoch {len(self._epochs) + 1}",
            done=batch + 1,
            total=self._steps,
            unit="steps",
            note=f"loss {logs['loss']:.4f}, accuracy {logs['accuracy']:.4f}",
        )
        self._on_progress(progress)

    def _keep(self) -> None:
        """Keep the last epoch's weights if they are the best, and a checkpoint of it."""
        if self._best and self._best_epoch == len(self._epochs):
            for best, weight in zip(self._best, self._weights, strict=True):
                best.assign(weight.value)
        if self._checkpoints is not None and self._devices.number == 0:
            self._checkpoints.save(self._state)

    def _take_best(self) -> None:
        """Give the model the weights of the best epoch of the phase, if it was to look."""
        for best, weight in zip(self._best, self._weights, strict=False):
            weight.assign(best)

    def _export(self, out: Path) -> Iterator[Exported]:
        """Export the saved model, and try each on an image to validate on, or else to train on."""
        model, data = load_model(out / MODEL_FILE), self._whole.once(batch_size=1)
        with data.naming_damage():
            image, _ = next(iter(load(data.dataset, data.parts[-1])))
        for kind in self._options.export:
            yield export_model(model, kind, image, self._options.precision)

    def finish(self, start: float) -> TrainReport:
        """Save what came of the run."""
        self._on_progress(activity("saving the model"))
        self._take_best()
        before = self._epochs[: self.plan.epochs_before]
        report = TrainReport(
            plan=self.plan,
            epochs=tuple(self._epochs),
            seconds=time.perf_counter() - start + sum(epoch.seconds for epoch in before),
            best_epoch=self._best_epoch if self._best else None,
            stopped_early=len(self._of_phase) < self._now.epochs,
        )
        if self._options.out is not None and self._devices.number == 0:
            save_run(self._options.out, self._classifier.core, report)
            if self._options.export:
                report = replace(report, exported=tuple(self._export(self._options.out)))
                save_history(self._options.out, report)
        return report
