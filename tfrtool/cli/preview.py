"""Small pictures in the terminal: whether it can, how it is told, and ``--preview`` itself."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfrtool.cli.output import emit, warn
from tfrtool.errors import printable

if TYPE_CHECKING:
    from tfrtool.images.terminal import Protocol
    from tfrtool.records.framing import Record

__all__ = [
    "PreviewCommand",
    "asks_for_sixel",
    "choose_protocol",
    "detect_protocol",
    "preview_option",
    "show_previews",
]

AUTO = "auto"

_BOX = 192
"""The side of a preview in pixels: about 10 lines of text."""

_ANSWER_SECONDS = 0.2
"""How long a terminal may take to answer; one on this machine takes a few milliseconds."""

_DEVICE_ATTRIBUTES = b"\x1b[c"
_ANSWER = re.compile(rb"\x1b\[\?([\d;]*)c")
_SIXEL_ATTRIBUTE = b"4"  # VT330/VT340 Programmer Reference Manual, DA1

_ABLE = "kitty, Ghostty, iTerm2, WezTerm, VS Code, and terminals with sixel graphics can"

# By TERM_PROGRAM and TERM, as the terminals set them themselves.
_PROGRAMS = {
    "iTerm.app": "iterm2",
    "WezTerm": "iterm2",
    "vscode": "iterm2",
    "mintty": "iterm2",
    "ghostty": "kitty",
}
_TERMS = {"xterm-kitty": "kitty", "xterm-ghostty": "kitty", "mlterm": "sixel", "foot": "sixel"}


class PreviewCommand(click.Command):
    """A command whose ``--preview`` takes a value with ``=`` only, so that no file becomes one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line, with a bare ``--preview`` spelt out."""
        end = args.index("--") if "--" in args else len(args)
        options = [f"--preview={AUTO}" if word == "--preview" else word for word in args[:end]]
        return super().parse_args(ctx, [*options, *args[end:]])


preview_option = click.option(
    "--preview",
    type=click.Choice([AUTO, "kitty", "iterm2", "sixel"]),
    is_flag=False,
    flag_value=AUTO,
    metavar="[=kitty|iterm2|sixel]",
    help="Show the images of these records, in a terminal that can; name its protocol where "
    "the terminal is not recognised.",
)


def choose_protocol(wish: str | None) -> Protocol | None:
    """Return how to show pictures; None where none are wanted, or, after a warning, possible."""
    if wish is None:
        return None
    from tfrtool.images.terminal import Protocol

    if wish != AUTO:
        return Protocol(wish)
    found, problem = detect_protocol(os.environ, sys.stdout.isatty(), asks_for_sixel)
    if problem is not None:
        warn(f"no previews: {problem}")
    return None if found is None else Protocol(found)


def detect_protocol(
    environ: Mapping[str, str], on_terminal: bool, sixel: Callable[[], bool]
) -> tuple[str | None, str | None]:
    """Return the protocol of this terminal, or why there is none.

    Args:
        environ: the environment.
        on_terminal: whether stdout is a terminal.
        sixel: asks the terminal for sixel graphics; called only where nothing else tells.
    """
    term = environ.get("TERM", "")
    if not on_terminal:
        return None, "stdout is no terminal; --preview=kitty, iterm2 or sixel would print them"
    if environ.get("TMUX") or environ.get("STY") or term.startswith(("tmux", "screen")):
        return None, "pictures don't pass through tmux and screen"
    # TERM comes first: the other variables are inherited by a terminal started from a terminal.
    known = (
        _TERMS.get(term)
        or _TERMS.get(term.partition("-")[0])
        or _PROGRAMS.get(environ.get("TERM_PROGRAM", ""))
    )
    if known is None and environ.get("KITTY_WINDOW_ID"):
        known = "kitty"
    if known is None and (environ.get("LC_TERMINAL") == "iTerm2" or environ.get("WEZTERM_PANE")):
        known = "iterm2"
    if known is None and ("sixel" in term or sixel()):
        known = "sixel"
    return (known, None) if known else (None, f"this terminal can't show pictures; {_ABLE}")


def asks_for_sixel() -> bool:
    """Ask the terminal whether it has sixel graphics; False where it can't be asked."""
    try:
        import termios
        import tty
    except ImportError:  # not on Windows
        return False
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    reading, writing = sys.stdin.fileno(), sys.stdout.fileno()
    try:
        # A job in the background would be stopped for touching the terminal.
        if os.tcgetpgrp(reading) != os.getpgrp():
            return False
        saved = termios.tcgetattr(reading)
    except (OSError, termios.error):
        return False
    try:
        tty.setcbreak(reading, termios.TCSANOW)  # Ctrl-C still works
        sys.stdout.flush()
        os.write(writing, _DEVICE_ATTRIBUTES)
        answer = _answer(reading)
    except (OSError, termios.error):
        return False
    finally:
        termios.tcsetattr(reading, termios.TCSANOW, saved)
    match = _ANSWER.search(answer)
    return match is not None and _SIXEL_ATTRIBUTE in match[1].split(b";")[1:]


def _answer(reading: int) -> bytes:
    """Return what the terminal says until its answer is whole, or its time is over."""
    answer = b""
    end = time.monotonic() + _ANSWER_SECONDS
    while not _ANSWER.search(answer) and len(answer) < 256:
        ready, _, _ = select.select([reading], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            break
        read = os.read(reading, 64)
        if not read:
            break
        answer += read
    return answer


def show_previews(records: Iterable[Record], folder: Path | None, protocol: Protocol) -> None:
    """Print the images of a shard's records, each below a line that says what it is."""
    from tfrtool.images.sheet import enlarged
    from tfrtool.images.terminal import escape_sequence
    from tfrtool.inspection.pictures import pictures_of

    for found in pictures_of(records, folder, _BOX):
        says = ", ".join(part for part in (printable(found.label), found.size) if part)
        title = f"  record {found.record}" + (f": {says}" if says else "")
        emit("")
        if found.picture.image is None:
            emit(f"{title}, no picture: {printable(found.picture.problem or '')}")
        else:
            emit(title)
            emit(escape_sequence(enlarged(found.picture.image, _BOX), protocol))
