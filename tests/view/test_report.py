"""``tfrtool report``: one file that shows a dataset."""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Callable
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tfrtool
from tests.conftest import MakeShard
from tests.datasets import flip_bit, image_payload, write_foreign
from tests.examples.strategies import float32, int64, string
from tests.images.test_audit import saved
from tests.more import more
from tests.photos import image_bytes
from tfrtool.cli import main
from tfrtool.examples.example import encode_example
from tfrtool.records.framing import frame
from tfrtool.view.report import MAX_BYTES

Run = Callable[..., tuple[int, str, str]]


class Page(HTMLParser):
    """What a page says, section by section, and what it asks for."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = path.read_text("utf-8")
        self.sections: dict[str, str] = {}
        self.pictures: dict[str, list[bytes]] = {}
        self.tags: list[str] = []
        self.asked: list[str] = []
        self._open = ""
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        if tag == "section":
            self._open = held.get("id", "")
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            if name in held and not held[name].startswith(("#", "data:image/")):
                self.asked.append(held[name])
        assert not [name for name in held if name.startswith("on")]
        if tag == "img":
            data = base64.b64decode(held["src"].partition(",")[2])
            self.pictures.setdefault(self._open, []).append(data)

    def handle_data(self, data: str) -> None:
        self.sections[self._open] = self.sections.get(self._open, "") + data


@pytest.fixture
def splits(tmp_path: Path) -> Path:
    """Return a dataset of two classes and two splits, sorted in the one, mixed in the other."""
    folder = tmp_path / "two"
    folder.mkdir()
    orders = {"train": [0] * 20 + [1] * 10, "test": [0, 1, 1, 0] * 3}
    for number, (split, labels) in enumerate(orders.items()):
        payloads = [
            image_payload(label, data=image_bytes(size=(16 + n, 12 + number)))
            for n, label in enumerate(labels)
        ]
        made = write_foreign(tmp_path / split, [payloads])
        (shard,) = made.iterdir()
        shard.rename(folder / f"two-{split}.tfrecord-00000-of-00001")
    return folder


def test_it_says_what_inspection_says(splits: Path, tmp_path: Path, run: Run) -> None:
    """Splits, labels, schema, statistics and order are those of the other commands."""
    out = tmp_path / "two.html"
    code, text, _ = run("report", splits, "--out", out, "--json")
    told = json.loads(text)
    assert code == 0
    assert told["records"] == 42
    assert told["faults"] == 0
    assert told["errors"] == {}
    assert told["bytes"] == out.stat().st_size <= MAX_BYTES
    page = Page(out)
    assert "42 records in 2 shards" in page.text
    assert '<th scope="row">train</th><td class="n">30</td><td class="n">1</td>' in page.text
    assert '"label": tf.io.FixedLenFeature([], tf.int64)' in page.sections["about"]
    assert "No problems found" in page.sections["health"]
    assert "2 classes: the largest has 26 records, the smallest 16" in page.sections["balance"]
    summary = tfrtool.inspect_dataset(splits)
    quality = summary.splits["train"].shuffle
    assert quality is not None
    assert "sorted by label" in quality.shuffle
    assert quality.shuffle in page.sections["shuffling"]
    assert "42 image/jpeg; 42 with 3 channels" in page.sections["images"]
    assert re.search(
        r"Width \(pixels\)16 to 45\s*Height \(pixels\)12 to 13", page.sections["images"]
    )
    assert "labelall0.3810.485600126" in page.sections["features"]


def test_it_needs_nothing_else(splits: Path, tmp_path: Path) -> None:
    """No script, and nothing that a browser would ask for; the policy forbids both."""
    tfrtool.report(splits, tmp_path / "two.html")
    page = Page(tmp_path / "two.html")
    assert page.asked == []
    assert "script" not in page.tags
    assert "default-src 'none'" in page.text


def test_pictures_are_of_the_right_records(tmp_path: Path, make_shard: MakeShard) -> None:
    """Examples of a class show images of it: red ones here, and green ones there."""
    colors = ((200, 0, 0), (0, 200, 0))
    payloads = []
    for n in range(20):
        data = BytesIO()
        Image.new("RGB", (64 + n, 64), colors[n % 2]).save(data, "PNG")
        payloads.append(image_payload(n % 2, data=data.getvalue()))
    tfrtool.report(make_shard(payloads), tmp_path / "r.html")
    page = Page(tmp_path / "r.html")
    seen = [Image.open(BytesIO(one)).convert("RGB") for one in page.pictures["examples"]]
    reds = [one.getpixel((20, 20))[0] > 150 for one in seen]  # type: ignore[index]
    assert reds == [True] * 6 + [False] * 6
    first = page.sections["unusual"].partition("Smallest")[2].split()
    assert [word for word in first if word.isascii()][:5] == ["a.tfrecord:0", "0,", "64", "x", "64"]


def test_boxes_are_drawn_on_the_pictures(tmp_path: Path, make_shard: MakeShard) -> None:
    """Where a record has a box its picture has one, in the report."""
    data = BytesIO()
    Image.new("RGB", (80, 80), "navy").save(data, "PNG")
    sides = {"xmin": 0.25, "ymin": 0.25, "xmax": 0.75, "ymax": float("nan")}
    payloads = []
    for ymax in (0.75, sides["ymax"]):
        box = {f"image/object/bbox/{n}": float32(v) for n, v in {**sides, "ymax": ymax}.items()}
        payloads.append(encode_example({"image": string(data.getvalue()), **box}))
    shard = make_shard(payloads)
    tfrtool.report(shard, tmp_path / "r.html")
    made = Page(tmp_path / "r.html").pictures["examples"]
    found = [Image.open(BytesIO(one)).convert("RGB").crop((40, 17, 41, 24)) for one in made]
    assert [max(one.tobytes()[::3]) > 100 for one in found] == [True, False]


def test_damage_is_shown_with_its_place(splits: Path, tmp_path: Path, run: Run) -> None:
    """A fault has its file, record, offset and kind; the exit code says that there are some."""
    shard = splits / "two-train.tfrecord-00000-of-00001"
    offset = [one.offset for one in tfrtool.Records(shard)][3]
    flip_bit(shard, offset + 40)
    out = tmp_path / "r.html"
    code, _, _ = run("report", splits, "--out", out)
    assert code == 3
    health = Page(out).sections["health"]
    assert "1 fault in 2 shards" in health
    assert re.search(rf"{shard.name}\s*payload-crc\s*3\s*{offset:,}", health)


def test_images_are_checked_as_by_verify(tmp_path: Path, make_shard: MakeShard, run: Run) -> None:
    """Images that are drawn without a fault and others have the faults that `verify` finds."""
    noise = Image.effect_noise((160, 120), 60).convert("RGB")
    good = saved(noise)
    images = [good, good[:-300] + b"\xff\xd9", good[:-2] + b"\x12\x34" * 50 + b"\xff\xd9"]
    images += [saved(noise, progressive=True)[:-300], saved(noise, "PNG")[:-40], good]
    shard = make_shard([encode_example({"image": one, "other": good[:400]}) for one in images])
    out = tmp_path / "r.html"
    assert run("report", shard, "--out", out)[0] == 3
    faults = tfrtool.verify(shard, images=True).shards[0].faults
    assert len(faults) > 4
    health = Page(out).sections["health"]
    for fault in faults:
        assert fault.message in health
    assert f"{len(faults)} faults in 1 shard" in health


def test_the_same_image_in_two_splits_is_listed(
    splits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one fault is named with its records, on stderr too; the command on the page lists it."""
    train = splits / "two-train.tfrecord-00000-of-00001"
    test = splits / "two-test.tfrecord-00000-of-00001"
    with test.open("ab") as file:
        file.write(frame(next(iter(tfrtool.Records(train))).payload))
    assert main(["report", str(splits), "--out", str(tmp_path / "r.html")]) == 3
    health = Page(tmp_path / "r.html").sections["health"]
    assert re.search("1 fault in 2 shards, .*1 image .*across splits", health)
    assert " more fault" not in health
    assert re.search(rf"{test.name}:12.*{train.name}:0", health, re.DOTALL)
    command = f"tfrtool verify --images --json {splits}"
    assert command in health
    error = capsys.readouterr().err
    assert "1 fault" in error
    assert command in error
    assert main(shlex.split(command)[1:]) == 3
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["fault_count"] == 1
    places = {(Path(one["path"]), one["record"]) for one in last["duplicates"][0]["copies"]}
    assert places == {(train, 0), (test, 12)}


def test_copies_within_a_split_are_no_clean_bill(
    tmp_path: Path, make_shard: MakeShard, run: Run
) -> None:
    """Copies are no faults, but neither the head nor the section says that nothing was found."""
    shard = make_shard([image_payload(0, data=image_bytes())] * 2)
    assert run("report", shard, "--out", tmp_path / "r.html")[0] == 0
    page = Page(tmp_path / "r.html")
    assert "No problems found" not in page.text
    assert page.text.count("No faults, but 1 group of duplicate images.") == 2


def test_a_folder_of_splits_in_folders_has_its_own_name(
    tmp_path: Path, make_shard: MakeShard, run: Run
) -> None:
    """As TFX has them; the end of the page says which version wrote it, and when."""
    for split in ("eval", "train"):
        make_shard([encode_example({"x": 1})], f"penguins/Split-{split}/data-00000-of-00001")
    assert run("report", tmp_path / "penguins", "--out", tmp_path / "r.html")[0] == 0
    text = (tmp_path / "r.html").read_text("utf-8")
    assert "<h1>penguins</h1>" in text
    assert re.search(rf"by tfrtool {re.escape(tfrtool.__version__)} on 20\d\d-\d\d-\d\d\.", text)


def test_more_faults_than_are_listed(
    splits: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond those that are shown the others are counted; an unreadable shard is a fault."""
    shard = splits / "two-train.tfrecord-00000-of-00001"
    for record in [*tfrtool.Records(shard)][:3]:
        flip_bit(shard, record.offset + 40)
    monkeypatch.setattr("tfrtool.view.pieces._FAULTS", 2)
    assert run("report", splits, "--out", tmp_path / "r.html")[0] == 3
    health = Page(tmp_path / "r.html").sections["health"]
    assert "3 faults in 2 shards" in health
    assert "1 more fault not shown." in health


def test_groups_of_look_alikes_that_are_not_shown(
    tmp_path: Path, make_shard: MakeShard, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where fewer groups are shown than there are, the page says so."""
    monkeypatch.setattr("tfrtool.inspection.table.gallery.GROUPS", 1)
    payloads = []
    for seed in (0, 1):
        pixels = np.random.default_rng(seed).integers(0, 256, (8, 9), np.uint8)
        drawing = Image.fromarray(pixels).resize((90, 80))
        for quality in (90, 70):
            file = BytesIO()
            drawing.save(file, "JPEG", quality=quality)
            payloads.append(image_payload(0, data=file.getvalue()))
    run("report", make_shard(payloads), "--out", tmp_path / "r.html")
    said = " ".join(Page(tmp_path / "r.html").sections["alike"].split())
    assert "2 groups of images" in said
    assert "Showing the largest 1" in said


def test_empty_records_are_not_nothing(tmp_path: Path, make_shard: MakeShard, run: Run) -> None:
    """Empty payloads beside Examples don't have a kind of their own."""
    run("report", make_shard([encode_example({"a": 1}), b""]), "--out", tmp_path / "r.html")
    assert "Record type: tf.train.Example." in Page(tmp_path / "r.html").sections["about"]


def test_hostile_names_are_text(tmp_path: Path, make_shard: MakeShard) -> None:
    """Tags in names and values are shown, and are none."""
    evil = "</style><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}"
    features = {evil: string(evil.encode()), "label": string(evil.encode()), "n": int64(1)}
    features["image"] = string(image_bytes())
    shard = make_shard([encode_example(features)] * 20, "<b>.tfrecord")
    tfrtool.report(shard, tmp_path / "r.html")
    page = Page(tmp_path / "r.html")
    assert not {"script", "b"} & {*page.tags}
    assert page.asked == []
    assert evil in page.sections["features"]
    assert "&lt;b&gt;.tfrecord" in page.text


def test_records_that_are_no_examples(tmp_path: Path, make_shard: MakeShard, run: Run) -> None:
    """What can't be said of them is said to be unknown, and the rest is there."""
    shard = make_shard([b"\x00no protobuf"] * 5)
    out = tmp_path / "r.html"
    code, _, error = run("report", shard, "--out", out)
    assert code == 3
    assert "schema:" in error
    assert "5 records in 1 shard" in Page(out).text


def test_a_place_is_checked_before_anything_is_read(splits: Path, tmp_path: Path, run: Run) -> None:
    """A wrong ending, a file that is there and no folder are refused; nothing is left."""
    taken = tmp_path / "taken.html"
    taken.write_text("mine")
    for out, why in (
        (tmp_path / "r.txt", "must end in .html"),
        (taken, "--overwrite"),
        (tmp_path / "no" / "r.html", f"{tmp_path / 'no'}: "),
    ):
        code, _, error = run("report", splits, "--out", out)
        assert (code, why in error) == (2, True)
    assert taken.read_text() == "mine"
    assert run("report", splits, "--out", taken, "--overwrite")[0] == 0
    assert "42 records" in taken.read_text()


def test_what_all_records_share_is_one_number(make_shard: MakeShard, tmp_path: Path) -> None:
    """It is no range; a page about one file is called as the file is."""
    image = image_payload(1, data=image_bytes(size=(28, 12)))
    tfrtool.report(make_shard([image] * 3, name="few.tfrecord"), tmp_path / "r.html")
    page = Page(tmp_path / "r.html")
    assert "<h1>few.tfrecord</h1>" in page.text
    assert re.search(
        r"Width \(pixels\)28\s*Height \(pixels\)12\s*Brightness", page.sections["images"]
    )
    assert "labelall101110" in page.sections["features"]


def test_payloads_that_are_not_known_are_not_said_to_parse(
    make_shard: MakeShard, tmp_path: Path
) -> None:
    """That they have no statistics is said once."""
    tfrtool.report(make_shard([b"\xff\x00" * 9] * 3), tmp_path / "r.html")
    page = Page(tmp_path / "r.html")
    assert "All CRCs match." in page.sections["health"]
    assert page.text.count("contains no tf.train.Example") == 1


def test_what_may_be_the_label_is_a_guess(make_shard: MakeShard, tmp_path: Path) -> None:
    """Features that may be the label are named as such, and never counted."""
    rows = [{"is_cat": n % 2, "is_dog": 1 - n % 2, "size": n / 7} for n in range(20)]
    make_shard([encode_example(row) for row in rows], "data/a.tfrecord")
    tfrtool.report(tmp_path / "data", tmp_path / "page.html")
    page = Page(tmp_path / "page.html")
    assert "Candidates: is_cat, is_dog." in " ".join(page.sections["about"].split())
    assert "balance" not in page.sections


def test_strings_are_counted_by_value(make_shard: MakeShard, tmp_path: Path) -> None:
    """The most common values stand with their shares, as in ``inspect stats``."""
    rows = [encode_example({"s": f"v{n % 3}", "id": f"n{n}"}) for n in range(9)]
    tfrtool.report(make_shard(rows), tmp_path / "page.html")
    said = Page(tmp_path / "page.html").sections["features"]
    assert "sall3v0 33.3%, v1 33.3%, v2 33.3%" in said


@pytest.mark.more
def test_a_report_of_much_is_at_most_as_large_as_it_says(tmp_path: Path) -> None:
    """Thousands of classes and features with long names, in many shards; pictures make way."""
    shards = [
        [
            encode_example(
                {
                    "image": string(image_bytes(tint=n)),
                    "label": string(b"%d-%d-" % (part, n) + b'"' * 900),
                }
                | {f"{k:04d}" + "<" * 990: int64(n) for k in range(0 if n or part else 210)}
            )
            for n in range(10)
        ]
        for part in range(4)
    ]
    folder = write_foreign(tmp_path / "much", shards)
    for one in sorted(folder.iterdir())[:2]:
        one.write_bytes(one.read_bytes()[:-7])
    written = tfrtool.report(folder, tmp_path / "a.html", workers=1)
    assert written.bytes <= MAX_BYTES
    assert written.pictures
    assert len(Page(tmp_path / "a.html").text) < 1_500_000


@pytest.mark.parametrize("named", ["d", more("./d/"), more("d/*.tf*"), "linked"])
def test_files_that_are_not_in_the_metadata(
    named: str, make_shard: MakeShard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are reported as faults, and have no rows."""
    for name, count in (("train", 3), ("old", 5)):
        make_shard([image_payload(n) for n in range(count)], f"d/d-{name}.tfrecord-00000-of-00001")
    info = {"name": "d", "version": "1.0.0", "splits": [{"name": "train", "shardLengths": ["3"]}]}
    folder = make_shard([image_payload(0)], "d/1.tfrecord").parent
    folder.joinpath("1.tfrecord").unlink()
    folder.joinpath("dataset_info.json").write_text(json.dumps(info))
    folder.with_name("linked").symlink_to(folder)
    monkeypatch.chdir(folder.parent)
    for workers in (1, 2):
        report = tfrtool.report(named, tmp_path / "a.html", overwrite=True, workers=workers)
        assert report.errors == {}
        assert report.records == (8 if "*" in named else 3)
        assert report.faults


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts what a process reads")
def test_each_record_is_read_once(tmp_path: Path) -> None:
    """For rows, statistics, schema and faults together; only the first records are seen twice."""

    def read_by_now() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    small, large = (tmp_path / name for name in ("small", "large"))
    for folder, count in ((small, 2), (large, 1500)):
        payloads = [encode_example({"n": n, "data": b"\xff" * 10_000}) for n in range(count)]
        write_foreign(folder, [payloads])
    tfrtool.report(small, tmp_path / "small.html", workers=1)  # imports everything
    size, before = sum(path.stat().st_size for path in large.iterdir()), read_by_now()
    found = tfrtool.report(large, tmp_path / "large.html", workers=1)
    assert (found.records, found.errors) == (1500, {})
    assert size <= read_by_now() - before < 1.3 * size
