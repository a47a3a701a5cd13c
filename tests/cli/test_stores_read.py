"""Commands that read take URLs, and say of an object what they say of a local file."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tfrtool
from tests.datasets import image_payload, write_pets
from tests.emulators import SECRET, Bucket, Misbehaviour
from tests.more import thinned
from tests.photos import image_bytes
from tfrtool.cli import main
from tfrtool.records.framing import frame
from tfrtool.storage import stores

Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.tf

COMMANDS = [
    "count {pets}",
    "count {shard}",
    "count {pets}/*.tfrecord-*",
    "verify {pets}",
    "verify {pets} --images",
    "inspect shard {shard}",
    "inspect shard {shard} --record 3 --raw",
    "inspect schema {pets}",
    "inspect dataset {pets}",
    "inspect stats {pets}",
    "cat {pets} --limit 3",
    "cat {shard} --records 2,5:7",
    "cat {pets} --sample 4",
    "query {pets} 'SELECT label, count(*) n FROM records GROUP BY label ORDER BY 1'",
    "diff {pets} {here}",
]


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two shards."""
    return write_pets(tmp_path_factory.mktemp("stores") / "pets")


def told(
    command: str, base: str, pets: Path, capsys: Capture, code: int = 0
) -> list[dict[str, object]]:
    """Return what a command prints as JSON, in which the place is called BASE."""
    shard = next(pets.glob("*-train.tfrecord-00000*")).name
    line = command.format(pets=base, shard=f"{base}/{shard}", here=pets)
    assert main([*shlex.split(line), "--json"]) == code
    text = re.sub(r'"seconds": [0-9.e-]+', '"seconds": 0', capsys.readouterr().out)
    return [json.loads(one) for one in text.replace(base, "BASE").splitlines()]


@pytest.mark.parametrize("command", thinned(COMMANDS, every=2))
def test_same_as_here(command: str, pets: Path, bucket: Bucket, capsys: Capture) -> None:
    """What is said of a dataset in a bucket is what is said of it here."""
    bucket.put_folder(pets, "some/pets/")
    there = told(command, f"{bucket.url}/some/pets", pets, capsys)
    assert there == told(command, str(pets), pets, capsys)


def long_shard(bucket: Bucket, key: str, records: int, size: int) -> bytes:
    """Put a shard of long records, and return its bytes."""
    data = b"".join(
        frame(image_payload(1, data=number.to_bytes(4, "big") * (size // 4)))
        for number in range(records)
    )
    bucket.put(key, data)
    return data


@pytest.mark.more
def test_a_look_into_a_large_shard_transfers_little(bucket: Bucket, capsys: Capture) -> None:
    """A few records of an object are shown without reading the others, and that is said."""
    data = long_shard(bucket, "long.tfrecord", 400, 100_000)
    bucket.forget()
    assert main(["inspect", "shard", f"{bucket.url}/long.tfrecord", "--limit", "2"]) == 0
    text = capsys.readouterr().out
    assert "2 read; use --all" in text
    assert "all match in the records that were read" in text
    assert bucket.down() < 1_000_000
    assert main(["inspect", "shard", f"{bucket.url}/long.tfrecord", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["records"], said["records_read"], said["bytes"]) == (None, 3, len(data))
    assert main(["inspect", "shard", f"{bucket.url}/long.tfrecord", "--json", "--all"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["records"] == 400
    assert "records_read" not in said
    bucket.forget()
    assert main(["inspect", "shard", f"{bucket.url}/long.tfrecord", "--json", "--record=60"]) == 0
    assert json.loads(capsys.readouterr().out)["sample"][0]["record"] == 60
    assert bucket.down() < 27_000_000  # 6 MB, and two of the largest blocks ahead


def test_records_by_number_use_an_index(
    bucket: Bucket, run: Callable[..., tuple[int, str, str]]
) -> None:
    """Without an index one is suggested; with it, only the records are read, and they are equal."""
    data = long_shard(bucket, "long.tfrecord", 100, 90_000)
    shard = f"{bucket.url}/long.tfrecord"
    bucket.forget()
    before = run("cat", shard, "--records", "3,70,98:200")
    assert (
        f"8.2 MiB before these records were read; to avoid this, run tfrtool index {shard}"
        in (before[2])
    )
    assert bucket.down() > 0.9 * len(data)
    assert "tfrtool index" not in run("cat", shard, "--records", "3")[2]
    assert run("index", shard)[0] == 0
    bucket.forget()
    assert run("cat", shard, "--records", "3,70,98:200") == (0, before[1], "")
    assert bucket.down() < 0.2 * len(data)
    assert run("cat", shard, "--records", "200")[0] == 1


def test_a_look_says_how_many_records_a_file_beside_it_names(
    bucket: Bucket, run: Callable[..., tuple[int, str, str]]
) -> None:
    """It is what metadata says, or else the index, or null, and it is said which of them."""
    name = "pets-train.tfrecord-00001-of-00002"
    long_shard(bucket, f"d/{name}", 60, 50_000)
    shard = f"{bucket.url}/d/{name}"

    def said(*words: str) -> tuple[object, ...]:
        told = json.loads(run("inspect", "shard", shard, "--json", *words)[1])
        return told["records"], told["records_read"], told["counted_by"], told["payload"]

    assert said() == (None, 3, None, "example")
    assert run("index", shard)[0] == 0
    assert said() == (60, 3, f"{name}.idx", "example")
    split = {"name": "train", "shardLengths": ["59", "60"], "numBytes": "1"}
    bucket.put("d/dataset_info.json", json.dumps({"name": "pets", "splits": [split]}).encode())
    assert said("--record=59") == (60, 1, "dataset_info.json", "example")
    assert "60 (from dataset_info.json); 3 read" in run("inspect", "shard", shard)[1]
    bucket.put("d/dataset_info.json", b"{")
    assert said() == (60, 3, f"{name}.idx", "example")
    code, _, error = run("inspect", "shard", shard, "--record", "60")
    assert (code, "no record 60 in any" in error) == (1, True)
    assert said("--record=60") == (60, 1, None, "example")


def test_count_hops_over_long_records(bucket: Bucket, capsys: Capture) -> None:
    """Of records of half a megabyte only the headers are transferred."""
    data = long_shard(bucket, "long.tfrecord", 40, 500_000)
    bucket.forget()
    assert main(["count", f"{bucket.url}/long.tfrecord"]) == 0
    assert capsys.readouterr().out.split()[0] == "40"
    assert bucket.down() < len(data) // 10


def test_single_files_are_made_in_a_bucket(
    pets: Path, bucket: Bucket, tmp_path: Path, capsys: Capture
) -> None:
    """What makes one file makes an object of the same bytes; nothing that is there is replaced."""
    bucket.put_folder(pets, "pets/")
    shard = next(pets.glob("*-train.tfrecord-00000*"))
    url, sql = f"{bucket.url}/pets/{shard.name}", "SELECT count(*) n FROM records"
    made = {
        "whole": ["repair", url, f"{bucket.url}/whole"],
        "rows.csv": ["query", url, sql, "--out", f"{bucket.url}/rows.csv"],
        "sheet.png": ["inspect", "images", url, "--out", f"{bucket.url}/sheet.png"],
    }
    for key, words in made.items():
        assert main(words) == 0
        local = [str(shard) if word == url else word for word in words]
        local = [str(tmp_path / key) if word == f"{bucket.url}/{key}" else word for word in local]
        assert main(local) == 0
        assert bucket.get(key) == (tmp_path / key).read_bytes()
        assert main(words) in (1, 2)
        assert re.search("exists|is there already", capsys.readouterr().err)
        assert bucket.get(key) == (tmp_path / key).read_bytes()


def test_profile_of_aws(
    bucket: Bucket, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no variable holds credentials, the profile that AWS_PROFILE names in ~/.aws serves."""
    bucket.put("a.tfrecord", frame(b"x"))
    (tmp_path / ".aws").mkdir()
    keys = f"aws_access_key_id = AKIATESTSTESTSTESTST\naws_secret_access_key = {SECRET}\n"
    (tmp_path / ".aws" / "credentials").write_text(f"[work]\n{keys}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert main(["count", f"{bucket.url}/a.tfrecord"]) == 0
    assert capsys.readouterr().out.split()[0] == "1"


@pytest.mark.parametrize(
    ("status", "code"), [(403, "AccessDenied"), (400, "ExpiredToken"), (403, "InvalidAccessKeyId")]
)
def test_credentials_that_do_not_serve(
    status: int, code: str, bucket: Bucket, capsys: Capture
) -> None:
    """The error says where credentials come from, and none of what they are."""
    bucket.misbehave(Misbehaviour(status=status, code=code, text=f"{SECRET} is refused"))
    assert main(["count", f"{bucket.url}/a.tfrecord", "--debug"]) == 1
    told = capsys.readouterr().err
    assert "AWS_ACCESS_KEY_ID" in told
    assert SECRET not in told


def test_without_the_libraries(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the extra `hf` is not installed, the error names it."""
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.delitem(sys.modules, "tfrtool.storage.remote.fsspec_files", raising=False)
    stores._store.cache_clear()  # of another test
    assert main(["count", "hf://datasets/nobody/has-been-here/a.tfrecord"]) == 2
    assert 'pip install "tfrtool[hf]"' in capsys.readouterr().err


def test_copies_are_looked_up_by_their_places(bucket: Bucket, capsys: Capture) -> None:
    """`verify --images` reads a shard once, and of it the records again that are copies."""
    noise = [os.urandom(100_000) for _ in range(60)]
    payloads = [
        tfrtool.encode_example({"image": image_bytes(tint=number % 59), "noise": noise[number]})
        for number in range(60)
    ]
    data = b"".join(map(frame, payloads))
    bucket.put("a.tfrecord", data)
    bucket.forget()
    assert main(["verify", f"{bucket.url}/a.tfrecord", "--images", "--json"]) == 0
    assert '"record": 59' in capsys.readouterr().out
    assert bucket.down() < 1.4 * len(data)
