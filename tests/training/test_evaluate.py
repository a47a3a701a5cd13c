"""What a saved model gets wrong, held against scikit-learn's figures."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tfrtool
from tests.datasets import flip_bit, image_payload, write_foreign
from tests.images.colors import colors_of
from tests.photos import image_bytes
from tests.training.conftest import Told
from tfrtool.cli import main
from tfrtool.errors import UsageError
from tfrtool.images.charts import draw_confusion
from tfrtool.loading.labels import Task
from tfrtool.training.models import rescale_for
from tfrtool.training.saved_model import (
    CORE,
    ModelFacts,
    SavedModel,
    load_model,
    save_model,
)
from tfrtool.training.worst_mistakes import original_pictures

pytestmark = pytest.mark.tf

SIZE = 32
NAMES = ("ant", "bee", "cat", "dog", "elk")


def _saved(path: Path, task: Task, names: Sequence[str] = NAMES) -> SavedModel:
    """Return a model of five classes that goes by an image's mean color."""
    import keras

    keras.utils.set_random_seed(3)
    single = task is Task.SINGLE
    head = keras.layers.Dense(
        len(names),
        activation="softmax" if single else "sigmoid",
        kernel_initializer=keras.initializers.RandomNormal(0, 5),
    )
    layers = [keras.Input((SIZE, SIZE, 3)), keras.layers.GlobalAveragePooling2D(), head]
    core = keras.Sequential(layers, name=CORE)
    facts = ModelFacts(model="cnn", image_size=SIZE, class_names=tuple(names), task=task)
    save_model(path, core, rescale_for("cnn"), facts)
    return load_model(path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    """Return a model of one class an image."""
    return _saved(tmp_path_factory.mktemp("saved") / "model.keras", Task.SINGLE)


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return three shards of noisy images of four of the classes, whose order is another."""
    random = np.random.default_rng(5)
    directory = tmp_path_factory.mktemp("noise")
    shards = []
    for _ in range(3):
        payloads = []
        for _ in range(31):
            pixels = random.integers(0, random.integers(2, 256, 3), (SIZE, SIZE, 3), np.uint8)
            file = io.BytesIO()
            Image.fromarray(pixels).save(file, "PNG")
            payloads.append(image_payload(int(random.integers(4)), data=file.getvalue()))
        shards.append(payloads)
    write_foreign(directory, shards)
    (directory / "label.labels.txt").write_text("dog\nant\ncat\nbee\n")
    return directory


def _expected(saved: SavedModel, directory: Path) -> tuple[Any, Any]:
    """Return the true classes and the probabilities, record by record, by other means."""
    import tensorflow as tf

    truths, pixels = [], []
    names = (directory / "label.labels.txt").read_text().split()
    for shard in sorted(directory.glob("part-*")):
        for record in tf.data.TFRecordDataset(str(shard)):
            example = tf.train.Example.FromString(record.numpy()).features.feature
            truths.append(NAMES.index(names[example["label"].int64_list.value[0]]))
            pixels.append(tf.io.decode_png(example["image"].bytes_list.value[0]).numpy())
    return np.array(truths), saved.whole(np.array(pixels, np.float32), training=False).numpy()


def _lines(out: Path) -> list[Any]:
    return [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]


def test_figures_are_those_of_scikit_learn(saved: SavedModel, noise: Path, tmp_path: Path) -> None:
    """Accuracy, loss, each class's figures, the matrix, and each image's line are right."""
    metrics = pytest.importorskip("sklearn.metrics")
    report = tfrtool.evaluate(saved, noise, batch_size=7, top_k=2, out=tmp_path / "out")
    truths, scores = _expected(saved, noise)
    guesses = scores.argmax(axis=1)
    assert len({*guesses.tolist()}) > 1  # the model has an opinion
    assert report.accuracy == pytest.approx(metrics.accuracy_score(truths, guesses))
    bounded = np.clip(scores.astype(np.float64), 1e-7, 1 - 1e-7)
    loss = metrics.log_loss(truths, bounded / bounded.sum(1, keepdims=True), labels=range(5))
    assert report.loss == pytest.approx(loss, abs=1e-4)
    each = metrics.precision_recall_fscore_support(
        truths, guesses, labels=range(5), zero_division=0
    )
    found = [(c.precision or 0, c.recall or 0, c.f1 or 0, c.images) for c in report.classes]
    np.testing.assert_allclose(np.array(found).T, np.array(each))
    means = metrics.precision_recall_fscore_support(
        truths, guesses, average="macro", zero_division=0
    )
    assert [report.precision, report.recall, report.f1] == pytest.approx(means[:3])
    top = metrics.top_k_accuracy_score(truths, scores, k=2, labels=range(5))
    assert report.top_k_accuracy == pytest.approx(top)
    areas = [
        None if not (truths == n).any() else metrics.roc_auc_score(truths == n, scores[:, n])
        for n in range(5)
    ]
    assert [one.auc for one in report.classes] == pytest.approx(areas)
    assert report.auc == pytest.approx(np.mean([one for one in areas if one is not None]))
    data = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert data["confusion"] == metrics.confusion_matrix(truths, guesses, labels=range(5)).tolist()
    assert data["split"] == "train"
    assert report.most_confused(1)[0][2] == max(
        n for (truth, guess), n in report.confusion.items() if truth != guess
    )
    lines = _lines(tmp_path / "out")
    assert [(Path(x["shard"]).name[:10], x["record"]) for x in lines] == [
        (f"part-0000{number // 31}", number % 31) for number in range(93)
    ]
    assert [x["label"] for x in lines] == [NAMES[truth] for truth in truths]
    assert [x["predicted"] for x in lines] == [NAMES[guess] for guess in guesses]
    chosen = scores[range(93), truths]
    assert [x["label_probability"] for x in lines] == pytest.approx(chosen.tolist(), abs=1e-5)
    wrong = [n for n in np.argsort(chosen, kind="stable").tolist() if truths[n] != guesses[n]]
    worst = [(x.shard.name[:10], x.record) for x in report.most_wrong]
    assert worst == [(f"part-0000{n // 31}", n % 31) for n in wrong[:36]]
    with Image.open(tmp_path / "out" / "most_wrong.png") as sheet:
        assert min(sheet.size) > 500


def test_they_are_what_training_said(finished: Told) -> None:
    """A model's validation figures are those of its last epoch; the split is found."""
    report = tfrtool.evaluate(finished.out, finished.options["dataset"])
    last = finished.report.epochs[-1]
    assert (report.split, report.images) == ("validation", 44)
    assert report.accuracy == pytest.approx(last.val_accuracy)
    assert report.loss == pytest.approx(last.val_loss, abs=1e-4)


def test_several_classes_an_image(tmp_path: Path) -> None:
    """Each class is decided for itself, and ranked; the matrix is left out."""
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(8)
    truths, names = random.random((40, 5)) < (0.2, 0.5, 0.8, 0.4, 0.0), NAMES[1:]
    pixels = random.integers(0, random.integers(2, 256, (40, 1, 1, 3)), (40, SIZE, SIZE, 3))
    records = []
    for truth, image in zip(truths[:, 1:].astype(int).tolist(), pixels, strict=True):
        file = io.BytesIO()
        Image.fromarray(image.astype(np.uint8)).save(file, "PNG")
        records.append(tfrtool.encode_example({"image": file.getvalue(), "label": truth}))
    write_foreign(tmp_path / "d", [records])
    (tmp_path / "d" / "label.labels.txt").write_text("\n".join(names))
    saved = _saved(tmp_path / "model.keras", Task.MULTI)
    scores = saved.whole(pixels.astype(np.float32), training=False).numpy()
    truths[:, 0] = False
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "confusion.png").touch()  # that of another evaluation
    words: dict[str, Any] = {"out": tmp_path / "out", "overwrite": True}
    report = tfrtool.evaluate(saved, tmp_path / "d", **words, batch_size=16)
    found = scores >= 0.5
    assert 0.1 < found.mean() < 0.9
    assert report.accuracy == pytest.approx((found == truths).mean())
    bounded = np.clip(scores.astype(np.float64), 1e-7, 1 - 1e-7)
    losses = -np.log(np.where(truths, bounded, 1 - bounded)).mean(axis=1)
    assert report.loss == pytest.approx(losses.mean(), abs=1e-4)
    each = metrics.precision_recall_fscore_support(truths, found, zero_division=0)
    figures = [(c.precision or 0, c.recall or 0, c.f1 or 0, c.images) for c in report.classes]
    np.testing.assert_allclose(np.array(figures).T, np.array(each))
    met = [n for n in range(5) if truths[:, n].any()]
    averages = [metrics.average_precision_score(truths[:, n], scores[:, n]) for n in met]
    assert [report.classes[n].average_precision for n in met] == pytest.approx(averages, abs=1e-5)
    assert report.mean_average_precision == pytest.approx(np.mean(averages), abs=1e-5)
    data = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert (data["task"], data["confusion"]) == ("multi-label", None)
    assert not (tmp_path / "out" / "confusion.png").exists()
    line = _lines(tmp_path / "out")[3]
    assert line["labels"] == [NAMES[n] for n in np.flatnonzero(truths[3])]
    assert line["predicted"] == [NAMES[n] for n in np.flatnonzero(found[3])]
    wrong = [n for n in np.argsort(-losses) if (found[n] != truths[n]).any()]
    assert [one.record for one in report.most_wrong] == wrong[:36]


def test_command(
    saved: SavedModel, noise: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """People see figures and the matrix; --json is one object; files are not replaced unasked."""
    words = ["evaluate", str(saved.path), str(noise), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    text = capfd.readouterr().out
    report = tfrtool.evaluate(saved, noise)
    assert f"accuracy   {report.accuracy:.4f}" in text
    for one in report.classes:
        assert f"{one.label}  " in text
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "confusion.png", "evaluation.json", "most_wrong.png", "predictions.jsonl"
    ]  # fmt: skip
    assert main([*words, "--json"]) == 2
    assert "--overwrite" in capfd.readouterr().err
    assert main([*words, "--json", "--overwrite"]) == 0
    (line,) = capfd.readouterr().out.splitlines()
    data = json.loads(line)
    on_disk = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert data.pop("seconds") >= 0
    assert on_disk.pop("seconds") >= 0
    assert data == on_disk
    # A run in the place of the dataset has checkpoints, whose names are those of shards.
    (tmp_path / "ckpt-1.data-00000-of-00001").touch()
    assert main(["evaluate", str(noise), str(tmp_path)]) == 1
    assert f"{noise}/model.keras: can't be read" in capfd.readouterr().err


def test_a_slice_of_a_split(saved: SavedModel, noise: Path, tmp_path: Path) -> None:
    """Its records have the numbers and the predictions that they have in the whole split."""
    whole, half = (
        tfrtool.evaluate(saved, noise, split=split, out=tmp_path / split, top_losses=93)
        for split in ("train", "train[-50%:]")
    )
    lines = _lines(tmp_path / "train[-50%:]")
    assert lines == _lines(tmp_path / "train")[-46:]
    assert half.images == len(lines) == 46
    assert [line["record"] for line in lines] == [*range(16, 31), *range(31)]
    dataset, worst = tfrtool.dataset(noise), half.most_wrong[0]
    pictures = [
        original_pictures(dataset, split, [(worst, position)])[0].image
        for split, position in (("train", 60), ("train[50:80]", 10), ("train", 10))
    ]
    first, same, other = (image.tobytes() for image in pictures if image)
    assert first == same != other
    assert worst in whole.most_wrong


def test_worst_mistakes_are_dropped_by_their_list(
    saved: SavedModel, noise: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """``filter --drop`` takes the list, which says why, and predictions.jsonl, as the mistakes."""
    listed, out = tmp_path / "bad.txt", tmp_path / "out"
    words = ["evaluate", str(saved.path), str(noise), "--drop-list", str(listed)]
    assert main([*words, "--out", str(out), "--top-losses", "93"]) == 0
    assert f"filter {noise} TARGET --drop {listed}" in capfd.readouterr().out
    lines = [line for line in _lines(out) if line["label"] != line["predicted"]]
    wrong = {(Path(line["shard"]).name, line["record"]) for line in lines}
    entries = listed.read_text().splitlines()[1:]
    names = [entry.split()[0].rpartition(":") for entry in entries]
    assert {(shard, int(record)) for shard, _, record in names} == wrong
    worst = tfrtool.evaluate(saved, noise).most_wrong[0]
    assert entries[0] == (
        f"{worst.shard.name}:{worst.record}  # {worst.labels[0]}, predicted {worst.predicted[0]}, "
        f"loss {worst.loss:.4g}"
    )
    left = [
        tfrtool.filter_records(noise, tmp_path / f"new-{number}", name="noise", drop=path)
        for number, path in enumerate((listed, out / "predictions.jsonl"))
    ]
    assert [report.skipped for report in left] == [{"drop": len(wrong)}] * 2
    assert left[0].digest_out == left[1].digest_out
    assert main(words) == 2
    assert "bad.txt: already exists; use --overwrite" in capfd.readouterr().err
    assert main([*words, "--overwrite", "--top-losses", "2"]) == 0
    assert listed.read_text().splitlines()[1:] == entries[:2]


def test_worst_mistakes_are_drawn_as_they_are_stored(saved: SavedModel, tmp_path: Path) -> None:
    """An image keeps its proportions on the sheet, whatever shape the model takes."""
    random = np.random.default_rng(2)
    payloads = []
    for color in random.integers(0, 256, (8, 3)).tolist():
        file = io.BytesIO()
        Image.new("RGB", (120, 40), tuple(color)).save(file, "PNG")
        payloads.append(image_payload(0, data=file.getvalue()))
    write_foreign(tmp_path / "d", [payloads[:5], payloads[5:]])
    (tmp_path / "d" / "label.labels.txt").write_text("elk\n")
    report = tfrtool.evaluate(saved, tmp_path / "d", out=tmp_path / "out")
    assert report.most_wrong
    with Image.open(tmp_path / "out" / "most_wrong.png") as sheet:
        pixels = np.asarray(sheet)
    records = {name: number for number, name in enumerate(sorted((tmp_path / "d").glob("part-*")))}
    colors = np.random.default_rng(2).integers(0, 256, (8, 3))
    for result in report.most_wrong:
        color = colors[5 * records[Path(result.shard)] + (result.record or 0)]
        rows, columns = np.nonzero((pixels == color).all(axis=2))
        assert [np.ptp(columns) + 1, np.ptp(rows) + 1] == [120, 40]


def test_damage(
    saved: SavedModel, noise: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A damaged record is named, and nothing left behind; or it is left out, and the code is 3."""
    for path in noise.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    shard = tmp_path / "part-00001-of-00003.tfrecord"
    flip_bit(shard, shard.stat().st_size // 2)
    words = ["evaluate", str(saved.path), str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(words) == 1
    assert f"{shard}:15" in capfd.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []
    listed = tmp_path / "bad.txt"
    words += ["--on-error", "skip", "--drop-list", str(listed), "--top-losses", "99"]
    assert main([*words, "--json"]) == 3
    output = capfd.readouterr()
    entries = listed.read_text().splitlines()[1:]
    assert {line.startswith("#") for line in entries if shard.name in line} == {True}
    assert {line.startswith("#") for line in entries if shard.name not in line} == {False}
    data = json.loads(output.out)
    assert (data["images"], data["skipped"]) == (92, 1)
    assert f"warning: skipped: {shard}:15" in output.err
    lines = _lines(tmp_path / "out")
    assert [x["record"] for x in lines] == [*range(31), *[None] * 30, *range(31)]
    assert {x["shard"] for x in lines} == {str(path) for path in tmp_path.glob("part-*")}


def test_what_does_not_fit(saved: SavedModel, noise: Path, tmp_path: Path, few: Path) -> None:
    """Other classes, no clear split, a model that answers NaN: each is told in one line."""
    shards = [[image_payload(0), image_payload(1)]]
    write_foreign(tmp_path / "other", shards)
    with pytest.raises(tfrtool.UsageError, match=r"classes.*found 0, 1"):
        tfrtool.evaluate(saved, tmp_path / "other")
    with pytest.raises(tfrtool.UsageError, match=r"task.*multi-label, found single-label"):
        tfrtool.evaluate(replace(saved, facts=replace(saved.facts, task=Task.MULTI)), noise)
    with pytest.raises(tfrtool.UsageError, match="no split 'nope'"):
        tfrtool.evaluate(saved, noise, split="nope")
    nan = replace(saved, whole=lambda pixels, **_: saved.whole(pixels) * float("nan"))
    with pytest.raises(tfrtool.WeightsError, match="not finite"):
        tfrtool.evaluate(nan, noise)
    with pytest.raises(tfrtool.WeightsError, match="no such file"):
        tfrtool.evaluate(tmp_path / "none.keras", few)


def test_chart_reads_well_for_any_number_of_classes() -> None:
    """Mistakes are orange and hits blue; a thousand classes still are one picture."""
    right, wrong = (0x1F, 0x6F, 0xB4), (0xD9, 0x5F, 0x02)
    two = colors_of(draw_confusion({(0, 0): 5, (1, 0): 7}, ["cat", "dog"], "two"))
    assert {right, wrong} <= two
    assert wrong not in colors_of(draw_confusion({(0, 0): 5, (1, 1): 7}, ["a", "b"], "two"))
    for count in (1, 30, 1000):
        names = [f"class \u202e number {number}" * (number % 9) for number in range(count)]
        data = draw_confusion({(n, n // 2): n for n in range(count)}, names, "many")
        with Image.open(io.BytesIO(data)) as image:
            assert max(image.size) < 4000
    with pytest.raises(tfrtool.UsageError, match="at most 1,000 classes"):
        draw_confusion({}, ["x"] * 1001, "too many")


def test_numbers_with_gaps_are_named_as_the_records_have_them(tmp_path: Path) -> None:
    """Labels 0, 1 and 3 are three classes inside, and 0, 1 and 3 wherever they are told."""
    directory = write_foreign(tmp_path / "d", [[image_payload(label) for label in (3, 0, 1, 3)]])
    saved = _saved(tmp_path / "model.keras", Task.SINGLE, ("0", "1", "3"))
    report = tfrtool.evaluate(saved, directory, out=tmp_path / "out")
    assert [(one.label, one.images) for one in report.classes] == [("0", 1), ("1", 1), ("3", 2)]
    lines = _lines(tmp_path / "out")
    assert [line["label"] for line in lines] == ["3", "0", "1", "3"]
    assert {line["predicted"] for line in lines} <= {"0", "1", "3"}
    (tmp_path / "a.jpg").write_bytes(image_bytes())
    (found,) = tfrtool.predict(saved, tmp_path / "a.jpg", top=3)
    assert sorted(found.classes) == ["0", "1", "3"]
    other = write_foreign(tmp_path / "e", [[image_payload(label) for label in (0, 1, 2)]])
    with pytest.raises(UsageError) as caught:
        tfrtool.evaluate(saved, other)
    assert (caught.value.expected, caught.value.found) == ("0, 1, 3", "2")
