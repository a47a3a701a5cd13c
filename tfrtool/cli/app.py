"""The ``tfrtool`` command, and the one place where outcomes become exit codes."""

import signal
import traceback
from collections.abc import Sequence

import click

from tfrtool import __version__
from tfrtool.cli.commands.bench_command import bench_command
from tfrtool.cli.commands.convert_command import convert_command
from tfrtool.cli.commands.count_command import count_command
from tfrtool.cli.commands.extract_command import extract_command
from tfrtool.cli.commands.index_command import index_command
from tfrtool.cli.commands.inspect_dataset_command import inspect_dataset_command
from tfrtool.cli.commands.inspect_images_command import inspect_images_command
from tfrtool.cli.commands.inspect_schema_command import inspect_schema_command
from tfrtool.cli.commands.inspect_shard_command import inspect_shard_command
from tfrtool.cli.commands.inspect_stats_command import inspect_stats_command
from tfrtool.cli.commands.jobs.append_command import append_command
from tfrtool.cli.commands.jobs.diff_command import diff_command
from tfrtool.cli.commands.jobs.edit_command import edit_command
from tfrtool.cli.commands.jobs.filter_command import filter_command
from tfrtool.cli.commands.jobs.reshard_command import reshard_command
from tfrtool.cli.commands.predict_command import predict_command
from tfrtool.cli.commands.repair_command import repair_command
from tfrtool.cli.commands.rows.cat_command import cat_command
from tfrtool.cli.commands.rows.query_command import query_command
from tfrtool.cli.commands.train_command import train_command
from tfrtool.cli.commands.verify_command import verify_command
from tfrtool.cli.commands.write_command import write_command
from tfrtool.cli.output import Outcome
from tfrtool.cli.parameters import DEBUG, debug_option
from tfrtool.cli.process import Signals, report_interrupt
from tfrtool.errors import TfrtoolError, os_reason, printable


@click.group(
    name="tfrtool",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample:\n  tfrtool inspect shard train.tfrecord",
)
@click.version_option(__version__, prog_name="tfrtool")
@debug_option
def cli() -> None:
    """Write, inspect and train from TFRecord files."""


@cli.group(
    name="inspect", epilog="\b\nExample:\n  tfrtool inspect shard 'data/*.tfrecord*' --limit 1"
)
def inspect_group() -> None:
    """Look into TFRecord files. TensorFlow is not needed, and not loaded."""


for _command in (
    write_command,
    cat_command,
    query_command,
    reshard_command,
    filter_command,
    diff_command,
    count_command,
    repair_command,
    extract_command,
    convert_command,
    index_command,
    edit_command,
    append_command,
    verify_command,
    train_command,
    predict_command,
    bench_command,
):
    cli.add_command(_command)
for _command in (
    inspect_dataset_command,
    inspect_images_command,
    inspect_schema_command,
    inspect_shard_command,
    inspect_stats_command,
):
    inspect_group.add_command(_command)


def run(argv: Sequence[str], signals: Signals | None = None) -> int:
    """Run the command line on the words after ``tfrtool``, and return the exit code."""
    debug = DEBUG in argv
    try:
        result = cli.main(args=argv, prog_name="tfrtool", standalone_mode=False, obj=signals)
    except BaseException as error:  # noqa: BLE001 - the one place that all of them end in
        # A library may make another error of the KeyboardInterrupt that a signal raises in it.
        if signals is not None and signals.number is not None:
            if debug:
                traceback.print_exc()
            return report_interrupt(signals.number)
        return _report_error(error, debug)
    return int(result) if isinstance(result, int) else int(Outcome.FINE)


def _report_error(error: BaseException, debug: bool) -> int:
    """Say what ended a command, and return the exit code for it."""
    if isinstance(error, click.Abort) and isinstance(error.__cause__, EOFError):
        error = error.__cause__  # click takes it for the end of what a user types
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        # Click has this class from 8.2 on; before, it shows the help of a group by itself.
        help_instead = getattr(click.exceptions, "NoArgsIsHelpError", ())
        if context is None or isinstance(error, help_instead):
            error.show()
            return int(Outcome.USAGE)
        message = " ".join(error.format_message().split()).rstrip(".")
        message += f"; {context.command_path} --help shows the usage"
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
