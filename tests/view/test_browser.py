"""The viewer and the report in a real browser, as people use them."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from PIL import Image

from tests.datasets import flip_bit, write_foreign
from tests.examples.strategies import int64, string
from tests.photos import image_bytes
from tests.view.conftest import OpenPage, Viewer
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.records.framing import frame
from tfrtool.view.report import report

pytestmark = pytest.mark.slow

Run = Callable[..., tuple[int, str, str]]
Start = Callable[..., Viewer]

SHARD = "part-00000-of-00001.tfrecord"
HOSTILE = b"<img src=x onerror=alert(1)><script>alert(2)</script>"


def _object(number: int) -> bytes:
    """Return a record with an image, two boxes and their masks, of pixels 0 and 1."""
    kept = io.BytesIO()
    Image.new("L", (40, 30), 1).save(kept, "PNG")
    sides = {"xmin": (0.1, 0.5), "ymin": (0.1, 0.5), "xmax": (0.4, 0.9), "ymax": (0.4, 0.9)}
    return encode_example(
        {
            "image/encoded": string(image_bytes(size=(40 + number, 30), tint=3 * number)),
            "image/class/text": string([b"cat", b"dog", HOSTILE][number % 3]),
            "number": Feature(dtype=DType.FLOAT32, values=(float(number),)),
            "image/object/class/text": string(b"head", HOSTILE),
            "image/object/mask": string(kept.getvalue(), kept.getvalue()),
            **{
                f"image/object/bbox/{side}": Feature(dtype=DType.FLOAT32, values=values)
                for side, values in sides.items()
            },
        }
    )


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a shard of 70 images with objects; one record's payload is damaged."""
    folder = tmp_path_factory.mktemp("objects")
    payloads = [_object(number) for number in range(69)] + [_object(0)]
    write_foreign(folder / HOSTILE.decode().replace("/", ""), [payloads])
    (path,) = folder.glob("*/*.tfrecord")
    flip_bit(path, len(b"".join(map(frame, payloads[:68]))) + 300)
    return path.parent


@pytest.fixture(scope="module")
def viewer(objects: Path, start_viewer: Start) -> Viewer:
    """Return the viewer of the objects."""
    return start_viewer(objects)


def _read(page: Any, viewer: Viewer) -> Any:
    """Wait until everything has been read, and load the page again."""
    while not page.request.get(urljoin(viewer.url, "/state")).json()["done"]:
        page.wait_for_timeout(100)
    page.goto(urljoin(viewer.url, "/"))
    return page


def _found(page: Any, text: str) -> None:
    page.locator("#found").filter(has_text=text).wait_for()
    page.wait_for_load_state("load")


def _shown(page: Any, selector: str) -> None:
    """Wait until a new page has this element, and its script has run."""
    page.wait_for_selector(selector)
    page.wait_for_load_state("load")


def test_a_walk(
    viewer: Viewer, objects: Path, open_page: OpenPage, tmp_path: Path, run: Run
) -> None:
    """Filter, err, sort, open, mark, and drop what was marked: with mouse and keys."""
    page = _read(open_page(viewer.url), viewer)
    _found(page, "70 records, page 1 of 2")
    page.click(".facets >> text=dog")
    _found(page, "23 records")
    page.fill("[name=where]", "number < 30")
    page.press("[name=where]", "Enter")
    _found(page, "10 records")
    page.select_option("[name=sort]", "width")
    page.wait_for_url("**sort=width**")  # the form is sent at once
    page.check("[name=descending]")
    page.click("text=Apply")
    _shown(page, ".item >> nth=0 >> text=:28, 68 x 30")
    page.reload()
    _shown(page, ".item >> nth=0 >> text=:28, 68 x 30")
    page.fill("[name=where]", "numbr < 30")
    page.press("[name=where]", "Enter")
    _shown(page, "#problem >> text=no column 'numbr'; did you mean 'number'?")
    _found(page, "10 records")
    page.go_back()
    _found(page, "10 records")
    # One record: the boxes can be switched off, and stay off in the next one.
    page.click(".item >> nth=1 >> a")
    _shown(page, "#record >> text=:25: dog")
    assert page.locator(".boxes text").all_text_contents() == ["head", HOSTILE.decode()]
    image = page.locator(".layers > img").first
    assert image.bounding_box()["width"] > 400  # a small image fills the column
    for zoom, width in ((".z1", 65), (".z2", 130), (".z3", 260)):  # its own pixels
        page.check(zoom)
        assert image.bounding_box()["width"] == pytest.approx(width, abs=1)
        box = page.locator(".boxes rect").first.bounding_box()
        assert box["x"] - image.bounding_box()["x"] == pytest.approx(0.1 * width, abs=7)
        assert box["width"] == pytest.approx(0.3 * width, abs=0.1 * width)
    page.locator(".frame").first.hover()
    page.mouse.wheel(0, 100)
    page.wait_for_function("document.querySelector('.z0').checked")
    # Boxes of a class can be switched off, and all of them; both stay so in the next record.
    page.uncheck(".classes >> text=head")
    assert page.locator(".boxes g:visible").count() == 1
    page.uncheck(".show-boxes")
    assert not page.is_visible(".boxes")
    page.keyboard.press("ArrowRight")
    _shown(page, "#record >> text=:22: dog")
    assert not page.is_visible(".boxes")
    assert page.locator(".masks img").count() == 2
    # Marks: by a key here, and by keys in the grid.
    with page.expect_response("**/marks"):
        page.keyboard.press("m")
    page.keyboard.press("Escape")
    _shown(page, ".item.marked >> text=:22")
    page.wait_for_function("document.activeElement.closest('#r0-22')")  # the record that was left
    page.focus(".item >> nth=0 >> a")
    page.keyboard.press("ArrowRight")
    with page.expect_response("**/marks"):
        page.keyboard.press("m")
    page.wait_for_selector("#marked >> text=2")
    # Bars of a histogram filter, with the mouse and with keys.
    page.goto(urljoin(viewer.url, "/?view=table"))
    page.click("[aria-label^='0 to below 6.7: 8 records']")
    _found(page, "8 records")
    page.focus(".histogram [aria-current]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    _found(page, "15 records")
    page.click("text=number: 0 to below 13.4")
    _found(page, "70 records")
    page.goto(urljoin(viewer.url, "/?copies=any"))
    page.click("text=Tag all but one of each")
    page.wait_for_selector("#marked >> text=3")
    page.click("#commands summary")
    with page.expect_download() as saved:
        page.click("text=Download the list")
    saved.value.save_as(tmp_path / "marked.txt")
    (shard,) = objects.glob("*")
    copy = shutil.copy(shard, tmp_path / shard.name)
    out = tmp_path / "out.tfrecord"
    code, _, said = run("filter", copy, out, "--drop", tmp_path / "marked.txt")
    assert code == 3, said  # one record is damaged
    _, text, _ = run("cat", out, "--select", "number", "--format", "csv")
    kept = [int(float(line.rpartition(",")[2])) for line in text.split()[1:]]
    assert kept == [one for one in range(68) if one not in (22, 25)]
    assert page.told == []


def test_a_review_ends_in_data(
    start_viewer: Start, open_page: OpenPage, browser: Any, tmp_path: Path
) -> None:
    """Mistakes get a tag, with a command and a download; a bookmark works after a restart."""
    payloads = [encode_example({"label": string(b"cat"), "n": int64(n)}) for n in range(4)]
    folder = write_foreign(tmp_path / "pets", [payloads])
    lines = [
        {"shard": "part-00000-of-00001.tfrecord", "record": n, "label": "cat"}
        | {"predicted": ["cat", "dog"][n % 2], "probability": 0.6 + n / 10}
        for n in range(4)
    ]
    (tmp_path / "p.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    options = ("--port", port, "--predictions", str(tmp_path / "p.jsonl"))
    viewer = start_viewer(folder, *options)
    page = _read(open_page(viewer.url), viewer)
    page.click(".facets >> text=wrong")
    _found(page, "2 records")
    page.fill("[name=new]", "Blurry")
    page.press("[name=new]", "Enter")
    page.wait_for_url("**tag=blurry**")
    page.wait_for_load_state("load")
    with page.expect_response("**/marks"):
        page.check(".item >> nth=0 >> [name=mark]")
    page.wait_for_selector("#marked >> text=1")
    page.click("#commands summary")
    page.wait_for_selector("#commands >> text=pets-without-blurry --drop")
    page.click(".copy >> nth=0")
    page.wait_for_selector(".copy >> text=/Copied|Selected/")
    with page.expect_download() as saved:
        page.click("text=JSON Lines")
    rows = [json.loads(line) for line in Path(saved.value.path()).read_text().splitlines()]
    assert [(row["n"], row["_tags"], row["_correct"]) for row in rows] == [
        (3, ["blurry"], False),
        (1, [], False),
    ]
    bookmark = page.url
    viewer.process.send_signal(signal.SIGINT)
    viewer.process.wait(120)
    again = start_viewer(folder, *options)
    page.goto(bookmark)  # without the address that was printed
    while not page.request.get(urljoin(again.url, "/state")).json()["done"]:
        page.wait_for_timeout(100)
    page.goto(bookmark)
    _shown(page, ".item.marked >> text=:3")
    assert page.told == []
    stranger = browser.new_context().new_page()
    stranger.goto(bookmark)
    stranger.wait_for_selector("h1 >> text=This address needs a token")
    assert (
        stranger.evaluate("getComputedStyle(document.querySelector('section')).borderRadius")
        == "8px"
    )
    stranger.context.close()


@pytest.mark.more
def test_hostile_records_stay_text(viewer: Viewer, objects: Path, open_page: OpenPage) -> None:
    """No dialog, nothing that the policy forbids, no error; damage leads to its record."""
    page = _read(open_page(viewer.url), viewer)
    page.wait_for_selector(f"h1 >> text={objects.name[:20]}")
    page.click("text=1 fault")
    page.wait_for_selector("#health >> text=payload-crc")
    page.click("#health td a >> text=68")
    page.wait_for_selector("[role=alert] >> text=The record is damaged")
    for address in (f"/record/{SHARD}:2", "/?view=table", "/?page=2"):
        page.goto(urljoin(viewer.url, address))
        page.wait_for_load_state("networkidle")
    assert page.locator("main script, [onerror]").count() == 0
    # The image of the damaged record is the only one that is not there.
    assert [text for text in page.told if "404" not in text] == []


@pytest.mark.more
def test_pages_without_script(viewer: Viewer, browser: Any) -> None:
    """Filters, records and marks work with links and forms alone."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(viewer.url)
    page.goto(urljoin(viewer.url, "/?where=number+%3D+7"))
    page.check(".item >> nth=0 >> [name=mark]")
    page.click("text=Store tags")
    page.wait_for_selector(".item.marked")
    page.uncheck(".item >> nth=0 >> [name=mark]")
    page.click("text=Store tags")
    page.wait_for_selector(".item.marked", state="detached")
    context.close()


@pytest.mark.more
def test_more_records_arrive_and_the_viewer_ends(
    start_viewer: Start, open_page: OpenPage, tmp_path: Path
) -> None:
    """Progress is shown with counts; the page says what to do after the end."""
    rows = [encode_example({"n": int64(n), "x": string(b"x" * 500)}) for n in range(40_000)]
    viewer = start_viewer(write_foreign(tmp_path / "many", [rows]))
    page = open_page(viewer.url)
    # What is empty is never visible; it is empty if all was read before the page was asked for.
    more, nothing = page.locator("#more:visible"), page.locator("#progress:empty")
    more.or_(nothing).first.wait_for(state="attached")
    page = _read(page, viewer)
    _found(page, "40,000 records, page 1 of 400")
    viewer.process.kill()
    viewer.process.wait()
    page.evaluate("dispatchEvent(new Event('focus'))")  # as when its window is gone to again
    page.wait_for_selector("#progress >> text=Run tfrtool view again")


@pytest.fixture(scope="module")
def data_report(objects: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report of the objects."""
    out = tmp_path_factory.mktemp("reports") / "data.html"
    report(objects, out, workers=1)
    return out


def test_a_report_asks_for_nothing(data_report: Path, open_page: OpenPage) -> None:
    """Opened as a file: no request, no error, nothing wider than a phone, and it can be printed."""
    page = open_page("about:blank", width=400)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(data_report.as_uri())
    assert [one for one in asked if not one.startswith(("file:", "data:"))] == []
    assert page.told == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.evaluate("[...document.images].every(one => one.naturalWidth > 0)")
    assert page.pdf()[:5] == b"%PDF-"


def test_a_report_prints_on_few_pages(tmp_path: Path, open_page: OpenPage) -> None:
    """36 faults with their causes take three pages of A4, not seven."""
    report("fixtures/damaged", tmp_path / "faults.html", workers=1)
    page = open_page((tmp_path / "faults.html").as_uri())
    assert "36 faults in 34 shards" in page.text_content("#health")
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) <= 3


REPORT = "report"
FIRST_PAGES = ("/",)
OTHER_PAGES = (
    REPORT,
    f"/record/{SHARD}:1?n=1",
    f"/record/{SHARD}:68",
    "/?view=table",
    "/?view=table&in%3Anumber=%5B7.0,30.0%5D",
    "/?where=x",
    "/?fault=any",
    "/overview",
)


@pytest.mark.parametrize(
    ("dark", "width", "addresses"),
    [
        pytest.param(False, 1400, FIRST_PAGES, id="light", marks=pytest.mark.more),
        pytest.param(False, 1400, OTHER_PAGES, id="others", marks=pytest.mark.more),
        pytest.param(
            True, 400, (*FIRST_PAGES, *OTHER_PAGES), id="dark phone", marks=pytest.mark.more
        ),
    ],
)
def test_pages_are_accessible(
    viewer: Viewer,
    data_report: Path,
    open_page: OpenPage,
    dark: bool,
    width: int,
    addresses: tuple[str, ...],
) -> None:
    """The rules of axe-core hold for each page, and nothing is wider than the window."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = _read(open_page(viewer.url, dark=dark, width=width), viewer)
    broken = []
    for name in addresses:
        address = data_report.as_uri() if name == REPORT else urljoin(viewer.url, name)
        page.goto(address)
        page.wait_for_load_state("networkidle")
        found = axe.run(page).response
        held = len(found["passes"])
        sys.stdout.write(f"axe-core on {address}: {held} rules hold\n")
        broken += [f"{address}: {x['id']}: {x['nodes'][0]['html']}" for x in found["violations"]]
        if page.evaluate("document.documentElement.scrollWidth") > width:
            broken.append(f"{address} is wider than {width}")
    assert broken == []
