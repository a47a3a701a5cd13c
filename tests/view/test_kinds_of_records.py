"""The page of a record of each kind: clips, lists of documents, sound, and several images."""

from __future__ import annotations

import gzip
import io
import json
import re
import wave
from pathlib import Path

import pytest
from PIL import Image

import tfrtool
from tests.datasets import write_foreign
from tests.examples.strategies import entry, raw_example, string
from tests.features.ranking_records import QUERIES, elwc, ranking_shard
from tests.photos import image_bytes
from tests.view.asking import ask
from tests.view.test_pages import EVIL, Open, Page, Viewer, open_viewer
from tfrtool.examples.example import DType, Feature
from tfrtool.records.framing import frame
from tfrtool.view.server import application

__all__ = ["open_viewer"]


def _sound(viewer: Viewer, address: str, part: str = "") -> tuple[int | None, str, bytes]:
    headers = [("range", part)] * bool(part)
    answer = ask(application(viewer.live), address, headers=headers)
    return answer.status, dict(answer.headers)["content-type"], answer.body


def test_a_clip_of_feature_lists(tmp_path: Path, open_viewer: Open) -> None:
    """The images of a SequenceExample are steps with a filmstrip, and its numbers are charts."""
    frames = [string(image_bytes("PNG", size=(8 + step, 6))) for step in range(3)]
    speeds = [Feature(dtype=DType.FLOAT32, values=(float(step),)) for step in range(3)]
    lists = {b"frame": frames, b"speed": speeds, b"note": [string(EVIL[0].encode())]}
    clip = raw_example([entry(b"id", string(b"clip 7"))], lists)
    viewer = open_viewer(ranking_shard(tmp_path / "clips.tfrecord", [clip]))
    page = viewer.record(0, 0, step="2")
    assert "context/id clip 7" in page.text
    assert "At this step All steps speed 2.0" in page.text
    assert page.html.count('<svg class="lines"') == 1
    assert [one for one in page.sources if "image" in one] == []
    (shown,) = [one for one in page.sources if one.endswith("/2")]
    with Image.open(io.BytesIO(viewer.bytes(shown).body)) as image:
        assert image.size == (10, 6)
    assert dict(json.loads(viewer.bytes("/step/0/0/0").body))["note"] == EVIL[0]
    assert "<script>alert" not in page.html
    assert viewer.bytes("/camera/0/0/0/3").status == 404
    table = viewer.get("/", view="table")
    assert {"context/id", "feature_lists/note", "feature_lists/speed"} <= {*table.links}
    assert "clip 7 <script>" in table.text.replace("[<", "<")


def test_documents_of_a_query_are_rows(tmp_path: Path, open_viewer: Open) -> None:
    """The page has a row for each document, and the table says how many there are."""
    queries = [elwc(context, documents) for context, documents in QUERIES]
    viewer = open_viewer(ranking_shard(tmp_path / "queries.tfrecord", queries))
    page = viewer.record(0, 2)
    assert 'examples: 2 items # grade title score 0 2 ["c"] 1 1 [] 1.5' in page.text
    table = viewer.get("/")
    assert "queries.tfrecord:0 q0 1 item" in table.text
    assert viewer.get("/", where="examples[1].grade = 2").values["seen"] == ["0/2"]


def test_sounds_are_played(tmp_path: Path, open_viewer: Open) -> None:
    """Samples become WAV, encoded sound stays as it is, and players can ask for a part."""
    samples = [0.0, 0.5, -0.5, 0.25]
    first = tfrtool.encode_example({"audio": samples, "sample_rate": 8000, "id": "<b>"})
    viewer = open_viewer(write_foreign(tmp_path / "a", [[first]]))
    page = viewer.record(0, 0)
    assert 'src="/media/0/0/0"' in page.html
    status, kind, data = _sound(viewer, "/media/0/0/0")
    assert (status, kind) == (200, "audio/wav")
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getframerate(), file.getnframes()) == (8000, 4)
    assert _sound(viewer, "/media/0/0/0", "bytes=4-7")[::2] == (206, data[4:8])
    assert _sound(viewer, "/media/0/0/1")[0] == 404
    named = {"clip": [data, data], "word": "yes"}
    other = open_viewer(write_foreign(tmp_path / "b", [[tfrtool.encode_example(named)]]))
    assert _sound(other, "/media/0/0/1") == (200, "audio/wav", data)
    assert "clip[0] audio/wav Download" in other.record(0, 0).text


def test_all_images_of_a_record(tmp_path: Path, open_viewer: Open) -> None:
    """Each feature with an image has one, with its name."""
    images = {"left": image_bytes(size=(20, 10)), "right": image_bytes(size=(30, 10))}
    record = tfrtool.encode_example({**images, "depth": "x"})
    viewer = open_viewer(write_foreign(tmp_path / "a", [[record] * 2]))
    page = viewer.record(0, 1)
    assert "left 20 x 10" in page.text
    assert "right 30 x 10" in page.text
    shown = [one for one in page.sources if one.startswith("/image")]
    sizes = [Image.open(io.BytesIO(viewer.bytes(one).body)).size for one in shown]
    assert sizes == [(20, 10), (30, 10)]


def _marked(page: Page) -> tuple[str, str]:
    """Return the offset of the line with the marked bytes, and these bytes."""
    (line,) = [one for one in page.html.splitlines() if "<mark>" in one and "wrong" not in one]
    (marked,) = re.findall("<mark>(.*?)</mark>", line)
    return re.sub("<[^>]*>", "", line)[:8], marked


def test_damaged_bytes_are_marked(tmp_path: Path, open_viewer: Open) -> None:
    """A flipped bit is marked where it is, otherwise the checksum or the length that is wrong."""
    rows = [tfrtool.encode_example({"n": n, "x": "y" * 3000}) for n in range(4)]
    shard = write_foreign(tmp_path / "a", [rows]) / "part-00000-of-00001.tfrecord"
    data, size = bytearray(shard.read_bytes()), len(frame(rows[0]))
    data[2000] ^= 4  # one bit of record 0
    data[size + 500 : size + 502] = b"zz"  # some bytes of record 1
    data[3 * size] ^= 1  # the length of record 3
    shard.write_bytes(data)
    viewer = open_viewer(shard)
    first = viewer.record(0, 0)
    assert _marked(first) == (f"{2000 // 16 * 16:08x}", f"{data[2000]:02x}")
    assert "more bytes" in first.text
    crc = 2 * size - 4
    assert _marked(viewer.record(0, 1))[1].startswith(f"{data[crc]:02x}")
    overview = viewer.get("/overview")
    page = viewer.get(overview.links[f"{3 * size:,}"])
    assert "length-crc" in page.text
    assert _marked(page)[1] == f"{data[3 * size]:02x}"
    assert "3 of 3 Previous" in page.text
    assert viewer.bytes("/damage/0/1").status == 404


def test_bytes_of_damaged_gzip_are_what_can_be_unpacked(tmp_path: Path, open_viewer: Open) -> None:
    """The page shows the bytes before the damage."""
    data = gzip.compress(b"".join(frame(tfrtool.encode_example({"n": n})) for n in range(40)))
    shard = tmp_path / "a.tfrecord.gz"
    shard.write_bytes(data[:-30])
    viewer = open_viewer(shard)
    links = viewer.get("/overview").links
    (address,) = [one for one in links.values() if one.startswith("/damage")]
    page = viewer.get(address)
    assert "decompression" in page.text
    assert "what is wrong" in page.text


@pytest.mark.parametrize(
    ("question", "place"),
    [
        ({}, "3 of 6"),
        ({"where": "n > 1"}, "1 of 4"),
        ({"where": "n > 1", "sort": "n", "descending": "1"}, "3 of 4"),
        ({"where": "n > 1", "n": "3"}, "1 of 4"),  # as if there were other records before
        ({"where": "n > 3", "n": "1"}, "3 of 6"),  # the record isn't one of these
    ],
)
def test_neighbours_from_everywhere(
    tmp_path: Path, open_viewer: Open, question: dict[str, str], place: str
) -> None:
    """The page of a record has the records before and after it, wherever its address comes from."""
    rows = [tfrtool.encode_example({"n": n}) for n in (0, 1, 3, 2, 4, 5)]
    viewer = open_viewer(write_foreign(tmp_path / "a", [rows]))
    page = viewer.record(0, 2, **question)
    assert place in page.text
    assert ("Previous" in page.links) == (place != "1 of 4")
    back = viewer.get(viewer.get(page.links["Next"]).links["Previous"])
    assert place in back.text
    assert back.text.count("Record 2") == 1
