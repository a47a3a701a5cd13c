"""Reading TFDS' datasets: its own code writes them, ours reads them."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.photos import image_bytes
from tests.sources.tfds_builders import CLASS_NAMES, define_builders
from tfrtool.errors import SourceError, UsageError
from tfrtool.records.framing import frame
from tfrtool.sources.tfds import TfdsReader, read_tfds

pytestmark = pytest.mark.tf

_CORRUPT = 1738
"""What cats_vs_dogs insists on having found."""


@pytest.fixture(scope="module")
def tfds() -> Any:
    """Return the tensorflow_datasets module."""
    import tensorflow_datasets

    return tensorflow_datasets


@pytest.fixture(scope="module", autouse=True)
def data_dir(tfds: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder where TFDS has its data; TFDS reads TFDS_DATA_DIR once only."""
    folder = tmp_path_factory.mktemp("tfds") / "data"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfds.core.constants, "DATA_DIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def builders(tfds: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Register the datasets of this file."""
    define_builders(tfds, tmp_path_factory.mktemp("package"))


def prepared(tfds: Any, name: str, data_dir: Path) -> Path:
    """Have TFDS write a dataset, once in a session, and return its folder, as it was written."""
    folder, kept = data_dir / name, data_dir.parent / "written" / name
    if not kept.exists():
        shutil.rmtree(folder, ignore_errors=True)
        tfds.builder(name).download_and_prepare()
        shutil.copytree(folder, kept)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(kept, folder)
    return folder / "1.0.0"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive as Microsoft has it: PetImages/Cat/0.jpg ..., with corrupt files."""
    path = tmp_path_factory.mktemp("download") / "kagglecatsanddogs_5340.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme[1].txt", "x")
        for label in ("Cat", "Dog"):
            for number in range(4):
                data = image_bytes(size=(20 + number, 16), tint=9 * number)
                file.writestr(f"PetImages/{label}/{number}.jpg", data)
            file.writestr(f"PetImages/{label}/Thumbs.db", b"x")
        for number in range(_CORRUPT):
            file.writestr(f"PetImages/Dog/{1000 + number}.jpg", b"\xff\xd8\xff no marker")
    return path


@pytest.fixture(scope="module")
def cats_vs_dogs(tfds: Any, archive: Path) -> Any:
    """Have TFDS' own cats_vs_dogs find that archive where it would download it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfds.download.DownloadManager, "download", lambda _self, _url: archive)
        patch.setattr("tfrtool.sources.tfds.missing_hosts", lambda _builder: None)
        yield


@pytest.mark.usefixtures("cats_vs_dogs")
def test_cats_vs_dogs(data_dir: Path, tfds: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """TFDS' own code filters and encodes; what it keeps comes out with its names and classes."""
    source = read_tfds("cats_vs_dogs")
    assert source.labels == ("cat", "dog")
    assert [(item.key, item.label) for item in source.items] == [
        (f"PetImages/{label.title()}/{number}.jpg", label)
        for label in ("cat", "dog")
        for number in range(4)
    ]
    assert (source.splits, {item.split for item in source.items}) == ((), {None})
    assert source.rejected == source.ignored == ()
    dataset = tfds.builder("cats_vs_dogs").as_dataset(
        split="train", decoders={"image": tfds.decode.SkipDecoding()}
    )
    theirs = {row["image/filename"].decode(): row["image"] for row in tfds.as_numpy(dataset)}
    assert {item.key: source.reader.read(item) for item in source.items} == theirs
    assert all(item.bytes == len(theirs[item.key]) for item in source.items)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")
    files = sorted(path.name for path in (data_dir / "cats_vs_dogs" / "4.0.1").iterdir())
    assert files == [
        "cats_vs_dogs-train.tfrecord-00000-of-00001",
        "dataset_info.json",
        "features.json",
        "label.labels.txt",
    ]
    assert read_tfds("cats_vs_dogs:4.0.1") == source
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("cats_vs_dogs")
def test_prepared_data_is_found_in_a_new_process(data_dir: Path) -> None:
    """TFDS_DATA_DIR says where; TensorFlow isn't needed to read what is there."""
    read_tfds("cats_vs_dogs")
    program = (
        "import sys; from tfrtool.sources.tfds import read_tfds;"
        "source = read_tfds('cats_vs_dogs'); print(len(source.items), 'tensorflow' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TFDS_DATA_DIR": str(data_dir)},
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.split() == ["8", "False"]


@pytest.mark.usefixtures("builders")
def test_images_without_names(tfds: Any, data_dir: Path) -> None:
    """Keys are numbers in the order of each split's records; the splits are TFDS' own."""
    folder = prepared(tfds, "my_digits", data_dir)
    source = read_tfds("my_digits")
    assert source.splits == ("test", "train")
    assert source.labels == ("0", "1", "2")
    assert [item.key for item in source.items] == [
        *(f"test/{number:06d}.png" for number in range(4)),
        *(f"train/{number:06d}.png" for number in range(7)),
    ]
    ours = []
    for item in source.items:
        with Image.open(io.BytesIO(source.reader.read(item))) as image:
            ours.append((item.split, image.getpixel((0, 0)), image.size, item.label))
    theirs = [
        (split, int(row["image"][0, 0, 0]), (6, 5), str(row["label"]))
        for split in ("test", "train")
        for row in tfds.as_numpy(
            tfds.builder("my_digits").as_dataset(split=split, shuffle_files=False)
        )
    ]
    assert ours == theirs
    assert sorted(path.suffix for path in folder.iterdir()).count(".idx") == 0
    assert len(read_tfds("my_digits:1.0.0").items) == 11


@pytest.mark.usefixtures("builders")
def test_names_that_splits_share(tfds: Any, data_dir: Path) -> None:
    """Keys then start with the split; classes keep TFDS' order; a record without one is told."""
    prepared(tfds, "my_farm", data_dir)
    source = read_tfds("my_farm")
    assert source.labels == CLASS_NAMES
    assert [(item.key, item.label, item.split) for item in source.items] == [
        (f"{split}/{number}.jpg", CLASS_NAMES[number % 4 - 1], split)
        for split, count in (("test", 4), ("train", 7))
        for number in range(count)
        if number % 4
    ]
    assert [(entry.key, entry.reason) for entry in source.rejected] == [
        ("test/0.jpg", "label -1 is not a class"),
        ("train/0.jpg", "label -1 is not a class"),
        ("train/4.jpg", "label -1 is not a class"),
    ]


@pytest.mark.usefixtures("builders")
@pytest.mark.parametrize("config", ["same", "control"])
def test_names_that_are_no_keys(tfds: Any, data_dir: Path, config: str) -> None:
    """Names that come twice, or can't be printed, are passed over for numbers."""
    prepared(tfds, f"my_nameless/{config}", data_dir)
    for notation in (f"my_nameless/{config}", f"my_nameless/{config}:1.0.0"):
        assert read_tfds(notation).items[0].key == "test/000000.png"


@pytest.mark.usefixtures("builders")
@pytest.mark.parametrize("name", ["my_two_images", "my_depths"])
def test_images_that_cant_be_told(tfds: Any, data_dir: Path, name: str) -> None:
    """Two images without supervised keys, and images of floats, are refused."""
    prepared(tfds, name, data_dir)
    with pytest.raises(SourceError, match="image feature") as caught:
        read_tfds(name)
    assert "label: ClassLabel" in str(caught.value.found)


@pytest.mark.usefixtures("builders")
def test_supervised_keys_choose(tfds: Any, data_dir: Path) -> None:
    """Of two images, the supervised one is read."""
    prepared(tfds, "my_chosen", data_dir)
    reader = read_tfds("my_chosen").reader
    assert isinstance(reader, TfdsReader)
    assert reader.image == "depth"


@pytest.mark.usefixtures("builders")
def test_several_shards(tfds: Any, data_dir: Path) -> None:
    """Records are numbered through the shards of a split, and read from the right one."""
    shutil.rmtree(data_dir / "my_digits", ignore_errors=True)
    tfds.builder("my_digits").download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=3)
    )
    source = read_tfds("my_digits")
    assert [item.key for item in source.items if item.split == "train"] == [
        f"train/{number:06d}.png" for number in range(7)
    ]
    images = {source.reader.read(item) for item in source.items if item.split == "train"}
    assert len(images) == 7
    assert len({source.reader.describe(item).partition(",")[0] for item in source.items}) == 6


@pytest.mark.usefixtures("builders")
def test_a_folder_that_isnt_whole(data_dir: Path) -> None:
    """Without dataset_info.json nothing is known, and TFDS won't prepare it over what is there."""
    folder = data_dir / "my_chosen" / "1.0.0"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with pytest.raises(SourceError, match=r"expected a dataset_info\.json"):
        read_tfds("my_chosen")
    shutil.rmtree(folder)


@pytest.mark.usefixtures("builders")
def test_reader_in_threads_and_processes(tfds: Any, data_dir: Path) -> None:
    """It travels, holds no open file, and eight threads get the right images."""
    prepared(tfds, "my_digits", data_dir)
    source = read_tfds("my_digits")
    reader = pickle.loads(pickle.dumps(source.reader))
    assert reader == source.reader
    items = list(source.items) * 20
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(reader.read, items)) == [source.reader.read(item) for item in items]
    assert source.reader.describe(source.items[0]).endswith(", offset 0")
    assert "my_digits-test.tfrecord-00000-of-00001" in source.reader.describe(source.items[0])


@pytest.mark.usefixtures("builders")
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("flip", "offset"),
        ("cut", "expected 7, found 6"),
        ("longer", "expected 7, found 8"),
        ("other", "not a tf.train.Example"),
        ("missing", "no such file"),
        ("empty", "empty"),
    ],
)
def test_damaged_shards(tfds: Any, data_dir: Path, damage: str, message: str) -> None:
    """Damage is an error that names the shard, never a smaller dataset."""
    folder = prepared(tfds, "my_digits", data_dir)
    (shard,) = folder.glob("*-train.tfrecord*")
    data = shard.read_bytes()
    changed = {
        "flip": data[:300] + bytes([data[300] ^ 1]) + data[301:],
        "cut": data[: _last_record(data)],
        "longer": data + data[: _first_record(data)],
        "other": frame(b"\xff\xff"),
        "empty": b"",
    }
    if damage == "missing":
        shard.unlink()
    else:
        shard.write_bytes(changed[damage])
    with pytest.raises(SourceError, match=message) as caught:
        read_tfds("my_digits")
    assert caught.value.path == str(shard)


def _first_record(data: bytes) -> int:
    return int.from_bytes(data[:8], "little") + 16


def _last_record(data: bytes) -> int:
    position = 0
    while position + (size := _first_record(data[position:])) < len(data):
        position += size
    return position


@pytest.mark.usefixtures("builders")
def test_change_after_listing(tfds: Any, data_dir: Path) -> None:
    """A record that isn't any more what was listed is an error, wherever it was changed."""
    folder = prepared(tfds, "my_digits", data_dir)
    source = read_tfds("my_digits")
    (shard,) = folder.glob("*-test.tfrecord*")
    data = shard.read_bytes()
    first = _first_record(data)
    item = next(item for item in source.items if item.locator == 0)
    for position in range(first):
        shard.write_bytes(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])
        with pytest.raises(SourceError) as caught:
            source.reader.read(item)
        assert (caught.value.path, caught.value.offset) == (str(shard), 0)
    for end in range(0, first, 5):
        shard.write_bytes(data[:end])
        with pytest.raises(SourceError):
            source.reader.read(item)
    shard.unlink()
    with pytest.raises(OSError, match="No such file"):
        source.reader.read(item)


@pytest.mark.usefixtures("builders")
def test_other_file_formats(tfds: Any, data_dir: Path) -> None:
    """A dataset that TFDS wrote in another format is refused, with what to do."""
    folder = prepared(tfds, "my_digits", data_dir)
    text = (folder / "dataset_info.json").read_text()
    (folder / "dataset_info.json").write_text(text.replace('"tfrecord"', '"array_record"'))
    with pytest.raises(SourceError, match="expected tfrecord, found array_record"):
        read_tfds("my_digits")


@pytest.mark.usefixtures("builders")
def test_what_cant_be_prepared(data_dir: Path) -> None:
    """The error says what TFDS said, in a line, and where prepared data would be found."""
    with pytest.raises(SourceError) as caught:
        read_tfds("my_broken")
    assert "ConnectionError: no way to the host" in str(caught.value)
    assert caught.value.path == str(data_dir / "my_broken" / "1.0.0")
    assert "TFDS_DATA_DIR" in str(caught.value)
    for notation in ("no_such_dataset", "my_digits:7.7.7", "my_nameless/none"):
        with pytest.raises(SourceError, match=f"TFDS.*{notation}"):
            read_tfds(notation)


@pytest.mark.parametrize(
    "notation", ["", "a b", "../x", "kaggle:x", "x:1", "x:1.0", "x/y/z", "x/y=1", "x[train]"]
)
def test_notation(notation: str) -> None:
    """What is no NAME[/CONFIG][:VERSION] is refused before TFDS sees it."""
    with pytest.raises(UsageError):
        read_tfds(notation)
