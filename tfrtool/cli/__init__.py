"""The command line: one file a command; parse, call one function, render, exit."""

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run the command line, and return the exit code.

    Args:
        argv: the words after ``tfrtool``; None takes those of the process, and makes it one of
            this command's own: its standard files, its signals, and where it finds modules.
    """
    # The commands take a third of a second to load. Until that is under way, there is nothing to
    # clean up, and Ctrl-C may end the process without a word.
    if argv is None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        from tfrtool.cli.process import run_process

        return run_process()
    from tfrtool.cli.app import run

    return run(argv)
