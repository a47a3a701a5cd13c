"""Every public function takes a path as text, as a Path, and as any other PathLike."""

from __future__ import annotations

import dataclasses
import inspect
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import write_pets
from tests.photos import write_class_folders

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_graphs", "quick_cnn")]


class _Location:
    """A path of another library."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __fspath__(self) -> str:
        return str(self._path)


@dataclasses.dataclass(frozen=True)
class World:
    """What the functions are called with, and a folder to write to."""

    pets: Path
    shard: Path
    photos: Path
    model: Path
    out: Path


Call = Callable[[World, Callable[[Path], Any]], Any]


class _Planned(Exception):  # noqa: N818 - it is none
    """A run that goes no farther than its plan."""


def _train(world: World, form: Callable[[Path], Any]) -> Any:
    def stop(plan: object) -> None:
        raise _Planned(plan)

    with pytest.raises(_Planned) as planned:
        tfrtool.train(form(world.pets), model="cnn", cache="none", on_plan=stop)
    return planned.value.args[0]


def _predict(world: World, form: Callable[[Path], Any]) -> Any:
    photo = form(next(world.photos.glob("*/*.jpg")))
    return [
        *tfrtool.predict(form(world.model), photo),
        *tfrtool.predict(form(world.model), [photo]),
    ]


def _drop(world: World, form: Callable[[Path], Any]) -> Any:
    dataset, report = tfrtool.dataset(form(world.pets)).drop_corrupt(form(world.out / "scratch"))
    return dataset, report


def _write(world: World, form: Callable[[Path], Any]) -> Any:
    out = world.out / "pets"
    tfrtool.write(form(world.photos), form(out), name="pets", workers=1)
    return sorted((path.name, path.stat().st_size) for path in out.glob("*.tfrecord*"))


def _extract(world: World, form: Callable[[Path], Any]) -> Any:
    out = world.out / "photos"
    tfrtool.extract(form(world.shard), form(out))
    files = sorted(path.name for path in out.rglob("*"))
    shutil.rmtree(out)
    out.with_name("photos.jsonl").unlink()
    shards = [form(world.shard), form(world.pets)]
    report = tfrtool.extract(shards, form(out))
    return files, report.files


def _repair(world: World, form: Callable[[Path], Any]) -> Any:
    tfrtool.repair(form(world.shard), form(world.out / "saved"))
    return (world.out / "saved").read_bytes()


def _sheet(world: World, form: Callable[[Path], Any]) -> Any:
    for number, shards in enumerate([form(world.pets), [form(world.shard)]]):
        tfrtool.contact_sheet(shards, form(world.out / f"{number}.png"))
    return [path.read_bytes() for path in sorted(world.out.glob("*.png"))]


def _load(world: World, form: Callable[[Path], Any]) -> Any:
    batches = list(
        tfrtool.dataset(form(world.pets))
        .load(
            image_size=8,
            training=False,
            cache="disk",
            cache_directory=form(world.out / "cache"),
        )
        .as_numpy_iterator()
    )
    assert any((world.out / "cache").iterdir())
    return [(images.tolist(), labels.tolist()) for images, labels in batches]


def _bench(world: World, form: Callable[[Path], Any]) -> object:
    """Return what is said of a split, which is looked for once the path was taken."""
    try:
        return tfrtool.bench(form(world.pets), split="none")
    except tfrtool.UsageError as error:
        if "no split" not in str(error):
            raise
        return str(error)


def _job(verb: str, **options: Any) -> Call:
    """Return a call that makes a folder of another; its result is what that has."""

    def call(world: World, form: Callable[[Path], Any]) -> Any:
        getattr(tfrtool, verb)(form(world.pets), form(world.out / "made"), **options)
        return sorted(
            (path.name, path.read_bytes())
            for path in (world.out / "made").iterdir()
            if path.suffix != ".json"
        )

    return call


def _append(world: World, form: Callable[[Path], Any]) -> Any:
    out = world.out / "pets" / "2.0.0"
    tfrtool.append(form(world.pets), form(world.shard), out=form(out), split="train")
    return sorted((path.name, path.stat().st_size) for path in out.glob("*.tfrecord*"))


CALLS: dict[str, Call] = {
    "append": _append,
    "convert": _job("convert", to="jsonl"),
    "croissant": lambda w, f: tfrtool.croissant(f(w.pets)),
    "diff": lambda w, f: tfrtool.diff(f(w.pets), f(w.shard)),
    "edit": _job("edit", drop=["label"]),
    "filter_records": _job("filter_records", sample=2),
    "report": lambda w, f: tfrtool.report(f(w.pets), f(w.out / "r.html"), overwrite=True).records,
    "reshard": _job("reshard", shards=1),
    "stats": lambda w, f: [tfrtool.stats(one) for one in (f(w.pets), [f(w.shard)])],
    "Records": lambda w, f: [list(tfrtool.Records(one)) for one in (f(w.shard), [f(w.shard)])],
    "Shard": lambda w, f: tfrtool.Shard.at(f(w.shard)),
    "bench": _bench,
    "dataset": lambda w, f: tfrtool.dataset(f(w.pets)),
    "dataset.drop_corrupt": _drop,
    "contact_sheet": _sheet,
    "count": lambda w, f: [tfrtool.count(one) for one in (f(w.shard), f(w.pets), [f(w.pets)])],
    "evaluate": lambda w, f: tfrtool.evaluate(f(w.model), f(w.pets), out=f(w.out)).most_wrong,
    "extract": _extract,
    "find_shards": lambda w, f: [tfrtool.find_shards(one) for one in (f(w.pets), [f(w.pets)])],
    "infer_schema": lambda w, f: [tfrtool.infer_schema(one) for one in (f(w.pets), [f(w.shard)])],
    "inspect_dataset": lambda w, f: tfrtool.inspect_dataset(f(w.pets)),
    "inspect_shard": lambda w, f: tfrtool.inspect_shard(f(w.shard)),
    "dataset.load": _load,
    "load_model": lambda w, f: tfrtool.load_model(f(w.model)).facts,
    "open_records": lambda w, f: [
        list(tfrtool.open_records(one)) for one in (f(w.shard), [f(w.shard)])
    ],
    "predict": _predict,
    "read_records": lambda w, f: list(tfrtool.read_records(f(w.shard))),
    "read_table": lambda w, f: tfrtool.read_table(f(w.shard)).to_arrow(),
    "repair": _repair,
    "train": _train,
    "show": lambda w, f: [tfrtool.show(one) for one in (f(w.pets), [f(w.shard)])],
    "verify": lambda w, f: [tfrtool.verify(one) for one in (f(w.pets), [f(w.shard), f(w.pets)])],
    "write": _write,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Return a dataset, one of its shards, the photographs that it is of, and a model."""
    from tfrtool.loading.options import Rescale
    from tfrtool.training.models import build_classifier
    from tfrtool.training.saved_model import ModelFacts, save_model

    root = tmp_path_factory.mktemp("world")
    pets = write_pets(root)
    core = build_classifier("cnn", 32, 2, "none").core
    facts = ModelFacts(model="cnn", image_size=32, class_names=("cat", "dog"))
    save_model(root / "model.keras", core, Rescale(scale=1 / 255, offset=0.0), facts)
    return World(
        pets=pets,
        shard=next(pets.glob("*-train.tfrecord-00000*")),
        photos=write_class_folders(root / "more", count=2),
        model=root / "model.keras",
        out=root / "out",
    )


@pytest.mark.parametrize("name", CALLS)
def test_every_form_of_a_path_gives_one_result(name: str, world: World) -> None:
    """Text and PathLike mean the same; a list is allowed where several paths make sense."""
    results = []
    for form in (str, _Location):
        shutil.rmtree(world.out, ignore_errors=True)
        world.out.mkdir()
        results.append(CALLS[name](world, form))
    assert str(results[0]) == str(results[1])


@pytest.mark.parametrize("name", sorted({*CALLS} - {"predict"}))
def test_invalid_paths_are_refused(name: str, world: World) -> None:
    """A URL that holds a password is refused, and an empty name is not the current folder."""
    for place in ("s3://me:pass@bucket/x", "s3://b/../x", "", "a\0b"):

        def form(_: Path, place: str = place) -> str:
            return place

        with pytest.raises(tfrtool.UsageError):
            CALLS[name](world, form)


def test_a_path_alone_is_not_taken_apart(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The characters of a text are no paths: "/" would be searched for "/tmp/ds"."""
    monkeypatch.chdir(world.pets)
    assert {shard.path.parent for shard in tfrtool.verify(str(world.pets)).shards} == {world.pets}


def test_no_public_function_was_forgotten() -> None:
    """Whatever takes a path, by its signature, is in the table above."""
    words = ("Path", "Location", "Images")
    for name in tfrtool.__all__:
        value = getattr(tfrtool, name)
        if dataclasses.is_dataclass(value):
            types = str([field.type for field in dataclasses.fields(value)])
            assert not name.endswith("Options") or "Path" not in types
        elif inspect.isfunction(value):
            taken = [
                str(parameter.annotation)
                for parameter in inspect.signature(value).parameters.values()
                if any(word in f"{parameter.annotation}'" for word in words)
                and "Callable" not in str(parameter.annotation)
            ]
            assert not taken or name in CALLS, name
