"""A run before its first step: what was opened, decided, built and restored."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras

from tfrtool.errors import UsageError, printable
from tfrtool.loading.options import Rescale
from tfrtool.storage.arguments import option_name
from tfrtool.storage.progress import activity
from tfrtool.training.checkpoint import RunState, crc_of, read_state, restore, values_of
from tfrtool.training.fitting import (
    Devices,
    EpochMeter,
    MeasuredModel,
    MirroredModel,
    compile_model,
    needs_vectors,
    open_devices,
)
from tfrtool.training.input_scaling import find_scaling_layer
from tfrtool.training.models import (
    UNSCALED,
    Classifier,
    build_classifier,
    dtype_policy,
    rescale_for,
)
from tfrtool.training.run_record import check_dataset, dataset_digest, run_record
from tfrtool.training.scores import MEAN_AVERAGE_PRECISION
from tfrtool.training.train_options import ADAM, CNN, TrainOptions
from tfrtool.training.train_report import EpochReport, TrainPlan
from tfrtool.training.training_data import (
    TrainingData,
    balanced_weights,
    find_training_data,
    plan_run_cache,
    plan_warnings,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run whose model is built, compiled and, if the run is resumed, restored.

    Attributes:
        options: the options of the run.
        plan: what is reported before the first step.
        data: the images, loaded as the model takes them.
        classifier: the model, and its parts.
        model: the part of it that ``fit`` trains: all of it, or the head over cached features.
        state: what a checkpoint has besides values: where images are cached, and earlier epochs.
        weights: the weights that can change.
        variables: all that an epoch changes: these weights, random generators and the optimizer.
        best_weights: values of the weights after the best of the earlier epochs, if any.
    """

    options: TrainOptions
    plan: TrainPlan
    data: TrainingData
    classifier: Classifier
    model: MeasuredModel
    state: RunState
    weights: Sequence[Any]
    variables: Sequence[Any]
    best_weights: Sequence[Any]


def prepare(options: TrainOptions, scratch: Path) -> Run:
    """Open the dataset, build the model, and restore the checkpoint of a resumed run.

    Copies of shards without their damage are written to ``scratch``.
    """
    devices = open_devices(options.strategy if options.recipe == "tfrtool" else "one")
    before = None
    if options.resume and options.out_dir is not None:
        before = read_state(options.out_dir)
    options.on_progress(activity("opening the dataset"))
    data = find_training_data(options, scratch)
    digest = dataset_digest(data.original)
    if options.resume and options.out_dir is not None:
        check_dataset(options.out_dir, digest)
    if devices.several or devices.replicas > 1:
        _check_devices(options, devices)
    options.on_progress(activity("building the model"))
    classifier = _build(options, data, devices)
    if classifier.compiled:
        data = _with_labels_of_loss(options, data, devices, classifier)
    plan = _plan(options, data, devices, classifier, before, digest)
    cache = "none" if plan.cache == "features" else plan.cache
    data = data.changed(rescale=plan.rescale, cache=cache, on_progress=options.on_progress)
    model = _compile(plan, data, devices, classifier)
    frozen = [] if classifier.base is None else classifier.base.variables
    frozen_ids = set(map(id, frozen))
    weights, variables = (
        [variable.value for variable in variables if id(variable) not in frozen_ids]
        for variables in (classifier.core.weights, classifier.core.variables)
    )
    variables += [variable.value for variable in model.optimizer.variables]
    crc, best = crc_of(values_of(frozen)), list[Any]()
    if before is not None and options.out_dir is not None:
        best = restore(options.out_dir, crc, variables, weights)
    epochs = [] if before is None else before.epochs
    return Run(
        options=options,
        plan=plan,
        data=data,
        classifier=classifier,
        model=model,
        state=RunState(cache=plan.cache, rescale=plan.rescale, frozen=crc, epochs=epochs),
        weights=weights,
        variables=variables,
        best_weights=best,
    )


def _check_devices(options: TrainOptions, devices: Devices) -> None:
    """Raise a `UsageError` if a run can't use several devices."""
    if options.batch_size < devices.replicas:
        least = f"at least {devices.replicas}, an image per device"
        raise UsageError(f"--batch-size must be {least}, got {options.batch_size}")
    if not devices.several:
        return
    if isinstance(options.model, keras.Model):
        raise UsageError(
            f"a built keras.Model can't be trained with --strategy {devices.kind}",
            hint="pass a function that returns it",
        )
    if options.cache == "features":
        raise UsageError("--cache features requires a single device")


def _build(options: TrainOptions, data: TrainingData, devices: Devices) -> Classifier:
    dataset = data.dataset
    keras.utils.set_random_seed(options.seed)
    with devices.strategy.scope(), dtype_policy(options.policy):
        return build_classifier(
            options.model_name,
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


def _with_labels_of_loss(
    options: TrainOptions, data: TrainingData, devices: Devices, classifier: Classifier
) -> TrainingData:
    """Return the images with one-hot labels if the user's compiled loss takes them."""
    compiled = classifier.compiled
    _check_compiled(options, devices, compiled)
    vectors = needs_vectors(compiled, classifier.trained.output_shape[-1])
    if options.mixes and compiled.get("loss") is not None and not vectors:
        what = "--augment mixup and cutmix require a compiled loss that takes one-hot labels"
        raise UsageError(what)
    is_changed = vectors and data.dataset.label_form.is_class_number
    return data.changed(one_hot=True) if is_changed else data


def _check_compiled(options: TrainOptions, devices: Devices, compiled: Mapping[str, Any]) -> None:
    """Raise a `UsageError` if an option contradicts what a user's model was compiled with."""
    names = ["optimizer", "schedule", "warm_up", *(["label_smoothing"] if compiled["loss"] else [])]
    for name in names:
        if getattr(options, name):
            what = f"{option_name(name)} can't be used with a compiled model"
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


def _plan(
    options: TrainOptions,
    data: TrainingData,
    devices: Devices,
    classifier: Classifier,
    before: RunState | None,
    digest: str,
) -> TrainPlan:
    """Decide all that is left to decide before the first step."""
    dataset, base, images = data.dataset, classifier.base, data.images
    weights = balanced_weights(data) if options.balance_classes else None
    scaling_layer = "" if options.model_name == CNN else find_scaling_layer(classifier.core)
    rescale = _choose_rescale(options, data, before, scaling_layer)
    width = None if base is None or devices.several else math.prod(base.output_shape[1:])
    cached = plan_run_cache(options, data, before.cache if before else None, feature_size=width)
    warnings = plan_warnings(options, data, weights, has_base=base is not None)
    if scaling_layer and rescale != UNSCALED:
        warnings += (
            f"the model scales pixels itself (layer {printable(scaling_layer)}), and gets them "
            "scaled already; use --rescale model",
        )
    return TrainPlan(
        options=options,
        made=run_record(options, digest, classifier.compiled),
        model=options.model_name,
        recipe=options.recipe,
        cache=cached.cache,
        cache_reason=cached.reason,
        image_size=data.training.image_size,
        channels=options.channels,
        rescale=rescale,
        scaling_layer=scaling_layer,
        class_names=dataset.class_names,
        targets=dataset.targets,
        task=dataset.task,
        forms=dataset.notes,
        train_images=images[0],
        validation_images=sum(images[1:]),
        trainable_parameters=sum(
            math.prod(variable.shape) for variable in classifier.core.trainable_variables
        ),
        precision=options.precision,
        damage=() if data.dropped is None else data.dropped.lines,
        skipped=0 if data.dropped is None else data.dropped.n_skipped,
        class_weights=weights,
        warnings=warnings,
        epochs_before=0 if before is None else len(before.epochs),
        strategy=devices.kind,
        replicas=devices.replicas,
    )


def _choose_rescale(
    options: TrainOptions, data: TrainingData, before: RunState | None, scaling_layer: str
) -> Rescale:
    """Return what pixel values become; a resumed run keeps what it began with."""
    if before is not None:
        return before.rescale
    if options.rescale == "dataset":
        return data.measured_rescale(options.on_progress)
    return rescale_for(options.model_name, options.rescale, scaling_layer=scaling_layer)


def _compile(
    plan: TrainPlan, data: TrainingData, devices: Devices, classifier: Classifier
) -> MeasuredModel:
    """Return the part of the model that is trained, compiled."""
    options, compiled, task = plan.options, classifier.compiled, plan.task
    trained = classifier.head if plan.cache == "features" else classifier.trained
    inputs, outputs, name = trained.inputs, trained.outputs, classifier.core.name
    steps = data.epoch_steps * options.epochs
    kind = MirroredModel if devices.several else MeasuredModel
    model = kind(inputs, outputs, name=name)
    model.meter = EpochMeter(data.epoch_images, task)
    with devices.strategy.scope():
        optimizer = _make_optimizer(options, steps, compiled.get("optimizer"))
        optimizer.build(trained.trainable_variables)
        compile_model(model, optimizer, task, options.label_smoothing, compiled)
    return model


def _make_optimizer(options: TrainOptions, steps: int, compiled: Any = None) -> Any:
    """Return a new optimizer, with the settings of a compiled one if there is one."""
    if compiled is not None:
        changes = {} if options.learning_rate is None else {"learning_rate": options.learning_rate}
        optimizer = type(compiled).from_config(compiled.get_config() | changes)
    else:
        kinds: dict[str, Callable[[Any], Any]] = {
            "adam": keras.optimizers.Adam,
            "adamw": keras.optimizers.AdamW,
            "sgd": lambda rate: keras.optimizers.SGD(rate, momentum=0.9),
            "rmsprop": keras.optimizers.RMSprop,
            "lion": keras.optimizers.Lion,
        }
        optimizer = kinds[options.optimizer or ADAM](_learning_rate(options, steps))
    scales = options.precision == "mixed_float16"
    return keras.optimizers.LossScaleOptimizer(optimizer) if scales else optimizer


def _learning_rate(options: TrainOptions, steps: int) -> Any:
    """Return the learning rate, or its schedule over the steps of a run."""
    rate, schedules = float(options.rate), keras.optimizers.schedules
    warm_up = round(steps / options.epochs * (options.warm_up or 0))
    if options.schedule == "cosine":
        start = {"warmup_target": rate, "warmup_steps": warm_up} if warm_up else {}
        return schedules.CosineDecay(0.0 if warm_up else rate, max(steps - warm_up, 1), **start)
    return schedules.PolynomialDecay(0.0, warm_up, end_learning_rate=rate) if warm_up else rate
