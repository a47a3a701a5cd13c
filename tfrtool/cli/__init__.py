"""The command line: one file per command; parse, call one function, render, exit."""

import gc
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run the command line, and return the exit code.

    Args:
        argv: the words after ``tfrtool``; None takes those of the process, and sets up its
            standard files, signals and module search path.
    """
    if argv is not None:
        from tfrtool.cli.app import run

        return run(argv)
    # Commands take a third of a second to load. Until then there is nothing to clean up, and
    # Ctrl-C may end the process silently.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # numpy's linear algebra is not used here, and its threads cost 0.1 s of CPU to start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from tfrtool.cli import process

    signals = process.Signals()
    try:
        process.prepare_standard_files()
        process.leave_current_directory()
        from tfrtool.cli.app import run

        code = process.flush_results(run(sys.argv[1:], signals))
    except BaseException:  # before the command began, or after it ended
        if signals.number is None:
            raise
        code = process.report_interrupt(signals.number)
    signals.release()
    if "duckdb" not in sys.modules:  # it prints which objects are left at the exit
        gc.freeze()  # the exit would look for garbage among all objects, which takes 30 ms
    return code
