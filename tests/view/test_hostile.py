"""Records and names that are made to break the viewer, the report, or the shell of its reader."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeShard
from tests.datasets import image_payload, write_foreign
from tests.examples.strategies import int64, string
from tests.photos import image_bytes
from tests.view.asking import ask
from tests.view.test_report import Page
from tfrtool.convert.filter_records import filter_records
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.inspection.rows.payload_json import PayloadJson
from tfrtool.records.framing import frame
from tfrtool.view.live import Live
from tfrtool.view.report import MAX_BYTES, report
from tfrtool.view.server import application

EVIL = [
    "<script>alert(1)</script>", "</style><img src=x onerror=alert(1)>", "\"'><svg/onload=x>",
    "{{7*7}}{% raw %}", "a\u202etxt", "nul\0", "line\nbreak", "\\", "&lt;b&gt;", "\u2028", "]]>-->",
]  # fmt: skip


def asked(live: Live, path: str, query: str = "", **words: Any) -> tuple[int | None, Any]:
    """Ask the API, and return what it says."""
    answer = ask(application(live), path, query, **words)
    kind = dict(answer.headers)["content-type"]
    return answer.status, json.loads(answer.body) if "json" in kind else answer.body


def test_what_records_say_is_text_on_every_page(tmp_path: Path) -> None:
    """Names of features, of classes and values that are markup, templates or line breaks."""
    payloads = [
        encode_example(
            {
                "image": string(image_bytes(tint=n)),
                "label": string(text.encode()),
                text: string(text.encode()),
            }
        )
        for n, text in enumerate(EVIL)
    ]
    folder = write_foreign(tmp_path / "<b>evil</b>", [payloads])
    report(folder, tmp_path / "a.html", workers=1)
    page = Page(tmp_path / "a.html")
    assert page.asked == []
    assert not {"script", "b", "object", "iframe", "link"} & set(page.tags)
    assert "<script>alert(1)</script>" in page.sections["examples"]
    assert "{{7*7}}" in page.sections["features"]
    assert not {"\0", "\u202e", "\u2028"} & set(page.text)
    live = Live(folder, workers=1)
    try:
        live.found.fill(workers=1)
        for name in ("about", "balance", "shuffling", "examples", "features"):
            _, html = asked(live, f"/piece/{name}")
            for markup in (b"<script", b"<img src=x", b"<svg/onload", b"<b>"):
                assert markup not in html
    finally:
        live.close()


def test_a_report_of_much_is_at_most_as_large_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of classes and features with long names, in many shards: pieces are cut."""
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
    written = report(folder, tmp_path / "a.html", workers=1)
    assert written.bytes <= MAX_BYTES
    assert written.pictures
    assert len(Page(tmp_path / "a.html").text) < 1_500_000
    monkeypatch.setattr("tfrtool.view.report._PIECE", 20_000)
    report(folder, tmp_path / "a.html", workers=1, overwrite=True)
    said = Page(tmp_path / "a.html").sections["features"]
    assert "Too large" in said


def test_labels_that_are_no_short_text_are_shown_as_text(tmp_path: Path) -> None:
    """NaN is not in JSON, and a list is not a label."""
    payloads = [
        encode_example(
            {"image": string(image_bytes()), "label": Feature(dtype=DType.FLOAT32, values=values)}
        )
        for values in ((float("nan"),), (float("inf"), 1.0), ())
    ]
    live = Live(write_foreign(tmp_path / "ds", [payloads]), workers=1)
    try:
        live.found.fill(workers=1)
        for path in ("/api/rows", "/api/state", "/api/record/0", "/api/json/inspect-stats"):
            assert asked(live, path)[0] == 200
    finally:
        live.close()


@pytest.mark.parametrize(
    "name", ["a b.tfrecord", "it's.tfrecord", "$(x)`y`.tfrecord", "a\\b.tfrecord"]
)
def test_the_saved_list_is_what_filter_reads(tmp_path: Path, name: str) -> None:
    """Whatever a shell would make of the name."""
    folder = tmp_path / "ds"
    folder.mkdir()
    (folder / name).write_bytes(b"".join(frame(image_payload(n)) for n in range(4)))
    live = Live(folder, workers=1)
    try:
        live.found.fill(workers=1)
        status, text = asked(live, "/api/marks", method="POST", body=b'{"rows": [2, 0, 2]}')
    finally:
        live.close()
    assert status == 200
    (tmp_path / "list").write_bytes(text)
    filter_records(folder, tmp_path / "out", drop=tmp_path / "list", workers=1)
    written = b"".join(one.read_bytes() for one in (tmp_path / "out").glob("*.tfrecord*"))
    assert written == frame(image_payload(1)) + frame(image_payload(3))


def test_shards_of_one_name_are_listed_by_their_paths(tmp_path: Path) -> None:
    """A name that stands in two folders says nothing."""
    places = [tmp_path / one / "x.tfrecord" for one in ("a", "b")]
    for one in places:
        one.parent.mkdir()
        one.write_bytes(frame(image_payload(1)))
    live = Live([str(one) for one in places], workers=1)
    try:
        live.found.fill(workers=1)
        assert live.marked([1]) == f"{places[1]} 0\n"
    finally:
        live.close()


@pytest.mark.parametrize(
    "name", ["a\nb", "a\x1b[201~rm -rf x", "\udcff", "x\u202ey", " a", "-x", "it's"]
)
def test_commands_can_be_pasted_and_say_the_same_file(tmp_path: Path, name: str) -> None:
    """No character of a path reaches the terminal as such that does more than print."""
    path = tmp_path / f"{name}.tfrecord"
    path.write_bytes(frame(image_payload(1)))
    live = Live([str(path)], workers=1)
    try:
        live.found.fill(workers=1)
        _, told = asked(live, "/api/record/0")
        status, _ = asked(live, "/api/marks", method="POST", body=b'{"rows": [0]}')
    finally:
        live.close()
    assert status == (200 if name.isprintable() and name == name.strip() else 400)
    command = told["commands"][0]
    assert command.isprintable()
    quoted = command.removeprefix("tfrtool cat ").removesuffix(" --records 0")
    run = subprocess.run(["bash", "-c", f"printf %s {quoted}"], capture_output=True, timeout=20)
    assert run.stdout == os.fsencode(path)


def test_a_page_of_large_records_holds_a_few_of_them(make_shard: MakeShard) -> None:
    """What was read ahead is no more than is kept; each is still there when it is asked for."""
    shard = make_shard([encode_example({"x": string(bytes([n]) * 8_000_000)}) for n in range(12)])
    live = Live([str(shard)], workers=1)
    try:
        live.found.fill(workers=1)
        live._hold(range(12))
        assert sum(len(one.payload) for one in live._held.values()) <= 64 * 1024 * 1024
        assert [asked(live, f"/api/record/{n}")[1]["bytes"] for n in (0, 11)] == [8_000_028] * 2
    finally:
        live.close()


def test_of_millions_of_numbers_the_first_are_told() -> None:
    """And how many more there are."""
    payload = encode_example({"x": Feature(dtype=DType.INT64, values=tuple(range(100)))})
    told = PayloadJson(most=3).describe(payload)
    assert told == {"features": {"x": [0, 1, 2, "... 97 more"]}}
