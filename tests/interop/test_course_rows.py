"""The rows of "The course, cell by cell": each names its check, and those without another are here.

The published code of the course runs next to the tool's, on small datasets.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tfrtool
from tests.photos import image_bytes, write_class_folders
from tfrtool.cli import main

pytestmark = pytest.mark.tf

REPOSITORY = Path(__file__).parents[2]
PAGE = "docs/how-to/course.md"
SIZE = 24

HERE = "tests/interop/test_course_rows.py"
SLICES = "tests/loading/test_split_ranges.py"
AUGMENT = "tests/loading/test_augment.py"
PIPELINE = "tests/loading/test_pipeline.py"
TRAINING = "tests/training"

CHECKS = (
    # TensorFlow Datasets
    f"{PAGE}::Load the dataset",
    "tests/features/test_tfx_schema.py::test_python_code_is_the_same_features",
    "tests/loading/test_dataset.py::test_datasets_that_tfds_wrote",
    f"{HERE}::test_a_whole_split_as_arrays",
    f"{SLICES}::test_slices_are_those_of_tfds",
    f"{SLICES}::test_slices_are_those_of_tfds",
    f"{SLICES}::test_counts_are_those_of_tfds",
    f"{SLICES}::test_folds_are_a_partition",
    f"{PIPELINE}::test_one_hot_labels",
    "tests/interop/test_tfds.py::test_tfds_reads_what_we_write",
    "tests/writing/test_columns_and_labels.py::test_columns_are_features_of_tfds",
    "tests/writing/test_coco_write.py::test_tfds_reads_objects",
    # TFRecord files
    f"{HERE}::test_raw_records",
    "tests/examples/test_python_source.py::test_every_record_is_parsed",
    "tests/examples/test_description_file.py::test_description_equals_that_of_tensorflow",
    "tests/examples/test_parsing.py::test_agrees_with_tensorflow",
    f"{HERE}::test_interleaved_records",
    "tests/interop/test_tables_of_others.py::test_tables_are_read",
    # Input pipelines
    f"{PAGE}::Measure what parallel reading gains",
    "tests/loading/test_dataset.py::test_a_pattern_of_shards",
    f"{HERE}::test_interleaved_records",
    f"{HERE}::test_interleaved_records",
    f"{PIPELINE}::test_autotuning_changes_no_batch",
    f"{PIPELINE}::test_every_image_comes_once_an_epoch",
    f"{PAGE}::Cache in memory, or on disk",
    f"{PAGE}::Cache in memory, or on disk",
    f"{PIPELINE}::test_records_parsed_at_once",
    f"{TRAINING}/test_train_options.py::test_steps_per_epoch",
    f"{TRAINING}/test_train_options.py::test_validation_steps",
    f"{TRAINING}/test_compare.py::test_all_are_measured",
    # Augmentation
    f"{AUGMENT}::test_flips_are_exact_and_even",
    f"{AUGMENT}::test_rotation_equals_that_of_keras",
    f"{AUGMENT}::test_ranges_before_resizing_equal_tf_image",
    f"{AUGMENT}::test_saturation_and_hue_equal_tf_image",
    f"{AUGMENT}::test_cutout_inside_is_never_cut_off",
    f"{HERE}::test_folders_are_read_as_by_a_generator",
    f"{AUGMENT}::test_zoom_equals_that_of_keras",
    # Models
    f"{PAGE}::Train a head on MobileNetV2",
    f"{TRAINING}/test_ways_to_train.py::test_each_option_does_what_keras_does",
    f"{PAGE}::The network of horses_or_humans",
    f"{TRAINING}/test_ways_to_train.py::test_each_option_does_what_keras_does",
    f"{TRAINING}/test_training_callbacks.py::test_a_metric_called_acc",
    f"{TRAINING}/test_own_model.py::test_a_compiled_model",
    f"{TRAINING}/test_features.py::test_a_users_frozen_layers_run_once",
    f"{TRAINING}/test_training_callbacks.py::test_callbacks_of_keras_do_their_work",
    f"{TRAINING}/test_predict.py::test_pixels_are_the_loaders",
    f"{TRAINING}/test_evaluate.py::test_they_are_what_training_said",
    f"{TRAINING}/test_own_model_file.py::test_what_an_own_file_needs",
    f"{TRAINING}/test_exporting.py::test_both_forms",
    f"{TRAINING}/test_profile.py::test_tensorboards_profiler_finds_the_steps",
    f"{TRAINING}/test_devices.py::test_two_devices_train_as_one",
    "tests/engines/test_several_machines.py::test_two_workers_train_one_model",
)
"""The test, or the section of the page, that checks each row of its table, in their order."""


def _rows() -> list[list[str]]:
    """Return the cells of each row of the table that has a verdict."""
    text = (REPOSITORY / PAGE).read_text("utf-8").partition("## Row by row\n")[2]
    lines = re.findall(r"^\| (.+) \|$", text.partition("\n## ")[0], re.MULTILINE)[1:]
    rows = [re.split(r" (?<!\\)\| ", line) for line in lines]
    return [row for row in rows if row[-1] != "|"]


def test_each_row_has_its_check() -> None:
    """Rows have a verdict, and for each there is a test, or a section, that exists."""
    for row, check in zip(_rows(), CHECKS, strict=True):
        path, name = check.split("::")
        text = (REPOSITORY / path).read_text("utf-8")
        wanted = f"\n## {name}\n" if path == PAGE else f"\ndef {name}("
        assert wanted in text, f"{row[0]}: {check} does not exist"
        assert re.match("(same|close|differs)(: .+)?$", row[2]), f"{row[0]}: {row[2]}"


@pytest.fixture(scope="module")
def cats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset in the layout and with the name of ``cats_vs_dogs``, in eight shards."""
    root = tmp_path_factory.mktemp("course")
    source = write_class_folders(root / "photos", count=20)
    directory = root / "cats_vs_dogs" / "4.0.1"
    tfrtool.write(source, directory, shards=8)
    return directory


@pytest.mark.parametrize(("recipe", "difference"), [("tfrtool", 0.5), ("notebook", 1e-4)])
def test_interleaved_records(cats: Path, tf: Any, recipe: Any, difference: float) -> None:
    """Order and labels are the course's; pixels differ by half a level of 255, or by nothing."""
    description = {
        "image": tf.io.FixedLenFeature((), tf.string, ""),
        "label": tf.io.FixedLenFeature((), tf.int64, -1),
    }

    def read_tfrecord(record: Any) -> tuple[Any, Any]:
        example = tf.io.parse_single_example(record, description)
        image = tf.cast(tf.io.decode_jpeg(example["image"], channels=3), tf.float32) / 255
        return tf.image.resize(image, (SIZE, SIZE)), example["label"]

    pattern = f"{cats}/cats_vs_dogs-train.tfrecord*"
    files = tf.data.Dataset.list_files(pattern, shuffle=False)
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=4)
    expected, labels = next(records.map(read_tfrecord).batch(40).as_numpy_iterator())
    batches = tfrtool.dataset(cats).load(
        image_size=SIZE, batch_size=40, recipe=recipe, training=False
    )
    found, classes = next(batches.as_numpy_iterator())
    assert len(list(cats.glob("*.tfrecord-*-of-00008"))) == 8
    assert classes.tolist() == labels.tolist()
    assert np.abs(found - expected).max() * 255 <= difference * 1.001


def test_a_whole_split_as_arrays(tmp_path: Path) -> None:
    """Gray images of 28 pixels come as ``tfds.as_numpy`` has them, in its order."""
    import tensorflow_datasets as tfds

    for number in range(12):
        folder = tmp_path / "clothes" / str(number % 3)
        folder.mkdir(parents=True, exist_ok=True)
        image = image_bytes("PNG", mode="L", size=(28, 28), tint=9 * number)
        (folder / f"{number}.png").write_bytes(image)
    directory = tmp_path / "clothes_set" / "1.0.0"
    tfrtool.write(tmp_path / "clothes", directory, encode="png")
    builder = tfds.builder_from_directory(str(directory))
    images, labels = tfds.as_numpy(
        builder.as_dataset("train", batch_size=-1, as_supervised=True, shuffle_files=False)
    )
    batches = tfrtool.dataset(directory).load(
        image_size=28, channels=1, batch_size=12, rescale=None, training=False
    )
    ((found, classes),) = batches.as_numpy_iterator()
    np.testing.assert_array_equal(found, images[..., :1])
    np.testing.assert_array_equal(classes, labels)


def test_raw_records(cats: Path, tf: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The bytes of a record are those that ``TFRecordDataset`` returns."""
    shard = min(cats.glob("*.tfrecord-*"))
    assert main(["inspect", "shard", str(shard), "--record", "2", "--raw"]) == 0
    literal = capsys.readouterr().out.splitlines()[-1]
    (record,) = tf.data.TFRecordDataset(str(shard)).skip(2).take(1).as_numpy_iterator()
    assert ast.literal_eval(literal) == record


def test_folders_are_read_as_by_a_generator(tmp_path: Path) -> None:
    """Classes, labels and pixels are those of ``flow_from_directory``, if no size is changed."""
    from tensorflow.keras.preprocessing.image import ImageDataGenerator

    random = np.random.default_rng(0)
    for number in range(10):
        folder = tmp_path / "photos" / ("humans" if number % 3 else "horses")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (SIZE, SIZE, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    generator = ImageDataGenerator(rescale=1 / 255).flow_from_directory(
        tmp_path / "photos",
        target_size=(SIZE, SIZE),
        batch_size=10,
        class_mode="binary",
        shuffle=False,
    )
    images, labels = next(generator)
    tfrtool.write(tmp_path / "photos", tmp_path / "d", encode="png", shuffle=False)
    dataset = tfrtool.dataset(tmp_path / "d")
    batches = dataset.load(image_size=SIZE, batch_size=10, training=False)
    ((found, classes),) = batches.as_numpy_iterator()
    assert list(dataset.class_names) == list(generator.class_indices)
    assert classes.tolist() == labels.tolist()
    np.testing.assert_allclose(found, images, atol=1e-7)
