"""The ``tfrtool`` command, and the one place where outcomes become exit codes."""

import os
import signal
import traceback
from collections import UserDict
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from tfrtool import __version__
from tfrtool.cli.output import Outcome
from tfrtool.cli.parameters import DEBUG, debug_option
from tfrtool.cli.process import Signals, report_interrupt
from tfrtool.errors import TfrtoolError, os_reason, printable


class _Commands(UserDict[str, Any]):
    """Commands by their names, each imported when it is asked for: all take as long as click."""

    def __init__(self, modules: str, group: str = "") -> None:
        """Take modules of `tfrtool.cli.commands`, whose commands have their names."""
        places = {place.rpartition(".")[2]: place for place in modules.split()}
        names = (name.removeprefix(group).removesuffix("_command") for name in places)
        super().__init__(zip(names, places.values(), strict=True))

    def __getitem__(self, name: str) -> click.Command:
        held = self.data[name]
        if isinstance(held, str):
            module = import_module(f"tfrtool.cli.commands.{held}")
            self.data[name] = getattr(module, held.rpartition(".")[2])
        command: click.Command = self.data[name]
        return command


@click.group(
    name="tfrtool",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample:\n  tfrtool inspect shard train.tfrecord",
    commands=_Commands(
        "write_command rows.cat_command rows.query_command jobs.reshard_command "
        "jobs.filter_command jobs.diff_command count_command repair_command extract_command "
        "convert_command index_command jobs.edit_command jobs.append_command verify_command "
        "models.train_command models.evaluate_command models.predict_command "
        "models.bench_command pages.report_command pages.view_command"
    ),
)
@click.version_option(__version__, prog_name="tfrtool")
@debug_option
def cli() -> None:
    """Write, inspect and train from TFRecord files."""


@cli.group(
    name="inspect",
    epilog="\b\nExample:\n  tfrtool inspect shard 'data/*.tfrecord*' --limit 1",
    commands=_Commands(
        "inspect_dataset_command inspect_images_command inspect_schema_command "
        "inspect_shard_command inspect_stats_command",
        "inspect_",
    ),
)
def inspect_group() -> None:
    """Look into TFRecord files. TensorFlow is not needed, and not loaded."""


def run(argv: Sequence[str], signals: Signals | None = None) -> int:
    """Run the command line on the words after ``tfrtool``, and return the exit code."""
    debug = DEBUG in argv
    shown = debug and "RAY_BACKEND_LOG_LEVEL" not in os.environ
    if shown:
        os.environ["RAY_BACKEND_LOG_LEVEL"] = "info"  # it shows what Ray logs
    try:
        result = cli.main(args=argv, prog_name="tfrtool", standalone_mode=False, obj=signals)
    except BaseException as error:  # noqa: BLE001 - the one place that all of them end in
        # A library may make another error of the KeyboardInterrupt that a signal raises in it.
        if signals is not None and signals.number is not None:
            if debug:
                traceback.print_exc()
            return report_interrupt(signals.number)
        return _report_error(error, debug)
    finally:
        if shown:
            del os.environ["RAY_BACKEND_LOG_LEVEL"]
    return int(result) if isinstance(result, int) else int(Outcome.FINE)


def _report_error(error: BaseException, debug: bool) -> int:
    """Say what ended a command, and return the exit code for it."""
    if isinstance(error, click.Abort) and isinstance(error.__cause__, EOFError):
        error = error.__cause__  # click takes it for the end of what a user types
    if isinstance(error, click.ClickException):
        context: Any = getattr(error, "ctx", None)
        # Click has this class from 8.2 on; before, it shows the help of a group by itself.
        help_instead = getattr(click.exceptions, "NoArgsIsHelpError", ())
        if isinstance(error, help_instead):
            error.show()
            return int(Outcome.USAGE)
        message = " ".join(error.format_message().split()).rstrip(".")
        if isinstance(error, click.MissingParameter) and error.param and error.param.nargs < 0:
            # Click names the first one, whichever is missing.
            wanted = [param.human_readable_name for param in context.command.params]
            message = f"Missing argument: expected {' and '.join(filter(str.isupper, wanted))}"
        message += "" if message.endswith("?") else ";"
        # The error of an option without its value doesn't know its command.
        message += f" {context.command_path if context else 'tfrtool'} --help shows the usage"
        debug, code = False, int(Outcome.USAGE)
    elif isinstance(error, click.Abort | KeyboardInterrupt):
        return report_interrupt(signal.SIGINT)
    elif isinstance(error, TfrtoolError):
        message, code = str(error), error.exit_code
    elif isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename is not None else ""
        message, code = name + os_reason(error), int(Outcome.FAILED)
    elif isinstance(error, MemoryError):
        message, code = "out of memory", int(Outcome.FAILED)
    elif isinstance(error, Exception):  # a bug: one line for the user, the rest on demand
        message = f"unexpected {type(error).__name__}: {error} (--debug shows where)"
        code = int(Outcome.FAILED)
    else:
        raise error
    if debug:
        traceback.print_exc()
    click.echo(f"tfrtool: error: {printable(' '.join(message.split()))}", err=True)
    return code
