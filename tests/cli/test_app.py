"""The command as a whole: help, exit codes, errors."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.conftest import MakeShard
from tfrtool import __version__
from tfrtool.cli import main
from tfrtool.cli.app import cli
from tfrtool.cli.output import Bars
from tfrtool.errors import (
    CorruptShardError,
    DatasetError,
    SchemaError,
    ShardError,
    TfrtoolError,
    UsageError,
    WriteError,
    human_bytes,
)

Capture = pytest.CaptureFixture[str]


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command and group below ``group``, and of itself."""
    yield words
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name)


ALL = list(commands(cli))
COMMANDS = [words for words in ALL if words not in ((), ("inspect",))]


@pytest.mark.parametrize("words", ALL, ids=[" ".join(words) or "tfrtool" for words in ALL])
def test_help_shows_an_example(capsys: Capture, words: tuple[str, ...]) -> None:
    """The help of every command and group shows an example that starts with its words."""
    assert main([*words, "-h"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "Example" in captured.out
    assert " ".join(("tfrtool", *words)) in captured.out.partition("Example")[2]
    # The descriptions in a list of commands are not cut short.
    assert not any(line.endswith("...") for line in captured.out.splitlines()[1:])


@pytest.mark.parametrize("words", ALL, ids=[" ".join(words) or "tfrtool" for words in ALL])
def test_help_fits_the_terminal(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """No line is longer than the terminal, and no word is split, at any width from 60 to 120."""
    texts = {}
    for columns in (60, 77, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main([*words, "--help-all" if words in COMMANDS else "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= columns
        # Examples go on after a backslash, and choices after a bar.
        joined = " ".join(line.removesuffix("\\") for line in lines)
        texts[columns] = re.sub(r"\|\s+", "|", joined).split()
    assert all(text == texts[60] for text in texts.values())


def test_help_lists_every_command(capsys: Capture) -> None:
    """The sections of the help have all commands, each once."""
    for words, group in (((), cli), (("inspect",), cli.commands["inspect"])):
        assert isinstance(group, click.Group)
        assert main([*words, "--help"]) == 0
        shown = re.findall(r"^  ([a-z]+) {2,}\S", capsys.readouterr().out, re.MULTILINE)
        assert sorted(shown) == sorted(group.commands)


def _sections(capsys: Capture, *words: str) -> dict[str, list[str]]:
    """Return the options in a help by their group, and print nothing else."""
    assert main([*words]) == 0
    found = re.findall(r"^([A-Z].*):\n((?:  .*\n)+)", capsys.readouterr().out, re.MULTILINE)
    groups = {
        name: re.findall(r"^  (?:-h, )?(--[a-z-]+)", rows, re.MULTILINE) for name, rows in found
    }
    return {name: options for name, options in groups.items() if options}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_fits_a_screen(capsys: Capture, words: tuple[str, ...]) -> None:
    """The help shows at most 15 options besides the general ones, and counts those left out."""
    shown, full = (_sections(capsys, *words, help_) for help_ in ("--help", "--help-all"))
    assert {*full} >= {*shown}
    assert all(option in full[group] for group in shown for option in shown[group])
    common, everything = (sum(map(len, one.values())) for one in (shown, full))
    general = len(full["General"])
    assert shown["General"] == full["General"]
    assert (8 if everything - general > 15 else everything - general) <= common - general <= 15
    assert main([*words, "--help"]) == 0
    left_out = re.findall(r"^(\d+) more options: (.+)$", capsys.readouterr().out, re.MULTILINE)
    more = f"tfrtool {' '.join(words)} --help-all"
    assert left_out == ([(str(everything - common), more)] if everything > common else [])


def test_groups_have_the_same_order_in_every_help(capsys: Capture) -> None:
    """No two groups of options stand the other way round in the help of another command."""
    before: dict[tuple[str, str], str] = {}
    for words in COMMANDS:
        groups = [*_sections(capsys, *words, "--help-all")]
        assert groups[-1] == "General"
        for n, later in enumerate(groups):
            for earlier in groups[:n]:
                before[earlier, later] = " ".join(words)
    assert [pair for pair in before if pair[::-1] in before] == []
    assert len(before) > 20


def test_inspect_of_a_file_is_inspect_shard(capsys: Capture, make_shard: MakeShard) -> None:
    """The name of the command may be left out, with options before or after the file."""
    shard = str(make_shard([b"a", b"b"]))
    assert main(["inspect", "shard", shard, "--limit", "1"]) == 0
    shown = capsys.readouterr()
    assert main(["inspect", shard, "--limit", "1"]) == 0
    assert capsys.readouterr() == shown
    assert main(["inspect", "--limit", "1", shard]) == 0
    assert capsys.readouterr() == shown
    assert main(["info", shard, "--limit", "1"]) == 0
    assert capsys.readouterr() == shown


OUTCOMES: list[tuple[BaseException, int, str]] = [
    (TfrtoolError("it broke"), 1, "it broke"),
    (ShardError("it broke", path="a"), 1, "a: it broke"),
    (CorruptShardError("it broke", offset=7), 1, "offset 7"),
    (DatasetError("it broke"), 1, "it broke"),
    (WriteError("it broke"), 1, "it broke"),
    (UsageError("nonsense"), 2, "nonsense"),
    (SchemaError("nonsense"), 1, "nonsense"),
    (OSError(28, "No space left on device", "a.tfrecord"), 1, "a.tfrecord: no space left"),
    (MemoryError(), 1, "out of memory"),
    (OSError(5, "Input/output error", "a\x1b[31m"), 1, "a\\x1b[31m: input/output error"),
    (RuntimeError("two\nlines"), 1, "unexpected RuntimeError: two lines"),
    (SchemaError("nonsense", found="\x1b[31m"), 1, "found \\x1b[31m"),
]


@pytest.mark.parametrize(("error", "code", "words"), OUTCOMES)
def test_errors_become_exit_codes(
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    make_shard: MakeShard,
    error: BaseException,
    code: int,
    words: str,
) -> None:
    """Every error is one line on stderr, and the exit code of its class."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("tfrtool.inspection.summary.shard_summary.inspect_shard", fail)
    assert main(["inspect", "shard", str(make_shard([]))]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("tfrtool: error: ")
    assert words in line
    assert "Traceback" not in line


def test_interrupt(capsys: Capture, monkeypatch: pytest.MonkeyPatch, make_shard: MakeShard) -> None:
    """Ctrl-C ends with exit code 130 and without a traceback."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tfrtool.inspection.summary.shard_summary.inspect_shard", interrupt)
    assert main(["inspect", "shard", str(make_shard([]))]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.strip() == "tfrtool: interrupted"


def test_module_is_the_command(make_shard: MakeShard) -> None:
    """``python -m tfrtool`` is the command, with its exit codes."""
    tool = [sys.executable, "-m", "tfrtool"]
    good = subprocess.run([*tool, "--version"], capture_output=True, check=False, text=True)
    assert (good.returncode, good.stderr) == (0, "")
    assert __version__ in good.stdout
    bad = [*tool, "inspect", "shard", str(make_shard([]))]
    assert subprocess.run(bad, capture_output=True, check=False).returncode == 3


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (24_000, "23.4 KiB"), (2**50, "1024.0 TiB")],
)
def test_human_bytes(size: int, text: str) -> None:
    """Sizes are told in binary units."""
    assert human_bytes(size) == text


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["inspct"],
        ["count", "--bogus"],
        ["inspect", "nonsense"],
        ["inspect", "shard"],
        ["inspect", "shard", "x", "--limit"],
        ["count", "x", "--json=1"],
        ["write", "only-one"],
    ],
)
def test_usage_error_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A call that can't be understood is answered in one line that says where to look."""
    assert main(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert line.startswith("tfrtool: error: ")
    assert "--help" in line


@pytest.mark.tf
@pytest.mark.parametrize(("error", "shown"), [(ImportError, True), (KeyboardInterrupt, False)])
def test_what_tensorflow_says_when_it_starts(
    capfd: pytest.CaptureFixture[str], error: type[BaseException], shown: bool
) -> None:
    """Its lines about devices are shown where it fails to start, and not where Ctrl-C ends it.

    Garbage is collected again afterwards.
    """

    def start() -> None:
        with Bars().loading_tensorflow():
            os.write(2, b"no GPU here\n")
            raise error

    with pytest.raises(error):
        start()
    assert bool(capfd.readouterr().err) is shown
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ("verify a --workers 0", ["--workers", "at least 1", "0"]),
        ("verify a --workers x", ["--workers", "whole number", "'x'"]),
        ("verify a --workers 1.5", ["--workers", "whole number", "1.5"]),
        ("write a b --quality 101", ["--quality", "from 1 to 100", "101"]),
        ("train a --learning-rate -1", ["--learning-rate", "above 0", "-1"]),
        ("train a --batch-size 0", ["--batch-size must be at least 1, got 0"]),
        ("train a --batch-size 4294967296", ["--batch-size must be from 1 to 2147483647"]),
        ("train a --loader prefetch=x", ["--loader prefetch", "auto", "'x'"]),
        ("train a --loader calls=2,calls=3", ["--loader", "calls twice"]),
        ("train a --loader cycles=2", ["--loader", "'cycles=2'", "cycle, block, calls, parse"]),
        ("train a --loader autotune=2", ["--loader", "'autotune=2'", "expected autotune, or KEY"]),
        ("train a --loader calls=1025", ["--loader calls", "from 1 to 1024", "1025"]),
        ("train a --prefetch 2", ["no option --prefetch; use --loader prefetch=2"]),
        ("train a --cycle-length=auto", ["--cycle-length; use --loader cycle=auto"]),
        ("train a --class-weights balanced", ["--class-weights; use --balance-classes"]),
        ("train a --fine-tune block_5", ["--fine-tune; use --trainable"]),
        ("write a b --columns all", ["no option --columns; use --all-columns"]),
        ("inspect stats a --threshold x", ["--threshold", "number", "'x'"]),
        ("inspect stats a --threshold 1", ["--threshold", "--against"]),
        ("write a b --resize 7x", ["image size", "'7x'", "N or WxH", "224x160"]),
        ("reshard a b --shard-size big", ["size", "'big'", "128MiB"]),
        ("reshard a b --split a=x", ["--split", "NAME=FRACTION", "train=0.8", "'a=x'"]),
        ("reshard a b --split a=1 --split a=1", ["--split", "'a'", "twice"]),
        ("edit a b --rename x", ["--rename", "OLD=NEW", "'x'"]),
        ("edit a b --add x", ["--add", "NAME=VALUE", "'x'"]),
        ("convert a b --cast x", ["--cast", "NAME:TYPE", "'x'"]),
        ("reshard a b --shards 2 --shard-size 1MB", ["--shards", "--shard-size", "together"]),
        ("reshard a b --resume --overwrite", ["--resume", "--overwrite", "together"]),
        ("train a --compare-rounds 2", ["--compare-rounds", "--compare"]),
        ("report --out b.html", ["DATASET", "tfrtool report --help"]),
        ("query a x --format parquet", ["--format parquet", "--out"]),
        ("write", ["SOURCE and TARGET", "tfrtool write --help"]),
        ("index a --out FILE", ["--out", "'FILE'", "is a file", "tfrtool index --help"]),
        ("diff a", ["SOURCE and TARGET", "tfrtool diff --help"]),
        ("verify", ["SHARDS|DATASET", "tfrtool verify --help"]),
        ("verify a --workers", ["--workers", "requires an argument", "tfrtool verify --help"]),
        (
            "inspect stats a --against",
            ["--against", "requires an argument", "tfrtool inspect stats --help"],
        ),
    ],
)
def test_a_wrong_call_names_the_option_as_it_is_typed(
    words: str, facts: list[str], capsys: Capture, tmp_path: Path
) -> None:
    """The error has the option, its value, and what the command expects, in one line."""
    file = tmp_path / "a"
    file.touch()
    assert main(words.replace("FILE", str(file)).split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("tfrtool: error: ")
    assert all(fact.replace("FILE", str(file)) in line for fact in facts), line


@pytest.mark.parametrize("command", ["reshard SHARD OUT", "edit SHARD OUT --drop label"])
@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "file is empty"), (b"some text, which is long enough", "not a TFRecord file")],
)
def test_why_no_record_could_be_read(
    command: str, content: bytes, why: str, tmp_path: Path, capsys: Capture
) -> None:
    """Commands that copy records say what the file is instead."""
    shard = tmp_path / "a.tfrecord"
    shard.write_bytes(content)
    words = [{"SHARD": str(shard), "OUT": str(tmp_path / "b")}.get(w, w) for w in command.split()]
    assert main(words) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tfrtool: error: {shard}: no record can be read: {why}")
