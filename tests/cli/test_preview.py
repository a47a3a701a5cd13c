"""Previews in the terminal: which terminals can, and what is printed."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.inspecting import Capture, run
from tests.conftest import MakeShard
from tests.datasets import image_payload
from tests.photos import image_bytes
from tfrtool.cli.preview import detect_protocol

PLAIN = Path(__file__).parents[2] / "fixtures" / "golden" / "plain.tfrecord"
STARTS = {"kitty": "\x1b_Ga=T,f=100", "iterm2": "\x1b]1337;File=", "sixel": "\x1bP0;1;0q"}


@pytest.mark.parametrize(
    ("environ", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm2"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "vscode"}, "iterm2"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm2"),
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "foot-extra"}, "sixel"),
        ({"TERM": "mlterm-256color"}, "sixel"),
        ({"TERM": "yaft-sixel"}, "sixel"),
        ({"TERM": "xterm-kitty", "TERM_PROGRAM": "iTerm.app"}, "kitty"),
        ({"TERM": "xterm-256color"}, None),
        ({"TERM": "dumb"}, None),
        ({}, None),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux"}, None),
        ({"TERM": "screen-256color", "TERM_PROGRAM": "iTerm.app"}, None),
        ({"TERM": "xterm-kitty", "STY": "1.pts"}, None),
    ],
)
def test_terminals_are_known_by_their_environment(
    environ: Mapping[str, str], protocol: str | None
) -> None:
    """Each terminal gets its protocol; others, and those within tmux or screen, a reason."""
    found, problem = detect_protocol(environ, True, lambda: False)
    assert found == protocol
    assert (problem is None) is (protocol is not None)


def test_a_terminal_is_asked_last() -> None:
    """An unknown terminal is asked for sixels; a known one, or a pipe, is not."""

    def never() -> bool:
        raise AssertionError("asked")

    assert detect_protocol({"TERM": "xterm"}, True, lambda: True) == ("sixel", None)
    assert detect_protocol({"TERM": "xterm-kitty"}, True, never)[0] == "kitty"
    assert detect_protocol({"TERM": "xterm-kitty"}, False, never)[0] is None
    assert detect_protocol({"TERM": "tmux-256color"}, True, never)[0] is None


@pytest.mark.parametrize("protocol", list(STARTS))
def test_a_protocol_that_is_named_is_used(protocol: str, capsys: Capture) -> None:
    """With --preview=NAME the pictures of the sample are printed, in a pipe too."""
    assert run(PLAIN, "--limit", "2", f"--preview={protocol}") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.count(STARTS[protocol]) == 2
    assert "record 1: 1, 30 x 30" in captured.out
    before = captured.out.index("record 1 at offset")
    assert before < captured.out.index(STARTS[protocol])


def test_a_pipe_gets_text_and_a_warning(capsys: Capture) -> None:
    """Without a terminal nothing but the text is printed, and stderr says why."""
    assert run(PLAIN, "--preview") == 0
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out
    assert "record 0 at offset 0" in captured.out
    assert "no previews: stdout is no terminal" in captured.err


def test_a_file_after_the_option_is_a_file(capsys: Capture) -> None:
    """A bare --preview does not swallow the word that follows it."""
    from tfrtool.cli import main

    assert main(["inspect", "shard", "--preview", str(PLAIN)]) == 0
    assert "record 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["--preview=gif"], ["--preview", "--json"], ["--preview=sixel", "--json"]]
)
def test_usage(words: list[str], capsys: Capture) -> None:
    """Unknown protocols are refused, and pictures within JSON."""
    assert run(PLAIN, *words) == 2
    assert capsys.readouterr().out == ""


def test_a_broken_image_is_told(capsys: Capture, make_shard: MakeShard) -> None:
    """Where there is no picture, the reason stands in its place."""
    photo = image_bytes(size=(64, 64))
    cut = image_payload(1, data=photo[: len(photo) * 4 // 5])
    assert run(make_shard([cut, image_payload(0)]), "--preview=kitty") == 0
    out = capsys.readouterr().out
    assert "record 0: 1, 64 x 64, no picture: it does not decode" in out
    assert out.count(STARTS["kitty"]) == 1


def test_no_image_no_preview(capsys: Capture, make_shard: MakeShard) -> None:
    """A shard without images is shown as ever."""
    path = make_shard([b"hello"])
    assert run(path) == 0
    plain = capsys.readouterr().out
    assert run(path, "--preview=kitty") == 0
    assert capsys.readouterr().out == plain


def on_terminal(answer: bytes | None) -> tuple[str, bool]:
    """Run the command on a terminal that answers a question for its attributes in this way.

    Returns:
        What the terminal got, and whether its settings are what they were.
    """
    import termios

    terminal, program = pty.openpty()
    before = termios.tcgetattr(program)
    environ = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "NO_COLOR": "1"}
    words = ["inspect", "shard", str(PLAIN), "--limit", "1", "--preview"]
    start = time.monotonic()
    got = b""
    with subprocess.Popen(
        # A session of its own makes the terminal its controlling one.
        [sys.executable, "-c", _ADOPT, *words],
        stdin=program,
        stdout=program,
        stderr=program,
        env=environ,
        start_new_session=True,
    ) as process:
        try:
            while process.poll() is None or select.select([terminal], [], [], 0)[0]:
                assert time.monotonic() - start < 20, got
                if not select.select([terminal], [], [], 0.05)[0]:
                    continue
                got += os.read(terminal, 65536)
                if b"\x1b[c" in got and answer is not None:
                    os.write(terminal, answer)
                    answer = None
        finally:
            process.kill()
    after = termios.tcgetattr(program)
    os.close(terminal)
    os.close(program)
    return got.decode(), before == after


_ADOPT = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from tfrtool.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_terminal_with_sixels_gets_them() -> None:
    """A terminal that says it has sixel graphics (4) gets a picture, and its settings back."""
    got, restored = on_terminal(b"\x1b[?62;4;22c")
    assert got.count("\x1b[c") == 1
    assert STARTS["sixel"] in got
    assert restored


@pytest.mark.parametrize("answer", [b"\x1b[?64;1;2;22c", b"\x1b[?4c", None])
def test_other_terminals_get_text(answer: bytes | None) -> None:
    """One that has none, or does not answer, gets the text, a warning, and its settings back."""
    got, restored = on_terminal(answer)
    assert not any(start in got for start in STARTS.values())
    assert re.search(r"no previews: this terminal\s+can't", got)
    assert "record 0 at offset 0" in got
    assert restored
