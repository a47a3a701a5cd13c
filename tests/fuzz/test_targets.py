"""The fuzz targets, run for a moment without atheris, so that they go with the code."""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.examples.strategies import entry, int64, raw_example
from tests.fuzz import examples, framing, images, parquet, viewer
from tests.fuzz.__main__ import explanation, main, row
from tests.fuzz.run import Outcome
from tests.fuzz.shard_bytes import join, mutate_shard, split_records
from tests.fuzz.target import TARGETS, load_target
from tests.records import strategies
from tfrtool.errors import SourceError
from tfrtool.examples.schema_fold import SchemaFold
from tfrtool.images.audit import ImageVerdict
from tfrtool.records.framing import frame

MUTATIONS = 25


def scramble(data: bytes) -> bytes:
    """Change bytes in the place of libFuzzer."""
    rng = random.Random(data)
    changed = bytearray(data or b"\0")
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    at = rng.randrange(len(changed))
    return bytes(changed[:at]) + rng.randbytes(rng.randrange(4)) + bytes(changed[at:])


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_some_mutations(name: str) -> None:
    """What must hold holds for all seeds, and for what the mutator makes of them."""
    target = load_target(name)
    seeds = list(target.seeds())
    assert len(seeds) > 5
    for data in seeds:
        assert len(data) <= target.max_length
        target.check(data)
    rng = random.Random(11)
    for number in range(MUTATIONS):
        data = seeds[number % len(seeds)]
        changed = scramble(data) if target.mutate is None else target.mutate(data, rng, scramble)
        target.check(changed[: target.max_length])
    target.check(b"")


def test_atheris_is_not_needed() -> None:
    """The targets work where there is no atheris."""
    assert "atheris" not in sys.modules


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


def test_a_wrong_schema_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a fold forget which records lack a feature, the examples target says so."""
    target = load_target("examples")
    with_a, with_b = (raw_example([entry(key, int64(1))]) for key in (b"a", b"b"))
    data = with_a + examples.MARK + with_b
    target.check(data)
    true = SchemaFold.add_payload

    def all_alike(fold: SchemaFold, payload: bytes, **options: object) -> bool:
        taken = true(fold, payload, **options)  # type: ignore[arg-type]
        fold.records = min(fold.records, 1)
        return taken

    monkeypatch.setattr(SchemaFold, "add_payload", all_alike)
    with pytest.raises(AssertionError):
        target.check(data)


def test_a_wrong_verdict_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the audit pass what doesn't decode, the images target says so."""

    def lenient(_data: bytes, _recipe: object = None) -> ImageVerdict:
        return ImageVerdict(format="JPEG", conversion="not good")

    monkeypatch.setattr(images, "audit_image", lenient)
    with pytest.raises((SourceError, AssertionError)):
        images.check(b"\xff\xd8\xff not an image")


def test_an_accident_of_the_viewer_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the viewer answer a question with an error of its own, its target says so."""

    def accident(*_: object) -> str:
        raise AttributeError("two of a name")

    viewer.check(b"where=label+%3D+1")
    monkeypatch.setattr("tfrtool.view.pages.caption", accident)
    with pytest.raises(AttributeError):
        viewer.check(b"where=label+%3D+1")


def test_a_crash_in_the_reader_of_parquet_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should an error of another library come out of convert, the parquet target says so."""

    def unexpected(*_: object, **__: object) -> None:
        raise KeyError("schema")

    data = next(parquet.seeds())
    parquet.TARGET.check(data)
    module = importlib.import_module("tfrtool.convert.formats.parquet")
    monkeypatch.setattr(module, "read_facts", unexpected)
    with pytest.raises(KeyError):
        parquet.TARGET.check(data)


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


def outcome(tmp_path: Path, *names: str, failed: bool = False) -> Outcome:
    """Return what came of a run."""
    return Outcome(
        name="framing",
        seconds=100,
        runs=12_345,
        coverage=678,
        memory=90,
        findings=tuple(tmp_path / name for name in names),
        log=tmp_path / "log.txt",
        failed=failed,
    )


def test_findings_are_told_with_a_command(tmp_path: Path) -> None:
    """Each finding is in the table, with its file and the command that shows it again."""
    found = outcome(tmp_path, "timeout-12", failed=True)
    assert row(found).split() == ["framing", "12,345", "100", "678", "90", "1"]
    command = f"python -m tests.fuzz framing {tmp_path / 'timeout-12'}"
    assert command in "\n".join(explanation(found))
    assert row(outcome(tmp_path)).split()[-1] == "0"
    assert row(outcome(tmp_path, failed=True)).split()[-1] == "failed"
    assert "log.txt" in explanation(outcome(tmp_path, failed=True))[0]


def test_a_kept_input_runs_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command for a kept input says what is wrong with it, or that nothing is."""
    path = tmp_path / "crash-1"
    path.write_bytes(frame(b"one"))
    assert main(["framing", str(path)]) == 0
    assert "nothing wrong" in capsys.readouterr().out
    assert main(["no-such-target"]) == 2
