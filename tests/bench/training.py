"""Training a head on a frozen MobileNetV2: our way against the naive one, five epochs each.

The naive way is that of the published lessons: shards one after the other, a map without any
threads, and Keras' ``fit``, which runs the whole model for each batch of each epoch. Each run has a
process of its own; the clock starts when TensorFlow is imported, and building the model is counted.

With random weights the base's outputs are about 1e-11, so that the losses of the timed runs agree
whatever the base computes. They are compared again, on fewer photographs, over a base whose
BatchNormalization layers have the statistics of photographs. Random layers make much of small
differences, so that rounding the resized pixels to uint8, as our loader does, is then seen in the
losses. There they are held against those of the naive way with pixels rounded likewise.

``python -m tests.bench.training --rounds 1 --records 200`` is a short run, for tuning.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tfrtool
from tests.bench.photographs import make_photographs

__all__ = ["Run", "measure", "run", "work"]

_SHARDS = 8
_FEW = 128
_SIZE = 224
_EPOCHS = 5
_BATCH = 32
_AHEAD = 16
_SAME_LOSS = 1e-3
_WAYS = {"float32": 7.0, "bfloat16": 10.0}
"""The precisions, and how many times faster than the naive way each should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a process measured.

    Attributes:
        wall: seconds, from the imports on.
        cpu: seconds of all threads.
        parts: of the wall time, by what was done.
        losses: of each epoch.
    """

    wall: float
    cpu: float
    parts: dict[str, float]
    losses: Sequence[float]


def run(directory: Path, rounds: int = 3, records: int = 1000) -> Iterator[str]:
    """Yield the times of all ways, and the ratios.

    Args:
        directory: a place for photographs and shards.
        rounds: how often each way is measured.
        records: photographs to train on.

    Raises:
        RuntimeError: a loss in float32 is not that of the naive way.
    """
    ways = ["naive", "float32"]
    with_bfloat16 = _has_bfloat16()
    if with_bfloat16:
        ways.append("bfloat16")
    dataset = _write(directory / f"of{records}", records)
    yield f"{records:,} photographs at {_SIZE} px, {_EPOCHS} epochs, {rounds} runs each"
    if not with_bfloat16:
        yield "no bfloat16 on this processor"
    runs: dict[str, list[Run]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            runs[way].append(measure(dataset, way))
        _check_losses(runs["naive"][-1], runs["float32"][-1])
    for way, of_one in runs.items():
        wall, cpu = (statistics.median(values) for values in zip(*map(_times, of_one), strict=True))
        parts = {name: statistics.median(r.parts[name] for r in of_one) for name in of_one[0].parts}
        told = ", ".join(f"{name} {seconds:.2f}" for name, seconds in parts.items())
        yield f"  {way:8} wall {wall:6.2f} s   CPU {cpu:6.2f} s   ({told})"
    for way in ways[1:]:
        pairs = list(zip(runs["naive"], runs[way], strict=True))
        wall = [naive.wall / ours.wall for naive, ours in pairs]
        cpu = [naive.cpu / ours.cpu for naive, ours in pairs]
        yield (
            f"  naive / {way}: wall {statistics.median(wall):.2f} "
            f"({min(wall):.2f} to {max(wall):.2f}), CPU {statistics.median(cpu):.2f} "
            f"({_WAYS[way]})"
        )
    yield from _same_losses(_write(directory / "few", _FEW), directory / "fitted.weights.h5", ways)


def _same_losses(dataset: Path, weights: Path, ways: Sequence[str]) -> Iterator[str]:
    measure(dataset, "weights", weights)
    losses = {way: measure(dataset, way, weights) for way in ("naive", "rounded", *ways[1:])}
    _check_losses(losses["rounded"], losses["float32"])
    yield f"losses of {_FEW} photographs over fitted BatchNormalization, epoch by epoch"
    for way, of_one in losses.items():
        yield f"  {way:8} {' '.join(f'{loss:.5f}' for loss in of_one.losses)}"


def _times(run: Run) -> tuple[float, float]:
    return run.wall, run.cpu


def _check_losses(naive: Run, ours: Run) -> None:
    for theirs, loss in zip(naive.losses, ours.losses, strict=True):
        if abs(theirs - loss) > _SAME_LOSS:
            raise RuntimeError(f"the losses differ: {naive.losses} and {ours.losses}")


def _write(directory: Path, records: int) -> Path:
    photographs = make_photographs(directory / "photographs", records)
    dataset = directory / "pets"
    tfrtool.write(photographs, dataset, shards=_SHARDS, check="header")
    return dataset


def _has_bfloat16() -> bool:
    with suppress(OSError):
        return bool(re.search("avx512_bf16|amx_bf16", Path("/proc/cpuinfo").read_text()))
    return False


def measure(dataset: Path, way: str, weights: Path | None = None) -> Run:
    """Measure a way in a process of its own.

    Args:
        dataset: the directory of shards.
        way: naive, float32 or bfloat16; "rounded" is the naive one with whole pixel values, and
            "weights" makes the file of these.
        weights: of the base; random ones if there are none.
    """
    code = "import sys; from tests.bench.training import work; work(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(dataset), way, str(weights or "")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring {way} failed:\n{done.stderr}")
    return Run(**json.loads(done.stdout.splitlines()[-1]))


def work(directory: str, way: str, weights: str) -> None:
    """Train in this process, and print a `Run` as JSON."""
    import keras
    import tensorflow as tf

    import tfrtool.training.frozen_features  # noqa: F401

    train = {"naive": _naive, "rounded": _naive, "weights": _save_weights}.get(way, _ours)
    shards = sorted(str(path) for path in Path(directory).glob("*.tfrecord*"))
    marks = _Marks()
    keras.utils.set_random_seed(0)
    losses = train(tf, shards, weights, marks, way)
    result = Run(
        wall=time.perf_counter() - marks.start,
        cpu=time.process_time() - marks.cpu,
        parts=marks.parts,
        losses=losses,
    )
    print(json.dumps(asdict(result)))


class _Marks:
    """A clock that tells what took how long."""

    def __init__(self) -> None:
        self.cpu = time.process_time()
        self.start = self._last = time.perf_counter()
        self.parts: dict[str, float] = {}

    def mark(self, name: str) -> None:
        """Say that what is called ``name`` is done now."""
        now = time.perf_counter()
        self.parts[name], self._last = now - self._last, now


def _model(weights: str) -> tuple[Any, Any, Any]:
    """Return a whole model, its base and its head."""
    import keras

    shape = (_SIZE, _SIZE, 3)
    base = keras.applications.MobileNetV2(
        input_shape=shape, include_top=False, weights=None, pooling="avg"
    )
    if weights:
        base.load_weights(weights)
    base.trainable = False
    inputs = keras.Input(shape)
    head = keras.layers.Dense(2, activation="softmax")
    return keras.Model(inputs, head(base(inputs, training=False))), base, head


def _naive(tf: Any, shards: list[str], weights: str, marks: _Marks, way: str) -> list[float]:
    import keras

    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record: Any) -> tuple[Any, Any]:
        example = tf.io.parse_single_example(record, features)
        image = tf.image.resize(tf.io.decode_jpeg(example["image"], channels=3), (_SIZE, _SIZE))
        if way == "rounded":
            image = tf.floor(image + 0.5)
        return image / 127.5 - 1, example["label"]

    batches = tf.data.TFRecordDataset(shards).map(parse).batch(_BATCH)
    model, _, _ = _model(weights)
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=["accuracy"],
    )
    marks.mark("building")
    losses: list[float] = model.fit(batches, epochs=_EPOCHS, verbose=0).history["loss"]
    marks.mark("training")
    return losses


def _ours(tf: Any, shards: list[str], weights: str, marks: _Marks, way: str) -> list[float]:
    import keras

    from tfrtool.loading.options import Rescale
    from tfrtool.training.frozen_features import (
        BASE_BATCH,
        extract_features,
        feature_batches,
        freeze,
    )

    dataset = tfrtool.dataset(Path(shards[0]).parent)
    count = dataset.split("train").records
    # In the order of the naive way, so that the losses can be compared.
    order: dict[str, Any] = {"training": False, "cycle_length": 1, "prefetch": 16}
    batches = dataset.load(image_size=_SIZE, rescale=None, batch_size=BASE_BATCH, **order)
    options = tf.data.Options()
    options.experimental_warm_start = True
    iterator = iter(batches.with_options(options))
    _, base, head = _model(weights)
    marks.mark("building")
    frozen = freeze(base, _SIZE, Rescale(scale=1 / 127.5, offset=-1.0), way)  # type: ignore[arg-type]
    marks.mark("freezing")
    values, labels = extract_features(frozen, iterator, count)
    marks.mark("features")
    inputs = keras.Input(values.shape[1:])
    model = keras.Model(inputs, head(inputs))
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy())
    features = feature_batches(values, labels, _BATCH)
    losses: list[float] = model.fit(features, epochs=_EPOCHS, verbose=0).history["loss"]
    marks.mark("head")
    return losses


def _save_weights(
    tf: Any, shards: list[str], weights: str, _marks: _Marks, _way: str
) -> list[float]:
    """Save a random base whose BatchNormalization layers know the photographs."""
    import keras

    _, base, _ = _model("")
    dataset = tfrtool.dataset(Path(shards[0]).parent)
    images = dataset.load(image_size=_SIZE, rescale=None, batch_size=_BATCH, training=False)
    layers = [layer for layer in base.layers if isinstance(layer, keras.layers.BatchNormalization)]
    base.trainable = True
    for layer in layers:
        layer.momentum = 0.0  # no rest of the variance of 1 that it began with
    for pixels, _ in images.take(1):
        base(tf.cast(pixels, tf.float32) / 127.5 - 1, training=True)
    base.save_weights(weights)
    return []


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.training")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1000)
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with tempfile.TemporaryDirectory() as directory:
        for line in run(Path(directory), options.rounds, options.records):
            print(line, flush=True)


if __name__ == "__main__":
    _main()
