"""`tfrtool train`, as a user calls it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.datasets import flip_bit, image_payload, write_foreign, write_pets
from tfrtool.cli import main

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_graphs", "quick_cnn")]

FAST = ["--model", "cnn", "--image-size", "32", "--epochs", "2", "--batch-size", "8"]
FAST += ["--trainable", "head"]


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a dataset of two classes and two splits."""
    return str(write_pets(tmp_path_factory.mktemp("data")))


def test_a_run_is_recorded_and_resumed(
    pets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The plan, a line per epoch, and where the model is; its record has what resuming needs."""
    monkeypatch.chdir(Path(pets).parent)
    out = tmp_path / "run"
    run = ["train", Path(pets).name, *FAST, "--seed", "3", "--augment", "flip", "--out", str(out)]
    run += ["--tensorboard", str(out / "logs"), "--loader", "prefetch=3,block=1"]
    assert main([*run, "--resume"]) == 0
    output = capfd.readouterr()
    assert "classes  2 (cat, dog)" in output.out
    assert "14 for training, 6 for validation" in output.out
    assert "2 epochs in " in output.out
    assert str(out) in output.out
    assert (out / "model.keras").is_file()
    assert output.err == ""
    record = json.loads((out / "run.json").read_text())
    assert record["dataset"] == pets
    assert record["dataset_digest"]
    assert record["host"].keys() == {"name", "system", "cores", "gpus"}
    assert record["versions"].keys() == {"tfrtool", "tensorflow", "keras", "python"}
    options = record["options"]
    assert (options["seed"], options["augment"], options["prefetch"]) == (3, "flip", 3)
    assert main(run) == 2
    assert main([*run, "--resume"]) == 0
    assert "use a higher --epochs" in capfd.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--resume", "--out", "run"]) == 2
    message = f"paths outside its directory: DATASET {pets}; pass DATASET again"
    assert message in capfd.readouterr().err
    resume = ["train", pets, "--resume", "--out", "run"]
    assert main([*resume, "--seed", "4"]) == 2
    assert "expected --seed 3, found --seed 4" in capfd.readouterr().err
    assert main([*resume, "--loader", "block=2"]) == 2
    assert "expected --loader block 1, found --loader block 2" in capfd.readouterr().err
    assert main([*resume, "--epochs", "4", "--loader", "prefetch=auto", "--json"]) == 0
    first, second, last = map(json.loads, capfd.readouterr().out.splitlines())
    keys = "epoch seconds images_per_second loss accuracy val_loss val_accuracy input_wait_fraction"
    for number, epoch in enumerate((first, second), 3):
        assert epoch.keys() >= {*keys.split()}
        assert epoch["epoch"] == number
    assert last.keys() >= {"model", "cache", "recipe", "seconds", "epochs"}
    assert (last["model"], last["recipe"]) == ("cnn", "tfrtool")
    assert (last["epochs"], last["epochs_before"]) == (4, 2)
    changed = {**options, "epochs": 4, "prefetch": None}  # an option of the call replaces it
    assert json.loads((out / "run.json").read_text())["options"] == changed
    history = json.loads((out / "history.json").read_text())
    assert [epoch["epoch"] for epoch in history["epochs"]] == [1, 2, 3, 4]
    assert main(["train"]) == 2
    assert "no DATASET" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"model": "planted.py:model"}, 2, "--model planted.py:model; pass --model again"),
        ({"tensorboard": "/planted"}, 2, "--tensorboard /planted; pass --tensorboard again"),
        ({"cache_directory": "/planted"}, 2, "--cache-dir /planted; pass --cache-dir again"),
        ({"shard_cache": "../planted"}, 2, "--shard-cache ../planted; pass --shard-cache again"),
        ({"weights": "/planted.h5"}, 2, "--weights /planted.h5; pass --weights again"),
        ({"weights": "link/planted.h5"}, 2, "--weights link/planted.h5; pass --weights again"),
        ({"epochs": "many"}, 1, "epochs has the wrong type"),
        ({"export": [["tflite"]]}, 1, "invalid --export"),
        ({"resume": True}, 1, "resume has the wrong type"),
        ({"seed": None}, 1, "seed has the wrong type"),
        ({"nosuch": 1}, 1, "unusable record of the run"),
        *((text, 1, "unusable record of the run") for text in ("[" * 100_000, "[1]", "{}")),
        ('{"dataset": "d", "options": [1]}', 1, "unusable record of the run"),
        ({"decode_function": "planted.py:model"}, 2, "pass --decode-function again"),
        ({"optimizer": "none"}, 1, "invalid --optimizer 'none'"),
    ],
)
def test_a_record_is_not_trusted(
    changes: dict[str, object] | str,
    code: int,
    said: str,
    pets: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A record by somebody else runs none of their code; nonsense in it is one line."""
    (tmp_path / "planted.py").write_text("raise SystemExit('planted')")
    if isinstance(changes, dict):
        record = {"dataset": pets, "options": {"epochs": 1, **changes}, "versions": {}}
        changes = json.dumps(record)
    (tmp_path / "run.json").write_text(changes)
    (tmp_path / "link").symlink_to("/")
    monkeypatch.chdir(tmp_path)  # so that relative paths are below it, unless a link is followed
    assert main(["train", pets, "--resume", "--out", str(tmp_path)]) == code
    (line,) = capfd.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize(
    "dataset", ["{pets}", "http://127.0.0.1:9/planted", "link/etc", "../planted"]
)
def test_a_record_does_not_choose_the_dataset(
    dataset: str,
    pets: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """No dataset outside the run's directory is read, and no URL; all that was used is listed."""
    dataset = dataset.format(pets=pets)
    options = {"weights": "/planted.h5", "model": "planted.py:model"}
    (tmp_path / "run.json").write_text(json.dumps({"dataset": dataset, "options": options}))
    (tmp_path / "link").symlink_to("/")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--resume", "--out", str(tmp_path)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    listed = f"DATASET {dataset}, --weights /planted.h5, --model planted.py:model"
    assert f"{listed}; pass DATASET and --weights and --model again" in line


def test_a_dataset_in_the_directory_of_the_run_is_used(
    pets: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the record names below its own directory needs no word of the user's."""
    shutil.copytree(pets, tmp_path / "pets")
    record = {"dataset": str(tmp_path / "pets"), "options": {"split": "absent"}}
    (tmp_path / "run.json").write_text(json.dumps(record))
    assert main(["train", "--resume", "--out", str(tmp_path)]) == 2
    assert "absent" in capfd.readouterr().err


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
    resume = ["train", pets, "--resume", "--out", "run"]
    assert main(resume) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"--model {file}:small; pass --model again" in line
    assert main([*resume, "--model", "models_to_resume.py:small"]) == 0
    assert "use a higher --epochs" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("code", "option", "message"),
    [
        ("sys.exit(0)", "--model", "can't be imported: SystemExit: 0"),
        ("sys.exit(0)", "--decode-function", "can't be imported: SystemExit: 0"),
        ("def f(*_): sys.exit(0)", "--model", "raised SystemExit: 0"),
        ("def f(*_): sys.exit(0)", "--decode-function", "fails: 0"),
    ],
)
def test_code_that_exits_is_an_error(
    code: str,
    option: str,
    message: str,
    pets: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A module or a function that ends the program doesn't end it with success."""
    file = tmp_path / f"exits{len(code)}{len(option)}.py"
    file.write_text(f"import sys\n{code}\n")
    assert main(["train", pets, *FAST, option, f"{file}:f"]) == 2
    assert message in capfd.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epochs", "0"],
        ["--split", "nope"],
        ["--validation", "nope"],
        ["--validation", "1.5"],
        ["--validation", "train"],
        ["--model", "resnet"],
        ["--recipe", "naive", "--cache", "memory"],
        ["--recipe", "naive", "--loader", "cycle=2"],
        ["--recipe", "naive", "--compare"],
        ["--compare-rounds", "2"],
        ["--compare", "--compare-rounds", "0"],
        ["--augment", "sepia"],
        ["--augment", "flip", "--recipe", "notebook"],
        ["--loader", "prefetch=many"],
        ["--loader", "prefetch=" + "9" * 5000],
        ["--loader", "shuffle=0"],
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


@pytest.mark.more
def test_every_option_at_once(pets: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Options that go together are taken together, and the plan tells what they came to."""
    words = [*FAST, "--augment", "flip,cutout=6", "--rescale", "dataset"]
    words += ["--loader", "cycle=2,block=2,calls=1,shuffle=8,autotune", "--no-deterministic"]
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
    assert output.out.endswith(f"  tensorboard --logdir {tmp_path / 'logs'}\n")
    assert "mixed_bfloat16" in output.out
    assert output.err.count("mixed_bfloat16 is slower") == 1
    assert {path.name for path in (tmp_path / "logs").iterdir()} >= {"train", "plugins"}


def test_images_per_second_with_cached_features(
    pets: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The rate of the first epoch is that of all of it; the others read no images."""
    words = ["train", pets, "--model", "cnn", "--image-size", "32", "--trainable", "head"]
    assert main([*words, "--epochs", "2", "--out", str(tmp_path / "run")]) == 0
    table = capfd.readouterr().out.split("\n\n")[1].splitlines()
    history = json.loads((tmp_path / "run" / "history.json").read_text())
    images = history["run"]["train_images"] + history["run"]["validation_images"]
    assert history["run"]["cache"] == "features"
    rates = [line.split()[2] for line in table[1:]]
    assert float(rates[0]) == pytest.approx(images / history["epochs"][0]["seconds"], abs=0.2)
    assert rates[1] == "cached"


def test_damage_is_named_or_skipped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It ends the run with 1; with --on-error skip the run ends well, with exit code 3."""
    payloads = [image_payload(number % 2) for number in range(6)]
    directory = write_foreign(tmp_path / "d", [payloads])
    (shard,) = directory.glob("*.tfrecord")
    flip_bit(shard, len(payloads[0]) + 16 + 30)
    words = ["train", str(directory), *FAST]
    assert main(words) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert f"{shard}:1, offset {len(payloads[0]) + 16}" in line
    assert main([*words, "--on-error", "skip"]) == 3
    output = capfd.readouterr()
    assert "5 for training" in output.out
    assert "skipped  1 damaged record\n" in output.out
    (line,) = output.err.splitlines()
    assert f"{shard}:1, offset {len(payloads[0]) + 16}" in line
