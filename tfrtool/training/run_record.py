"""``run.json``: how a run was made, and with which options it can be resumed."""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from tfrtool.declare import DeclaredOption, declared
from tfrtool.engines.engine import cores
from tfrtool.errors import (
    DatasetError,
    UsageError,
    WriteError,
    os_errors_as,
    printable,
    reason_of,
)
from tfrtool.storage.arguments import as_path, as_paths, option_name
from tfrtool.storage.atomic_files import new_file
from tfrtool.storage.opening import read_bounded
from tfrtool.training.train_options import (
    ADAM,
    CONSTANT,
    IMAGENET,
    NO_WEIGHTS,
    TrainOptions,
    is_own,
)

if TYPE_CHECKING:
    from tfrtool.loading.dataset import Dataset

RUN_FILE = "run.json"

_JSON_TYPES = (bool, int, float, list, type(None))
"""Values of all other types are recorded as text."""

_DECLARED = {one.name: one for one in declared(TrainOptions)}

_PATHS = [
    "dataset",
    *(name for name, one in _DECLARED.items() if one.spec.path and one.spec.on_resume != "call"),
]
"""Recorded options that are files or directories."""


def dataset_digest(dataset: "Dataset") -> str:
    """Return a digest of a dataset's classes, splits and shards: names, sizes and records."""
    facts = {
        name: [split.records, *((path.name, path.stat().st_size) for path in split.shards)]
        for name, split in dataset.splits.items()
    }
    text = json.dumps([facts, dataset.class_names], sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def run_record(
    options: TrainOptions, digest: str, compiled: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return how a run is made: dataset, options, versions and host, as JSON values.

    ``compiled`` has the arguments with which a user's model was compiled.
    """
    import keras
    import tensorflow as tf

    from tfrtool import __version__
    from tfrtool.training.fitting import loss_name

    values = options.to_json_values()
    if options.weights not in (None, IMAGENET, NO_WEIGHTS):
        values["weights"] = str(as_path(str(options.weights)).absolute())
    paths = [str(path.absolute()) for path in as_paths(options.source)]
    gpus = [one.name for one in tf.config.list_physical_devices("GPU")]
    changed: dict[str, Any] = {}
    if compiled:
        optimizer, loss = compiled["optimizer"], compiled["loss"]
        rate = float(optimizer.learning_rate)
        changed = {
            "optimizer": type(optimizer).__name__,
            "learning_rate": options.learning_rate or rate,
        }
        changed |= {} if loss is None else {"loss": loss_name(loss)}
    return {
        "dataset": paths if isinstance(options.source, tuple) else paths[0],
        "dataset_digest": digest,
        "options": values,
        "effective": {
            "optimizer": options.optimizer or ADAM,
            "learning_rate": options.rate,
            "weights": options.initial_weights,
            "trainable": options.trained,
            "image_size": options.size,
            **changed,
        },
        "versions": {
            "tfrtool": __version__,
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "python": platform.python_version(),
        },
        "host": {
            "name": platform.node(),
            "system": platform.platform(terse=True),
            "cores": cores(),
            "gpus": gpus,
        },
    }


def save_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    data = f"{json.dumps(value, indent=2, allow_nan=False)}\n".encode("ascii")
    with os_errors_as(WriteError, path, "can't be written"), new_file(path) as file:
        file.write(data)


def resumed(dataset: Any = None, **passed: Any) -> TrainOptions:
    """Return the options of a run by those that were passed, and if it is resumed by its record.

    Raises:
        UsageError: an option contradicts the record, or the caller must pass it again: code, and
            paths outside the run's directory. The record may be somebody else's.
        DatasetError: the record can't be used.
    """
    options = TrainOptions(dataset, **passed)
    out = options.out_dir
    if not options.resume or out is None or not os.path.lexists(out / RUN_FILE):
        if dataset is None:
            raise UsageError("no DATASET given", hint="pass the directory of a dataset")
        return options
    path = out / RUN_FILE
    recorded = _read(path)["options"]
    before = _parse(recorded, path)
    if dataset is not None:
        passed["dataset"] = dataset
    untrusted = [name for name in _untrusted(before, out) if name not in passed]
    if untrusted:
        names = list(map(option_name, untrusted))
        listed = ", ".join(
            f"{name} {printable(str(recorded[field]))[:200]}"
            for name, field in zip(names, untrusted, strict=True)
        )
        hint = f"pass {' and '.join(names)} again"
        what = f"the run used code, or paths outside its directory: {listed}"
        raise UsageError(what, path=path, hint=hint)
    merged = TrainOptions(**{**recorded, **passed})
    _check_same(out, before, merged)
    return merged


def _untrusted(recorded: TrainOptions, out: Path) -> list[str]:
    """Return the recorded options that are code, or paths outside the directory of the run."""
    code = {"model": is_own(recorded.model_name), "decode_function": recorded.decode_function}
    names = [
        name
        for name in _PATHS
        if not all(_is_below(one, out) for one in _as_tuple(getattr(recorded, name)))
    ]
    return names + [name for name, is_code in code.items() if is_code]


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _is_below(location: Any, out: Path) -> bool:
    """Return whether a path is below a directory, links resolved; also if it is not a path."""
    if location in (None, IMAGENET, NO_WEIGHTS):
        return True
    path = as_path(location)
    try:
        return isinstance(path, Path) and path.resolve().is_relative_to(out.resolve())
    except (OSError, RuntimeError):  # links that lead to each other
        return False


def check_dataset(out: Path, digest: str) -> None:
    """Raise a `UsageError` if a run to resume was begun on another dataset."""
    path = out / RUN_FILE
    if os.path.lexists(path) and _read(path).get("dataset_digest", digest) != digest:
        raise UsageError(
            "its run was started on another dataset",
            path=out,
            hint="choose another directory for another run",
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        with os_errors_as(DatasetError, path):
            values: dict[str, Any] = json.loads(read_bounded(path, follow=False))
        values["options"] = {"dataset": values["dataset"], **values["options"]}
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise _unusable(path, error) from error
    return values


def _parse(recorded: Mapping[str, Any], path: Path) -> TrainOptions:
    try:
        for name, value in recorded.items():
            if name != "dataset" and name not in _DECLARED:
                raise TypeError(f"option {printable(name)[:100]!r} is unknown to this version")
            allowed = {str, list} if name == "dataset" else _json_types(_DECLARED[name])
            if not (type(value) in allowed or (type(value) is int and float in allowed)):
                raise TypeError(f"{printable(name)[:100]} has the wrong type")
        return TrainOptions(**recorded, out=path.parent)
    except (UsageError, ValueError, TypeError) as error:
        raise _unusable(path, error) from error


def _json_types(option: DeclaredOption) -> set[type]:
    """Return the types that the values of an option have in the record; none if it has none."""
    if option.spec.on_resume == "call":
        return set()
    if option.spec.repeat:
        return {list}
    kinds = get_args(option.type) or (option.type,)
    if get_origin(option.type) is Literal:
        kinds = tuple(map(type, kinds))
    types = {list if get_origin(kind) is tuple else kind for kind in kinds}
    return {kind if kind in _JSON_TYPES else str for kind in types}


def _unusable(path: Path, error: Exception) -> DatasetError:
    reason = "not JSON" if isinstance(error, json.JSONDecodeError) else reason_of(error)
    reason = f"no {reason}" if isinstance(error, KeyError) else reason
    return DatasetError(
        f"unusable record of the run: {reason}", path=path, hint="delete it and pass all options"
    )


def _comparable(options: TrainOptions) -> dict[str, Any]:
    """Return the options that a run's weights depend on, as JSON values."""
    values = {
        name: value
        for name, value in options.to_json_values().items()
        if _DECLARED[name].spec.on_resume == "same"
    }
    weights = options.initial_weights
    if weights not in (IMAGENET, NO_WEIGHTS):
        weights = Path(weights).name  # it may have been moved
    model = options.model_name
    if is_own(model):
        model = Path(model).name  # of a file as well as of FILE.py:FUNCTION
    defaults = {
        "learning_rate": options.rate,
        "optimizer": options.optimizer or ADAM,
        "schedule": options.schedule or CONSTANT,
        "head": options.head or "softmax",
        "task": options.task or "classification",
    }
    return values | {"model": model, "weights": weights} | defaults


def _check_same(out: Path, before: TrainOptions, now: TrainOptions) -> None:
    old, new = _comparable(before), _comparable(now)
    if now.schedule != "cosine":
        old["epochs"] = new["epochs"]  # more may follow
    differ = [name for name in sorted(new) if old[name] != new[name]]
    if differ:
        expected, found = (
            ", ".join(f"{_DECLARED[name].flag} {json.dumps(one[name])}" for name in differ)
            for one in (old, new)
        )
        hint = "choose another directory for another run"
        if "trainable" in differ:
            hint = f"use --weights {out / 'model.keras'}, and another directory for its run"
        raise UsageError(
            "its run was started with other options",
            path=out,
            expected=expected,
            found=found,
            hint=hint,
        )
