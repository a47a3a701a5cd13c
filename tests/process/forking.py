"""Commands in processes of their own that have TensorFlow already: it takes seconds to load.

``python -m tests.process.forking`` reads a line of JSON for each command, and forks. It prints
the number of the new process, and, when that has ended, its exit code.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Forking"]

_MOST_SECONDS = 600
"""After which a command that has not ended has failed."""


class Forking:
    """Starts commands, one after the other, as ``tfrtool`` would in a new process."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.process.forking"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )

    def start(
        self,
        words: Sequence[str | Path],
        out: Path,
        errors: Path,
        *,
        most: int = 0,
        first: str = "",
    ) -> int:
        """Start a command whose output goes to files; return the number of its process.

        Args:
            words: those after ``tfrtool``.
            out: where standard output goes.
            errors: where standard error goes.
            most: bytes that a file may have, as if the disk were full then; 0 for any.
            first: a program to run before the command.
        """
        assert self._parent.stdin is not None
        request = [list(map(str, words)), str(out), str(errors), most, first]
        self._parent.stdin.write(json.dumps(request) + "\n")
        return self._number()

    def wait(self) -> int:
        """Wait for the end of the command, and return its exit code."""
        return self._number()

    def end(self) -> None:
        """End the process that starts others."""
        self._parent.kill()
        self._parent.communicate()

    def _number(self) -> int:
        assert self._parent.stdout is not None
        late = threading.Timer(_MOST_SECONDS, os.killpg, (self._parent.pid, signal.SIGKILL))
        late.start()
        try:
            return int(self._parent.stdout.readline())
        finally:
            late.cancel()


def _command(words: list[str], out: str, errors: str, most: int, first: str) -> int:
    """Be the command, and return its exit code."""
    for number, path in ((0, os.devnull), (1, out), (2, errors)):
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOCTTY, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    if most:
        # What a full disk does to write(2), for files above that size.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    exec(first, {})
    from tfrtool.cli import main

    sys.argv = ["tfrtool", *words]
    code = main()
    sys.stderr.flush()
    return code


def main() -> None:
    """Fork for every line."""
    import tensorflow  # noqa: F401  # before the forks

    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            code = 70
            try:
                code = _command(*json.loads(line))
            except BaseException:  # noqa: BLE001 - as an interpreter does
                traceback.print_exc()
            finally:
                os._exit(code)
        sys.stdout.write(f"{process}\n")
        sys.stdout.flush()
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
