"""The steps of an episode on its page: all cameras of a step, and its values."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from PIL import Image

import tfrtool
from tests.features.robot import ROOT, write_robot
from tests.photos import image_bytes
from tests.records.strategies import shard_of
from tests.view.conftest import OpenPage
from tests.view.test_browser import Start, _read
from tests.view.test_pages import EVIL, Open, Viewer, open_viewer
from tfrtool.examples.tfds_metadata import connector

__all__ = ["open_viewer"]


def _sides(viewer: Viewer, address: str) -> tuple[int, int]:
    with Image.open(io.BytesIO(viewer.bytes(address).body)) as image:
        return image.size


def _last_episode(folder: Path, **changes: Any) -> Path:
    """Write the episode of three steps, with some features changed, and then that of none."""
    write_robot(folder, **changes)
    (shard,) = folder.glob("*.tfrecord*")
    payloads = [record.payload for record in tfrtool.read_records(shard)]
    none = tfrtool.encode_example({"split_number": 7})
    shard.write_bytes(shard_of([payloads[2], none]))
    return folder


def test_a_step_of_a_record(tmp_path: Path, open_viewer: Open) -> None:
    """The page has all cameras of one step, its values, and a slider; not the other images."""
    images = [image_bytes("PNG", size=(4 + step, 3)) for step in range(3)]
    changes = {"steps/observation/wrist": images}
    viewer = open_viewer(_last_episode(tmp_path / "robot", **changes))
    page = viewer.record(0, 0, step="1", where="split_number > 0", n="0")
    pictures = [source for source in page.sources if "camera" in source and "box" not in source]
    assert [_sides(viewer, one) for one in pictures] == [(4, 3), (5, 3)]
    assert not [source for source in page.sources if source.startswith("/image")]
    film = [source for source in page.sources if source.endswith("?box=120")]
    assert film == [f"/camera/0/0/0/{step}?box=120" for step in range(3)]
    assert "At this step All steps action [2.0, 3.0] reward 1.0 is_last false" in page.text
    assert page.html.count('<svg class="lines"') == 4
    assert page.values["step"] == ["1"]
    assert page.values["where"] == ["split_number > 0"]
    base = pictures[1].rpartition("/")[0]
    assert _sides(viewer, f"{base}/2") == (6, 3)
    values = dict(json.loads(viewer.bytes("/step/0/0/2").body))
    assert (values["is_last"], values["observation/state"]) == ("true", "[2.0, 2.0, 2.0]")
    assert "steps has no items" in viewer.record(0, 1).text
    assert viewer.record(0, 0, step="99").values["step"] == ["2"]
    for path in ("camera/0/0/2/0", "camera/0/0/0/3", "camera/9/0/0/0", "camera/0/1/0/0"):
        assert viewer.bytes(f"/{path}").status == 404
    assert [viewer.bytes(f"/{one}").status for one in ("camera/0/0/0/x", "step/0/0/-1")] == [
        400
    ] * 2
    assert viewer.bytes("/step/0/0/3").body == b"[]"


def test_pixels_of_steps(tmp_path: Path, open_viewer: Open) -> None:
    """Tensors of bytes with three sizes are images, too."""
    root = json.loads(json.dumps(ROOT))
    steps = root["featuresDict"]["features"]["steps"]["sequence"]["feature"]["featuresDict"]
    steps["features"]["depth"] = connector("Tensor", "uint8", (2, 3, 1))
    values = [*range(6), *range(10, 16), *range(250, 256)]
    folder = _last_episode(tmp_path / "robot", **{"steps/depth": values})
    (folder / "features.json").write_text(json.dumps(root))
    viewer = open_viewer(folder)
    assert "camera observation/wrist depth steps" in viewer.record(0, 0).text
    with Image.open(io.BytesIO(viewer.bytes("/camera/0/0/2/1").body)) as image:
        assert (image.size, [*image.convert("L").tobytes()]) == ((3, 2), [*range(10, 16)])
    assert [viewer.bytes(f"/camera/0/0/2/{n}").status for n in (2, 3)] == [200, 404]


def test_hostile_steps(tmp_path: Path, open_viewer: Open) -> None:
    """Texts of steps stay text, and bytes that are no image are a missing picture."""
    root = json.loads(json.dumps(ROOT))
    steps = root["featuresDict"]["features"]["steps"]["sequence"]["feature"]["featuresDict"]
    steps["features"][EVIL[0]] = root["featuresDict"]["features"]["file"]
    changes = {f"steps/{EVIL[0]}": EVIL[:3], "steps/camera": [b"<svg/>", b"", b"x"]}
    folder = _last_episode(tmp_path / "robot", **changes)
    (folder / "features.json").write_text(json.dumps(root))
    viewer = open_viewer(folder)
    page = viewer.record(0, 0)
    assert "<script>alert" not in page.html
    assert "/camera/0/0/0/0" in page.sources
    assert viewer.bytes("/camera/0/0/0/0").status == 404
    answer = viewer.bytes("/step/0/0/0")
    assert dict(answer.headers)["content-type"] == "application/json"
    assert [EVIL[0], EVIL[0]] in json.loads(answer.body)


@pytest.mark.more
@pytest.mark.slow
def test_the_slider_in_a_browser(tmp_path: Path, start_viewer: Start, open_page: OpenPage) -> None:
    """Arrow keys choose the step; only its images and those next to it are loaded."""
    viewer = start_viewer(write_robot(tmp_path / "robot"))
    page = _read(open_page(viewer.url), viewer)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(urljoin(viewer.url, page.get_attribute(".item:nth-child(3) > a", "href")))
    page.wait_for_load_state("networkidle")
    assert {one[-1] for one in asked if "/camera/" in one and "box" not in one} == {"0", "1"}
    page.focus("[name=step]")
    page.keyboard.press("ArrowRight")
    page.locator("#steps output").filter(has_text="1").wait_for()
    page.locator("#steps td >> text=[2.0, 3.0]").wait_for()
    assert page.locator("#steps img").first.get_attribute("src").endswith("/0/1")
    assert page.told == []
