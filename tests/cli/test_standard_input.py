"""A shard in a pipe: what is said of it is what is said of the file; what else is no file."""

from __future__ import annotations

import gzip
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.cli.inspecting import Capture
from tests.datasets import image_payload
from tests.inspection.profiled import verify_shard
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.inspection.profile import ShardProfile
from tfrtool.records.stream import Stream

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX pipes")

FIXTURES = Path(__file__).parents[2] / "fixtures"
FILES = sorted(
    path for path in FIXTURES.glob("*/*") if ".tfrecord" in path.name and path.suffix != ".json"
)
COMMANDS = [
    ["inspect", "shard", "--json"],
    ["inspect", "schema", "--json"],
    ["verify", "--json"],
    ["verify", "--images", "--json"],
    ["count", "--json"],
    ["repair", "--json"],
]
TFRTOOL = [sys.executable, "-m", "tfrtool"]


@contextmanager
def piped(data: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make standard input a pipe into which ``data`` comes in small pieces."""
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb", buffering=0) as file:
            file.writelines(data[start : start + 4093] for start in range(0, len(data), 4093))

    thread = threading.Thread(target=write)
    with os.fdopen(reading, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        thread.start()
        yield
        while stdin.buffer.read(65536):
            pass
    thread.join()


@pytest.mark.parametrize(
    "option",
    ["--where label=1", "--sample 2", "--type label:int64", "--explode label", "--format arrow"],
)
def test_what_needs_two_passes_is_refused(option: str, capsys: Capture) -> None:
    """These options can't be used with a pipe, as docs/commands/overview.md says."""
    flag = option if option.startswith("--format") else option.split()[0]
    assert main(["cat", "-", *option.split()]) == 2
    error = f"tfrtool: error: can't read standard input, because {flag} needs two passes"
    assert capsys.readouterr().err.strip() == error
    page = (FIXTURES.parent / "docs" / "commands" / "overview.md").read_text("utf-8")
    assert f"`{flag}`" in page.split("## Standard input")[1].split("## ")[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_says_what_the_file_says(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Exit code, output and errors are those of the file but for its name and causes."""
    for words in COMMANDS:
        said = []
        for name in (str(path), "-"):
            out = [str(tmp_path / "out")] if words[0] == "repair" else []
            with piped(path.read_bytes(), monkeypatch):
                code = main([*words, name, *out])
            captured = capsys.readouterr()
            written = [Path(file).read_bytes() for file in out if Path(file).exists()]
            for file in out:
                Path(file).unlink(missing_ok=True)
            text = (captured.out + captured.err).replace(str(path), "-")
            text = re.sub(r'"cause": (null|".*?(?<!\\)")', "", text)  # only files have causes
            said.append((code, text, written))
        assert said[0] == said[1], words


class Dribble(io.RawIOBase):
    """A stream that gives out as few bytes as it likes."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._rest = data
        self._sizes = sizes

    def read(self, size: int = -1) -> bytes:
        """Return some bytes, or none at the end."""
        count = min(self._sizes[len(self._rest) % len(self._sizes)], size)
        part, self._rest = self._rest[:count], self._rest[count:]
        return part


@given(
    payloads=st.lists(st.binary(max_size=300) | st.just(image_payload(1)), max_size=8),
    damage=st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 255)), max_size=3),
    cut=st.integers(0, 40),
    compress=st.sampled_from([bytes, gzip.compress, zlib.compress]),
    sizes=st.lists(st.integers(1, 2000), min_size=1, max_size=5),
)
def test_any_stream_is_what_its_file_is(
    payloads: list[bytes],
    damage: list[tuple[int, int]],
    cut: int,
    compress: Callable[[bytes], bytes],
    sizes: list[int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Whatever the damage, and however the bytes come: records, faults, causes and sizes."""
    data = bytearray(compress(shard_of(payloads)))
    for place, change in damage:
        if data:
            data[place % len(data)] ^= change
    del data[max(len(data) - cut, 0) :]
    path = tmp_path_factory.getbasetemp() / "any.bin"
    path.write_bytes(data)

    def stream() -> BinaryIO:
        return cast(BinaryIO, Dribble(bytes(data), sizes))

    def said(verdict: ShardProfile) -> dict[str, object]:
        data = {**verdict.to_json(), "path": "", "digest": verdict.digest}
        return data | {"faults": [{**one, "cause": None} for one in data["faults"]]}

    assert said(verify_shard(stream())) == said(verify_shard(path))
    one, other = tfrtool.inspect_shard(stream()), tfrtool.inspect_shard(path)
    assert {**one.to_json(), "path": ""} == {**other.to_json(), "path": ""}


def test_a_stream_is_not_read_twice() -> None:
    """Reading it again would find nothing, and call that damage."""
    stream = Stream(io.BytesIO(shard_of([b"x"])))
    assert tfrtool.count(stream) == 1
    with pytest.raises(tfrtool.ShardError, match="twice"):
        tfrtool.count(stream)


def run(words: list[str], cwd: Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the tool in a process of its own."""
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [*TFRTOOL, *words], capture_output=True, text=True, timeout=300, cwd=cwd, **options
    )


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """Return a shard of three images."""
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard_of([image_payload(0), image_payload(1), image_payload(1)]))
    return path


def test_standard_input_that_is_a_file(
    shard: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """A file that the shell has opened is read from where the shell left it."""
    with shard.open(encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert main(["count", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": "-", "records": 3}


def test_no_index_stands_beside_a_device(shard: Path) -> None:
    """What the shell has opened may be a file, and its name still is one of /dev."""
    for name in ("/dev/stdin", "/dev/fd/0"):
        with shard.open("rb") as file:
            done = run(["index", name], shard.parent, stdin=file)
        assert done.returncode == 2
        assert "--out" in done.stderr
    with shard.open("rb") as file:
        assert run(["index", "/dev/stdin", "--out", "."], shard.parent, stdin=file).returncode == 0
    assert {path.name for path in shard.parent.iterdir()} == {"a.tfrecord", "stdin.idx"}


def test_metadata_of_the_current_directory_is_not_taken(
    shard: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """A stream comes from nowhere: what lies in the working directory does not describe it."""
    (shard.parent / "features.json").write_text("[")
    (shard.parent / "dataset_info.json").write_text("[")
    (shard.parent / "-").write_bytes(b"another file")
    monkeypatch.chdir(shard.parent)
    for words in (["verify", "--images"], ["inspect", "shard"]):
        with piped(shard.read_bytes(), monkeypatch):
            assert main([*words, "-"]) == 0, words
        assert capsys.readouterr().err == "", words


def test_closed_terminal_and_device(
    shard: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Where standard input can't be a shard, that is said in one line, at once."""
    closed = run(["count", "-"], shard.parent, preexec_fn=lambda: os.close(0))
    said = [(closed.returncode, closed.stdout, closed.stderr)]
    main_end, terminal_end = pty.openpty()
    for command, stdin in ((["verify"], "/dev/zero"), (["inspect", "shard"], terminal_end)):
        with open(stdin, encoding="utf-8") as file:  # noqa: PTH123
            monkeypatch.setattr(sys, "stdin", file)
            signal.alarm(300)  # or a test that fails would wait for ever
            try:
                code = main([*command, "-"])
            finally:
                signal.alarm(0)
        said.append((code, *capsys.readouterr()))
    os.close(main_end)
    wanted = ((1, "closed"), (1, "device"), (2, "termin"))
    for (code, out, error), (expected, word) in zip(said, wanted, strict=True):
        assert (code, out) == (expected, "")
        (line,) = error.splitlines()
        assert word in line


@pytest.mark.parametrize("others", [["-"], ["a.tfrecord"]])
@pytest.mark.parametrize(
    "words", [["count"], ["verify"], ["inspect", "shard"], ["inspect", "schema"]]
)
def test_standard_input_is_alone(
    words: list[str],
    others: list[str],
    shard: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    """With other shards, or twice, it is a mistake in the call."""
    monkeypatch.chdir(shard.parent)
    assert main([*words, "-", *others]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["index", "-"],
        ["extract", "-", "out"],
        ["inspect", "images", "-", "--out", "a.png"],
        ["inspect", "dataset", "-"],
        ["train", "-"],
    ],
)
def test_other_commands_refuse_it(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """They read a shard more than once, or write beside it: one line says who reads it."""
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert "standard input" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["count"],
        ["verify"],
        ["inspect", "shard"],
        ["inspect", "schema"],
        ["index"],
        ["repair"],
        ["extract"],
        ["inspect", "images", "--out", "a.png"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
@pytest.mark.parametrize("kind", ["fifo", "pattern", "device"])
def test_what_is_no_regular_file_is_refused(
    words: list[str], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """A FIFO by name or by pattern, and a device: no waiting, one line, nothing is written."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("a.tfrecord")
    name = {"fifo": "a.tfrecord", "pattern": "*.tfrecord", "device": "/dev/zero"}[kind]
    if kind == "pattern" and words == ["repair"]:
        pytest.skip("repair takes no pattern")
    signal.alarm(300)
    try:
        assert main([*words, name, *(["out"] if words[0] in ("repair", "extract") else [])]) == 1
    finally:
        signal.alarm(0)
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "error" in line)
    assert "a pipe" in line or "a device" in line
    assert [path.name for path in tmp_path.iterdir()] == ["a.tfrecord"]


def test_interrupted_while_it_waits(tmp_path: Path) -> None:
    """Ctrl-C ends the wait for a pipe that gives nothing."""
    process = subprocess.Popen(
        [*TFRTOOL, "verify", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    assert process.stdin is not None
    # A pipe takes less: this returns once the command has read some of it, and waits for more.
    process.stdin.write(shard_of([bytes(2**21)])[: 2**20])
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert b"Traceback" not in errors


def test_records_are_printed_as_they_come() -> None:
    """Like ``tail -f``: whoever writes the next record only once the last is printed sees all."""
    count = 5
    with subprocess.Popen(
        [*TFRTOOL, "cat", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stuck = threading.Timer(60, process.kill)
        stuck.start()
        for number in range(count):
            data = shard_of([tfrtool.encode_example({"n": number})])
            for part in (data[:5], data[5:20], data[20:]):
                process.stdin.write(part)
            assert json.loads(process.stdout.readline())["record"] == number
        process.stdin.close()
        assert process.stdout.read() == b""
        stuck.cancel()
    assert process.returncode == 0
