"""The fuzz targets, run for a moment without atheris, so that they go with the code."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz import framing
from tests.fuzz.__main__ import main
from tests.fuzz.shard_bytes import join, mutate_shard, split_records
from tests.fuzz.target import TARGETS, load_target
from tests.more import more
from tests.records import strategies
from tfrtool.records.framing import frame

MUTATIONS = 10


def scramble(data: bytes) -> bytes:
    """Change bytes in the place of libFuzzer."""
    rng = random.Random(data)
    changed = bytearray(data or b"\0")
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    at = rng.randrange(len(changed))
    return bytes(changed[:at]) + rng.randbytes(rng.randrange(4)) + bytes(changed[at:])


@pytest.mark.parametrize("name", [more(x) if x in ("viewer", "sql") else x for x in TARGETS])
def test_seeds_and_some_mutations(name: str) -> None:
    """What must hold holds for all seeds, and for what the mutator makes of them."""
    target = load_target(name)
    seeds = list(target.seeds())
    assert len(seeds) > 5
    # Each input is a query, or takes many forms.
    slow = name in ("viewer", "arrow", "messages", "sql")
    for number, data in enumerate(seeds):
        assert len(data) <= target.max_length
        if number % (4 if slow else 2) == 0:
            target.check(data)
    rng = random.Random(11)
    for number in range(MUTATIONS // 5 if slow else MUTATIONS):
        data = seeds[number % len(seeds)]
        changed = scramble(data) if target.mutate is None else target.mutate(data, rng, scramble)
        target.check(changed[: target.max_length])
    target.check(b"")


def test_a_lost_record_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the reader keep a record to itself, the framing target says so."""

    def forgetful(data: bytes, **options: Any) -> strategies.Reading:
        reading = strategies.read(data, **options)
        return strategies.Reading(records=reading.records[:-1], faults=reading.faults)

    data = frame(b"one") + frame(b"two")
    framing.check(data)
    monkeypatch.setattr(framing, "read", forgetful)
    with pytest.raises(AssertionError):
        framing.check(data)


def test_shards_come_apart_at_their_records() -> None:
    """The mutator finds records between other bytes, and loses nothing."""
    pieces = [b"junk\0\0\0\0\0", frame(b"one"), frame(b""), b"\1\0\0\0\0\0\0\0", frame(bytes(40))]
    assert split_records(join(pieces)) == pieces
    assert split_records(b"") == []


def test_changed_shards_still_have_records() -> None:
    """The mutator keeps CRCs right for most records: else nothing would get past the first."""
    rng = random.Random(3)
    data = b"".join(frame(b"record") for _ in range(8))
    whole = sum(len(strategies.read(mutate_shard(data, rng, scramble)).records) for _ in range(100))
    assert whole > 400


def test_a_kept_input_runs_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command for a kept input says what is wrong with it, or that nothing is."""
    path = tmp_path / "crash-1"
    path.write_bytes(frame(b"one"))
    assert main(["framing", str(path)]) == 0
    assert "nothing wrong" in capsys.readouterr().out
    assert main(["no-such-target"]) == 2
