"""The demo's run, with all that TensorFlow does to its graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.runs import small_options
from tfrtool import train
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_records

pytestmark = pytest.mark.tf


@pytest.mark.more  # test_multi_label.py has a run that learns
def test_the_demo_learns_and_saves_a_whole_model(pets: Path, tmp_path: Path) -> None:
    """The cnn tells cats from dogs that it never saw; the saved model takes pixels, as well."""
    import keras

    out = tmp_path / "run"
    report = train(**small_options(pets, trainable="all", epochs=10, learning_rate=2e-3, out=out))
    assert report.epochs[-1].val_accuracy is not None
    assert report.epochs[-1].val_accuracy > 0.9
    model = keras.models.load_model(out / "model.keras")
    found = []
    for path in pets.glob("*-validation.tfrecord-*"):
        with path.open("rb") as file:
            for item in read_records(file):
                assert isinstance(item, Record)
                found.append(_decoded(item.payload))
    pixels, labels = (np.array(part) for part in zip(*found, strict=True))
    right = (np.argmax(model(pixels), axis=-1) == labels).mean()
    assert right == pytest.approx(report.epochs[-1].val_accuracy, abs=1.5 / len(labels))


def _decoded(payload: bytes) -> tuple[Any, int]:
    import tensorflow as tf

    example = tf.train.Example.FromString(payload).features.feature
    image = tf.io.decode_jpeg(example["image"].bytes_list.value[0], channels=3)
    label = example["label"].int64_list.value[0]
    return tf.image.resize(image, (32, 32)).numpy(), label
