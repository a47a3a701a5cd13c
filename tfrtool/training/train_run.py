"""One training run, from the opened dataset to the saved model."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrtool.errors import (
    TrainingError,
    UsageError,
    WriteError,
    human_count,
    os_errors_as,
    printable,
)
from tfrtool.images.charts import draw_charts, shortened_name
from tfrtool.images.sheet import draw_pixel_sheet, save_sheet
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.decoding import original_pixels
from tfrtool.loading.options import Cache, LoadOptions, Rescale
from tfrtool.loading.pipeline import load
from tfrtool.storage.arguments import option_name
from tfrtool.storage.atomic_files import delete_leftovers, new_file, new_files_by_name
from tfrtool.storage.lock import locked
from tfrtool.storage.progress import Progress, activity
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.training.checkpoint import (
    CHECKPOINT,
    RunState,
    crc_of,
    has_checkpoint,
    read_arrays,
    read_state,
    save_checkpoint,
    unusable,
)
from tfrtool.training.exporting import EXPORT_FILES, Exported, export_model
from tfrtool.training.fitting import (
    EpochMeter,
    MeasuredModel,
    StepTrace,
    TensorBoardLogs,
    compile_model,
    needs_vectors,
)
from tfrtool.training.frozen_features import (
    BASE_BATCH,
    extract_features,
    feature_batches,
    freeze,
)
from tfrtool.training.input_scaling import find_scaling_layer
from tfrtool.training.keras_backend import check_backend
from tfrtool.training.models import (
    UNSCALED,
    build_classifier,
    dtype_policy,
    rescale_for,
    smallest_valid_side,
)
from tfrtool.training.replicas import Devices, ReplicaModel, open_devices
from tfrtool.training.run_record import (
    RUN_FILE,
    check_dataset,
    dataset_digest,
    run_record,
    save_json,
)
from tfrtool.training.saved_model import (
    BEST_MODEL_FILE,
    MODEL_FILE,
    ModelFacts,
    load_model,
    save_model,
)
from tfrtool.training.scores import MEAN_AVERAGE_PRECISION
from tfrtool.training.train_options import ADAM, TrainOptions, is_own
from tfrtool.training.train_report import EpochReport, TrainPlan, TrainReport
from tfrtool.training.training_data import (
    TrainingData,
    balanced_weights,
    find_training_data,
    plan_run_cache,
    plan_warnings,
)

_AHEAD = 16
"""Batches for a frozen base that are decoded while its graph is made: 39 MB at 224 pixels."""

_VALIDATED = 1024
"""Rows of features that are evaluated at a time."""


_HISTORY, _CHARTS, _LABELS = "history.json", "history.png", "labels.txt"
_RESULTS = (MODEL_FILE, BEST_MODEL_FILE, _HISTORY, _CHARTS, _LABELS, *EXPORT_FILES.values())
"""What a run makes besides its checkpoint and its record."""

_DRAWN = 64
"""The most images of ``--show-augment``."""


class TrainingRun:
    """A run whose model is built; ``plan`` says what it will be."""

    def __init__(
        self,
        options: TrainOptions,
        data: TrainingData,
        devices: Devices,
        before: RunState | None,
    ) -> None:
        self._options, self._data, self._devices = options, data, devices
        if devices.several and isinstance(options.model, keras.Model):
            raise UsageError(
                f"a built keras.Model can't be trained with --strategy {devices.kind}",
                hint="pass a function that returns it",
            )
        devices.check_batch_size(options.batch_size)
        self._epochs = [] if before is None else list(before.epochs)
        digest = dataset_digest(data.original)
        if options.resume and options.out_dir is not None:
            check_dataset(options.out_dir, digest)
        self._class_weights = balanced_weights(data) if options.balance_classes else None
        dataset, images, name = data.dataset, data.images, options.model_name
        keras.utils.set_random_seed(options.seed)
        with devices.strategy.scope(), dtype_policy(options.policy):
            self._classifier = build_classifier(
                name,
                data.training.image_size,
                len(dataset.targets or dataset.class_names),
                options.initial_weights,
                options.trained,
                None if isinstance(options.model, str) else options.model,
                task=dataset.task,
                head=options.head,
                outputs=options.outputs,
                channels=options.channels,
            )
        scaling_layer = find_scaling_layer(self._classifier.core)
        self._rescale = _choose_rescale(options, data, before, scaling_layer)
        compiled = self._classifier.compiled
        if devices.several and dataset.targets:
            raise UsageError(f"--task regression cannot be used with --strategy {devices.kind}")
        if compiled:
            _check_compiled(options, devices, compiled)
        vectors = needs_vectors(compiled, self._classifier.trained.output_shape[-1])
        if vectors and dataset.label_form.is_class_number:
            self._data = data.changed(one_hot=True)
        if options.mixes and compiled.get("loss") is not None and not vectors:
            what = "--augment mixup and cutmix require a compiled loss that takes one-hot labels"
            raise UsageError(what)
        plan = self._prepare(None if before is None else before.cache)
        if before is not None and options.out_dir is not None:
            self._restore(options.out_dir, before)
        frozen = self._classifier.base is not None and name != "cnn" and not is_own(name)
        warnings = plan_warnings(options, data, self._class_weights, frozen=frozen)
        if scaling_layer and self._rescale != UNSCALED:
            warnings += (
                f"the model scales pixels itself (layer {printable(scaling_layer)}), and gets them "
                "scaled already; use --rescale model",
            )
        if name == "cnn" and options.head == "sigmoid":
            warnings += _padding_warnings(data.training.shape[:2])
        variables = self._classifier.core.trainable_variables
        self.plan = TrainPlan(
            options=options,
            made=run_record(options, digest, compiled),
            model=name,
            recipe=options.recipe,
            cache=plan.cache,
            cache_reason=plan.reason,
            image_size=data.training.image_size,
            channels=options.channels,
            rescale=self._rescale,
            scaling_layer=scaling_layer,
            class_names=dataset.class_names,
            targets=dataset.targets,
            task=dataset.task,
            forms=dataset.notes,
            train_images=images[0],
            validation_images=sum(images[1:]),
            trainable_parameters=sum(math.prod(variable.shape) for variable in variables),
            precision=options.precision,
            damage=() if data.dropped is None else data.dropped.lines,
            skipped=0 if data.dropped is None else data.dropped.n_skipped,
            class_weights=self._class_weights,
            warnings=warnings,
            epochs_before=len(self._epochs),
            strategy=devices.kind,
            replicas=devices.replicas,
        )

    def _prepare(self, before: Cache | None) -> Any:
        """Decide how images are cached, and make the model and its optimizer."""
        options, core, data, devices = (
            self._options,
            self._classifier.core,
            self._data,
            self._devices,
        )
        base, compiled = self._classifier.base, self._classifier.compiled
        if devices.several and options.cache == "features":
            raise UsageError("--cache features requires a single device")
        width = None if base is None or devices.several else math.prod(base.output_shape[1:])
        plan = plan_run_cache(options, data, before, feature_size=width)
        self._cache = plan.cache
        trained = self._classifier.trained
        trained = self._classifier.head if self._cache == "features" else trained
        steps = -(-data.images[0] // options.batch_size) * options.epochs
        with devices.strategy.scope():
            optimizer = _make_optimizer(options, steps, compiled.get("optimizer"))
            optimizer.build(trained.trainable_variables)
        smoothing = options.label_smoothing
        if devices.several:
            self._model = ReplicaModel(trained.inputs, trained.outputs, name=core.name)
            self._model.compile_on(devices, optimizer, data.dataset.task, smoothing)
        else:
            self._model = MeasuredModel(trained.inputs, trained.outputs, name=core.name)
            compile_model(self._model, optimizer, data.dataset.task, smoothing, compiled)
        frozen = [] if base is None else base.variables
        known = {id(variable) for variable in frozen}
        self._weights = [one for one in core.weights if id(one) not in known]
        changing = [one for one in core.variables if id(one) not in known]
        self._changing = [one.value for one in (*changing, *self._model.optimizer.variables)]
        self._best: list[Any] = []
        self._state = RunState(
            cache=self._cache, rescale=self._rescale, frozen=crc_of(frozen), epochs=self._epochs
        )
        return plan

    def _restore(self, out: Path, before: RunState) -> None:
        """Take weights, optimizer and best weights from the checkpoint."""
        if before.frozen != self._state.frozen:
            raise unusable(out, "its frozen weights differ from those of the run")
        expected = [one.numpy() for one in self._changing], [one.numpy() for one in self._weights]
        state, best = read_arrays(out, *expected)
        for variable, value in zip(self._changing, state, strict=True):
            variable.assign(value)
        self._best = best or [one.numpy() for one in self._weights]

    @property
    def _best_epoch(self) -> int:
        return min(self._epochs, key=lambda epoch: epoch.monitored).epoch

    @property
    def _is_over(self) -> bool:
        """Whether all epochs are done, or none was better for long enough."""
        done, patience = len(self._epochs), self._options.early_stopping
        if patience is not None and done and done - self._best_epoch >= patience:
            return True
        return done >= self._options.epochs

    def show_augment(self, path: Path) -> None:
        """Draw the first training images, as they are in the first epoch, with their labels."""
        names = self.plan.class_names
        # A cache changes the order. With cached features, images come without one.
        cache = "none" if self._cache == "features" else self._cache
        data = self._data.changed(epochs=1, cache=cache, rescale=self._rescale)
        with data.naming_damage():
            full = next(load(data.dataset, data.training).as_numpy_iterator())
        batch = original_pixels(full[0][:_DRAWN], self._rescale), full[1][:_DRAWN]

        def text(label: Any) -> str:
            if not names:
                return shortened_name(", ".join(f"{one:.6g}" for one in label.reshape(-1)), 24)
            if not label.shape:
                return shortened_name(names[label], 18)
            shares = [(names[number], label[number]) for number in np.flatnonzero(label)]
            shown = (name if share == 1 else f"{name} {share:.0%}" for name, share in shares)
            return shortened_name(", ".join(shown) or "none", 24)

        images = [(pixels, text(label), "", "") for pixels, label in zip(*batch, strict=True)]
        title = f"{human_count(len(images), 'training image')}: {self._options.augment or 'as is'}"
        sheet = draw_pixel_sheet(images, title)
        with os_errors_as(WriteError, path, "can't be written"), new_file(path) as file:
            save_sheet(sheet, file, ".png")

    def train(self) -> None:
        """Train until all epochs are done, or a callback stops the run."""
        if self._options.out_dir is not None:
            save_json(self._options.out_dir / RUN_FILE, self.plan.made)
        if self._is_over:
            return
        options, data, model = self._options, self._data, self._model
        done, on_progress = len(self._epochs), options.on_progress
        steps = -(-data.images[0] // options.batch_size)
        meter = model.meter = EpochMeter(data.images, data.dataset.task)

        def end_step(batch: int, logs: Any) -> None:
            number, loss = len(self._epochs) + 1, logs["loss"]
            if not math.isfinite(loss):
                kept = options.out_dir is not None and number > 1
                raise TrainingError(
                    f"epoch {number}: the loss became {loss} at step {batch + 1}",
                    hint=f"try a --learning-rate lower than {options.rate:g}"
                    + (f"; the checkpoint of epoch {number - 1} is kept" if kept else ""),
                )
            note = ", ".join(f"{name} {value:.4f}" for name, value in [*logs.items()][:3])
            progress = Progress(what=f"epoch {number}", done=batch + 1, total=steps, unit="steps")
            on_progress(replace(progress, note=note))

        def end_epoch(epoch: int, logs: Any) -> None:
            figures, known = {**logs, **meter.figures()}, EpochReport.__slots__
            values = {name: figures.pop(name) for name in known if name in figures}
            report = EpochReport(epoch=epoch + 1, metrics=figures, **values)
            self._epochs.append(report)
            logs.update(self._epochs[-1].logs)

        def save_epoch(epoch: int, logs: Any) -> None:
            del logs
            is_best = self._best_epoch == epoch + 1
            if is_best:
                self._best = [one.numpy() for one in self._weights]
            if options.out_dir is not None and options.recipe == "tfrtool":
                state = [one.numpy() for one in self._changing]
                save_checkpoint(options.out_dir, self._state, state, [] if is_best else self._best)
            options.on_epoch(self._epochs[-1])
            if self._is_over:
                model.stop_training = True
            meter.begin_epoch()

        made = keras.callbacks.LambdaCallback
        callbacks = [made(on_train_batch_end=end_step, on_epoch_end=end_epoch)]
        with contextlib.ExitStack() as stack:
            if options.log_dir is not None:
                callbacks.append(TensorBoardLogs(options.log_dir, self.plan.made))
            if options.profile_folder is not None:
                trace = StepTrace(options.profile_folder, steps)
                stack.callback(trace.stop)
                callbacks.append(trace)
            callbacks += [*options.callbacks, made(on_epoch_end=save_epoch)]
            stack.enter_context(data.naming_damage(self._cache))
            on_progress(activity(f"epoch {done + 1}"))
            self._fit(callbacks, done, options.epochs, meter)

    def _fit(self, callbacks: Sequence[Any], done: int, epochs: int, meter: EpochMeter) -> None:
        """Train from an epoch to another, by Keras' ``fit`` on one device."""
        data, devices, options, model = self._data, self._devices, self._options, self._model
        steps = [-(-images // options.batch_size) for images in data.images]
        weights = list((self._class_weights or {}).values())
        if self._cache == "features":
            order = {"first_epoch": done, "epochs": epochs - done}
            batches = list(self._load_features(order, meter))
        else:
            chosen = {"cache": self._cache, "on_progress": options.on_progress}
            loaded = data.changed(rescale=self._rescale, **chosen)
            several, makers = isinstance(model, ReplicaModel), []
            for part in loaded.parts:
                # ``fit`` makes an iterator for each validation, and each epoch of other recipes.
                is_one = several or (part.training and options.recipe == "tfrtool")
                held = replace(part, first_epoch=done, epochs=epochs - done if is_one else 1)
                makers.append(partial(_load_part, data.dataset, held))
            if isinstance(model, ReplicaModel):
                model.class_weights, weights = weights, []
                model.iterators = tuple(devices.distribute(make) for make in makers)
                callbacks = [*callbacks, model.agreeing()]
                steps_of_fit = steps[0] * (epochs - done), *steps[1:]
                batches = [tf.data.Dataset.range(count) for count in steps_of_fit]
            else:
                batches = [make() for make in makers]
        model.fit(
            batches[0],
            epochs=epochs,
            initial_epoch=done,
            # One iterator over all epochs; other recipes are read as in the notebooks.
            steps_per_epoch=steps[0] if options.recipe == "tfrtool" else None,
            validation_data=batches[1] if len(batches) > 1 else None,
            class_weight=dict(enumerate(weights)) or None,
            callbacks=callbacks,
            shuffle=False,
            verbose=0,
        )

    def _load_features(self, order: Mapping[str, int], meter: EpochMeter) -> Iterator[Any]:
        """Run the frozen base over all images; yield batches of features of each part."""
        options, data = self._options, self._data
        once = data.once(batch_size=BASE_BATCH, prefetch=_AHEAD)
        warm = tf.data.Options()
        warm.experimental_warm_start = True  # decode while the base's graph is made
        iterators = [iter(load(data.dataset, part).with_options(warm)) for part in once.parts]
        total, extracted = sum(data.images), 0

        def on_images(count: int) -> None:
            nonlocal extracted
            extracted += count
            progress = Progress(what="features", done=extracted, total=total, unit="images")
            options.on_progress(progress)

        size = data.training.image_size
        base = freeze(self._classifier.base, size, self._rescale, options.precision)
        for iterator, count, part in zip(iterators, data.images, data.parts, strict=True):
            values, labels = extract_features(base, meter.batches(iterator), count, on_images)
            if part.training:
                seed = options.seed
                yield feature_batches(values, labels, options.batch_size, seed=seed, **order)
            else:
                yield feature_batches(values, labels, _VALIDATED)

    def _assign(self, values: Sequence[Any]) -> None:
        for weight, value in zip(self._weights, values, strict=True):
            weight.assign(value)

    def finish(self, start: float) -> TrainReport:
        """Save the model and the history, and return the report."""
        options, out, plan = self._options, self._options.out_dir, self.plan
        options.on_progress(activity("saving the model"))
        stops = options.early_stopping is not None
        before = sum(epoch.seconds for epoch in self._epochs[: plan.epochs_before])
        report = TrainReport(
            plan=plan,
            epochs=tuple(self._epochs),
            seconds=time.perf_counter() - start + before,
            best_epoch=self._best_epoch,
            saved_epoch=self._best_epoch if stops else len(self._epochs),
            stopped_early=len(self._epochs) < options.epochs,
        )
        current = [one.numpy() for one in self._weights]
        self._assign(self._best)
        if out is not None:
            self._save_model(out / BEST_MODEL_FILE)
        if not stops:
            self._assign(current)
        if out is not None:
            self._save_history(out, report)
            self._save_model(out / MODEL_FILE)
            if options.export:
                report = replace(report, exported=tuple(self._export(out)))
                self._save_history(out, report)
        if isinstance(options.model, keras.Model) and self._classifier.compiled:
            options.model.compile(**self._classifier.compiled)
        return report

    def _save_model(self, path: Path) -> None:
        plan = self.plan
        facts = ModelFacts(
            model=plan.model,
            image_size=plan.image_size,
            channels=plan.channels,
            class_names=plan.class_names,
            targets=plan.targets,
            task=plan.task,
        )
        writing = os_errors_as(WriteError, path, "can't be written")
        with writing, new_files_by_name([path]) as scratch:
            save_model(scratch / path.name, self._classifier.core, plan.rescale, facts)

    def _save_history(self, out: Path, report: TrainReport) -> None:
        """Save history.json, history.png and labels.txt."""
        epochs = [epoch.to_json() for epoch in report.epochs]
        save_json(out / _HISTORY, {"epochs": epochs, "run": report.to_json()})
        logs = [one.logs for one in report.epochs]
        charts = {
            name.replace("_", " "): {
                "training": [one.get(name) for one in logs],
                "validation": [one.get(f"val_{name}") for one in logs],
            }
            for name in report.epochs[0].scores
        }
        names = "".join(f"{name}\n" for name in report.plan.class_names)
        files = {_CHARTS: draw_charts(charts)}
        if names:
            files[_LABELS] = names.encode()
        for name, data in files.items():
            with os_errors_as(WriteError, out / name), new_file(out / name) as file:
                file.write(data)

    def _export(self, out: Path) -> Iterator[Exported]:
        """Export the saved model, and compare each export on an image."""
        model, once = load_model(out / MODEL_FILE), self._data.once(batch_size=1)
        with once.naming_damage():
            image, _ = next(iter(load(once.dataset, once.parts[-1])))
        for kind in self._options.export:
            yield export_model(model, kind, image, mixed=self._options.policy != "float32")


def _load_part(dataset: Dataset, part: LoadOptions, context: Any = None) -> Any:
    return load(dataset, replace(part, context=context))


def _choose_rescale(
    options: TrainOptions, data: TrainingData, before: RunState | None, scaling_layer: str
) -> Rescale:
    """Return what pixel values become; a resumed run keeps what it began with."""
    if before is not None:
        return before.rescale
    if options.rescale == "dataset":
        return data.measured_rescale(options.on_progress)
    return rescale_for(options.model_name, options.rescale, scaling_layer=scaling_layer)


def _padding_warnings(sides: tuple[int, ...]) -> tuple[str, ...]:
    least = smallest_valid_side()
    if min(sides) >= least:
        return ()
    return (
        f"images below {least} pixels are too small for the cnn without padding: it gets the "
        "padding same",
    )


def _check_compiled(options: TrainOptions, devices: Devices, compiled: Mapping[str, Any]) -> None:
    """Raise a `UsageError` if an option contradicts what a user's model was compiled with."""
    names = ["optimizer", "schedule", "warm_up", *(["label_smoothing"] if compiled["loss"] else [])]
    for name in names:
        if getattr(options, name):
            what = f"{option_name(name)} cannot be used with a compiled model"
            raise UsageError(what, hint="change its compile(), or leave compile() out")
    if devices.several:
        raise UsageError(
            f"a compiled model can't be trained with --strategy {devices.kind}",
            hint="use --strategy one, or leave compile() out",
        )
    metrics = keras.tree.flatten([compiled["metrics"], compiled["weighted_metrics"]])
    for name in (getattr(one, "name", one) for one in metrics):
        if name in {"loss", *EpochReport.__slots__} - {"accuracy", MEAN_AVERAGE_PRECISION}:
            raise UsageError(f"a compiled metric can't have the name {name}")


def _make_optimizer(options: TrainOptions, steps: int, compiled: Any = None) -> Any:
    """Return a new optimizer, with the settings of a compiled one if there is one."""
    scaled, rate = options.precision == "mixed_float16", options.learning_rate
    if compiled is not None:
        changes = {} if rate is None else {"learning_rate": rate}
        made = type(compiled).from_config(compiled.get_config() | changes)
        return keras.optimizers.LossScaleOptimizer(made) if scaled else made
    rate = float(options.rate)
    warm_up = round(steps / options.epochs * (options.warm_up or 0))
    schedules = keras.optimizers.schedules
    if options.schedule == "cosine" and warm_up:
        rate = schedules.CosineDecay(
            0.0, max(steps - warm_up, 1), warmup_target=rate, warmup_steps=warm_up
        )
    elif options.schedule == "cosine":
        rate = schedules.CosineDecay(rate, steps)
    elif warm_up:
        rate = schedules.PolynomialDecay(0.0, warm_up, end_learning_rate=rate)
    kinds: dict[str, Callable[[Any], Any]] = {
        "adam": keras.optimizers.Adam,
        "adamw": keras.optimizers.AdamW,
        "sgd": lambda rate: keras.optimizers.SGD(rate, momentum=0.9),
        "rmsprop": keras.optimizers.RMSprop,
        "lion": keras.optimizers.Lion,
    }
    made = kinds[options.optimizer or ADAM](rate)
    return keras.optimizers.LossScaleOptimizer(made) if scaled else made


def run_here(options: TrainOptions) -> TrainReport:
    """Train in this process, on its devices."""
    check_backend()
    start = time.perf_counter()
    ours = options.recipe == "tfrtool"
    devices = open_devices(options.strategy if ours else "one")
    on_progress = options.on_progress
    with contextlib.ExitStack() as stack:
        before = None
        if options.out_dir is not None:
            stack.enter_context(_run_directory(options.out_dir, resume=options.resume))
            before = read_state(options.out_dir)
        scratch = Path(stack.enter_context(ScratchFolder()))
        on_progress(activity("opening the dataset"))
        data = find_training_data(options, scratch)
        on_progress(activity("building the model"))
        run = TrainingRun(options, data, devices, before)
        options.on_plan(run.plan)
        if options.show_augment is not None:
            run.show_augment(Path(options.show_augment))
        run.train()
        return run.finish(start)


@contextlib.contextmanager
def _run_directory(out: Path, *, resume: bool) -> Iterator[None]:
    """Create the directory of a run before time is spent on training, and hold its lock."""
    with contextlib.ExitStack() as stack:
        with os_errors_as(WriteError, out, "can't be written to"):
            out.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(out, "train"))
            for name in (CHECKPOINT, RUN_FILE, *_RESULTS):
                delete_leftovers(out / name)
        known = any(os.path.lexists(out / name) for name in (CHECKPOINT, RUN_FILE))
        for path in [] if known else [out / name for name in _RESULTS]:
            if os.path.lexists(path):
                what = "already exists, but not from a run of tfrtool"
                raise UsageError(what, path=path, hint="choose another directory")
        if has_checkpoint(out) and not resume:
            raise UsageError(
                "already has a run",
                path=out,
                hint="use --resume to continue it, or choose another directory",
            )
        if not has_checkpoint(out) and os.path.lexists(out / MODEL_FILE):
            raise UsageError(
                "already has a model, and no checkpoint to resume from",
                path=out,
                hint="choose another directory",
            )
        yield
