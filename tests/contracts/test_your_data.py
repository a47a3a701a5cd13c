"""The page "Your data, and the command for it": each of its commands, on files as its row says."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import re
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tfrtool
from tests.annotated_sets import scenes, write_coco, write_yolo
from tests.doc_examples import REPOSITORY
from tests.photos import image_bytes
from tests.sources.annotations.makers import MAKERS
from tfrtool.cli import main

PAGE = REPOSITORY / "docs/how-to/your-data.md"
_ROW = re.compile(r"^\| .* \| `(tfrtool write .*)` \|$", re.MULTILINE)

pytestmark = pytest.mark.tf

Splits = dict[str, list[str]]
"""The class of each image of a split, or nothing for an image without."""


def _photo(path: Path, number: int = 0, format_: str = "JPEG") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(image_bytes(format_, tint=7 * number % 120, size=(16 + number, 12)))


def _photos(*names: str) -> None:
    for number, name in enumerate(names):
        _photo(Path(name), number, "PNG" if name.endswith(".png") else "JPEG")


def _table(path: str, *rows: Sequence[object]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


def _class_folders() -> Splits:
    _photos("photos/cat/1.jpg", "photos/cat/2.jpg", "photos/dog/1.jpg")
    return {"train": ["cat", "cat", "dog"]}


def _split_folders() -> Splits:
    _photos("photos/train/cat/1.jpg", "photos/train/dog/1.jpg", "photos/val/cat/2.jpg")
    return {"train": ["cat", "dog"], "validation": ["cat"]}


def _names() -> Splits:
    _photos("photos/cat.1.jpg", "photos/cat.2.jpg", "photos/dog.1.jpg")
    return {"train": ["cat", "cat", "dog"]}


def _faces() -> Splits:
    _photos("faces/25_0_1_20170109.jpg", "faces/100_1_0_20170110.jpg", "faces/7_1_2_20170111.jpg")
    return {"train": ["0", "1", "1"]}


def _folders_of_years() -> Splits:
    _photos("photos/2024/cat/1.jpg", "photos/2025/cat/2.jpg", "photos/2025/dog/1.jpg")
    return {"train": ["cat", "cat", "dog"]}


def _folders_of_several() -> Splits:
    _photos("photos/cat/1.jpg", "photos/cat;dog/1.jpg")
    return {"train": ["cat", "cat dog"]}


def _synsets() -> Splits:
    _photos("photos/n02123045/1.jpg", "photos/n02084071/1.jpg")
    _table("names.csv", ("n02123045", "cat"), ("n02084071", "dog"), ("n9", "never"))
    return {"train": ["cat", "dog"]}


def _nested_splits() -> Splits:
    _photos("intel/seg_train/seg_train/sea/1.jpg", "intel/seg_test/seg_test/sea/2.jpg")
    _photo(Path("intel/seg_pred/seg_pred/3.jpg"), 3)
    return {"train": ["sea"], "test": ["sea"], "pred": [""]}


def _tiny_imagenet() -> Splits:
    _photos(
        "tiny/train/n02123045/images/1.JPEG", "tiny/val/images/2.JPEG", "tiny/test/images/3.JPEG"
    )
    Path("tiny/val/val_annotations.txt").write_text("2.JPEG\tn02123045\t0\t0\t9\t9\n")
    Path("tiny/words.txt").write_text("n02123045\ttabby, tabby cat\nn02084071\tdog\n")
    return {"train": ["tabby, tabby cat"], "validation": ["tabby, tabby cat"], "test": [""]}


def _imagenet() -> Splits:
    _photos("imagenet/CLS-LOC/train/n02123045/1.JPEG", "imagenet/CLS-LOC/val/ILSVRC2012_val_1.JPEG")
    row = "ILSVRC2012_val_1,n02123045 1 2 3 4 "
    Path("imagenet/LOC_val_solution.csv").write_text(f"ImageId,PredictionString\n{row}\n")
    Path("imagenet/LOC_synset_mapping.txt").write_text(
        "n02084071 dog\nn02123045 tabby, tabby cat\n"
    )
    return {"train": ["tabby, tabby cat"], "validation": ["tabby, tabby cat"]}


def _label_list() -> Splits:
    _photos("photos/train/cat/1.jpg", "photos/val/2.jpg")
    Path("val.txt").write_text("2.jpg cat\n")
    return {"train": ["cat"], "validation": ["cat"]}


def _inaturalist() -> Splits:
    _photos("images/Plants/1/a.jpg", "images/Plants/1/b.jpg")
    images = [
        {"id": 7, "file_name": "images/Plants/1/a.jpg"},
        {"id": 8, "file_name": "images/Plants/1/b.jpg"},
    ]
    found = [{"id": n, "image_id": n, "category_id": n - 7} for n in (7, 8)]
    names = [{"id": 0, "name": "Abies alba"}, {"id": 1, "name": "Acer rubrum"}]
    content = {"images": images, "annotations": found, "categories": names}
    Path("train2019.json").write_text(json.dumps(content))
    return {"train": ["Abies alba", "Acer rubrum"]}


def _zip() -> Splits:
    splits = _class_folders()
    with zipfile.ZipFile("photos.zip", "w") as archive:
        for path in sorted(Path("photos").rglob("*.jpg")):
            archive.write(path)
    return splits


def _paths() -> Splits:
    _photos("a.jpg", "sub/b.jpg")
    _table("labels.csv", ("path", "label"), ("a.jpg", "cat"), ("sub/b.jpg", "dog"))
    return {"train": ["cat", "dog"]}


def _ids() -> Splits:
    _photos("train_images/7f3a.png", "train_images/00aa.png")
    _table("train.csv", ("id_code", "diagnosis"), ("7f3a", 2), ("00aa", 0))
    return {"train": ["0", "2"]}


def _paths_of_another_machine() -> Splits:
    _photos("cat/1.jpg", "dog/1.jpg")
    paths = [f"/kaggle/input/pets/{name}/1.jpg" for name in ("cat", "dog")]
    _table("labels.csv", ("path", "label"), (paths[0], "cat"), (paths[1], "dog"))
    return {"train": ["cat", "dog"]}


def _cells_of_several() -> Splits:
    _photos("a.jpg", "b.jpg")
    _table("labels.csv", ("path", "label"), ("a.jpg", "cat;dog"), ("b.jpg", "dog"))
    return {"train": ["cat dog", "dog"]}


def _columns_of_classes() -> Splits:
    _photos("a.jpg", "b.jpg", "c.jpg")
    rows = ("path", "cat", "dog"), ("a.jpg", 1, 1), ("b.jpg", 0, 1), ("c.jpg", 0, 0)
    _table("labels.csv", *rows)
    return {"train": ["", "cat dog", "dog"]}


def _roboflow_classes() -> Splits:
    for split, numbers in (("train", (1, 2)), ("valid", (3,))):
        _photos(*(f"export/{split}/{number}.jpg" for number in numbers))
        rows = [(f"{number}.jpg", number % 2, 1) for number in numbers]
        _table(f"export/{split}/_classes.csv", ("filename", "cat", "dog"), *rows)
    return {"train": ["cat dog", "dog"], "validation": ["cat dog"]}


def _prices() -> Splits:
    _photos("a.jpg", "b.jpg")
    _table("labels.csv", ("path", "price"), ("a.jpg", 1.5), ("b.jpg", 20))
    return {"train": ["", ""]}


def _captions() -> Splits:
    _photos("pets/a.jpg", "pets/b.jpg")
    rows = [{"file_name": name, "text": "a cat"} for name in ("a.jpg", "b.jpg")]
    Path("pets/metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return {"train": ["", ""]}


def _rows_with_images() -> dict[str, list[Any]]:
    images = [{"bytes": image_bytes(tint=number), "path": f"{number}.jpg"} for number in range(3)]
    return {"image": images, "label": ["cat", "dog", "cat"]}


def _parquet() -> Splits:
    Path("data").mkdir()
    pq.write_table(pa.table(_rows_with_images()), "data/train-00000-of-00001.parquet")
    return {"train": ["cat", "cat", "dog"]}


def _saved() -> Splits:
    datasets = pytest.importorskip("datasets")
    rows = _rows_with_images()
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    datasets.Dataset.from_dict(rows, features=datasets.Features(features)).save_to_disk("saved")
    return {"train": ["cat", "cat", "dog"]}


def _pixels(count: int) -> Any:
    return np.random.default_rng(count).integers(0, 256, (count, 9, 8), np.uint8)


def _keras_arrays() -> Splits:
    arrays = {"x_train": _pixels(3), "y_train": np.array([7, 0, 7]), "x_test": _pixels(2)}
    np.savez("mnist.npz", **arrays, y_test=np.array([0, 0]))
    return {"train": ["0", "7", "7"], "test": ["0", "0"]}


def _medmnist_arrays() -> Splits:
    arrays = {}
    for split, labels in (("train", [1, 0]), ("val", [1]), ("test", [0])):
        arrays[f"{split}_images"] = _pixels(len(labels))
        arrays[f"{split}_labels"] = np.array(labels)[:, None]
    np.savez("pathmnist.npz", **arrays)
    return {"train": ["0", "1"], "validation": ["1"], "test": ["0"]}


def _fer() -> Splits:
    usages = ("Training", "Training", "PublicTest", "PrivateTest")
    rows = [(at % 2, " ".join(["9"] * 16), usage) for at, usage in enumerate(usages)]
    _table("fer2013.csv", ("emotion", "pixels", "Usage"), *rows)
    return {"train": ["0", "1"], "validation": ["0"], "test": ["1"]}


def _cifar() -> Splits:
    batch, names = {b"data": np.zeros((2, 48), "u1"), b"labels": [1, 0]}, [b"x", b"y"]
    files = {"data_batch_1": batch, "test_batch": batch, "batches.meta": {b"label_names": names}}
    with tarfile.open("cifar-10-python.tar.gz", "w:gz") as tar:
        for name, content in files.items():
            info, data = tarfile.TarInfo(f"cifar-10-batches-py/{name}"), pickle.dumps(content, 2)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return {"train": ["x", "y"], "test": ["x", "y"]}


def _idx() -> Splits:
    Path("mnist").mkdir()
    for split in ("train", "t10k"):
        for name, array in (("images-idx3", _pixels(2)), ("labels-idx1", np.array([7, 3], "u1"))):
            head = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes()
            data = gzip.compress(head + array.tobytes())
            Path("mnist", f"{split}-{name}-ubyte.gz").write_bytes(data)
    return {"train": ["3", "7"], "test": ["3", "7"]}


def _choices() -> Splits:
    _photos("images/0123abcd-1.jpg", "images/0123abcd-2.jpg")
    tasks = [
        {
            "data": {"image": f"/data/upload/5/0123abcd-{number}.jpg"},
            "annotations": [{"result": [{"from_name": "choice", "value": {"choices": [name]}}]}],
        }
        for number, name in ((1, "dog"), (2, "cat"))
    ]
    Path("choices.json").write_text(json.dumps(tasks))
    return {"train": ["cat", "dog"]}


def _webdataset() -> Splits:
    with tarfile.open("pets-000000.tar", "w") as tar:
        for number, name in enumerate(("cat", "dog")):
            for suffix, data in (("jpg", image_bytes(tint=number)), ("cls", name.encode())):
                info = tarfile.TarInfo(f"sample{number}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return {"train": ["cat", "dog"]}


def _objects(images: Path, paths: Sequence[str] = ()) -> Splits:
    """Return an entry for each image with objects or, if these are given, for each path."""
    return {"train": ["objects"] * (len(paths) or len(list(images.rglob("*.[jp][pn]g"))))}


def _coco() -> Splits:
    write_coco(Path("instances.json"), scenes(Path("images")))
    return _objects(Path("images"))


def _yolo() -> Splits:
    write_yolo(Path("set"), scenes(Path("set/images/train")))
    return _objects(Path("set/images"))


def _annotated(kind: str, folder: str, images: str, number: int = 0) -> Callable[[], Splits]:
    """Return a maker of a set, as a program for annotations writes it."""

    def make() -> Splits:
        Path(folder).mkdir(exist_ok=True)
        MAKERS[kind][number](Path(folder))
        return _objects(Path(images))

    return make


MAKERS_OF_ROWS: Mapping[str, Sequence[Callable[[], Splits]]] = {
    "photos shards": (_class_folders, _split_folders),
    "photos shards --label-from filename": (_names,),
    r"faces shards --label-from '(?P<age>\d+)_(?P<label>\d)_'": (_faces,),
    "photos shards --label-depth 2": (_folders_of_years,),
    "photos shards --multi-label ';'": (_folders_of_several,),
    "photos shards --class-map names.csv": (_synsets,),
    "intel shards": (_nested_splits,),
    "tiny shards --class-map tiny/words.txt": (_tiny_imagenet,),
    "imagenet shards --labels imagenet/LOC_synset_mapping.txt": (_imagenet,),
    "photos shards --split-labels validation=val.txt": (_label_list,),
    "images shards --annotations coco:train2019.json": (_inaturalist,),
    "photos.zip shards": (_zip,),
    "labels.csv shards": (_paths, _paths_of_another_machine, _columns_of_classes),
    "train.csv shards --root train_images --label-column diagnosis": (_ids,),
    "labels.csv shards --multi-label ';'": (_cells_of_several,),
    "export shards": (_roboflow_classes,),
    "labels.csv shards --column price:float32": (_prices,),
    "pets shards --column text": (_captions,),
    "data shards": (_parquet,),
    "saved shards": (_saved,),
    "mnist.npz shards": (_keras_arrays,),
    "pathmnist.npz shards": (_medmnist_arrays,),
    "fer2013.csv shards": (_fer,),
    "cifar-10-python.tar.gz shards": (_cifar,),
    "mnist shards": (_idx,),
    "pets-000000.tar shards": (_webdataset,),
    "images shards --annotations coco:instances.json": (_coco,),
    "set shards --annotations voc:set": (_annotated("voc", "set", "set/JPEGImages"),),
    "set shards --annotations yolo:set": (_yolo,),
    "images shards --annotations csv:boxes.csv": (_annotated("csv", ".", "images"),),
    "set shards --annotations labelme:set": (_annotated("labelme", "set", "set/images", 1),),
    "images shards --annotations cvat:annotations.xml": (_annotated("cvat", ".", "images"),),
    "images shards --annotations via:via_project.json": (_annotated("via", ".", "images"),),
    "images shards --annotations labelstudio:project-1.json": (
        _annotated("labelstudio", ".", "images"),
    ),
    "choices.json shards --root images": (_choices,),
    "set shards --annotations kitti:set": (_annotated("kitti", "set", "set/training/image_2"),),
    "set shards --annotations dota:set": (_annotated("dota", "set", "set/images"),),
    "set shards --annotations masks:set": (_annotated("masks", "set", "set/JPEGImages"),),
}
"""What makes the files of each row, by the row's words after ``tfrtool write``."""
CASES = [(words, make) for words, makers in MAKERS_OF_ROWS.items() for make in makers]


def test_every_row_has_its_files() -> None:
    """The page has at least 30 rows, and for each there are files to try its command on."""
    rows = [command.removeprefix("tfrtool write ") for command in _ROW.findall(PAGE.read_text())]
    assert sorted(rows) == sorted(words for words, _ in CASES)
    assert len(rows) >= 30


def _classes(record: Mapping[str, Any], names: Sequence[str]) -> str:
    if "image/object/class/label" in record:
        return "objects"
    numbers = np.atleast_1d(record.get("label", ()))
    return " ".join(names[int(number)] for number in numbers if number >= 0)


@pytest.mark.parametrize(
    ("words", "make"), [pytest.param(*case, id=f"{case[0]}-{at}") for at, case in enumerate(CASES)]
)
def test_the_command_of_a_row(
    words: str, make: Callable[[], Splits], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes every image, with its class, into its split, and skips nothing."""
    monkeypatch.chdir(tmp_path)
    expected = make()
    assert main(["write", *re.sub(r"'(.*)'", r"\1", words).split()]) == 0
    file = Path("shards/label.labels.txt")
    names = file.read_text().splitlines() if file.exists() else []
    found: Splits = {}
    for split in tfrtool.inspect_dataset("shards").splits:
        records = tfrtool.open_records("shards", split=split, decode="features")
        found[split] = sorted(_classes(record, names) for record in records)
    assert found == expected
