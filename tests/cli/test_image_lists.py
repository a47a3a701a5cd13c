"""Records with more than one image: lists, feature lists, several features."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeShard
from tests.examples.strategies import entry, int64, raw_example, string
from tests.photos import image_bytes
from tfrtool.cli import main
from tfrtool.examples.example import Feature, encode_example

Capture = pytest.CaptureFixture[str]

JPEGS = [image_bytes(size=(64, 40 + number), tint=number) for number in range(8)]
PNGS = [image_bytes("PNG", size=(20, 20 + number)) for number in range(8)]
CUT = JPEGS[0][: len(JPEGS[0]) * 7 // 10] + b"\xff\xd9"


def sequence(lists: Mapping[str, Sequence[Feature]], **context: Feature) -> bytes:
    """Return a SequenceExample."""
    entries = [entry(name.encode(), feature) for name, feature in context.items()]
    return raw_example(entries, {name.encode(): steps for name, steps in lists.items()})


def verified(capsys: Capture, *shards: Path) -> tuple[int, list[dict[str, Any]]]:
    """Run ``verify --images``; return its exit code and what it printed."""
    code = main(["verify", "--images", "--json", *map(str, shards)])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def faults(found: dict[str, Any]) -> list[tuple[int, str]]:
    """Return the records and messages of a shard's faults."""
    return [(fault["record"], fault["message"].partition(": ")[0]) for fault in found["faults"]]


@pytest.mark.parametrize("name", ["frames", "image"])
def test_verify_decodes_the_frames_of_a_sequence(
    name: str, make_shard: MakeShard, capsys: Capture
) -> None:
    """Each step of a feature list is an image; one that does not decode is told with its step."""
    good = [sequence({name: [string(data) for data in JPEGS]}, label=int64(1))] * 2
    code, (found, _) = verified(capsys, make_shard(good))
    assert (code, found["images"]["encoded"]) == (0, 16)
    assert found["images"]["features"] == {name: 16}
    hurt = sequence({name: [string(JPEGS[1]), string(JPEGS[2]), string(CUT)]})
    code, (found, _) = verified(capsys, make_shard([*good, hurt]))
    assert (code, found["images"]["encoded"]) == (3, 19)
    assert faults(found) == [(2, f"feature '{name}'[2]")]


def test_verify_decodes_all_of_a_list(make_shard: MakeShard, capsys: Capture) -> None:
    """A feature may hold several images, and so may a step of a feature list."""
    both = string(PNGS[0], PNGS[1][:-30])
    payloads = [
        encode_example({"views": string(*PNGS)}),
        encode_example({"views": both}),
        sequence({"pairs": [string(*PNGS[:2]), both]}),
    ]
    code, (found, _) = verified(capsys, make_shard(payloads))
    assert (code, found["images"]["features"]) == (3, {"views": 10, "pairs": 4})
    assert faults(found) == [(1, "feature 'views'[1]"), (2, "feature 'pairs'[1][1]")]


def test_verify_decodes_every_feature(make_shard: MakeShard, capsys: Capture) -> None:
    """Where nothing tells which feature is the image, all of them are."""
    names = ("left", "right", "depth")

    def record(**other: Feature) -> bytes:
        views = {name: string(JPEGS[number]) for number, name in enumerate(names)}
        return encode_example({**views, "text": string(b"a street"), **other})

    payloads = [record(), record(right=string(CUT)), record(depth=string(b"<html>")), record()]
    code, (found, _) = verified(capsys, make_shard(payloads))
    assert (code, found["images"]["encoded"]) == (3, 12)
    assert found["images"]["features"] == dict.fromkeys(sorted(names), 4)
    assert faults(found) == [(1, "feature 'right'"), (2, "feature 'depth'")]
    main(["verify", "--images", str(make_shard([record(), record()], "two"))])
    text = capsys.readouterr().out
    assert "6 decoded" in text
    assert all(name in text for name in names)


def test_a_first_value_that_is_no_image_hides_no_other(
    make_shard: MakeShard, capsys: Capture
) -> None:
    """What stands first, or in the first record, doesn't decide for the rest."""
    first = sequence({"frames": [string(b"timed out"), string(JPEGS[0]), string(CUT)]})
    code, (found, _) = verified(capsys, make_shard([first]))
    assert (code, found["images"]["encoded"]) == (3, 3)
    assert faults(found) == [(0, "feature 'frames'[0]"), (0, "feature 'frames'[2]")]


def test_other_bytes_are_no_images(make_shard: MakeShard, capsys: Capture) -> None:
    """One value among many that happens to start as an image does is no fault."""
    values = [b"\x01\x02\x03\x04", b"\xff\xd8\xff\x00", b"\x05\x06", b"\x07\x08\x09"]
    payloads = [encode_example({"code": string(v), "photo": string(JPEGS[0])}) for v in values]
    code, (found, _) = verified(capsys, make_shard(payloads))
    assert (code, found["images"]["features"]) == (0, {"photo": 4})


def test_copies_of_frames_and_of_several_features(make_shard: MakeShard, capsys: Capture) -> None:
    """The same frame, or the same image in the same one of several features, is told."""
    frames = [sequence({"frames": [string(JPEGS[n]), string(JPEGS[n + 1])]}) for n in (0, 1, 4)]
    _, (_, report) = verified(capsys, make_shard(frames))
    assert [[c["record"] for c in group["copies"]] for group in report["duplicates"]] == [[0, 1]]
    pairs = [(0, 1), (0, 2), (2, 3), (4, 4)]
    views = [encode_example({"l": string(JPEGS[a]), "r": string(JPEGS[b])}) for a, b in pairs]
    _, (_, report) = verified(capsys, make_shard(views))
    assert [[c["record"] for c in group["copies"]] for group in report["duplicates"]] == [[0, 1]]


def drawn(capsys: Capture, shard: Path, out: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Run ``inspect images``; return its exit code and what it printed."""
    code = main(["inspect", "images", str(shard), "--out", str(out), "--json", *words])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def test_sheet_shows_all_of_a_list(make_shard: MakeShard, tmp_path: Path, capsys: Capture) -> None:
    """Each frame is drawn, up to the limit; a broken one is told with its place."""
    frames = [string(JPEGS[0]), string(CUT[:200]), *map(string, JPEGS[2:])]
    path = make_shard([sequence({"frames": frames}), sequence({"frames": frames[2:5]})])
    code, found = drawn(capsys, path, tmp_path / "a.png")
    assert (code, found["images"]) == (3, 11)
    assert found["shards"] == [{"path": str(path), "images": 11, "feature": "frames"}]
    (broken,) = found["broken"]
    assert (broken["record"], broken["reason"].partition(": ")[0]) == (0, "feature 'frames'[1]")
    code, found = drawn(capsys, path, tmp_path / "b.png", "--limit", "1")
    assert (code, found["images"]) == (0, 1)


def test_sheet_says_which_feature_it_took(
    make_shard: MakeShard, tmp_path: Path, capsys: Capture
) -> None:
    """Of several the others are named, and --feature shows them."""
    payload = encode_example({"left": string(JPEGS[0]), "right": string(PNGS[0])})
    path = make_shard([payload] * 2)
    _, found = drawn(capsys, path, tmp_path / "a.png")
    assert (found["shards"][0]["feature"], found["other_features"]) == ("left", ["right"])
    _, found = drawn(capsys, path, tmp_path / "b.png", "--feature", "right")
    assert (found["shards"][0]["feature"], found["other_features"]) == ("right", ["left"])
    assert main(["inspect", "images", str(path), "--out", str(tmp_path / "c.png")]) == 0
    text = capsys.readouterr().out
    assert "2 from feature 'left'" in text
    assert "'right'" in text


def test_extract_names_the_candidates(
    make_shard: MakeShard, tmp_path: Path, capsys: Capture
) -> None:
    """A record with three images is an error that names them, and --feature chooses."""
    views = {"left": JPEGS[0], "right": PNGS[0], "depth": PNGS[1]}
    # That the first record has but one of them makes it no choice.
    payloads = [encode_example({name: string(views[name]) for name in views}) for _ in range(2)]
    path = make_shard([encode_example({"left": string(JPEGS[3])}), *payloads])
    assert main(["extract", str(path), str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'depth', 'left', 'right'" in line
    assert "--feature" in line
    assert not (tmp_path / "out").exists()
    assert main(["extract", str(path), str(tmp_path / "out"), "--feature", "right"]) == 3
    files = [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert [file.read_bytes() for file in files] == [PNGS[0]] * 2


def test_extract_takes_the_image_beside_its_mask(make_shard: MakeShard, tmp_path: Path) -> None:
    """A feature in common use for the image is that, whatever else there is."""
    payload = encode_example({"image": string(JPEGS[0]), "mask": string(PNGS[0])})
    assert main(["extract", str(make_shard([payload])), str(tmp_path / "out")]) == 0
    (file,) = (file for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert file.read_bytes() == JPEGS[0]
