"""The loader: order, epochs, caches, hold-out and workers, as a caller sees them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tfrtool
from tests.datasets import flip_bit, image_payload, write_foreign, write_pets
from tests.more import more
from tests.photos import image_bytes
from tfrtool import Dataset, DatasetError, UsageError
from tfrtool.storage.progress import Progress

pytestmark = pytest.mark.tf

LENGTHS = (65, 3, 55, 1, 76)
TOTAL = sum(LENGTHS)
CACHES = (more("memory"), "none", more("disk"))
RECIPES = ("tfrtool", more("notebook"), "naive")


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep caches on disk out of the user's own directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


def write_numbered(directory: Path, lengths: tuple[int, ...] | list[int] = LENGTHS) -> Path:
    """Write shards of images whose label is their number, and whose shade is a third of it."""
    numbers = iter(range(sum(lengths)))
    data = [image_bytes("PNG", size=(8, 8), tint=tint) for tint in range(90)]
    shards = [
        [image_payload(n, data=data[n // 3]) for n in itertools.islice(numbers, length)]
        for length in lengths
    ]
    return write_foreign(directory, shards)


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return a dataset of five shards of very different lengths."""
    return tfrtool.dataset(write_numbered(tmp_path_factory.mktemp("d")))


def load(dataset: Dataset, **options: Any) -> Any:
    """Return the pipeline of tiny images."""
    return dataset.load(**{"image_size": 8, "batch_size": 32, "rescale": None, **options})


def labels_of(batches: Any) -> list[int]:
    """Return all labels in order."""
    return [int(label) for _, labels in batches for label in labels.numpy()]


def contexts(tf: Any, workers: int) -> list[Any]:
    """Return the contexts of several workers with a replica each."""
    return [tf.distribute.InputContext(workers, worker, workers) for worker in range(workers)]


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_image_comes_once_an_epoch(numbered: Dataset, recipe: str) -> None:
    """All recipes give all images with their labels, once an epoch; shapes and dtypes hold."""
    batches = load(numbered, recipe=recipe, rescale=(1.0, 0.0))
    assert int(batches.cardinality()) == 7
    for _ in range(2):
        seen = []
        for images, labels in batches:
            assert (images.shape[1:], images.dtype, labels.dtype) == ((8, 8, 3), "float32", "int64")
            seen += labels.numpy().tolist()
        assert sorted(seen) == list(range(TOTAL))


@pytest.mark.usefixtures("real_graphs")
@pytest.mark.parametrize("cache", CACHES)
def test_seed_and_epoch_decide_the_order(numbered: Dataset, cache: str, tf: Any) -> None:
    """One iterator over epochs is iterators in turn; a run can go on at any epoch and step."""
    options = {"cache": cache, "augment": "flip,brightness=0.3", "seed": 1}
    together = load(numbered, epochs=4, **options)
    assert int(together.cardinality()) == 28
    batches = list(together)
    assert [len(labels) for _, labels in batches] == ([32] * 6 + [8]) * 4
    whole = labels_of(batches)
    epochs = [whole[start : start + TOTAL] for start in range(0, 4 * TOTAL, TOTAL)]
    assert all(sorted(epoch) == list(range(TOTAL)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 4
    in_turn = load(numbered, **options)
    assert [labels_of(in_turn) for _ in range(2)] == epochs[:2]
    tf.random.set_seed(5)  # the program's own seed plays no part
    for epoch, step in ((0, 1), (2, 0), (3, 6)):
        resumed = load(numbered, epochs=4 - epoch, first_epoch=epoch, first_step=step, **options)
        expected = batches[7 * epoch + step :]
        for found, (images, labels) in zip(resumed, expected, strict=True):
            np.testing.assert_array_equal(found[1], labels)
            np.testing.assert_array_equal(found[0], images)
    assert labels_of(load(numbered, **{**options, "seed": 2, "epochs": 2})) != whole[: 2 * TOTAL]


@pytest.mark.parametrize("cache", ["memory", "disk"])
def test_a_first_epoch_is_mixed(
    tmp_path: Path, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image's place in the shards says next to nothing about when it comes."""
    monkeypatch.setattr("tfrtool.loading.pipeline._SHUFFLE", 64)
    dataset = tfrtool.dataset(write_numbered(tmp_path / "d", [25] * 8))
    labels = labels_of(load(dataset, cache=cache))
    assert abs(np.corrcoef(labels, np.arange(200))[0, 1]) < 0.3


@pytest.mark.more
def test_records_parsed_at_once(numbered: Dataset, tf: Any) -> None:
    """Images, labels and their order are those of records parsed one by one, in each epoch."""
    options = {"epochs": 2, "seed": 3, "cache": "none", "augment": "flip"}
    expected = list(load(numbered, **options))
    for decode in ("exact", "fast"):
        found = load(numbered, batched_parse=7, decode=decode, **options)
        for one, other in zip(found, expected, strict=True):
            for values, others in zip(one, other, strict=True):
                np.testing.assert_array_equal(values, others)
    own = replace(numbered, decode=lambda _: (tf.zeros([8, 8, 3], tf.uint8), 0))
    with pytest.raises(UsageError, match="--loader parse can't be used"):
        load(own, batched_parse=7)


@pytest.mark.parametrize("numbers", [{}, more({"parallel_calls": 2, "prefetch": 1})])
def test_autotuning_changes_no_batch(numbered: Dataset, numbers: dict[str, int]) -> None:
    """With numbers that tf.data tunes, images and their order are those of fixed numbers."""
    options = {"seed": 3, "cache": "memory", "augment": "flip", **numbers}
    tuned = load(numbered, autotune=True, **options)
    assert tuned.options().autotune.enabled
    assert not load(numbered, **options).options().autotune.enabled
    for batch, expected in zip(tuned.take(7), load(numbered, **options), strict=True):
        for values, others in zip(batch, expected, strict=True):
            np.testing.assert_array_equal(values, others)


def test_shards_and_images_are_shuffled(numbered: Dataset) -> None:
    """With a buffer of one image, the order of shards still changes from epoch to epoch."""
    firsts = labels_of(load(numbered, shuffle_buffer=1, cycle_length=1, epochs=12))[::TOTAL]
    starts = {sum(LENGTHS[:number]) for number in range(5)}
    assert set(firsts) <= starts
    assert len(set(firsts)) > 1
    larger = labels_of(load(numbered, shuffle_buffer=30, cycle_length=1, epochs=12))[::TOTAL]
    assert set(larger) - starts


def test_order_of_evaluation(numbered: Dataset) -> None:
    """Without training, the order is that of the interleaved shards, every time."""
    for cycle, block, first in ((3, 1, [0, 65, 68, 1]), (2, 3, [0, 1, 2, 65, 66, 67, 3])):
        batches = load(numbered, training=False, cycle_length=cycle, block_length=block)
        assert labels_of(batches)[: len(first)] == first
        assert labels_of(batches) == labels_of(batches)


@pytest.mark.parametrize(
    ("cache", "workers"), [more("none", 1), more("memory", 3), ("disk", 2), more("none", 3)]
)
def test_held_out_images_are_never_trained_on(
    numbered: Dataset, tf: Any, cache: str, workers: int
) -> None:
    """In any order of reading, in every epoch, the parts and workers' shares are a partition."""

    def both_epochs(**options: Any) -> list[int]:
        batches = load(numbered, cache=cache, deterministic=False, holdout=0.25, **options)
        first, second = (sorted(labels_of(batches)) for _ in range(2))
        assert first == second
        return first

    assert both_epochs(held_out=True) == list(range(3, TOTAL, 4))
    shares = [both_epochs(context=one, batch_size=30) for one in contexts(tf, workers)]
    assert sorted(itertools.chain(*shares)) == [n for n in range(TOTAL) if n % 4 != 3]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_holds_out_the_same_images(numbered: Dataset, recipe: str) -> None:
    """Pipelines that are compared train on the same images, and validate on the same."""
    batches = load(numbered, holdout=0.25, held_out=True, recipe=recipe)
    assert sorted(labels_of(batches)) == list(range(3, TOTAL, 4))


@pytest.mark.parametrize(
    "options", [{}, {"cache": "memory"}, {"cache": "disk"}, {"recipe": "naive"}], ids=str
)
def test_a_limit_takes_a_share_of_each_shard(numbered: Dataset, options: Any) -> None:
    """They are the first images of each shard, the same in each epoch, also of a held-out part."""
    bounds = np.cumsum((0, *LENGTHS))
    starts, share = bounds[:-1], np.diff(bounds * 40 // TOTAL)
    expected = [
        n for start, size in zip(starts, share, strict=True) for n in range(start, start + size)
    ]
    assert len(expected) == 40
    batches = load(numbered, limit=40, epochs=2, **options)
    assert int(batches.cardinality()) == 4
    assert sorted(labels_of(batches)) == sorted(expected * 2)
    assert sorted(labels_of(load(numbered, **options))) == list(range(TOTAL))
    held = labels_of(load(numbered, limit=5, holdout=0.25, held_out=True, **options))
    assert len({n for n in held if n % 4 == 3}) == 5
    assert len(labels_of(load(numbered, limit=TOTAL + 1, **options))) == TOTAL


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    fraction=st.floats(0.1, 0.9),
    workers=st.integers(1, 3),
)
def test_parts_are_a_partition(
    tf: Any,
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    fraction: float,
    workers: int,
) -> None:
    """Whatever the shards and the fraction, each record is in one share of one part."""
    dataset = tfrtool.dataset(write_numbered(tmp_path_factory.mktemp("d"), lengths))
    found = []
    for held_out in (True, False):
        for context in contexts(tf, workers):
            options = {"holdout": fraction, "held_out": held_out, "context": context}
            try:
                found += labels_of(load(dataset, batch_size=6, **options))
            except (DatasetError, UsageError):  # too few images for a part, or for the workers
                return
    assert sorted(found) == list(range(sum(lengths)))


def test_replicas_have_the_parts_of_one_batch(numbered: Dataset, tf: Any) -> None:
    """In order they are the batch of one device, with the same augmentation."""
    options = {"epochs": 2, "augment": "flip,crop=2", "cache": "memory"}
    whole = list(load(numbered, **options))
    parts = load(numbered, context=tf.distribute.InputContext(1, 0, 3), **options)
    assert int(parts.cardinality()) == 3 * len(whole)
    for (images, labels), own in zip(whole, zip(*[iter(parts)] * 3, strict=True), strict=True):
        np.testing.assert_array_equal(np.concatenate([one for one, _ in own]), images)
        np.testing.assert_array_equal(np.concatenate([one for _, one in own]), labels)
        sizes = [len(one) for _, one in own]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.more
def test_workers_have_as_many_steps(numbered: Dataset, tf: Any) -> None:
    """The last batch of 199 images leaves nothing for two of three workers; they step, too."""
    shares = [
        list(load(numbered, context=one, batch_size=99, augment="brightness=0.5", epochs=2))
        for one in contexts(tf, 3)
    ]
    sizes = [[len(labels) for _, labels in share] for share in shares]
    assert sizes == [[33, 33, 1] * 2, [33, 33, 1] * 2, [33, 33, 0] * 2]
    shades = [share[0][0].numpy()[:, 0, 0, 0].astype(float) for share in shares]
    changes = [shade[:6] - shade[:6].mean() for shade in shades]
    assert np.abs(changes[0] - changes[1]).max() > 5  # each worker augments differently


def test_what_cannot_be_shared_out(numbered: Dataset, tf: Any) -> None:
    """Fewer images than workers, or a batch that can't be split among them, is an error."""
    for context, size in (((201, 0, 201), 201), ((3, 0, 3), 8), ((1, 0, 9), 8)):
        with pytest.raises(UsageError, match="can't be distributed"):
            load(numbered, context=tf.distribute.InputContext(*context), batch_size=size)
    with pytest.raises(UsageError, match="naive can't be distributed"):
        load(numbered, context=tf.distribute.InputContext(1, 0, 1), recipe="naive")


def test_too_small_holdout_is_an_error(numbered: Dataset) -> None:
    """A part that would be empty is refused."""
    with pytest.raises(DatasetError, match="too few records"):
        load(numbered, holdout=0.001, held_out=True)
    with pytest.raises(UsageError, match="holdout must be between 0 and 1"):
        load(numbered, holdout=1.0)


def _in_threads(batches: Any) -> list[list[int]]:
    """Return the labels of three iterators that run at the same time."""
    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(labels_of, [iter(batches) for _ in range(3)]))


def _in_turn(batches: Any) -> list[list[int]]:
    """Return the labels of three iterators; two begin when the first is halfway."""
    iterators = [iter(batches) for _ in range(3)]
    found = [labels_of(itertools.islice(iterators[0], 5)), [], []]
    for some in itertools.zip_longest(*iterators):
        for labels, batch in zip(found, some, strict=True):
            labels += [] if batch is None else labels_of([batch])
    return found


@pytest.mark.parametrize("together", [_in_threads, _in_turn])
def test_iterators_that_fill_one_cache(
    numbered: Dataset, together: Callable[[Any], list[list[int]]]
) -> None:
    """Each of several iterators has every image once, and so has a later epoch."""
    batches = load(numbered, cache="memory")
    next(iter(batches))  # one that is given up changes nothing
    assert [sorted(labels) for labels in together(batches)] == [list(range(TOTAL))] * 3
    assert sorted(labels_of(batches)) == list(range(TOTAL))


@pytest.mark.more  # the fault it looks for is a race
def test_iterators_that_begin_together_have_different_epochs(tmp_path: Path) -> None:
    """Iterators in threads have the epochs, and so the orders, that they have in turn."""
    dataset = tfrtool.dataset(write_numbered(tmp_path / "d", [20]))
    in_threads, in_turn = (load(dataset, cache="none", training=True) for _ in range(2))
    iterators = [iter(in_threads) for _ in range(200)]
    with ThreadPoolExecutor(16) as pool:
        orders = list(pool.map(labels_of, iterators))
    assert sorted(orders) == sorted(labels_of(in_turn) for _ in iterators)


def test_a_cache_in_memory_is_read_once(tmp_path: Path) -> None:
    """After the first epoch, the shards may go away."""
    directory = write_numbered(tmp_path / "d", [20, 20])
    batches = load(tfrtool.dataset(directory), cache="memory")
    first = labels_of(batches)
    for path in directory.iterdir():
        path.unlink()
    assert sorted(labels_of(batches)) == sorted(first)


def test_a_cache_on_disk_is_found_again(tmp_path: Path) -> None:
    """The next run reads what the first one wrote; a shard that changed means a new cache."""
    directory, folder = write_pets(tmp_path), tmp_path / "c"
    reports: list[Progress] = []

    def pixels(**options: Any) -> list[float]:
        options = {"cache": "disk", "cache_directory": folder, "training": False, **options}
        batches = load(tfrtool.dataset(directory), on_progress=reports.append, **options)
        return [float(image.numpy().sum()) for images, _ in batches for image in images]

    first = pixels()
    assert reports[-1].done == reports[-1].total == len(first)
    reports.clear()
    assert pixels() == first
    assert not reports
    shard = next(directory.glob("*-train.tfrecord*"))
    os.utime(shard, ns=(1, 1))
    assert pixels() == first
    assert reports
    assert len(list(folder.iterdir())) == 2
    for changes in ({"split": "validation"}, {"image_size": 9}, {"decode": "fast"}):
        pixels(**changes)
    assert len(list(folder.iterdir())) == 5
    for old in folder.iterdir():  # of caches that no run has opened for a month, nothing is left
        os.utime(old, (1, 1))
    assert pixels() == first
    assert len(list(folder.iterdir())) == 1


def test_a_cache_in_use_is_not_deleted(tmp_path: Path) -> None:
    """Using an old cache makes it recent: a later run that deletes unused caches keeps it."""
    dataset = tfrtool.dataset(write_pets(tmp_path))
    options = {"cache": "disk", "cache_directory": tmp_path / "c"}
    load(dataset, **options)
    (used,) = (tmp_path / "c").iterdir()
    for path in (used, *used.iterdir()):
        os.utime(path, (1, 1))
    list(load(dataset, **options))
    load(dataset, split="validation", **options)
    reports: list[Progress] = []
    list(load(dataset, on_progress=reports.append, **options))
    assert used.is_dir()
    assert reports == []  # nothing was cached again


@pytest.mark.parametrize("cache", ["memory", "disk"])
def test_a_shuffle_buffer_limits_the_order_of_a_cache(numbered: Dataset, cache: str) -> None:
    """With a buffer of one image, each epoch has the order in which the images were cached."""
    labels = labels_of(load(numbered, cache=cache, shuffle_buffer=1, epochs=2))
    assert sorted(labels[:TOTAL]) == list(range(TOTAL))
    assert labels[TOTAL:] == labels[:TOTAL]


def test_a_damaged_cache_on_disk_is_an_error(tmp_path: Path, tf: Any) -> None:
    """Nothing is trained on black: TensorFlow checks what it reads."""
    options = {"cache": "disk", "cache_directory": tmp_path / "c"}
    dataset = tfrtool.dataset(write_pets(tmp_path))
    load(dataset, **options)
    (data,) = (tmp_path / "c").glob("*/*.data*")
    flip_bit(data, 1000)
    with pytest.raises(tf.errors.DataLossError):
        list(load(dataset, **options))


def test_a_cache_that_was_not_finished_is_not_used(tmp_path: Path) -> None:
    """A run that is stopped while it fills a cache leaves nothing; a planted link is refused."""
    dataset = tfrtool.dataset(write_pets(tmp_path))

    def stop(_progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(dataset, cache="disk", cache_directory=tmp_path / "c", on_progress=stop)
    assert list((tmp_path / "c").iterdir()) == []
    (tmp_path / "link").symlink_to(tmp_path / "c")
    with pytest.raises(tfrtool.WriteError, match="it is a link"):
        load(dataset, cache="disk", cache_directory=tmp_path / "link")


def test_keras_fit_knows_the_number_of_steps(numbered: Dataset) -> None:
    """``fit`` trains on each epoch's batches, as many as the cardinality says."""
    import keras

    steps: list[int] = []
    callback = keras.callbacks.LambdaCallback()
    callback.on_epoch_begin = lambda *_, **__: steps.append(callback.params["steps"])
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(TOTAL)])
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(load(numbered), epochs=2, verbose=0, shuffle=False, callbacks=[callback])
    assert steps == [7, 7]


@pytest.mark.parametrize("recipe", ["tfrtool", "naive"])
def test_rescale_reaches_the_model(numbered: Dataset, recipe: str) -> None:
    """Pixels are mapped linearly, to the range that was asked for."""
    plain = dict(_by_label(load(numbered, training=False)))
    for label, image in _by_label(load(numbered, recipe=recipe, rescale=(1 / 127.5, -1.0))):
        np.testing.assert_allclose(image, plain[label] / 127.5 - 1, atol=1e-5)


@pytest.mark.parametrize("recipe", ["tfrtool", "naive"])
def test_one_hot_labels(numbered: Dataset, recipe: Any) -> None:
    """They are rows of the unit matrix, in the order of the class numbers."""
    options: dict[str, Any] = {"training": False, "cycle_length": 1} if recipe == "tfrtool" else {}
    (_, labels), *_ = load(numbered, one_hot=True, recipe=recipe, **options)
    np.testing.assert_array_equal(labels, np.eye(TOTAL, dtype=np.float32)[:32])


def _by_label(batches: Any) -> list[tuple[int, Any]]:
    return [
        (int(label), image.astype(np.float64))
        for images, labels in batches
        for image, label in zip(images.numpy(), labels.numpy(), strict=True)
    ]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"image_size": 0}, "invalid image_size 0: .* from 1 to"),
        ({"batch_size": 0}, "--batch-size must be"),
        ({"epochs": 0}, "epochs must be"),
        ({"first_epoch": -1}, "first_epoch"),
        ({"seed": -1}, "seed must be"),
        ({"cycle_length": 0}, "--loader cycle must be"),
        ({"parallel_calls": 5000}, "--loader calls must be from 1 to 1024"),
        ({"batched_parse": 2000}, "--loader parse must be from 1 to 1024"),
        ({"shuffle_buffer": 0}, "--loader shuffle must be"),
        ({"prefetch": -1}, "--loader prefetch must be"),
        ({"cache": "features"}, "training only"),
        ({"cache": "nowhere"}, "one of features, memory, disk, none"),
        ({"recipe": "ours"}, "one of tfrtool, notebook, naive"),
        ({"recipe": "naive", "cycle_length": 2}, "--loader cycle can't be used with --recipe"),
        ({"recipe": "notebook", "prefetch": 0}, "--loader prefetch can't be used with --recipe"),
        ({"recipe": "naive", "autotune": True}, "--loader autotune can't be used with"),
        ({"recipe": "naive", "first_step": 1}, "first_step can't be used with --recipe"),
        ({"first_step": 7}, "first_step must be from 0 to 6"),
    ],
)
def test_impossible_options_are_refused(
    numbered: Dataset, options: dict[str, Any], problem: str
) -> None:
    """Options that can't be meant are a usage error that names them."""
    with pytest.raises(UsageError, match=problem):
        load(numbered, **options)
    with pytest.raises(TypeError, match=r"'cach'.*'cache'"):
        load(numbered, cach="memory")


def test_a_dataset_is_a_path(tmp_path: Path) -> None:
    """What takes a dataset's directory takes the dataset that was opened."""
    dataset = tfrtool.dataset(write_pets(tmp_path))
    assert tfrtool.dataset(dataset) == dataset
    assert tfrtool.verify(dataset).is_sound
