"""The loader, held against the images that went in."""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.datasets import image_payload, write_foreign, write_pets
from tests.more import more
from tests.photos import image_bytes
from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.open_dataset import open_dataset
from tfrtool.loading.options import Cache, Holdout, LoadOptions, Recipe, Rescale, parse_augment
from tfrtool.loading.pipeline import load
from tfrtool.storage.progress import Progress

pytestmark = pytest.mark.tf

SIZE = 32
CACHES = (Cache.MEMORY, Cache.NONE, Cache.DISK)


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep caches on disk out of the user's own directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


@pytest.fixture(scope="module")
def shades(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return 30 plain images in 3 shards; the shade of each is four times its number."""
    payloads = []
    for number in range(30):
        data = np.full((8, 8, 3), 4 * number, np.uint8)
        payloads.append(image_payload(number % 2, data=_png(data)))
    directory = tmp_path_factory.mktemp("shades")
    return open_dataset(write_foreign(directory, [payloads[:10], payloads[10:20], payloads[20:]]))


def _png(pixels: Any) -> bytes:
    import io

    from PIL import Image

    output = io.BytesIO()
    Image.fromarray(pixels).save(output, "PNG")
    return output.getvalue()


def _numbers(batches: Any) -> list[int]:
    """Return the number of each image, in order, from its shade."""
    return [
        round(float(image[0, 0, 0]) * 255 / 4) for images, _ in batches for image in images.numpy()
    ]


def _options(**changes: Any) -> LoadOptions:
    return LoadOptions(image_size=SIZE, batch_size=4, **changes)


@pytest.mark.parametrize("recipe", Recipe)
def test_every_image_comes_once_an_epoch(shades: Dataset, recipe: Recipe) -> None:
    """Each recipe gives all images with their labels, once an epoch; shapes and dtypes hold."""
    batches = load(shades, _options(recipe=recipe))
    assert int(batches.cardinality()) == 8
    for _ in range(2):
        shades_seen = []
        for images, labels in batches:
            assert (images.shape[1:], images.dtype) == ((SIZE, SIZE, 3), "float32")
            assert labels.dtype == "int64"
            shade = np.round(images.numpy()[:, 0, 0, 0] * 255 / 4).astype(int)
            assert list(shade % 2) == list(labels.numpy())
            shades_seen += shade.tolist()
        assert sorted(shades_seen) == list(range(30))


@pytest.mark.usefixtures("real_graphs")
@pytest.mark.parametrize("cache", [more(Cache.MEMORY), Cache.NONE, Cache.DISK])
def test_seed_and_epoch_decide_the_order(shades: Dataset, cache: Cache) -> None:
    """One iterator over epochs is iterators in turn; a run can go on at any epoch."""
    together = load(shades, _options(seed=1, epochs=4, cache=cache))
    assert int(together.cardinality()) == 32
    batches = list(together)
    assert [len(labels) for _, labels in batches] == ([4] * 7 + [2]) * 4
    whole = _numbers(batches)
    epochs = [whole[start : start + 30] for start in range(0, 120, 30)]
    assert all(sorted(epoch) == list(range(30)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 4
    in_turn = load(shades, _options(seed=1, cache=cache))
    assert [_numbers(in_turn) for _ in range(2)] == epochs[:2]
    assert _numbers(load(shades, _options(seed=1, epochs=2, first_epoch=2, cache=cache))) == (
        epochs[2] + epochs[3]
    )
    assert _numbers(load(shades, _options(seed=2, cache=cache))) != epochs[0]


@pytest.mark.parametrize("cache", [Cache.MEMORY, Cache.NONE])
def test_a_tensorflow_without_an_attribute_gives_the_same(
    shades: Dataset, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions are kept on one device by an experimental attribute, which may go away."""
    whole = _numbers(load(shades, _options(seed=1, cache=cache)))
    unknown = {"experimental_nothing_of_the_kind": True}
    monkeypatch.setattr("tfrtool.loading.python_calls._ONE_DEVICE", unknown)
    assert _numbers(load(shades, _options(seed=1, cache=cache))) == whole


def test_the_program_s_own_seed_plays_no_part(shades: Dataset, tf: Any) -> None:
    """The order is decided by the options, whatever the program's global seed is."""
    orders = []
    for seed in (0, 1):
        tf.random.set_seed(seed)
        orders.append(_numbers(load(shades, _options(seed=5, epochs=2))))
    assert orders[0] == orders[1]


def test_shards_and_images_are_shuffled(shades: Dataset) -> None:
    """With a buffer of one image, it is still drawn which shard comes first."""
    firsts = _numbers(load(shades, _options(shuffle_buffer=1, cycle_length=1, epochs=12)))[::30]
    assert set(firsts) == {0, 10, 20}
    larger = _numbers(load(shades, _options(shuffle_buffer=30, cycle_length=1, epochs=12)))[::30]
    assert set(larger) - {0, 10, 20}


def test_large_records_are_not_all_held(shades: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where records are large, fewer are held to draw from, unless a number is given."""
    monkeypatch.setattr("tfrtool.loading.pipeline._SHUFFLED_BYTES", 1)
    one_shard = _numbers(load(shades, _options(cycle_length=1)))[:10]
    assert one_shard == sorted(one_shard)
    asked = _numbers(load(shades, _options(cycle_length=1, shuffle_buffer=30)))[:10]
    assert asked != sorted(asked)


def test_without_rescaling_pixels_stay(shades: Dataset) -> None:
    """Where no rescaling is asked for, images are uint8, from 0 to 255."""
    for images, labels in load(shades, _options(rescale=None)):
        assert images.dtype == "uint8"
        assert list(images.numpy()[:, 0, 0, 0] // 4 % 2) == list(labels.numpy())


def test_pipelines_share_an_epoch(shades: Dataset, tf: Any) -> None:
    """Several workers' pipelines have all images together, none twice, and shared batches."""
    seen = []
    for index in range(2):
        context = tf.distribute.InputContext(2, index, 2)
        batches = load(shades, _options(), context)
        assert int(batches.cardinality()) == 8
        assert max(len(labels) for _, labels in batches) == 2
        seen += _numbers(batches)
    assert sorted(seen) == list(range(30))


def test_more_pipelines_than_images_is_an_error(shades: Dataset, tf: Any) -> None:
    """A worker that would have nothing to do is an error, and no empty pipeline."""
    with pytest.raises(UsageError, match="at least 31 images"):
        load(shades, _options(), tf.distribute.InputContext(31, 0, 1))
    with pytest.raises(UsageError, match="a batch size of at least 3"):
        load(shades, _options(), tf.distribute.InputContext(3, 0, 3))


def test_keras_fit_knows_the_number_of_steps(shades: Dataset) -> None:
    """``fit`` trains on each epoch's batches, as many as the cardinality says."""
    import keras

    steps: list[int] = []
    told = keras.callbacks.LambdaCallback()
    told.on_epoch_begin = lambda *_, **__: steps.append(told.params["steps"])
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(2)])
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(load(shades, _options()), epochs=2, verbose=0, shuffle=False, callbacks=[told])
    assert steps == [8, 8]


def test_disk_cache_is_found_again_and_dropped_when_stale(tmp_path: Path) -> None:
    """The next run reads what the first one wrote; a shard that changed means a new cache."""
    directory = write_pets(tmp_path)
    options = _options(cache=Cache.DISK, cache_directory=tmp_path / "c", training=False)
    told: list[Progress] = []
    first = _pixel_sums(
        load(
            open_dataset(directory),
            options,
            on_progress=told.append,
        )
    )
    (file,) = (tmp_path / "c").iterdir()
    assert told[-1].done == told[-1].total == len(first)
    told.clear()
    assert (
        _pixel_sums(
            load(
                open_dataset(directory),
                options,
                on_progress=told.append,
            )
        )
        == first
    )
    assert told == []
    shard = next(path for path in directory.iterdir() if "-train.tfrecord" in path.name)
    gc.collect()  # a cache that somebody reads is not removed
    os.utime(shard, ns=(1, 1))
    assert (
        _pixel_sums(
            load(
                open_dataset(directory),
                options,
                on_progress=told.append,
            )
        )
        == first
    )
    assert told
    (fresh,) = (tmp_path / "c").iterdir()
    assert fresh.name != file.name


def _pixel_sums(batches: Any) -> list[float]:
    return [float(image.sum()) for images, _ in batches for image in images.numpy()]


def test_evaluation_order_is_fixed(shades: Dataset) -> None:
    """Without training, the order is that of the interleaved shards, every time."""
    batches = load(shades, _options(training=False, cycle_length=3))
    expected = [start + row for row in range(10) for start in (0, 10, 20)]
    assert _numbers(batches) == expected
    assert _numbers(batches) == expected


def test_block_length_takes_records_in_a_row(shades: Dataset) -> None:
    """With blocks of 5 from 3 shards, five images of a shard come in a row."""
    batches = load(shades, _options(training=False, cycle_length=3, block_length=5))
    assert _numbers(batches)[:15] == [*range(5), *range(10, 15), *range(20, 25)]


def test_holdout_takes_from_everywhere(shades: Dataset) -> None:
    """The part held out comes from all shards alike, so that sorted shards don't matter."""
    holdout = Holdout(fraction=0.5, held_out=True)
    held = _numbers(load(shades, _options(holdout=holdout)))
    assert Counter(number // 10 for number in held) == {0: 5, 1: 5, 2: 5}


def test_too_small_holdout_is_an_error(shades: Dataset) -> None:
    """A part that would be empty is refused."""
    with pytest.raises(DatasetError):
        load(shades, _options(holdout=Holdout(fraction=0.01, held_out=True)))
    with pytest.raises(UsageError):
        Holdout(fraction=1.0, held_out=True)


@pytest.mark.parametrize("recipe", [Recipe.NAIVE, Recipe.TFRTOOL])
def test_rescale_reaches_the_model(shades: Dataset, recipe: Recipe) -> None:
    """Pixels are mapped linearly, to the range that was asked for."""
    rescale = Rescale(scale=1 / 127.5, offset=-1.0)
    for images, _ in load(shades, _options(recipe=recipe, rescale=rescale)):
        values = images.numpy()
        assert values.min() >= -1
        assert (
            np.allclose((values + 1) * 127.5 / 4 % 1, 0, atol=1e-3)
            or (np.allclose((values + 1) * 127.5 / 4 % 1, 1, atol=1e-3))
            or np.allclose(np.round((values + 1) * 127.5 / 4) * 4, (values + 1) * 127.5, atol=1e-3)
        )


def test_pixels_are_those_of_tensorflow(tmp_path: Path, tf: Any) -> None:
    """An image is decoded and resized as tf.image does it, to within half a grey level."""
    data = image_bytes(size=(50, 30))
    dataset = open_dataset(write_foreign(tmp_path / "d", [[image_payload(0, data=data)]]))
    ((images, _),) = load(dataset, _options(training=False))
    expected = tf.image.resize(tf.io.decode_jpeg(data, channels=3), (SIZE, SIZE)) / 255
    assert np.abs(images[0] - expected).max() <= 0.5001 / 255


@pytest.mark.parametrize(
    "changes",
    [
        {"image_size": 0},
        {"batch_size": 0},
        {"epochs": 0},
        {"first_epoch": -1},
        {"seed": -1},
        {"cycle_length": 0},
        {"block_length": 0},
        {"parallel_calls": 0},
        {"batched_parse": 0},
        {"shuffle_buffer": 0},
        {"prefetch": -1},
        {"cache": Cache.FEATURES},
        {"recipe": Recipe.NAIVE, "cycle_length": 2},
        {"recipe": Recipe.NOTEBOOK, "prefetch": 2},
    ],
)
def test_impossible_options_are_refused(changes: dict[str, Any]) -> None:
    """Options that can't be meant are a usage error, before anything is read."""
    with pytest.raises(UsageError):
        LoadOptions(**{"image_size": 8, **changes})


def test_loading_takes_words_and_numbers(shades: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the public face takes is what the options of the loader hold."""
    with monkeypatch.context() as patch:
        built: list[tuple[Any, ...]] = []
        patch.setattr("tfrtool.loading.pipeline.load", lambda *task: built.append(task))
        shades.load(
            image_size=SIZE, cache="memory", augment="flip,crop=2", rescale=(2.0, -1.0), seed=3
        )
    options = LoadOptions(
        image_size=SIZE,
        cache=Cache.MEMORY,
        augment=parse_augment("flip,crop=2"),
        rescale=Rescale(scale=2.0, offset=-1.0),
        seed=3,
    )
    assert [task[:2] for task in built] == [(shades, options)]
    parts = [
        _numbers(shades.load(image_size=SIZE, holdout=0.2, held_out=held)) for held in (True, False)
    ]
    assert [len(part) for part in parts] == [6, 24]
    assert sorted(parts[0] + parts[1]) == list(range(30))
    with pytest.raises(UsageError, match="one of features, memory, disk, none"):
        shades.load(image_size=SIZE, cache="nowhere")
    with pytest.raises(UsageError, match="one of tfrtool, notebook, naive"):
        shades.load(image_size=SIZE, recipe="ours")


def test_a_misspelt_option_is_an_error(shades: Dataset) -> None:
    """It names the option, and lists those that there are."""
    known = r"'cach'.*'cache'"
    with pytest.raises(UsageError, match=known):
        shades.load(image_size=SIZE, cach="memory")
    with pytest.raises(UsageError, match=known):
        tfrtool.train(shades, cach="memory")


def test_a_dataset_is_a_path(tmp_path: Path) -> None:
    """What takes a dataset's directory takes the dataset that was opened."""
    dataset = tfrtool.dataset(write_pets(tmp_path))
    assert tfrtool.dataset(dataset) == dataset
    assert tfrtool.verify(dataset).is_sound
