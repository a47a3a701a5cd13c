"""One shard: what verification finds is what inspection finds, faster."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import SHARED_DATA, MakeShard
from tests.datasets import flip_bit
from tests.examples.strategies import float32, int64, string
from tests.inspection.profiled import verify_shard
from tfrtool.examples.example import encode_example
from tfrtool.inspection.profile import ShardProfile
from tfrtool.inspection.summary.shard_summary import inspect_shard
from tfrtool.records.framing import FaultKind, frame

FIXTURES = Path(__file__).parents[2] / "fixtures"
TWINS = sorted((*FIXTURES.glob("golden/*.json"), *FIXTURES.glob("damaged/*.json")))
SOURCES = {"SOURCE.txt", "LICENSE", "LICENSE.txt", "README.md"}
REAL = sorted(
    path
    for path in (SHARED_DATA / "tfrecord").rglob("*")
    if path.is_file() and path.name not in SOURCES and path.stat().st_size < 1_000_000
)
CAT = encode_example({"label": int64(0)})


def assert_as_inspected(path: Path) -> ShardProfile:
    """Assert that verification and inspection tell the same of a shard."""
    verdict, summary = verify_shard(path), inspect_shard(path)
    faults = [fault for fault in verdict.faults if "TensorFlow's parser" not in fault.message]
    assert faults == list(summary.faults)
    assert (verdict.records, verdict.payload, verdict.payload_bytes, verdict.shard) == (
        summary.records,
        summary.payload,
        summary.payload_bytes,
        summary.shard,
    )
    return verdict


@pytest.mark.parametrize("twin", [pytest.param(twin, id=twin.stem) for twin in TWINS])
def test_fixture(twin: Path) -> None:
    """Of every fixture the faults are those of inspection, and of its JSON twin."""
    wanted = json.loads(twin.read_text())
    found = assert_as_inspected(twin.with_suffix("")).to_json()
    keys = ("kind", "offset", "record")
    assert [{key: fault[key] for key in keys} for fault in found["faults"]] == wanted["faults"]
    assert found["records"] == wanted["records"]
    assert found["payload"] == wanted["payload"]


@pytest.mark.more  # tests/inspection/test_manifest.py inspects them
@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in REAL])
def test_file_of_others(path: Path) -> None:
    """Of every small file that other software wrote the faults are those of inspection."""
    assert_as_inspected(path)


_names = st.sampled_from([b"a", b"b", b"\xff", b"\x01", b"new", "ä".encode()])
_features = st.sampled_from([int64(1), string(b"x"), float32(0.5), int64()])


@st.composite
def _payloads(draw: st.DrawFn) -> bytes:
    """Payloads of many sorts: Examples, with odd names; no Examples; nothing."""
    sort = draw(st.integers(0, 9))
    if sort == 0:
        return draw(st.binary(max_size=20))
    if sort == 1:
        return b""
    key, value = draw(_names), draw(_features)
    inner = encode_example({"k": value})[2:]  # Features: an entry of key "k"
    entry = inner.replace(b"\x0a\x01k", b"\x0a" + bytes([len(key)]) + key)
    entry = bytes([0x0A, len(entry) - 2]) + entry[2:]
    field = 0x12 if sort == 2 else 0x0A  # 0x12: feature lists, or nonsense
    return bytes([field, len(entry)]) + entry


@given(st.lists(_payloads(), max_size=90), st.integers(0, 80))
def test_mixtures(tmp_path_factory: pytest.TempPathFactory, some: list[bytes], cats: int) -> None:
    """Whatever a shard holds, what is no Example is what inspection tells."""
    path = tmp_path_factory.mktemp("mix") / "a.tfrecord"
    path.write_bytes(b"".join(map(frame, [*some[:45], *[CAT] * cats, *some[45:]])))
    assert_as_inspected(path)


def test_faults_are_bounded_and_all_counted(
    make_shard: MakeShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a shard that is damaged throughout, the first faults are kept, and all are counted."""
    payloads = [CAT] * 65 + [b"\xff"] * 50
    monkeypatch.setattr("tfrtool.inspection.profile.MAX_FAULTS", 7)
    verdict = verify_shard(make_shard(payloads))
    assert [fault.record for fault in verdict.faults] == list(range(65, 72))
    assert verdict.n_faults == 50
    assert not verdict.is_whole


def test_lost_records_are_counted(make_shard: MakeShard) -> None:
    """Faults that stand for a record that was there are told from others."""
    path = make_shard([CAT] * 10)
    flip_bit(path, 14)
    with path.open("ab") as file:
        file.write(b"\0")
    verdict = verify_shard(path)
    assert [fault.kind for fault in verdict.faults] == [
        FaultKind.PAYLOAD_CRC,
        FaultKind.TRAILING_BYTES,
    ]
    assert (verdict.records, verdict.lost) == (9, 1)
    # All ten records are whole; what is wrong comes after them.
    assert verify_shard(FIXTURES / "damaged" / "bad-crc.tfrecord.gz").lost == 0
    assert verify_shard(FIXTURES / "damaged" / "bad-block.tfrecord.gz").lost == 1


def test_file_that_is_not_there_is_told_in_the_verdict(tmp_path: Path) -> None:
    """Other shards are worth to be verified, so that this is no exception."""
    verdict = verify_shard(tmp_path / "gone")
    assert verdict.error is not None
    assert "no such file" in verdict.error
    assert not verdict.is_whole
    assert verdict.faults == ()


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs Linux")  # noqa: PTH110
def test_file_that_fails_to_be_read(tmp_path: Path) -> None:
    """An error of the disk comes with the records that were read before it."""
    link = tmp_path / "a.tfrecord"
    link.symlink_to("/proc/self/mem")  # opens, and fails to be read at 0
    verdict = verify_shard(link)
    assert verdict.error is not None
    assert verdict.error.startswith("can't be read: ")
