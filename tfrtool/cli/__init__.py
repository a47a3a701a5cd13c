"""The command line: one file per command; parse, call one function, render, exit."""

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run the command line, and return the exit code.

    Args:
        argv: the words after ``tfrtool``; None takes those of the process, and sets up its
            standard files, signals and module search path.
    """
    # Commands take a third of a second to load. Until then there is nothing to clean up, and
    # Ctrl-C may end the process silently.
    if argv is None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        from tfrtool.cli.process import run_process

        return run_process()
    from tfrtool.cli.app import run

    return run(argv)
