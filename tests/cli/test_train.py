"""`tfrtool train`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.datasets import flip_bit, image_payload, write_foreign, write_pets
from tests.training.small_base import small_mobilenet
from tfrtool.cli import main

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_graphs", "quick_cnn")]

FAST = ["--model", "cnn", "--image-size", "32", "--epochs", "2", "--batch-size", "8"]
FAST += ["--trainable", "head"]


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a dataset of two classes and two splits."""
    return str(write_pets(tmp_path_factory.mktemp("data")))


def test_a_run_records_its_options(
    pets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`--resume` takes from the run's record what is not given, and refuses what contradicts it."""
    monkeypatch.chdir(Path(pets).parent)
    out = tmp_path / "run"
    run = ["train", Path(pets).name, *FAST, "--seed", "3", "--augment", "flip", "--out", str(out)]
    run += ["--tensorboard", str(out / "logs")]
    assert main([*run, "--validation", "0.25"]) == 0
    record = json.loads((out / "run.json").read_text())
    assert record["dataset"] == pets
    assert record["dataset_digest"]
    assert record["host"].keys() == {"name", "system", "cores", "gpus"}
    assert record["versions"].keys() == {"tfrtool", "tensorflow", "keras", "python"}
    options = record["options"]
    assert (options["seed"], options["augment"], options["validation"]) == (3, "flip", 0.25)
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()
    resume = ["train", "--resume", "--out", "run"]
    assert main([*resume, "--seed", "4"]) == 2
    assert "expected --seed 3, found --seed 4" in capfd.readouterr().err
    assert main([*resume, "--epochs", "3", "--json"]) == 0
    last = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (last["model"], last["epochs"], last["epochs_before"]) == ("cnn", 3, 2)
    assert json.loads((out / "run.json").read_text())["options"] == {**options, "epochs": 3}
    assert main(["train"]) == 2
    assert "no DATASET" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"model": "planted.py:model"}, 2, "again with --model"),
        ({"tensorboard": "/planted"}, 2, "again with --tensorboard"),
        ({"cache_directory": "/planted"}, 2, "again with --cache-dir"),
        ({"shard_cache": "../planted"}, 2, "again with --shard-cache"),
        ({"epochs": "many"}, 1, "epochs has the wrong type"),
        ({"export": [["tflite"]]}, 1, "invalid --export"),
        ({"resume": True}, 1, "resume has the wrong type"),
        ({"seed": None}, 1, "seed has the wrong type"),
        ({"optimizer": "none"}, 1, "invalid --optimizer 'none'"),
    ],
)
def test_a_record_is_not_trusted(
    changes: dict[str, object],
    code: int,
    said: str,
    pets: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A record by somebody else runs none of their code; nonsense in it is one line."""
    (tmp_path / "planted.py").write_text("raise SystemExit('planted')")
    record = {"dataset": pets, "options": {"epochs": 1, **changes}, "versions": {}}
    (tmp_path / "run.json").write_text(json.dumps(record))
    assert main(["train", "--resume", "--out", str(tmp_path)]) == code
    (line,) = capfd.readouterr().err.splitlines()
    assert said in line


def test_a_run_of_a_model_that_is_code(
    pets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`--resume` needs its name again, from wherever it is called, and nothing else."""
    file = tmp_path / "models_to_resume.py"
    file.write_text(
        "import keras\n"
        "def small(size, classes):\n"
        "    layers = [keras.Input((size, size, 3)), keras.layers.GlobalAveragePooling2D()]\n"
        "    layers.append(keras.layers.Dense(classes, activation='softmax'))\n"
        "    return keras.Sequential(layers)\n"
    )
    run = ["train", pets, "--model", f"{file}:small", "--image-size", "32", "--epochs", "1"]
    assert main([*run, "--out", str(tmp_path / "run")]) == 0
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()
    resume = ["train", "--resume", "--out", "run"]
    assert main(resume) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"{file}:small" in line
    assert "again with --model" in line
    assert main([*resume, "--model", "models_to_resume.py:small", "--epochs", "2"]) == 0


def test_a_run_is_resumed(pets: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The plan, a line an epoch, and where the model is; a run is resumed up to more epochs."""
    run = ["train", pets, *FAST, "--out", str(tmp_path / "run")]
    assert main([*run, "--resume"]) == 0
    output = capfd.readouterr()
    assert "classes  2 (cat, dog)" in output.out
    assert "14 for training, 6 for validation" in output.out
    assert "2 epochs in " in output.out
    assert str(tmp_path / "run") in output.out
    assert (tmp_path / "run" / "model.keras").is_file()
    assert output.err == ""
    assert main(run) == 2
    assert main([*run, "--resume", "--seed", "1"]) == 2
    assert "seed" in capfd.readouterr().err
    assert main([*run, "--resume"]) == 0
    assert "use a higher --epochs" in capfd.readouterr().out
    assert main([*run, "--resume", "--epochs", "4", "--json"]) == 0
    first, second, last = map(json.loads, capfd.readouterr().out.splitlines())
    for number, epoch in enumerate((first, second), 3):
        assert epoch.keys() >= {
            "epoch",
            "seconds",
            "images_per_second",
            "loss",
            "accuracy",
            "val_loss",
            "val_accuracy",
            "input_wait_fraction",
        }
        assert epoch["epoch"] == number
    assert last.keys() >= {"model", "cache", "recipe", "seconds", "epochs"}
    assert (last["model"], last["recipe"]) == ("cnn", "tfrtool")
    assert (last["epochs"], last["epochs_before"]) == (4, 2)
    history = json.loads((tmp_path / "run" / "history.json").read_text())
    assert [epoch["epoch"] for epoch in history["epochs"]] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epochs", "0"],
        ["--split", "nope"],
        ["--validation", "nope"],
        ["--validation", "1.5"],
        ["--model", "resnet"],
        ["--recipe", "naive", "--cache", "memory"],
        ["--recipe", "naive", "--cycle-length", "2"],
        ["--recipe", "naive", "--compare"],
        ["--augment", "sepia"],
        ["--augment", "flip", "--recipe", "notebook"],
        ["--prefetch", "many"],
        ["--prefetch", "9" * 5000],
        ["--shuffle-buffer", "0"],
        ["--precision", "bfloat16"],
        ["--trainable", "nope"],
        ["--resume"],
        ["--profile"],
        ["--weights", "imagenet"],
    ],
)
def test_usage_errors(arguments: list[str], pets: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A request that makes no sense ends with 2 and prints no result."""
    assert main(["train", pets, *FAST, *arguments]) == 2
    output = capfd.readouterr()
    assert output.out == ""
    assert output.err != ""


def test_no_dataset(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A directory that isn't there ends with 1 and one line that names it."""
    assert main(["train", str(tmp_path / "nope"), *FAST]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert str(tmp_path / "nope") in line


def test_corrupt_record_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A run that meets a damaged record ends with 1, and one line says where it is."""
    first = image_payload(0)
    directory = write_foreign(tmp_path / "d", [[first, image_payload(1)]])
    (directory / "label.labels.txt").write_text("cat\ndog\n")
    (shard,) = directory.glob("*.tfrecord")
    flip_bit(shard, len(first) + 16 + 30)
    assert main(["train", str(directory), *FAST]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert str(shard) in line
    assert f"record 1, offset {len(first) + 16}" in line


def test_weights_that_are_not_there(
    pets: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A missing file of weights ends with 1, and is named."""
    assert main(["train", pets, *FAST, "--weights", str(tmp_path / "no.h5")]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert str(tmp_path / "no.h5") in line


def test_every_option_at_once(pets: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Options that go together are taken together, and the plan tells what they came to."""
    words = [*FAST, "--augment", "flip,cutout=6", "--rescale", "dataset"]
    words += ["--cycle-length", "2", "--block-length", "2", "--parallel-calls", "1"]
    words += ["--shuffle-buffer", "8", "--prefetch", "auto", "--no-deterministic"]
    words += ["--cache", "none", "--early-stopping", "2", "--trainable", "hidden"]
    words += ["--tensorboard", str(tmp_path / "logs"), "--profile", "--on-error", "skip"]
    words += ["--precision", "mixed_bfloat16"]
    assert main(["train", pets, *words]) == 0
    output = capfd.readouterr()
    assert (
        "loader   tfrtool, nondeterministic order, augment flip,cutout=6; cache: none" in output.out
    )
    assert f"profile  {tmp_path / 'logs'}" in output.out
    assert "kept the weights of the best epoch" in output.out
    assert "mixed_bfloat16" in output.out
    assert output.err.count("mixed_bfloat16 is slower") == 1
    assert {path.name for path in (tmp_path / "logs").iterdir()} >= {"train", "plugins"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--compare-rounds", "2"], "--compare"),
        (["--compare", "--compare-rounds", "0"], "--compare-rounds"),
    ],
)
def test_rounds_of_a_comparison(
    pets: str, words: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """They need a comparison, and there is at least one."""
    assert main(["train", pets, *FAST, *words]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert said in line


def test_damage_is_skipped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With --on-error skip the run ends well, with exit code 3, and a line for the record."""
    payloads = [image_payload(number % 2) for number in range(6)]
    directory = write_foreign(tmp_path / "d", [payloads])
    (shard,) = directory.glob("*.tfrecord")
    flip_bit(shard, len(payloads[0]) + 16 + 30)
    words = ["train", str(directory), *FAST, "--on-error", "skip"]
    assert main(words) == 3
    output = capfd.readouterr()
    assert "5 for training" in output.out
    assert "skipped  1 damaged record\n" in output.out
    (line,) = output.err.splitlines()
    assert f"{shard}, record 1, offset {len(payloads[0]) + 16}" in line


def test_any_model_of_keras(
    pets: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A name of keras.applications is a model, however it is spelt; of others, near ones help."""
    monkeypatch.setattr("keras.applications.MobileNet", small_mobilenet)
    words = ["--image-size", "32", "--epochs", "1", "--weights", "none", "--trainable", "head"]
    assert main(["train", pets, *words, "--model", "MobileNet", "--json"]) == 0
    last = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (last["model"], last["cache"]) == ("mobilenet", "features")
    assert main(["train", pets, *words, "--model", "mobilenetv9"]) == 2
    assert "mobilenet" in capfd.readouterr().err
