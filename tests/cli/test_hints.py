"""What an error tells to do is done: it is accepted, and it helps."""

from __future__ import annotations

import ast
import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from PIL import Image

import tfrtool
from tests.cli.inspecting import Capture
from tests.datasets import flip_bit, image_payload, write_pets
from tests.examples.strategies import int64, string
from tests.photos import image_bytes
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.cli.app import cli

pytestmark = pytest.mark.skipif(os.name != "posix", reason="hints are run by a shell")

GOOD = [image_payload(0), image_payload(1), image_payload(1)]
PIXELS = tfrtool.encode_example(
    {
        "first": string(bytes(range(12)) * 4),
        "second": string(bytes(range(12)) * 4),
        "height": int64(4),
        "width": int64(4),
    }
)
BLOB = tfrtool.encode_example({"image": string(bytes(range(256))), "label": int64(1)})
TWO_IMAGES = tfrtool.encode_example(
    {"left": string(image_bytes()), "right": string(image_bytes(tint=9)), "kind": int64(1)}
)
TEXTS = tfrtool.encode_example({"title": string(b"one"), "kind": int64(1)})
NUMBERS = tfrtool.encode_example({"kind": int64(1), "sort": int64(2)})


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all that goes wrong."""
    root = tmp_path_factory.mktemp("template")
    pets = write_pets(root)  # and the photographs that it is of
    _make_shards(root)
    _make_sources(root)
    for name in ("hurt", "hole"):
        shutil.copytree(pets, root / name)
    flip_bit(next((root / "hurt").glob("*-train.tfrecord-00001*")), 1)
    next((root / "hole").glob("*-train.tfrecord-00001*")).unlink()
    (root / "begun" / ".tfrtool-incomplete").mkdir(parents=True)
    (root / "begun" / ".tfrtool-incomplete").chmod(0o700)
    (root / "foreign").mkdir()
    (root / "foreign" / "thesis.doc").write_text("precious")
    (root / "lined.jsonl").write_text("{}")
    return root


def _make_shards(root: Path) -> None:
    good = shard_of(GOOD)
    (root / "a.tfrecord").write_bytes(good)
    (root / "notes.tfrecord").write_bytes(shard_of([b"some text", b"more of it"]))
    (root / "pixels.tfrecord").write_bytes(shard_of([PIXELS] * 2))
    (root / "sheet.png").write_bytes(b"an earlier one")
    (root / "texts.tfrecord").write_bytes(shard_of([TEXTS] * 2))
    for name, place in (("header", 1), ("damaged", 40)):
        (root / f"{name}.tfrecord").write_bytes(good)
        flip_bit(root / f"{name}.tfrecord", len(GOOD[0]) + 16 + place)
    (root / "packed.tfrecord").write_bytes(gzip.compress(good))
    (root / "zlib.tfrecord").write_bytes(zlib.compress(good))
    (root / "deep" / "x" / "y").mkdir(parents=True)
    (root / "deep" / "x" / "y" / "z.record").write_bytes(good)
    broken = image_payload(1, data=image_bytes()[:300])
    for name, payloads in (
        ("numbers", [NUMBERS]),
        ("blobs", [BLOB, BLOB]),
        ("unclear", [TWO_IMAGES]),
        ("undecodable", [*GOOD, broken, *GOOD]),
    ):
        (root / name).mkdir()
        (root / name / "train.tfrecord").write_bytes(shard_of(payloads))


def _make_sources(root: Path) -> None:
    photos = root / "photos"
    files = sorted(photos.glob("*/*.jpg"))
    for folder in ("flat", "loose", "masks/images", "masks/masks", "one/cat", "circle"):
        (root / folder).mkdir(parents=True)
    for number, file in enumerate(files):
        shutil.copy(file, root / "flat" / f"{file.parent.name}.{number}.jpg")
        shutil.copy(file, root / "loose" / f"{number}.jpg")
        shutil.copy(file, root / "masks" / "images" / f"{number}.jpg")
        Image.new("L", (16, 12), number).save(root / "masks" / "masks" / f"{number}.png")
    shutil.copytree(photos, root / "spoilt")
    (root / "spoilt" / "cat" / "bad.jpg").write_bytes(files[0].read_bytes()[:300])
    for split in ("train", "test"):
        shutil.copytree(photos, root / "splits" / split)
    rows = "".join(f"{file.relative_to(root)},{file.parent.name}\n" for file in files)
    (root / "pets.csv").write_text(f"path,label\n{rows}")
    (root / "latin.csv").write_bytes(
        f"path,label\n{rows}".replace("cat\n", "k\xe4t\n").encode("l1")
    )
    (root / "quote.csv").write_text(f'path,label\n"{rows}')
    (root / "names.csv").write_text(f"wo,was\n{rows}")
    (root / "sub").mkdir()
    (root / "sub" / "up.csv").write_text(f"path,label\n{rows}".replace("photos", "../photos"))
    (root / "float.csv").write_text(
        f"path,label\n{rows}".replace(",cat", ",1.0").replace("dog\n", "2.0\n")
    )
    several = rows.replace(",cat", ",cat|fur")
    (root / "several.csv").write_text(f"path,label\n{several}")
    boxes = rows.replace("\n", ",1,2,3,4\n")
    (root / "boxes.csv").write_text(f"path,label,xmin,ymin,xmax,ymax\n{boxes}")
    with tarfile.open(root / "photos.tar", "w") as archive:
        archive.add(photos, "photos")
    (root / "twice.tar").write_bytes((root / "photos.tar").read_bytes() * 2)
    (root / "cut.tar").write_bytes((root / "photos.tar").read_bytes()[:2000])
    for number in range(2):
        Image.new("RGB", (400, 400), number).save(root / "one" / "cat" / f"{number}.bmp")
    with tarfile.open(root / "bomb.tar.gz", "w:gz") as archive:
        archive.add(root / "one" / "cat", "cat")
    for name, images in (("photos", files), ("bomb", sorted((root / "one").glob("*/*")))):
        with zipfile.ZipFile(root / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
            for file in images:
                packed.write(file, f"{file.parent.name}/{file.name}")
    shutil.copytree(photos / "cat", root / "circle" / "cat")
    for number in range(200):
        (root / "circle" / f"link{number}").symlink_to("cat")
    (root / "cut.zip").write_bytes((root / "photos.zip").read_bytes()[:2000])


@pytest.fixture
def world(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of that folder, which is the current directory."""
    world = tmp_path / "world"
    shutil.copytree(template, world, symlinks=True)
    os.mkfifo(world / "pipe")
    monkeypatch.chdir(world)
    return world


def do(command: str) -> int:
    """Run a command of the tool in this process, and any other in a shell."""
    if re.match(r"tfrtool [^|<>&]*$", command):
        return main(shlex.split(command)[1:])
    tool = f"{shlex.quote(sys.executable)} -m tfrtool"
    return subprocess.run(
        re.sub(r"\btfrtool\b", tool, command), shell=True, check=False, capture_output=True
    ).returncode


ROWS = """
inspect schema --json --emit python a.tfrecord | 2
  ? --emit json is a schema
  > tfrtool inspect schema a.tfrecord --emit json
inspect shard a.tfrecord --record 3 | 1
  ? they count from 0
  > tfrtool inspect shard a.tfrecord --record 2
repair a.tfrecord - | 2
  ? ./- is a file named -
  > tfrtool repair a.tfrecord ./-
inspect images pixels.tfrecord --out s.png | 1
  ? --feature names the one that holds pixels
  > tfrtool inspect images pixels.tfrecord --out s.png --feature second
inspect images a.tfrecord --out s.png --limit 99999999 | 2
  ? ask for fewer or smaller ones
  > tfrtool inspect images a.tfrecord --out s.png --limit 99
inspect images a.tfrecord --out sheet.png | 2
  ? --overwrite replaces it
  > tfrtool inspect images a.tfrecord --out sheet.png --overwrite
inspect dataset numbers --label nosuch | 2
  ? it may be one of these: kind, sort
  > tfrtool inspect dataset numbers --label sort
$ tfrtool extract a.tfrecord done
extract a.tfrecord done | 2
  ? --overwrite replaces what an earlier extract made
  > tfrtool extract a.tfrecord done --overwrite
extract a.tfrecord photos | 2
  ? choose another directory; --overwrite replaces only what an extract made
  > tfrtool extract a.tfrecord done
  > tfrtool extract a.tfrecord done --overwrite
extract a.tfrecord lined | 2
  ? choose another directory; --overwrite replaces only what an extract made
  > tfrtool extract a.tfrecord done
extract a.tfrecord photos --overwrite | 2
  ? move it away; --overwrite replaces what an earlier extract made, and nothing else
  > mv photos elsewhere
  > tfrtool extract a.tfrecord photos --overwrite
extract a.tfrecord lined --overwrite | 2
  ? move it away
  > mv lined.jsonl elsewhere.jsonl
  > tfrtool extract a.tfrecord lined
extract texts.tfrecord new | 1
  ? --feature takes out another string feature
  > tfrtool extract texts.tfrecord new --feature title
inspect schema notes.tfrecord | 1
  ? tfrtool inspect shard notes.tfrecord shows what is there
  > tfrtool inspect shard notes.tfrecord
index header.tfrecord | 1
  ? tfrtool verify header.tfrecord lists all damage, and tfrtool repair header.tfrecord OUT
  ? saves what is whole
  > tfrtool verify header.tfrecord | 3
  > tfrtool repair header.tfrecord OUT | 3
  > tfrtool index OUT
count deep | 1
  ? quote a pattern: 'deep/**'
  > tfrtool count 'deep/**'
repair damaged.tfrecord a.tfrecord | 2
  ? repair never writes over a file
  > tfrtool repair damaged.tfrecord new | 3
count pipe | 1
  ? a shard in a pipe is read from standard input, as -
  > cat a.tfrecord > pipe & cat pipe | tfrtool count -
index packed.tfrecord | 1
  ? uncompress it first: gzip -dc < packed.tfrecord > COPY
  > gzip -dc < packed.tfrecord > COPY
  > tfrtool index COPY
index zlib.tfrecord | 1
  ? uncompress it first
  > python3 -c 'import sys, zlib;
    sys.stdout.buffer.write(zlib.decompress(sys.stdin.buffer.read()))' < zlib.tfrecord > COPY
  > tfrtool index COPY
count s3://bucket/a.tfrecord | 2
  ? copy it to this machine first
  > tfrtool count a.tfrecord
write masks new | 1
  ? annotations can't be written yet; images alone, in one folder a class, can
  > tfrtool write photos new
write boxes.csv new | 1
  ? annotations can't be written yet; a table without these columns, with one row an image,
  ? can
  > cut -d, -f1,2 boxes.csv > plain.csv
  > tfrtool write plain.csv new
write latin.csv new | 1
  ? save the table as UTF-8
  > iconv -f latin1 -t utf-8 latin.csv > utf8.csv
  > tfrtool write utf8.csv new
write quote.csv new | 1
  ? perhaps a quotation mark lacks the one that ends it
  > tr -d '"' < quote.csv > fixed.csv
  > tfrtool write fixed.csv new
write flat new | 1
  ? --label-from name takes the labels from the names
  > tfrtool write flat new --label-from name
write loose new | 1
  ? move them into one folder a class
  > mkdir -p loose/a loose/b && mv loose/1*.jpg loose/a && mv loose/*.jpg loose/b
  > tfrtool write loose new
write names.csv new | 1
  ? paths: path,
  > sed 's/wo,was/path,label/' names.csv > renamed.csv
  > tfrtool write renamed.csv new
write float.csv new | 1
  ? a label is a name or an integer; 1.0 is written as 1
  > sed 's/\\.0$//' float.csv > whole.csv
  > tfrtool write whole.csv new
write several.csv new | 1
  ? several labels an image can't be written yet; give each image one
  > sed 's/|fur//' several.csv > one.csv
  > tfrtool write one.csv new
write sub/up.csv new | 1
  ? --root DIR lets it name the files below DIR
  > tfrtool write sub/up.csv new --root .
write cut.tar new | 1
  ? fetch it again
  > tfrtool write photos.tar new
write twice.tar new | 1
  ? unpack it with tar --ignore-zeros, and write from the folder
  > mkdir unpacked && tar --ignore-zeros -xf twice.tar -C unpacked
  > tfrtool write unpacked new
write bomb.zip new | 1
  ? if you trust it, unpack it yourself, and write from the folder
  > mkdir unpacked && python3 -m zipfile -e bomb.zip unpacked
  > tfrtool write unpacked new
write bomb.tar.gz new | 1
  ? if you trust it, unpack it yourself, and write from the folder
  > mkdir unpacked && tar -xzf bomb.tar.gz -C unpacked
  > tfrtool write unpacked new
write circle new | 1
  ? remove the links that go around in circles
  > rm circle/link*
  > tfrtool write circle new
write cut.zip new | 1
  ? fetch it again
  > tfrtool write photos.zip new
write photos pets | 2
  ? --overwrite replaces what tfrtool wrote there
  > tfrtool write photos pets --overwrite
write photos foreign | 2
  ? choose another directory; --overwrite replaces only what tfrtool wrote
  > tfrtool write photos new
write photos foreign --overwrite | 2
  ? choose another directory; --overwrite replaces only what tfrtool wrote
  > tfrtool write photos new --overwrite
write photos begun | 2
  ? --resume goes on with it, --overwrite starts anew
  > tfrtool write photos begun --resume
write photos begun | 2
  ? --resume goes on with it, --overwrite starts anew
  > tfrtool write photos begun --overwrite
write photos pets --resume --seed 5 | 2
  ? --overwrite replaces it
  > tfrtool write photos pets --seed 5 --overwrite
write photos hole --name pets --split train=0.7 --split validation=0.3 --shards 2 --resume
    | 2
  ? --overwrite writes the dataset anew
  > tfrtool write photos hole --overwrite
write photos new --split train=0.999 --split test=0.001 | 1
  ? give it a larger fraction, or another seed
  > tfrtool write photos new --split train=0.5 --split test=0.5
write splits new --split train=1 | 2
  ? without --split they are kept; to split anew, write from a source without them
  > tfrtool write splits new
  > tfrtool write splits/train newer --split train=1
write spoilt new --on-bad fail | 1
  ? --on-bad skip leaves such images out
  > tfrtool write spoilt new --on-bad skip | 3
write photos photos/new | 2
  ? choose a directory outside
  > tfrtool write photos new
train nosuch --resume | 2
  ? --out names the directory of the run
  > tfrtool train nosuch --resume --out run | 1
train nosuch --profile | 2
  ? --tensorboard or --out names one
  > tfrtool train nosuch --profile --tensorboard logs | 1
  > tfrtool train nosuch --profile --out run | 1
train nosuch --model cnn --precision bfloat16 | 2
  ? it needs a model of keras.applications, --trainable head, --cache features or auto,
  ? --recipe tfrtool, and no --augment
  > tfrtool train nosuch --precision bfloat16 --model mobilenet_v2 --trainable head --cache
    features --recipe tfrtool | 1
  > tfrtool train nosuch --precision bfloat16 --model resnet50 --trainable head --cache auto |
    1
"""
"""A command and how it ends, with what goes before it after a dollar; after a question mark the
hint that it gives; and after that what is done then, with its exit code where that is not 0."""

SLOW = """
train blobs --model cnn --image-size 32 | 1
  ? tfrtool write makes such a dataset of image files
  > tfrtool write photos new
  > tfrtool train new --model cnn --image-size 32 --epochs 1
$ tfrtool train pets --model cnn --image-size 32 --epochs 1 --out run
train pets --model cnn --image-size 32 --epochs 2 --out run | 2
  ? --resume goes on with it; or choose another
  > tfrtool train pets --model cnn --image-size 32 --epochs 2 --out run --resume
  > tfrtool train pets --model cnn --image-size 32 --epochs 1 --out another
$ tfrtool train pets --model cnn --image-size 32 --epochs 1 --out run
train pets --model cnn --image-size 32 --seed 9 --epochs 1 --out run --resume | 2
  ? choose another directory for another run
  > tfrtool train pets --model cnn --image-size 32 --seed 9 --epochs 1 --out another
$ tfrtool train pets --model cnn --image-size 32 --epochs 1 --out run
$ rm run/checkpoint.npz
train pets --model cnn --image-size 32 --epochs 1 --out run | 2
  ? choose another directory
  > tfrtool train pets --model cnn --image-size 32 --epochs 1 --out another
$ tfrtool train pets --model cnn --image-size 32 --epochs 1 --out run
$ truncate -s 100 run/checkpoint.npz
train pets --model cnn --image-size 32 --epochs 1 --out run --resume | 1
  ? without it, the run can only begin anew
  > rm -r run
  > tfrtool train pets --model cnn --image-size 32 --epochs 1 --out run --resume
train unclear --model cnn --image-size 32 | 1
  ? tfrtool inspect shard unclear shows what the records hold
  > tfrtool inspect shard unclear
train hurt --model cnn --image-size 32 --epochs 1 | 1
  ? tfrtool train --on-corrupt skip leaves out what is damaged
  > tfrtool train hurt --model cnn --image-size 32 --epochs 1 --on-corrupt skip | 3
bench hurt | 1
  ? tfrtool train --on-corrupt skip leaves out what is damaged
  > tfrtool train hurt --model cnn --image-size 32 --epochs 1 --on-corrupt skip | 3
train undecodable --model cnn --image-size 32 --epochs 1 | 1
  ? tfrtool train --on-corrupt skip leaves out what can't be used, and tfrtool inspect shard
  ? undecodable/train.tfrecord --record 3 shows it
  > tfrtool inspect shard undecodable/train.tfrecord --record 3
  > tfrtool train undecodable --model cnn --image-size 32 --epochs 1 --on-corrupt skip | 3
"""


ELSEWHERE = {
    "pipe a shard into it": "test_standard_input.py runs it",
    "was there enough memory?": "a question, where a worker died",
    "set XDG_CACHE_HOME": "below",
    "--recipe tfrtool keeps": "below",
    "open one of them: split=": "below",
    "lists all damage": "below",
    "an uncompressed archive needs no room": "tests/sources/test_tar_archive.py reads it in place",
    "leave it out, or let every image be decoded": "a reason in a report, where one is left out",
    "labels:": "above, with the paths",
    "TFDS_DATA_DIR names another place": "tests/sources/test_tfds.py prepares data where that says",
    "prepare it with TFDS' file_format": "TFDS' own option",
    "prepare the dataset anew": "what TFDS does",
    "such an archive is damaged or a bomb": "no advice",
    "ends an interrupted one": "tests/process/test_publish_death.py runs it after a kill",
    "ends what was begun": "likewise",
    "gives up what it holds": "no advice, but what deleting does",
    "try again": "tests/process/test_publish_death.py reads again",
    "--weights none starts from random ones": "below",
    "--rescale unit takes 0..1": "below",
    "leave --precision out": "below",
    "model.summary() of its Keras model lists them": "below",
    "it was there when the source was listed": "no advice",
}
"""Hints that no row above can bring about, and where they are tested or why they need not be."""


class Row(NamedTuple):
    """One row of the tables above."""

    before: list[str]
    command: str
    code: int
    hint: str
    follow: list[tuple[str, int]]


def rows(text: str) -> Iterator[Row]:
    """Read the tables above."""
    text = re.sub(r"\n    +(?=\S)", " ", text.strip())  # lines that go on
    for block in re.findall(r"(?:\$ .*\n)*\S.*(?:\n  .*)+", text):
        lines = block.splitlines()
        first = next(line for line in lines if line[0] not in "$ ")
        command, _, code = first.rpartition(" | ")
        follow = [re.fullmatch(r"  > (.*?)(?: \| (\d))?", line) for line in lines]
        yield Row(
            before=[line[2:] for line in lines if line.startswith("$")],
            command=command,
            code=int(code),
            hint=" ".join(line[4:] for line in lines if line.startswith("  ?")),
            follow=[(match[1], int(match[2] or 0)) for match in follow if match],
        )


ALL = [*rows(ROWS), *rows(SLOW)]


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.command[:60])
@pytest.mark.usefixtures("world")
def test_hint(
    row: Row,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error ends with the hint; what it says is accepted, and does what was wanted."""
    monkeypatch.setattr("tfrtool.storage.limits.FREE_UNPACKED_BYTES", 100_000)
    assert not any(map(do, row.before))
    capsys.readouterr()
    assert main(shlex.split(row.command)) == row.code
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "error: " in line)
    assert f"; {row.hint}" in line or line.endswith(row.hint)
    for then, ends in row.follow:
        assert do(then) == ends, (then, capsys.readouterr().err)


def test_every_option_and_command_of_a_hint_is_run() -> None:
    """The tables above do what the hints say: none of their options and commands is left out."""
    known = "|".join(name for name in (*cli.commands, *cli.commands["inspect"].commands))  # type: ignore[attr-defined]
    done: dict[str, str] = {}
    for row in ALL:
        run = (then for then, _ in row.follow)
        done[row.hint] = " ; ".join([done.get(row.hint, ""), *run, ""])
    for hint, commands in done.items():
        for option in re.findall(r"(?<!no )(?<!without )(?<!\S)--[a-z-]+", hint):
            assert f" {option} " in commands, hint
        named = rf"tfrtool (?:inspect )?(?:{known}) (?!makes)(?:\S+(?: --record \d+| OUT)?)(?=$| )"
        for command in re.findall(named, hint):
            assert command.replace(" --on-corrupt", "") in commands.replace(";", ""), hint


def test_every_hint_has_its_test() -> None:
    """A new hint needs a row above, or a place in `ELSEWHERE`."""
    tested = " ; ".join((*(row.hint for row in ALL), *ELSEWHERE))
    package = Path(tfrtool.__file__).parent
    for path in sorted(package.rglob("*.py")):
        for text in _hints(ast.parse(path.read_text("utf-8"))):
            longest = max(re.split(r"[{}]+|; ", text), key=len).strip(" ,")
            known = longest in tested or any(part in text for part in ELSEWHERE)
            assert known, f"{path.name}: {text}"


def _hints(tree: ast.AST) -> Iterator[str]:
    """Yield the hints in a module, with ``{}`` for what is put into them."""
    given = [n.value for n in ast.walk(tree) if isinstance(n, ast.keyword) and n.arg == "hint"]
    names = {node.id for node in given if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            given += [node.value] if node.targets[0].id in names else []
    for value in given:
        inside = {
            part
            for node in ast.walk(value)
            if isinstance(node, ast.JoinedStr)
            for part in ast.walk(node)
            if part is not node
        }
        for part in ast.walk(value):
            if part in inside or not isinstance(part, ast.JoinedStr | ast.Constant):
                continue
            pieces = part.values if isinstance(part, ast.JoinedStr) else [part]
            text = "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in pieces)
            if text not in ("None", ""):
                yield text


def test_a_record_that_was_damaged_meanwhile(world: Path) -> None:
    """The command in the hint of random access is run."""
    records = tfrtool.open("a.tfrecord")
    flip_bit(world / "a.tfrecord", 40)
    with pytest.raises(tfrtool.CorruptShardError) as caught:
        records[0]
    records.close()
    assert caught.value.hint is not None
    assert do(caught.value.hint.removesuffix(" lists all damage")) == 3


@pytest.mark.usefixtures("world")
def test_a_dataset_of_several_splits() -> None:
    """What the hint says is an argument that helps."""
    with pytest.raises(tfrtool.UsageError) as caught:
        tfrtool.open("pets")
    assert caught.value.hint is not None
    match = re.search(r"split='(\w+)'", caught.value.hint)
    assert match is not None
    assert len(tfrtool.open("pets", split=match[1])) > 0


def test_no_place_for_a_cache(tmp_path: Path) -> None:
    """XDG_CACHE_HOME is one."""
    from tfrtool.loading.cache_key import default_cache_directory

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError))
        with pytest.raises(tfrtool.UsageError, match="XDG_CACHE_HOME"):
            default_cache_directory({})
        place = default_cache_directory({"XDG_CACHE_HOME": str(tmp_path)})
    assert place.is_relative_to(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        "--weights none",
        "--weights model.keras",
        "--model cnn",
        "--rescale unit",
        "--model mobilenet_v2 --trainable head",
        "--recipe tfrtool",
        "--cache disk",
        "--cache none",
        "--cache auto --image-size 96",
    ],
)
def test_what_training_is_told_to_do_is_accepted(words: str, capsys: Capture) -> None:
    """Hints that need a model or a machine of their own: nothing but the dataset is amiss then."""
    assert do(f"tfrtool train nosuch {words}") == 1
    assert "no such directory" in capsys.readouterr().err


def test_layers_that_a_model_lists_are_accepted(world: Path, capsys: Capture) -> None:
    """The name of a layer that its summary shows is one that --trainable takes."""
    import keras

    train = "tfrtool train pets --model mobilenet_v2 --weights none --image-size 32 --epochs 1"
    assert do(f"{train} --trainable nosuch") == 2
    assert "model.summary()" in capsys.readouterr().err
    shown: list[str] = []
    keras.applications.MobileNetV2(
        weights=None, input_shape=(32, 32, 3), include_top=False
    ).summary(print_fn=lambda line, **_: shown.append(line), line_length=200)
    assert "block_16_project" in "".join(shown)
    assert world.is_dir()
    assert do(f"{train} --trainable block_16_project") == 0


def test_options_that_messages_name_exist() -> None:
    """No text of the tool names an option that no command has."""
    commands = [*cli.commands.values(), *cli.commands["inspect"].commands.values()]  # type: ignore[attr-defined]
    known = {name for one in commands for option in one.params for name in option.opts}
    known |= {name for one in commands for option in one.params for name in option.secondary_opts}
    known |= {"--help", "--version", "--ignore-zeros"}
    package = Path(tfrtool.__file__).parent
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", node.value))
                assert named <= known, f"{path.name}: {named - known}"
