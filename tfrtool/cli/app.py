"""The ``tfrtool`` command, and the one place where outcomes become exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

from tfrtool import __version__
from tfrtool.cli.bench_command import bench_command
from tfrtool.cli.count_command import count_command
from tfrtool.cli.extract_command import extract_command
from tfrtool.cli.index_command import index_command
from tfrtool.cli.inspect_commands import inspect_group
from tfrtool.cli.options import DEBUG, debug_option
from tfrtool.cli.outcome import Outcome
from tfrtool.cli.predict_command import predict_command
from tfrtool.cli.repair_command import repair_command
from tfrtool.cli.train_command import train_command
from tfrtool.cli.verify_command import verify_command
from tfrtool.cli.write_command import write_command
from tfrtool.errors import TfrtoolError, printable

__all__ = ["cli", "main"]


@click.group(
    name="tfrtool",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample:\n  tfrtool inspect shard train.tfrecord",
)
@click.version_option(__version__, prog_name="tfrtool")
@debug_option
def cli() -> None:
    """Write, inspect and train from TFRecord files."""


cli.add_command(write_command)
cli.add_command(inspect_group)
cli.add_command(count_command)
cli.add_command(repair_command)
cli.add_command(extract_command)
cli.add_command(index_command)
cli.add_command(verify_command)
cli.add_command(train_command)
cli.add_command(predict_command)
cli.add_command(bench_command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code.

    Args:
        argv: the words after ``tfrtool``; None takes those of the process.
    """
    debug = DEBUG in (sys.argv[1:] if argv is None else argv)
    try:
        result = cli.main(args=argv, prog_name="tfrtool", standalone_mode=False)
    except click.ClickException as error:
        _report_usage(error)
        return int(Outcome.USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("tfrtool: interrupted", err=True)
        return int(Outcome.INTERRUPTED)
    except TfrtoolError as error:
        _report(str(error), debug)
        return error.exit_code
    except (OSError, MemoryError) as error:
        _report(_system_message(error), debug)
        return int(Outcome.FAILED)
    except Exception as error:  # noqa: BLE001 - a bug: one line for the user, the rest on demand
        _report(f"unexpected {type(error).__name__}: {error} (--debug shows where)", debug)
        return int(Outcome.FAILED)
    finally:
        _flush_stdout()
    return int(result) if isinstance(result, int) else int(Outcome.FINE)


def _report(message: str, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    click.echo(f"tfrtool: error: {printable(' '.join(message.split()))}", err=True)


def _report_usage(error: click.ClickException) -> None:
    """Say in one line what is wrong with a call; a group alone shows its help instead."""
    context = getattr(error, "ctx", None)
    # Click has this class from 8.2 on; before, it shows the help by itself.
    help_instead = getattr(click.exceptions, "NoArgsIsHelpError", ())
    if context is None or isinstance(error, help_instead):
        error.show()
        return
    message = " ".join(error.format_message().split()).rstrip(".")
    _report(f"{message}; {context.command_path} --help shows the usage", debug=False)


def _system_message(error: OSError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return "out of memory"
    name = f"{error.filename}: " if error.filename is not None else ""
    return f"{name}{(error.strerror or str(error)).lower()}"


def _flush_stdout() -> None:
    """Flush what is left, and keep the interpreter from failing on it again at its exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
