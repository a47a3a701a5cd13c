"""The viewer and the report in a real browser, as people use them."""

from __future__ import annotations

import io
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.datasets import flip_bit, image_payload, write_foreign
from tests.examples.strategies import int64, string
from tests.photos import image_bytes
from tests.view.conftest import OpenPage, Viewer
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.records.framing import frame
from tfrtool.view.report import report

pytestmark = pytest.mark.slow

Run = Callable[..., tuple[int, str, str]]
Start = Callable[[Path], Viewer]

HOSTILE = b"<img src=x onerror=alert(1)><script>alert(2)</script>"


def _object(number: int) -> bytes:
    """Return a record with an image, two boxes and their masks, of pixels 0 and 1."""
    masks = []
    for _ in range(2):
        kept = io.BytesIO()
        Image.new("L", (40, 30), 1).save(kept, "PNG")
        masks.append(kept.getvalue())
    sides = {"xmin": (0.1, 0.5), "ymin": (0.1, 0.5), "xmax": (0.4, 0.9), "ymax": (0.4, 0.9)}
    features = {
        "image/encoded": string(image_bytes(size=(40 + number, 30), tint=3 * number)),
        "image/class/text": string([b"cat", b"dog", HOSTILE][number % 3]),
        "number": Feature(dtype=DType.FLOAT32, values=(float(number),)),
    }
    if number == 6:  # as TFDS has objects
        boxes = Feature(dtype=DType.FLOAT32, values=(0.2, 0.1, 0.6, 0.5))
        outline = string(b"[[9,6,23,6,23,18,9,18]]")
        objects = {"bbox": boxes, "label": int64(7), "segmentation": outline}
        return encode_example(features | {f"objects/{name}": one for name, one in objects.items()})
    return encode_example(
        {
            **features,
            "image/object/class/text": string(b"head", HOSTILE),
            "image/object/mask": string(*masks),
            **{
                f"image/object/bbox/{side}": Feature(dtype=DType.FLOAT32, values=values)
                for side, values in sides.items()
            },
        }
    )


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a shard of 60 images with objects; one record's payload is damaged."""
    folder = tmp_path_factory.mktemp("objects")
    payloads = [_object(number) for number in range(60)]
    write_foreign(folder / HOSTILE.decode().replace("/", ""), [payloads])
    (path,) = folder.glob("*/*.tfrecord")
    flip_bit(path, len(b"".join(map(frame, payloads[:59]))) + 300)
    return path.parent


@pytest.fixture(scope="module")
def viewer(objects: Path, start_viewer: Start) -> Viewer:
    """Return the viewer of the objects."""
    return start_viewer(objects)


def _done(page: Any) -> Any:
    page.wait_for_selector("#progress-line", state="hidden")
    return page


def _ask(page: Any, **fields: str) -> None:
    for name, value in fields.items():
        page.fill(f"[name={name}]", value)
    page.press("[name=where]", "Enter")


def _found(page: Any, text: str) -> None:
    page.locator("#found").filter(has_text=re.compile(f"^{text}$")).wait_for()


def _until(page: Any, script: str) -> None:
    """Wait until a script is true, which the policy forbids Playwright to do in the page."""
    end = time.monotonic() + 10
    while not page.evaluate(script):
        assert time.monotonic() < end, script
        page.wait_for_timeout(30)


def test_records_are_filtered_and_sorted_and_the_address_keeps_it(
    viewer: Viewer, open_page: OpenPage
) -> None:
    """Each field narrows; what makes no sense is told at the field."""
    page = _done(open_page(viewer.url))
    _found(page, "60 records")
    page.select_option("[name=label]", "dog")
    _found(page, "20 records")
    _ask(page, where="number < 30")
    _found(page, "10 records")
    assert '"image/class/text"' in page.inner_text("#terminal code")
    assert "(number < 30) AND" in page.inner_text("#terminal code")
    page.select_option("[name=sort]", "width")
    page.check("[name=descending]")
    page.wait_for_selector("[data-place='0'] >> text=#28 68 x 30")
    page.reload()
    page.wait_for_selector("[data-place='0'] >> text=#28 68 x 30")
    assert page.input_value("[name=where]") == "number < 30"
    assert page.input_value("[name=label]") == "dog"
    _ask(page, where="number <")
    page.wait_for_selector("#problem >> text=invalid condition")
    assert page.get_attribute("[name=where]", "aria-invalid") == "true"
    _ask(page, where="number > 1000")
    page.wait_for_selector("#found >> text=No records match")
    page.click("#filter [type=reset]")
    _found(page, "60 records")
    page.go_back()
    page.wait_for_selector("#found >> text=No records match")


def test_hostile_records_stay_text(viewer: Viewer, objects: Path, open_page: OpenPage) -> None:
    """No dialog, nothing that the policy forbids, no error, in any piece."""
    page = _done(open_page(viewer.url))
    page.wait_for_selector(f"text={objects.name[:20]}")
    for name in ("health", "balance", "shuffling", "examples", "features", "unusual", "records"):
        page.click(f"#tabs a[href^='#{name}']")
        if name != "records":
            page.wait_for_selector(f"#piece section#{name}, #piece section")
    page.click("[data-place='2']")
    page.wait_for_selector("#detail[open] .box >> text=<script>")
    assert page.locator("main script, dialog script, [onerror]").count() == 0
    # The image of the damaged record is the only one that is not there.
    assert [text for text in page.told if "404" not in text] == []


def test_one_record_is_shown_with_boxes_and_masks_to_switch(
    viewer: Viewer, open_page: OpenPage
) -> None:
    """What was switched off stays so in the next record; keys go on, and the place is kept."""
    page = _done(open_page(viewer.url))
    page.click("[data-place='4']")
    page.wait_for_selector("#detail[open]")
    assert page.inner_text("#detail-title") == "Record #4"
    assert page.locator(".boxes .box").all_inner_texts() == ["head", HOSTILE.decode()]
    assert page.locator(".masks img").count() == 2
    _until(page, "[...document.images].every(one => one.naturalWidth > 0)")
    box, image = (page.locator(one).first.bounding_box() for one in (".box", ".frame > img"))
    assert box["x"] - image["x"] == pytest.approx(0.1 * image["width"], abs=1)
    assert box["width"] == pytest.approx(0.3 * image["width"], abs=1)
    page.uncheck("[data-layer=boxes] input")
    assert not page.is_visible(".boxes")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#detail-title >> text=Record #5")
    assert not page.is_visible(".boxes")
    assert page.is_visible(".masks")
    page.check("[data-layer=boxes] input")
    assert page.is_visible(".boxes")
    assert "tfrtool cat" in page.inner_text(".command >> nth=0")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#detail-title >> text=Record #6")
    assert page.locator(".boxes .box").all_inner_texts() == ["7"]
    assert page.locator(".masks img").count() == 1
    box, image = (page.locator(one).first.bounding_box() for one in (".box", ".frame > img"))
    assert box["y"] - image["y"] == pytest.approx(0.2 * image["height"], abs=1)
    assert box["width"] == pytest.approx(0.4 * image["width"], abs=1)
    page.keyboard.press("Escape")
    page.wait_for_selector("#detail", state="hidden")
    _until(page, "document.activeElement.dataset.place === '6'")


def test_marked_records_are_skipped_by_filter(
    viewer: Viewer, objects: Path, open_page: OpenPage, tmp_path: Path, run: Run
) -> None:
    """Marked by the keyboard and in the dialog, saved, and read by ``filter --drop``."""
    page = _done(open_page(viewer.url))
    page.wait_for_selector("[data-place='0'] img")
    page.focus("#grid")
    for key in ("ArrowRight", "m", "ArrowRight", "ArrowRight", "m", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("#detail[open]")
    page.click("#next")
    page.wait_for_selector("#detail-title >> text=Record #3")
    page.click("#mark")
    page.click("#close")
    assert page.inner_text("#marked") == "3 records marked."
    with page.expect_download() as saved:
        page.click("#save")
    saved.value.save_as(tmp_path / "marked.txt")
    (shard,) = objects.glob("*")
    copy = shutil.copy(shard, tmp_path / shard.name)
    out = tmp_path / "out.tfrecord"
    code, _, said = run("filter", copy, out, "--drop", tmp_path / "marked.txt")
    assert code == 3, said  # one record is damaged
    _, text, _ = run("cat", out, "--select", "number", "--format", "csv")
    kept = [int(float(line.rpartition(",")[2])) for line in text.split()[1:]]
    assert kept == [one for one in range(59) if one not in (0, 2, 3)]


def test_damage_is_seen(viewer: Viewer, open_page: OpenPage) -> None:
    """In the heading, in the grid, in the record and in the piece about health."""
    page = _done(open_page(viewer.url))
    page.wait_for_selector("#counts >> text=60 records, \u2717 1 fault")
    page.focus("#grid")
    page.keyboard.press("End")
    page.wait_for_selector("[data-place='59'] >> text=no preview")
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail[open] .bad >> text=the record is damaged")
    assert "tfrtool verify" in page.inner_text(".command code")
    page.keyboard.press("Escape")
    page.click("#tabs a[href='#health']")
    page.wait_for_selector("#piece >> text=payload-crc")


def test_the_last_of_25000_images_is_reached(
    start_viewer: Start, open_page: OpenPage, tmp_path: Path
) -> None:
    """By the bar and by keys; few cells are there at a time, and it is drawn on a phone, too."""
    images = [image_payload(n, data=image_bytes(size=(9, 8), tint=25 * n)) for n in range(10)]
    folder = write_foreign(tmp_path / "many", [images * 2500])
    page = open_page(start_viewer(folder).url, width=400)
    page.wait_for_selector("[data-place='0'] img")
    page.wait_for_selector("#found >> text=25,000 records")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.evaluate("grid => grid.scrollTo(0, grid.scrollHeight)", page.query_selector("#grid"))
    page.wait_for_selector("[data-place='24999'] img")
    assert page.locator(".cell").count() < 100
    # The same nodes stay where they are while others come and go.
    page.evaluate("document.querySelector('[data-place=\"24999\"]').kept = true")
    page.mouse.move(200, 700)
    page.mouse.wheel(0, -200)
    page.wait_for_timeout(200)
    assert page.evaluate("document.querySelector('[data-place=\"24999\"]').kept")
    page.focus("#grid")
    page.keyboard.press("Home")
    page.wait_for_selector("[data-place='0']:focus")
    page.keyboard.press("End")
    page.wait_for_selector("[data-place='24999']:focus")
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail-title >> text=Record #24999")


def test_no_picture_is_asked_for_where_there_is_none(
    start_viewer: Start, open_page: OpenPage, tmp_path: Path
) -> None:
    """Records without images are lines of their values from the start."""
    rows = [encode_example({"n": int64(n)}) for n in range(9)]
    page = open_page(start_viewer(write_foreign(tmp_path / "plain", [rows])).url)
    page.wait_for_selector("[data-place='8'] >> text=n: 8")
    assert page.locator("text=no preview").count() == 0
    assert page.told == []


def test_a_shard_that_grows_and_a_viewer_that_ends_are_told(
    start_viewer: Start, open_page: OpenPage, tmp_path: Path
) -> None:
    """The page keeps what it shows, and says what to do."""
    folder = write_foreign(tmp_path / "small", [[image_payload(n % 2) for n in range(6)]])
    viewer = start_viewer(folder)
    page = open_page(viewer.url)
    page.wait_for_selector("[data-place='5'] img")
    with next(folder.iterdir()).open("ab") as file:
        file.write(frame(image_payload(0)))
    page.evaluate("dispatchEvent(new Event('focus'))")  # as when its window is gone to again
    page.wait_for_selector("#warning >> text=part-00000-of-00001")
    viewer.process.kill()
    viewer.process.wait()
    page.evaluate("dispatchEvent(new Event('focus'))")
    page.wait_for_selector("#warning >> text=tfrtool view again and open the URL")
    assert page.locator(".cell").count() == 6


@pytest.fixture(scope="module")
def reports(objects: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the report of the objects, and one of a run."""
    folder = tmp_path_factory.mktemp("reports")
    report(objects, folder / "data.html", workers=1)
    return [folder / "data.html"]


def test_a_report_asks_for_nothing(reports: list[Path], open_page: OpenPage) -> None:
    """Opened as a file: no request, no error, nothing wider than a phone, and it can be printed."""
    for path in reports:
        page = open_page("about:blank", width=400)
        asked: list[str] = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.goto(path.as_uri())
        assert [one for one in asked if not one.startswith(("file:", "data:"))] == []
        assert page.told == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        assert page.evaluate("[...document.images].every(one => one.naturalWidth > 0)")
        assert page.pdf()[:5] == b"%PDF-"


def _violations(page: Any, what: str, rules: Sequence[str] = ()) -> list[str]:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, options={"runOnly": list(rules)} if rules else None).response
    held, broken = len(found["passes"]), len(found["violations"])
    sys.stdout.write(f"axe-core on {what}: {held} rules hold, {broken} do not\n")
    return [f"{what}: {one['id']}: {one['nodes'][0]['html']}" for one in found["violations"]]


@pytest.mark.parametrize(
    "dark",
    [
        pytest.param(False, id="light"),
        pytest.param(True, id="dark", marks=pytest.mark.several),
    ],
)
def test_pages_are_accessible(
    viewer: Viewer, reports: list[Path], open_page: OpenPage, dark: bool
) -> None:
    """The rules of axe-core hold for the records, one record, and both reports."""
    rules = ["color-contrast"] if dark else []  # the other rules don't depend on it
    found = []
    for path in reports:
        found += _violations(open_page(path.as_uri(), dark=dark), path.stem, rules)
    page = _done(open_page(viewer.url, dark=dark))
    page.wait_for_selector("[data-place='0'] img")
    found += _violations(page, "records", rules)
    page.click("[data-place='0']")
    page.wait_for_selector("#detail[open]")
    found += _violations(page, "one record", rules)
    assert found == []


@pytest.mark.several
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_pieces_are_accessible(viewer: Viewer, open_page: OpenPage, dark: bool, width: int) -> None:
    """The rules hold for each piece in the viewer, and nothing is wider than the window."""
    page = _done(open_page(viewer.url, dark=dark, width=width))
    found = []
    for link in page.locator("#tabs a").all():
        link.click()
        name = (link.get_attribute("href") or "").lstrip("#")
        page.wait_for_selector(f"#tabs a[aria-current][href='#{name}']")
        page.wait_for_selector("#piece section" if name != "records" else ".cell")
        found += _violations(page, f"{name} at {width}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert found == []
