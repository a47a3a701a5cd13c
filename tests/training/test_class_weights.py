"""Classes of which there are few images, and other things that a run warns of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.datasets import image_payload, write_foreign
from tests.photos import image_bytes
from tests.training.runs import planned, small_options
from tfrtool.cli.commands.train_command import render_plan
from tfrtool.errors import UsageError

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]

LABELS = [0] * 11 + [1] + [2] * 4


def _pictures(labels: list[int], first: int = 0) -> list[bytes]:
    """Return records whose images all differ."""
    return [
        image_payload(label, data=image_bytes(tint=5 * number))
        for number, label in enumerate(labels, first)
    ]


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of three classes, of which one has one image."""
    records = _pictures(LABELS)
    return write_foreign(tmp_path_factory.mktemp("uneven"), [records[:5], records[5:]])


def test_weights_are_those_of_scikit_learn(uneven: Path) -> None:
    """Over all images, and over those that are left where some are held out."""
    from sklearn.utils.class_weight import compute_class_weight

    options = small_options(uneven, balance_classes=True, epochs=1)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=LABELS)
    weights = dict(zip("012", expected, strict=True))
    plan = planned(**options)
    assert plan.class_weights == pytest.approx(weights)
    assert "  weights  0 0.485, 1 5.33, 2 1.33\n" in render_plan(plan)
    dataset = tfrtool.dataset(uneven)
    kept = dataset.load(split="train", image_size=32, holdout=0.3, held_out=False)
    labels = np.concatenate([labels for _, labels in kept.as_numpy_iterator()])
    there = np.unique(labels)
    held = planned(**options, validation=0.3).class_weights or {}
    found = np.array(list(held.values()))
    np.testing.assert_allclose(
        found[there], compute_class_weight("balanced", classes=there, y=labels)
    )


@pytest.mark.more
def test_validation_is_not_weighted(uneven: Path) -> None:
    """The same weights, which do not move, have the same val_loss with and without."""
    options = small_options(uneven, validation=0.5, epochs=1, learning_rate=1e-12)
    first, second = (
        tfrtool.train(**options, balance_classes=balance).epochs[0] for balance in (False, True)
    )
    assert first.val_loss == pytest.approx(second.val_loss, rel=1e-5)
    assert first.loss != pytest.approx(second.loss, rel=1e-3)


def _warnings(dataset: Path, **changes: Any) -> tuple[str, ...]:
    return planned(**small_options(dataset, epochs=1, **changes)).warnings


def test_a_validation_split_without_records(tmp_path: Path) -> None:
    """It is said that nothing is validated; asked for by name, it is an error."""
    directory = write_foreign(tmp_path / "d", [_pictures([0, 1, 0, 1])])
    (directory / "part-00000-of-00001.tfrecord").rename(directory / "a-train.tfrecord")
    (directory / "a-validation.tfrecord").touch()
    (found,) = _warnings(directory)
    assert found.startswith("split 'validation' has no records")
    with pytest.raises(UsageError, match="split 'validation' has no records"):
        _warnings(directory, validation="validation")


def test_a_class_without_an_image(few: Path, tmp_path: Path) -> None:
    """The metadata has a class that no record is of."""
    import shutil

    directory = shutil.copytree(few, tmp_path / "pets")
    labels = directory / "label.labels.txt"
    labels.write_text(labels.read_text() + "elk\n")
    features = directory / "features.json"
    told = json.loads(features.read_text())
    told["featuresDict"]["features"]["label"]["classLabel"]["numClasses"] = "3"
    features.write_text(json.dumps(told))
    found = _warnings(directory, balance_classes=True)
    assert found == ("no training images of elk",)


def test_a_frozen_base_with_random_weights(few: Path) -> None:
    """No head learns from its outputs; one that is trained is no cause to warn."""
    options = {"model": "mobilenet", "weights": "none"}
    (found,) = _warnings(few, **options, trainable="head")
    assert re.search("--trainable all.*--weights imagenet", found)
    assert _warnings(few, **options, trainable="conv_pw_13") == ()


def test_several_classes_an_image_have_no_weights(tmp_path: Path) -> None:
    """Which class would it be?"""
    from tfrtool.examples.example import DType, Feature, encode_example

    records = [
        encode_example(
            {
                "image": Feature(dtype=DType.STRING, values=(image_bytes(tint=9 * number),)),
                "label": Feature(dtype=DType.INT64, values=((0, 2), (1,))[number % 2]),
            }
        )
        for number in range(6)
    ]
    with pytest.raises(UsageError, match="--balance-classes"):
        _warnings(write_foreign(tmp_path, [records]), balance_classes=True)
