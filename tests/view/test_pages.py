"""The viewer's pages, without a server: records, filters, one record, marks, and hostile data."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageColor, ImageDraw

import tfrtool
from tests.conftest import MakeShard
from tests.datasets import flip_bit, image_payload, write_foreign
from tests.examples.strategies import float32, int64, string
from tests.objects_written import CLASSES, name_classes, object_record
from tests.photos import image_bytes
from tests.view.asking import Answer, ask
from tfrtool.convert.filter_records import filter_records
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.examples.objects.record_features import SIDES, Layout
from tfrtool.records.framing import frame
from tfrtool.view import live as live_module
from tfrtool.view.live import Live
from tfrtool.view.marks import marks_folder
from tfrtool.view.server import application

EVIL = [
    "<script>alert(1)</script>", "</style><img src=x onerror=alert(1)>", "\"'><svg/onload=x>",
    "{{7*7}}{% raw %}", "a\u202etxt", "nul\0", "line\nbreak", "\\", "&lt;b&gt;", "\u2028", "]]>-->",
]  # fmt: skip


DAMAGED = "part-00000-of-00002.tfrecord"


class Page(HTMLParser):
    """The text of a page, its links and its fields."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.status, self.html = answer.status, answer.body.decode()
        self.links: dict[str, str] = {}
        self.tags: list[str] = []
        self.values: dict[str, list[str]] = {}
        self.sources: list[str] = []
        self.text = ""
        self._href: str | None = None
        self.feed(self.html)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = {name: value or "" for name, value in attrs}
        assert not [name for name in held if name.startswith("on") or name == "style"]
        self.tags.append(tag)
        self.text += " " * (tag not in ("a", "span", "code", "strong"))
        if tag == "a":
            self._href, self._label = held["href"], ""
        if tag == "input" and "name" in held:
            self.values.setdefault(held["name"], []).append(held.get("value", ""))
        if tag in ("img", "script") and "src" in held:
            self.sources.append(held["src"])

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._href is not None:
            self.links.setdefault(" ".join(self._label.split()), self._href)
            self._href = None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._href is not None:
            self._label += data


class Viewer(NamedTuple):
    """A viewer that has read everything."""

    live: Live

    def get(self, path: str, **question: str) -> Page:
        """Open a page."""
        query = "&".join(filter(None, (urlsplit(path).query, urlencode(question))))
        return Page(ask(application(self.live), urlsplit(path).path, query))

    def record(self, shard: int, number: int, **question: str) -> Page:
        """Open the page of a record."""
        return self.get(quote(self.live.found.record_names.path(shard, number)), **question)

    def bytes(self, address: str) -> Answer:
        """Return the answer at an address."""
        return ask(application(self.live), urlsplit(address).path, urlsplit(address).query)

    def post(self, fields: list[tuple[str, str]]) -> Answer:
        """Change marks."""
        body = urlencode(fields).encode()
        return ask(application(self.live), "/marks", method="POST", body=body)


Open = Callable[[Path], Viewer]


def open_and_read(shards: Path) -> Viewer:
    """Open a viewer, and read everything."""
    live = Live(shards, workers=1)
    live.found.fill(workers=1)
    live.done = True
    return Viewer(live)


@pytest.fixture
def open_viewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Return what opens a viewer and reads everything; marks are in the test's folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    opened = []

    def start(shards: Path) -> Viewer:
        opened.append(open_and_read(shards))
        return opened[-1]

    yield start
    for viewer in opened:
        viewer.live.close()


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return shards with damage, an image that can't be decoded, and the same image twice."""
    payloads = [image_payload(n % 2, data=image_bytes(size=(40 + 30 * n, 30))) for n in range(6)]
    broken = image_payload(1, data=b"\x89PNG\r\n\x1a\n broken")
    shards = [payloads, [payloads[0], payloads[5], broken]]
    folder = write_foreign(tmp_path_factory.mktemp("messy") / "messy", shards)
    folder.joinpath("label.labels.txt").write_text("cat\ndog\n")
    flip_bit(folder / "part-00000-of-00002.tfrecord", len(frame(payloads[0])) + 300)
    return folder


@pytest.fixture(scope="module")
def viewer(messy: Path) -> Iterator[Viewer]:
    """Return a viewer of these shards for tests that mark nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(messy.parent))
        opened = open_and_read(messy)
    yield opened
    opened.live.close()


def test_facets_lead_to_their_records(viewer: Viewer) -> None:
    """Each has as many records as it says, and is removed by its own link."""
    page = viewer.get("/")
    assert "9 records in 2 shards" in page.text
    for name, count in (
        ("0 cat", 4), ("1 dog", 4), ("part-00000", 6), ("part-00001", 3), ("all with a fault", 2),
        ("payload-crc", 1), ("parse", 1), ("same image more than once", 4), ("up to 64 px", 2),
    ):  # fmt: skip
        chosen = viewer.get(page.links[name])
        assert re.search(rf"\b{count} records?\b", chosen.text.partition("Table")[0]), name
        assert len(chosen.values["seen"]) == count
        assert chosen.links[f"{name} \u2715(remove)"] == "/"
    both = viewer.get("/", label="dog", copies="any")
    assert both.values["seen"] == ["0/5", "1/1"]


def test_a_condition_with_an_error_leaves_the_records(viewer: Viewer) -> None:
    """It is explained next to the field, and the last records are still there."""
    page = viewer.get("/", where="width > 100")
    assert page.values["was"] == ["width > 100"]
    seen = page.values["seen"]
    page = viewer.get("/", where="widht > 10", was="width > 100")
    assert "no column 'widht'; did you mean 'width'?" in page.text
    assert 'aria-invalid="true" aria-describedby="problem"' in page.html
    assert page.values["where"] == ["widht > 10"]
    assert (page.values["seen"], page.values["was"]) == (seen, ["width > 100"])
    assert len(viewer.get("/", sort="nothing").values["seen"]) == 9
    suggested = [name for name in page.links if "<" in name or "=" in name]
    assert suggested
    for name in suggested:
        assert 0 < len(viewer.get(page.links[name]).values.get("seen", ())) < 9


def test_a_question_is_stopped(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time for it, or where it needs too much memory; the next one is answered."""
    monkeypatch.setattr(live_module, "MAX_SECONDS", 300)
    assert "of memory" in viewer.get("/", where="len(range(800000000)) > label").text
    monkeypatch.setattr(live_module, "MAX_SECONDS", 0.5)
    slow = "(SELECT count(*) FROM range(100000000000)) > label"
    assert "took longer than" in viewer.get("/", where=slow).text
    monkeypatch.setattr(live_module, "MAX_SECONDS", 300)
    assert len(viewer.get("/").values["seen"]) == 9


def test_values_of_columns_are_facets(open_viewer: Open, tmp_path: Path) -> None:
    """Columns with few values are counted as filters do, also lists and records without a value."""
    rows = [
        {"day": n, "sky": ["sun", "<rain>"][n % 2], "wet": n % 2, "tags": [f"t{n % 3}", "all"]}
        for n in range(30)
    ]
    del rows[0]["sky"]
    viewer = open_viewer(write_foreign(tmp_path / "rows", [list(map(encode_example, rows))]))
    page = viewer.get("/")
    counts = "sky <rain>15 sun14 no value1 tags all30 t010 t110 t210 wet 015 115"
    assert counts in page.text
    dry = viewer.get(page.links["sun"])
    assert "14 records" in dry.text
    assert "wet 014" in dry.text
    assert "<rain>15" in dry.text  # the others of the same facet keep their counts
    both = viewer.get(dry.links["t0"])
    assert "4 records" in both.text
    assert "14 records" in viewer.get(both.links["t0 \u2715(remove)"]).text
    assert viewer.get(page.links["no value"]).values["seen"] == ["0/0"]
    rain = viewer.get("/", **{"is:sky": "<rain>", "where": "day < 4", "sort": "day"})
    assert rain.values["seen"] == ["0/1", "0/3"]
    (third,) = [one for name, one in rain.links.items() if name.endswith(":3")]
    assert viewer.get(third).text.count("Record 3") == 1
    assert "no column 'ski'; did you mean 'sky'?" in viewer.get("/", **{"is:ski": "sun"}).text
    nothing = viewer.get("/", where="day > 99")
    assert "30 records" in viewer.get(nothing.links["Show all 30 records"]).text


def test_records_without_images_are_a_table(open_viewer: Open, tmp_path: Path) -> None:
    """It has heads that sort, short values, and pages."""
    rows = [
        {"n": n, "name": f"name {n % 3}", "list": list(range(20)), "blob": bytes([255, n])}
        for n in range(250)
    ]
    viewer = open_viewer(write_foreign(tmp_path / "rows", [list(map(encode_example, rows))]))
    page = viewer.get("/")
    assert "img" not in page.tags
    heads = re.findall(r'<th scope="col">.*?</th>', page.html, re.DOTALL)
    notes = [re.sub(r"<title>[^<]*</title>|<[^>]*>", " ", one).split() for one in heads]
    assert [" ".join(one) for one in notes] == [
        *("Tag", "Record", "blob 2 bytes", "list 20 values", "n 0 to 249", "name 3 values")
    ]
    assert "histogram of n from 0 to 249, largest bar 25" in heads[4]
    assert "name 0: 84 records; show only these" in heads[5]
    assert "00001.tfrecord:0 2 bytes [0, 1, 2, 3, 4, 5, 6, 7, ...] 0 name 0" in page.text
    down = viewer.get(viewer.get(page.links["n"]).links["n \u25b2"])
    assert down.values["seen"][0] == "0/249"
    assert 'aria-sort="descending"' in down.html
    last = viewer.get(down.links["Last"])
    assert last.values["seen"] == [f"0/{n}" for n in range(49, -1, -1)]
    assert "page 3 of 3" in last.text
    record = viewer.get(last.links["part-00000-of-00001.tfrecord:49"])
    assert "201 of 250" in record.text
    assert viewer.get(record.links["Next"]).text.count("Record 48") == 1
    assert record.links["All"] == "/?sort=n&descending=1&page=3#r0-49"
    assert "2 bytes of binary" in record.text
    assert "00000000 0a" in record.text


def test_a_record_has_one_name(open_viewer: Open, tmp_path: Path) -> None:
    """Its address names it as lists do, whatever the shard is called and wherever it is."""
    folder = tmp_path / "two" / "rows"
    names = ["a/x.tfrecord", "b/x.tfrecord", "b/50 % #1?&'\"<b>.tfrecord"]
    names.append(os.fsdecode(b"b/\xff.tfrecord"))
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(frame(encode_example({"name": string(os.fsencode(name))})))
    viewer = open_viewer(folder)
    page = viewer.get("/", sort="name")
    shown = {text: link for text, link in page.links.items() if text.endswith(":0")}
    assert f"{folder / 'a/x.tfrecord'}:0" in shown
    address = shown["50 % #1?&'\"<b>.tfrecord:0"]
    assert address.startswith("/record/50%20%25%20%231%3F%26%27%22%3Cb%3E.tfrecord:0")
    assert len(shown) == len(names)
    for text, link in shown.items():
        assert f"{text} " in viewer.get(link).text
    viewer.post([("mark", "0/0"), ("mark", "1/0"), ("mark", "2/0")])
    assert {*viewer.bytes("/marked.txt").body.decode().splitlines()} <= {*shown}


def test_times_of_tables_are_text(open_viewer: Open, tmp_path: Path) -> None:
    """Times that were converted to records are shown as times, in the table and in a record."""
    pq.write_table(
        pa.table({"when": pa.array([1_704_110_400_000_000, None], pa.timestamp("us"))}),
        tmp_path / "a.parquet",
    )
    tfrtool.convert(tmp_path / "a.parquet", tmp_path / "records")
    viewer = open_viewer(tmp_path / "records")
    page = viewer.get("/", where="\"when\" > '2024-01-01'")
    assert page.values["seen"] == ["0/0"]
    assert "2024-01-01 12:00:00" in page.text
    assert "2024-01-01 12:00:00" in viewer.record(0, 0).text


def test_one_record(viewer: Viewer) -> None:
    """Its place, features and faults; problems and duplicates on the overview lead to it."""
    page = viewer.record(0, 5, label="dog", n="1")
    for text in (
        "part-00000-of-00002.tfrecord:5: 1 dog",
        "2 of 4",
        "190 x 30",
        "label 1 dog",
        "Payload CRC",
    ):
        assert text in page.text
    assert page.links["Previous"] == f"/record/{DAMAGED}:3?label=dog&n=0"
    first = viewer.get(page.links["Previous"])
    assert ("1 of 4" in first.text, "Previous" in first.links) == (True, False)
    assert "of 4" not in viewer.record(0, 0, label="dog", n="3").text  # it isn't among them
    image = viewer.bytes(next(one for one in page.sources if one.startswith("/image/")))
    assert Image.open(io.BytesIO(image.body)).size == (190, 30)
    assert viewer.get(page.links["Similar images"]).values["seen"]
    overview = viewer.get("/overview")
    damaged = viewer.get(overview.links["1"])
    assert "payload-crc" in damaged.text
    assert "The record is damaged" in damaged.text
    sources = viewer.get("/", fault="payload-crc").sources
    assert not any(one.startswith("/image/") for one in sources)  # there is none to show
    broken = viewer.record(1, 2)
    assert "parse" in broken.text
    copies = viewer.get(overview.links["Show all images that are there more than once"])
    assert copies.values["seen"] == ["0/0", "1/0", "0/5", "1/1"] or copies.values["seen"] == [
        "0/5", "1/1", "0/0", "1/0",
    ]  # fmt: skip
    assert viewer.record(0, 6).status == 404
    assert viewer.get("/record/other.tfrecord:0").status == 404
    assert "expected SHARD:RECORD" in viewer.get("/", like="other.tfrecord:0").text
    assert viewer.get("/", like=f"{DAMAGED}:5").text.count(f"similar to {DAMAGED}:5") == 1
    assert viewer.bytes("/image/1/1?box=160").status == 404  # no record starts there


def test_marks_are_kept_and_drop_their_records(
    open_viewer: Open, messy: Path, tmp_path: Path
) -> None:
    """Single and bulk; another viewer of the same shards has them; the file is for ``--drop``."""
    viewer = open_viewer(messy)
    answer = viewer.post([("seen", "0/2"), ("seen", "0/3"), ("mark", "0/3"), ("back", "/?page=2")])
    assert (answer.status, dict(answer.headers)["location"]) == (303, "/?page=2")
    assert viewer.get("/", marked="1").values["seen"] == ["0/3"]
    viewer.post([("bulk", "copies"), ("query", "copies=any")])
    assert viewer.get("/", marked="1").values["seen"] == ["0/3", "1/0", "1/1"]
    viewer.post([("bulk", "mark"), ("query", "where=width+%3C+60&label=cat")])
    viewer.post([("bulk", "unmark"), ("query", "shard=1")])
    again = open_viewer(messy)
    page = again.get("/", marked="1")
    assert page.values["seen"] == ["0/0", "0/3"]
    (file,) = marks_folder().iterdir()
    assert str(file) in page.text
    assert file.stat().st_mode & 0o077 == 0 or os.umask(0o022) == 0o022
    lines = "part-00000-of-00002.tfrecord:0\npart-00000-of-00002.tfrecord:3\n"
    assert file.read_text() == viewer.bytes("/marked.txt").body.decode() == lines
    payloads = [image_payload(n) for n in range(4)]
    same = write_foreign(tmp_path / "same" / "x", [payloads, payloads[:1]])
    filter_records(same, tmp_path / "out", drop=file, workers=1)
    written = b"".join(one.read_bytes() for one in sorted((tmp_path / "out").glob("*.tfrecord*")))
    assert written == b"".join(map(frame, [payloads[1], payloads[2], payloads[0]]))
    assert viewer.post([("seen", "0/3"), ("script", "1")]).body == b'{"marked":1}'


def test_forms_lead_back_to_the_viewer_only(open_viewer: Open, messy: Path) -> None:
    """Whatever a form says."""
    viewer = open_viewer(messy)
    for back in ("//evil.example", "/\\evil.example", "https://evil.example", "/\r\nX: y", ""):
        answer = viewer.post([("mark", "0/1"), ("back", back)])
        assert (answer.status, dict(answer.headers)["location"]) == (303, "/")


def test_marks_that_can_not_be_stored_are_said(
    open_viewer: Open, tmp_path: Path, messy: Path
) -> None:
    """A full disk, or a name that a list can't hold; nothing is marked then."""
    viewer = open_viewer(messy)
    (tmp_path / "data").write_text("not a folder")
    page = Page(viewer.post([("mark", "0/1")]))
    assert page.status == 400
    assert "can't store the marks" in page.text
    assert not viewer.live.marks.tags
    path = tmp_path / "a\nb.tfrecord"
    path.write_bytes(frame(image_payload(1)))
    (tmp_path / "data").unlink()
    assert "rename the file" in Page(open_viewer(path).post([("mark", "0/0")])).text


def test_what_records_say_is_text_on_every_page(open_viewer: Open, tmp_path: Path) -> None:
    """Names of features and folders, classes and values that are markup or templates."""
    payloads = [
        encode_example(
            {
                "image": string(image_bytes(tint=n)),
                "label": string(text.encode()),
                text: string(text.encode() * 60),
            }
        )
        for n, text in enumerate(EVIL)
    ]
    viewer = open_viewer(write_foreign(tmp_path / "<b>evil</b>", [payloads]))
    pages = [viewer.get("/"), viewer.get("/", view="table"), viewer.get("/overview")]
    pages += [viewer.record(0, n) for n in range(6)]
    pages += [viewer.get("/", where=text, was=text, label=text, sort=text) for text in EVIL[:6]]
    for page in pages:
        assert page.status == 200
        assert not {"b", "object", "iframe", "style"} & set(page.tags)
        assert page.tags.count("script") == 1
        assert {urlsplit(one).scheme for one in (*page.sources, *page.links.values())} == {""}
        assert "\0" not in page.html
    assert "<script>alert(1)</script>" in pages[0].text
    assert "{{7*7}}" in pages[0].text


@pytest.mark.parametrize(
    "path",
    [
        "/record/x:0", f"/record/{DAMAGED}:-1", f"/record/{DAMAGED}:{'9' * 40}",
        f"/record/{DAMAGED}:0?hex=x", f"/record/{DAMAGED}:0?hex=99999999", "/record/", "/record/0",
        "/record/../../etc/passwd:0", f"/record/{DAMAGED}:\u0663", f"/record/{DAMAGED}",
        "/image/0/0?box=-1", "/image/9/0", "/image/0/0?image=99",
        "/mask/0/0/0", "/mask/0/0/x", "/?page=x", "/?page=999999999999", "/?size=1e9", "/?like=1",
        f"/?copies={DAMAGED}:0:0",
        "/static/guard.py", "/static/..%2fguard.py", "/?shard=99", "/?fault='",
        "/?label=%00", "/?text=%25_'", "/?split=", "/?marked=x&thumb=x&view=x&all=x",
    ],
)  # fmt: skip
def test_odd_addresses_are_answered(viewer: Viewer, path: str) -> None:
    """By a page or an error, never by an exception."""
    assert viewer.bytes(path).status in (200, 400, 404)


def test_objects_have_their_classes_and_colors(open_viewer: Open, make_shard: MakeShard) -> None:
    """In captions, facets, boxes and masks."""
    boxes = [[(20, 20, 80, 80, 0), (90, 20, 150, 80, 1)], [], [(20, 20, 80, 80, 1)]]
    path = make_shard(list(map(object_record, boxes)), name="d/d-train.tfrecord-00000-of-00001")
    name_classes(path.parent, Layout.TFOD)
    viewer = open_viewer(path.parent)
    page = viewer.get("/")
    assert viewer.get(page.links["cat"]).values["seen"] == ["0/0"]
    assert viewer.get(page.links["dog"]).values["seen"] == ["0/0", "0/2"]
    assert viewer.get("/", text="DOG").values["seen"] == ["0/0", "0/2"]
    assert "cat, dog" in page.text
    shown = [re.findall(r'stroke="(#\w+)"', viewer.record(0, n).html) for n in (0, 2)]
    assert shown[0][0] != shown[0][1] == shown[1][0]
    small = next(one for one in page.sources if one.startswith("/image/"))
    picture = Image.open(io.BytesIO(viewer.bytes(small).body)).convert("RGB")
    width, height = picture.size
    pixel = picture.getpixel((round(20 / 160 * width) + 1, height // 2))
    assert pixel == pytest.approx(ImageColor.getrgb(shown[0][0]), abs=100)
    assert {"Objects", "Samples"} <= set(viewer.get("/overview").links)
    assert CLASSES


def test_images_are_in_the_frame_of_their_boxes(make_shard: MakeShard, open_viewer: Open) -> None:
    """They are turned upright only if the record's width and height are those of the turned one."""
    cases = list(itertools.product((1, 3, 6, 8), ("stored", "turned", None)))
    payloads, expected = [], []
    for orientation, said in cases:
        kept, image, exif = io.BytesIO(), Image.new("RGB", (120, 60), "black"), Image.Exif()
        ImageDraw.Draw(image).rectangle((0, 0, 39, 19), fill="white")
        exif[0x112] = orientation
        image.save(kept, "JPEG", exif=exif, quality=95)
        turned = said == "turned" and orientation > 4
        width, height = (60, 120) if turned else (120, 60)
        sides = {"image/width": int64(width), "image/height": int64(height)} if said else {}
        box = (0.0, 0.0, 1 / 3, 1 / 3)
        if turned:
            box = (2 / 3, 0, 1, 1 / 3) if orientation == 6 else (0, 2 / 3, 1 / 3, 1)
        boxes = {f"image/object/bbox/{n}": float32(v) for n, v in zip(SIDES, box, strict=True)}
        payloads.append(
            encode_example({"image/encoded": string(kept.getvalue()), **sides, **boxes})
        )
        expected.append((width, height, box, orientation > 1 and not turned))
    viewer = open_viewer(make_shard(payloads))
    for number, (width, height, box, is_noted) in enumerate(expected):
        page = viewer.record(0, number)
        source = next(one for one in page.sources if one.startswith("/image/"))
        shown = Image.open(io.BytesIO(viewer.bytes(source).body)).convert("L")
        assert shown.size == (width, height)
        middle = round((box[0] + box[2]) / 2 * width), round((box[1] + box[3]) / 2 * height)
        pixels = [shown.getpixel(middle), shown.getpixel((width // 2, height // 2))]
        assert pixels == pytest.approx([255, 0], abs=20)
        assert ("EXIF orientation" in page.text) is is_noted


def test_large_values_are_folded(open_viewer: Open, make_shard: MakeShard) -> None:
    """Long texts and lists open on demand; the rest of very long ones is counted."""
    numbers = Feature(dtype=DType.INT64, values=tuple(range(5000)))
    shard = make_shard([encode_example({"x": numbers, "t": string(b"a" * 50_000), "s": int64(1)})])
    page = open_viewer(shard).record(0, 0)
    assert page.tags.count("summary") == 3  # two values, and the bytes
    assert "... 4,000 more" in page.text
    assert "(5,000 values)" in page.text
    assert "30,000 more characters" in page.text


def test_a_shard_that_has_changed_shows_nothing_else(open_viewer: Open, tmp_path: Path) -> None:
    """A record that is no longer where it was is said to be damaged or changed."""
    folder = write_foreign(tmp_path / "a", [[image_payload(n) for n in range(3)]])
    viewer = open_viewer(folder)
    (path,) = folder.iterdir()
    path.write_bytes(frame(image_payload(5)))
    assert "has changed since it was opened" in viewer.record(0, 2).text
    path.unlink()
    assert viewer.record(0, 1).status == 400


def test_progress_has_counts(tmp_path: Path, open_viewer: Open) -> None:
    """Pages are there from the first piece on, and say how far reading is."""
    folder = write_foreign(tmp_path / "a", [[image_payload(n % 3) for n in range(150)]])
    viewer = open_viewer(folder)
    live = viewer.live
    assert json.loads(viewer.bytes("/state").body) == {
        "text": "", "done": True, "version": live.version
    }  # fmt: skip
    fresh = Live(folder, workers=1)
    try:
        page = Viewer(fresh).get("/")
        assert "Nothing has been read yet" in page.text
        pieces = []
        fresh.found.steps(1).run(
            lambda step, found: pieces.append(found) if step == "table" else None
        )
        fresh.found.store("table", pieces[0])
        page = Viewer(fresh).get("/")
        assert "100 records so far" in page.text
        assert len(page.values["seen"]) == 60
    finally:
        fresh.close()


def test_the_process_that_reads_hands_over_all_that_it_finds(messy: Path) -> None:
    """Every step's result, faults included, goes from that process to the pages."""
    live = Live(messy, workers=1)
    try:
        live.start()
        deadline = time.monotonic() + 300
        while not live.done and time.monotonic() < deadline:
            time.sleep(0.05)
        assert live.done
        assert live.found.errors == {}
        assert live.found.table_done
        assert None not in (live.found.schema, live.found.statistics, live.found.gallery)
        assert live.found.verdict is not None
        assert live.found.verdict.n_faults > 0
    finally:
        live.close()


def test_a_written_dataset_has_its_splits_and_names(open_viewer: Open, tmp_path: Path) -> None:
    """The overview is the report's, and empty sections are not there."""
    folder = write_foreign(tmp_path / "pets", [[image_payload(n % 2) for n in range(8)]] * 2)
    for path, split in zip(sorted(folder.iterdir()), ("train", "validation"), strict=True):
        path.rename(folder / f"pets-{split}.tfrecord-00000-of-00001")
    folder.joinpath("label.labels.txt").write_text("cat\ndog\n")
    viewer = open_viewer(folder)
    page = viewer.get("/overview")
    assert {"Class balance", "Label order", "Statistics", "cat"} <= set(page.links)
    assert "Objects" not in page.links
    assert parse_qs(urlsplit(page.links["cat"]).query) == {"label": ["cat"]}
    assert {"train", "validation", "0 cat", "1 dog"} <= set(viewer.get("/").links)
