"""How much memory one large record takes: the most that a command needs, over its own size."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.records.framing import frame

pytestmark = pytest.mark.slow

pytest.importorskip("resource")

SIZE = 16 * 1024 * 1024
MOST, MOST_INTEGERS = 3.5, 18
"""What the documentation promises, in sizes of the record."""

PROGRAM = """
import json, os, resource, sys
import tfrtool
from tfrtool.cli import app, main
for name in "contact_sheet count extract infer_schema inspect_dataset repair stats verify".split():
    getattr(tfrtool, name)
os.fsync = lambda _: None
WHO = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
sys.stdout = open(os.devnull, "w")
for words in json.loads(sys.stdin.readline()):
    main(words)  # which imports what it needs
for line in sys.stdin:
    child = os.fork()
    if not child:
        code = main(json.loads(line))
        print(code, max(resource.getrusage(who).ru_maxrss for who in WHO), file=sys.__stdout__)
        sys.__stdout__.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""
"""Runs each command in a process of its own, which has the code, and does not wait for disks."""

UNIT = 1 if sys.platform == "darwin" else 1024
"""Of ``ru_maxrss``, in bytes."""

COMMANDS = {
    "inspect shard": ["inspect", "shard", "SHARD"],
    "inspect shard --raw": ["inspect", "shard", "--raw", "SHARD"],
    "inspect schema": ["inspect", "schema", "SHARD"],
    "inspect stats": ["inspect", "stats", "SHARD"],
    "verify": ["verify", "SHARD"],
    "verify --images": ["verify", "--images", "SHARD"],
    "repair": ["repair", "SHARD", "OUT"],
    "extract": ["extract", "SHARD", "OUT", "--feature", "image"],
    "count": ["count", "SHARD"],
    "inspect dataset": ["inspect", "dataset", "FOLDER"],
}


def image_record(value: bytes) -> bytes:
    """Return a record with an image and a label."""
    image, label = Feature(dtype=DType.STRING, values=(value,)), (1,)
    return encode_example({"image": image, "label": Feature(dtype=DType.INT64, values=label)})


def frames(count: int) -> bytes:
    """Return a SequenceExample with frames of a megabyte."""
    message = pb.SequenceExample()
    entry = message.feature_lists.feature_list.add(key=b"image")
    for _ in range(count):
        entry.value.feature.add().bytes_list.value.append(b"\xff\xd8\xff" + os.urandom(1 << 20))
    return message.SerializeToString()


def numbers() -> bytes:
    """Return an Example with a long list of numbers."""
    values = [0.5] * (SIZE // 4)
    return encode_example({"x": Feature(dtype=DType.FLOAT32, values=values)})


def integers(*, packed: bool) -> bytes:
    """Return an Example with as many small integers as it has bytes, or half as many."""
    numbers = varint(SIZE) + bytes(range(1, 65)) * (SIZE // 64)
    values = b"\x0a" + numbers if packed else b"\x08\x01" * (SIZE // 2)
    for tag in (b"\x1a", b"\x0a\x01x\x12", b"\x0a", b"\x0a"):
        values = tag + varint(len(values)) + values
    return values


def varint(number: int) -> bytes:
    """Return a number as protobuf writes a length."""
    return (bytes([number & 127 | 128]) + varint(number >> 7)) if number > 127 else bytes([number])


def damaged(shard: bytes) -> bytes:
    """Return a shard with a bit of its record's payload flipped, and another record behind it."""
    hurt = bytearray(shard)
    hurt[len(hurt) // 2] ^= 1
    return bytes(hurt) + frame(image_record(b"\xff\xd8\xff"))


NOISE = os.urandom(1 << 20) * (SIZE >> 20)
RECORDS: dict[str, Callable[[], bytes]] = {
    "JPEG": lambda: frame(image_record(b"\xff\xd8\xff" + NOISE)),
    "pixels": lambda: frame(image_record(NOISE)),
    "zeros": lambda: frame(image_record(bytes(SIZE))),
    "text": lambda: frame(image_record("größer ".encode() * (SIZE // 9))),
    "frames": lambda: frame(frames(SIZE >> 20)),
    "noise": lambda: frame(b"\xff" + NOISE),
    "compressed": lambda: gzip.compress(frame(image_record(b"\xff\xd8\xff" + NOISE)), 1),
    "damaged": lambda: damaged(frame(image_record(b"\xff\xd8\xff" + NOISE))),
    "numbers": lambda: frame(numbers()),
    "integers": lambda: frame(integers(packed=True)),
    "unpacked": lambda: frame(integers(packed=False)),
}


PAIRS: list[Any] = [
    *(("inspect shard", "JPEG"), ("inspect stats", "pixels"), ("verify --images", "frames")),
    *(("verify", "compressed"), ("repair", "damaged"), ("extract", "JPEG"), ("count", "integers")),
]
MORE = [
    # The stand-in for a JPEG has a long header, of which inspect stats copies up to 32 MiB.
    *((command, "JPEG") for command in COMMANDS if command != "inspect stats"),
    *((command, "damaged") for command in ("inspect shard", "verify", "repair")),
    *((command, "compressed") for command in ("verify", "repair")),
    *(
        (command, record)
        for command, records in (
            ("inspect shard", ("zeros", "text", "noise", "numbers", "unpacked")),
            ("inspect stats", ("pixels", "zeros", "text", "noise", "numbers")),
            ("verify --images", ("pixels", "frames", "noise", "unpacked")),
        )
        for record in records
    ),
    *((command, "integers") for command in ("inspect shard", "verify --images", "count")),
    ("inspect shard --raw", "zeros"),
]
PAIRS += [pytest.param(*pair, marks=pytest.mark.more) for pair in MORE if pair not in PAIRS]


@pytest.fixture(scope="module")
def factors(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], float]:
    """Return what each command needs for each record beyond what it needs for a small one."""
    folder = tmp_path_factory.mktemp("large")
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    found = [item.callspec.params for item in items if item.path == request.path]
    pairs = [(str(one["command"]), str(one["record"])) for one in found]
    shards = {"small": frame(image_record(b"\xff\xd8\xff"))}
    shards |= {name: RECORDS[name]() for name in {record for _, record in pairs}}
    for name, data in shards.items():
        (folder / name).mkdir()
        (folder / name / "a.tfrecord").write_bytes(data)
    small = [(command, "small") for command in {command for command, _ in pairs}]
    runs = [*small, *pairs]
    lines = []
    for number, (command, record) in enumerate([*small, *runs]):
        shard = folder / record / "a.tfrecord"
        places = {"SHARD": shard, "OUT": folder / f"out{number}", "FOLDER": shard.parent}
        lines.append([str(places.get(word, word)) for word in COMMANDS[command]])
    requests = [lines[: len(small)], *lines[len(small) :]]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="\n".join(map(json.dumps, requests)),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    lines_out = [line.split() for line in done.stdout.splitlines()]
    assert {code for code, _ in lines_out} <= {"0", "1", "3"}, done.stderr
    peaks = dict(zip(runs, (int(most) * UNIT for _, most in lines_out), strict=True))
    return {
        (command, record): (peaks[command, record] - peaks[command, "small"]) / SIZE
        for command, record in pairs
    }


@pytest.mark.parametrize(("command", "record"), PAIRS)
@pytest.mark.more
def test_factor_of_one_large_record(
    command: str, record: str, factors: dict[tuple[str, str], float]
) -> None:
    """A command takes about three times the size of the largest record, and more for integers."""
    assert factors[command, record] < (MOST_INTEGERS if record == "integers" else MOST)
