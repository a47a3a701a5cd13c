"""`tfrtool cat` prints with its functions in C what it prints without them."""

from __future__ import annotations

import io
import json
import random
import struct
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.examples.arrow.checking import any_payloads
from tests.examples.strategies import UNSET, entry, float32, int64, raw_example, string
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.records import frames

pytestmark = pytest.mark.skipif(frames.native is None, reason="records are printed in Python")


def printed(path: Path, *words: str) -> list[str]:
    """Return the lines that are printed of a shard, which must be the same without C."""
    found = []
    for native in (frames.native, None):
        out, err = io.StringIO(), io.StringIO()
        with (
            patch.object(frames, "native", native),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = main(["cat", str(path), *words])
        found.append((code, out.getvalue(), err.getvalue()))
    assert found[0] == found[1]
    return found[0][1].splitlines()


def shown(path: Path, payloads: list[bytes]) -> list[str]:
    """Return what is printed of payloads."""
    path.write_bytes(shard_of(payloads))
    return printed(path)


@given(st.lists(any_payloads, min_size=1, max_size=6), st.sampled_from(["summary", "base64"]))
def test_any_payloads(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], style: str
) -> None:
    """Whatever was written, and whatever is damaged of it."""
    path = tmp_path_factory.mktemp("any") / "any.tfrecord"
    path.write_bytes(shard_of(payloads) + b"\xff" * 20 + shard_of(payloads))
    printed(path, "--bytes", style)


def test_each_byte_is_checked(tmp_path: Path) -> None:
    """A payload in which any byte is another one, above all a length."""
    payload = raw_example(
        [
            entry(b"b", int64(1, -1, 300)),
            entry(b"a", float32(0.1, 2)),
            entry(b"c", string(b"x", b"")),
            entry(b"d", UNSET),
        ]
    )
    changed = [
        payload[:at] + bytes([(payload[at] + by) % 256]) + payload[at + 1 :]
        for at in range(len(payload))
        for by in (-1, 1, 3, 128)
    ]
    shortened = [payload[:at] for at in range(len(payload))]
    lines = shown(tmp_path / "changed.tfrecord", [payload, *changed, *shortened])
    features = {"a": [0.1, 2.0], "b": [1, -1, 300], "c": ["x", ""], "d": None}
    assert json.loads(lines[0])["features"] == features
    assert len(lines) > len(changed) // 2


def test_large_records_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long text is printed; features that are too many for any record are not."""
    monkeypatch.setattr("tfrtool.examples.example.MAX_FEATURES", 3)
    text = entry(b"text", string(b"x" * 270_000))
    numbers = [entry(b"%d" % n, int64(n)) for n in range(3)]
    payloads = [raw_example([text]), raw_example([text, *numbers])]
    found, limited = map(json.loads, shown(tmp_path / "large.tfrecord", payloads))
    assert len(found["features"]["text"]) == 270_000
    assert "features" not in limited


def test_numbers(tmp_path: Path) -> None:
    """Floats of each exponent, and decimals; integers of each length."""
    noise = random.Random(0)
    bits = [
        sign << 31 | exponent << 23 | mantissa
        for exponent in range(256)
        for sign in (0, 1)
        for mantissa in (0, 1, 0x7FFFFF, noise.getrandbits(23), noise.getrandbits(23))
    ]
    floats = list(struct.unpack(f"<{len(bits)}f", struct.pack(f"<{len(bits)}I", *bits)))
    decimals = [n * 10.0**-digits for digits in range(12) for n in (1, 3, 99, 12345, 999999)]
    powers = [2**shift + by for shift in range(64) for by in (-1, 0)]
    integers = [*powers, *(-one for one in powers if one < 2**63)]
    row = {"f": floats, "d": decimals, "i": [one for one in integers if one < 2**63]}
    (line,) = shown(tmp_path / "numbers.tfrecord", [tfrtool.encode_example(row)])
    features = json.loads(line)["features"]
    assert features["i"] == row["i"]
    assert features["f"][:3] == [0.0, 1e-45, 1.1754942e-38]
    assert features["d"][:5] == [1.0, 3.0, 99.0, 12345.0, 999999.0]


def test_strings_and_names(tmp_path: Path) -> None:
    """Text in any script, bytes, messages in bytes; names with quotes, or that are not UTF-8."""
    texts = [
        b'"\\/\x7f\n\r\t',
        "größer, 大".encode(),
        b"\xff\xd8\xff",
        b"\0",
        b"",
        bytes(range(32, 127)),
    ]
    inner = tfrtool.encode_example({"a": 1})
    entries = [entry(b"t%d" % n, string(text)) for n, text in enumerate(texts)]
    names = [b'"', b"\\", b"", "ü".encode(), b"\xff", b"a\nb", b"ab", b"a"]
    lines = shown(
        tmp_path / "strings.tfrecord",
        [
            raw_example([*entries, entry(b"all", string(*texts, inner))]),
            *(raw_example([entry(b"z", int64(1)), entry(name, int64(2))]) for name in names),
            raw_example([entry(b"a", int64(1)), entry(b"a", int64(2))]),
        ],
    )
    first = json.loads(lines[0])["features"]
    assert first["t1"] == "größer, 大"
    assert first["all"][-1] == {"example": {"features": {"a": 1}}}
    assert json.loads(lines[-1])["features"] == {"a": 2}
