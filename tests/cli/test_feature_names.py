"""Names of features are whatever bytes the keys are: taken as they are, escaped where shown."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import tfrtool
from tests.cli.inspecting import Capture
from tests.conftest import MakeShard
from tests.datasets import image_payload, write_foreign
from tests.examples.strategies import entry, int64, raw_example, string
from tfrtool.cli import main
from tfrtool.examples.example import PayloadKind, feature_key, feature_name
from tfrtool.examples.feature_text import name_text
from tfrtool.records.framing import frame

ODD = [
    b"a\r", b"a\tb", b"\x1b[31mred", b"a\0b", "a\xa0b".encode(), "\u200b".encode(),
    "\ufeffa".encode(), "\u202ea".encode(), b"\n", b" a ", b"caf\xe9", b"\xff\xfe", b"'", b"b'a'",
    b"", b"a:int64=1", "日本".encode(), b"\\xe9",
]  # fmt: skip
"""TensorFlow reads all of them (2.21)."""


def held_by(keys: Iterable[bytes]) -> bytes:
    """Return an Example with a number under each key."""
    return raw_example([entry(key, int64(number)) for number, key in enumerate(keys)])


def output(capsys: Capture, *words: str | Path) -> str:
    """Return what a command says on standard output; it must find nothing wrong."""
    assert main([*map(str, words)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert all(char.isprintable() for char in out.replace("\n", ""))
    return str(out)


def parsed_by_pasting(tf: Any, source: str, payload: bytes) -> dict[bytes, int]:
    """Run a description in Python, and parse a record with it."""
    pasted: dict[str, Any] = {}
    exec(source, pasted)
    parsed = tf.io.parse_single_example(payload, pasted["feature_description"])
    return {
        key if isinstance(key, bytes) else key.encode(): int(value) for key, value in parsed.items()
    }


@pytest.mark.parametrize("key", ODD)
def test_every_command_takes_it(
    tf: Any, make_shard: MakeShard, tmp_path: Path, capsys: Capture, key: bytes
) -> None:
    """A name that no writer thought of is told, described, parsed and verified like any other."""
    shard = make_shard([held_by([key])])
    assert "tf.train.Example (1)" in output(capsys, "verify", shard)
    assert "0" in output(capsys, "inspect", "shard", shard)
    assert "1 record" in output(capsys, "inspect", "schema", shard)
    for command in ("shard", "schema"):
        told = json.loads(output(capsys, "inspect", command, shard, "--json"))
        assert [feature_key(item["name"]) for item in told["features"]] == [key]
    assert feature_key(next(iter(told["features"]))["name"]) == key
    source = output(capsys, "inspect", "schema", shard, "--emit", "python")
    assert parsed_by_pasting(tf, source, held_by([key])) == {key: 0}
    file = tmp_path / "description.json"
    file.write_text(output(capsys, "inspect", "schema", shard, "--emit", "json"))
    output(capsys, "inspect", "shard", shard, "--description", file)
    if key not in (b"", b"a:int64=1"):  # of which there is no notation
        output(capsys, "inspect", "shard", shard, "--feature", f"{feature_name(key)}:int64")
    schema = tfrtool.infer_schema([shard]).schema
    description = schema.to_feature_description(tf)
    assert int(next(iter(tf.io.parse_single_example(held_by([key]), description).values()))) == 0


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file that a property writes to again and again."""
    return tmp_path_factory.mktemp("names") / "a.tfrecord"


_texts = st.text(st.characters(codec="utf-8"), max_size=6).map(str.encode)


@settings(max_examples=settings().max_examples // 3)
@given(keys=st.sets(_texts | st.binary(max_size=4), min_size=1, max_size=5))
def test_any_names(tf: Any, scratch: Path, keys: set[bytes]) -> None:
    """Whatever the names are, inspection tells them all, and what it emits parses the records."""
    from tfrtool.examples.feature_text import python_source

    payload = held_by(keys)
    scratch.write_bytes(frame(payload))
    summary = tfrtool.inspect_shard(scratch)
    assert summary.payload is PayloadKind.EXAMPLE
    assert {feature.key for feature in summary.features} == keys
    assert set(summary.sample[0].parsed.values) == set(map(feature_name, keys))  # type: ignore[union-attr]
    assert tfrtool.verify(scratch).is_sound
    inferred = tfrtool.infer_schema([scratch])
    assert {feature_key(spec.name) for spec in inferred.schema} == keys
    again = tfrtool.Schema.from_json(json.dumps(inferred.schema.to_json()))
    assert again == inferred.schema
    parsed = parsed_by_pasting(tf, python_source(inferred.features, 1), payload)
    assert parsed == {key: number for number, key in enumerate(keys)}


@given(names=st.sets(st.binary(max_size=4).map(feature_name), max_size=20))
def test_shown_names_differ(names: set[str]) -> None:
    """No two names look alike, and none brings a control character to a terminal."""
    shown = {name_text(name) for name in names}
    assert len(shown) == len(names)
    assert all(text.isprintable() and text.strip() for text in shown)


def test_images_under_odd_names(make_shard: MakeShard, tmp_path: Path, capsys: Capture) -> None:
    """--feature of extract and of inspect images takes such a name as it is."""
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "PNG")
    for number, key in enumerate([b"im\tage", b"im\xff", "\u200b".encode()]):
        shard = make_shard([raw_example([entry(key, string(buffer.getvalue()))])])
        name, out = feature_name(key), tmp_path / f"out{number}"
        sheet = tmp_path / f"{number}.png"
        assert main(["extract", str(shard), str(out), "--feature", name, "--flat"]) == 0
        assert [file.read_bytes() for file in out.rglob("*.png")] == [buffer.getvalue()]
        assert main(["inspect", "images", str(shard), "--out", str(sheet), "--feature", name]) == 0
        assert sheet.is_file()
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.tf
@pytest.mark.parametrize("image", ["im\tage", "im\udcff"])
def test_loading_images_under_odd_names(tmp_path: Path, image: str) -> None:
    """A dataset whose image feature has such a name is loaded."""
    payloads = [image_payload(number % 2, image=image) for number in range(4)]
    write_foreign(tmp_path / "odd", [payloads])
    (batch,) = tfrtool.dataset(tmp_path / "odd").load(image_size=16, batch_size=4)
    assert batch[0].shape == (4, 16, 16, 3)


def test_tfds_features(make_shard: MakeShard, capsys: Capture) -> None:
    """`--emit tfds` has every name that JSON can hold, and names on stderr what it leaves out."""
    keys = [b"a\tb", "\ufeffa".encode(), b"\x1b", b"caf\xe9"]
    shard = make_shard([held_by(keys)])
    assert main(["inspect", "schema", str(shard), "--emit", "tfds"]) == 3
    out, err = capsys.readouterr()
    assert set(json.loads(out)["featuresDict"]["features"]) == {"a\tb", "\ufeffa", "\x1b"}
    assert r"'caf\udce9'" in err
    assert "name is empty or not UTF-8" in err
    assert err.isascii()


def test_too_many_names(
    make_shard: MakeShard, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names beyond the limit are told to be left out: in the source, and on stderr."""
    monkeypatch.setattr("tfrtool.examples.schema_fold.MAX_NAMES", 100)
    keys = [f"feature_{number}".encode() for number in range(103)]
    shard = make_shard([held_by(keys)])
    for form in ("tfds", "python"):
        assert main(["inspect", "schema", str(shard), "--emit", form]) == 3
        out, err = capsys.readouterr()
        assert "too many feature names; skipped 3" in err
        assert ("skipped 3 feature" in out) == (form == "python")
    compile(out, "pasted.py", "exec")
