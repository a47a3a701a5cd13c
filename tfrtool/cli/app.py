"""The ``tfrtool`` command, and the one place that turns errors into exit codes."""

import os
import signal
import traceback
from collections import UserDict
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from tfrtool import __version__
from tfrtool.cli.help_page import SectionedGroup
from tfrtool.cli.output import Outcome
from tfrtool.cli.parameters import DEBUG, debug_option, is_path_like
from tfrtool.cli.process import Signals, report_interrupt
from tfrtool.errors import TfrtoolError, os_reason, printable

_INSPECTED = "shard schema stats images dataset"
_NAMES = (
    "write cat query reshard filter diff count repair extract convert index edit append verify "
    "train evaluate predict bench report view"
)


class _Commands(UserDict[str, Any]):
    """Commands by name, each imported on first use: importing all takes as long as click.

    Until then, it is the name of its module and function.
    """

    def __getitem__(self, name: str) -> click.Command:
        value = self.data[name]
        if isinstance(value, str):
            self.data[name] = getattr(import_module(f"tfrtool.cli.commands.{value}"), value)
        command: click.Command = self.data[name]
        return command


class _ToolGroup(SectionedGroup):
    """The group of all commands; ``info`` is ``inspect shard``, as other tools call it."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command."""
        args = ["inspect", "shard", *args[1:]] if args[0] == "info" else args
        return super().resolve_command(ctx, args)


class _InspectGroup(SectionedGroup):
    """``inspect FILE`` is ``inspect shard FILE``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments of the group, or those of ``shard`` if they name a file."""
        first = args[0] if args else ""
        option = first.startswith("-") and first not in ctx.help_option_names
        if first not in self.commands and any(map(is_path_like, args if option else args[:1])):
            args = ["shard", *args]
        return super().parse_args(ctx, args)


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the version, and whether records are read in C."""
    if wanted and not context.resilient_parsing:
        from tfrtool.records import frames

        how = "reads in Python: no C compiler" if frames.native is None else "reads in C"
        click.echo(f"tfrtool, version {__version__} ({how})")
        context.exit()


@click.group(
    cls=_ToolGroup,
    name="tfrtool",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    examples=(
        "tfrtool write photos shards --split train=0.8 --split validation=0.2",
        "tfrtool inspect shard 'shards/*.tfrecord*'",
        "tfrtool verify shards",
        "tfrtool train shards --out run",
    ),
    sections={
        "Look": "inspect cat query view report count",
        "Check and repair": "verify repair diff index",
        "Create": "write append",
        "Transform": "convert reshard filter edit extract",
        "Train": "train evaluate predict bench",
    },
    commands=_Commands({name: f"{name}_command" for name in _NAMES.split()}),
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
@debug_option
def cli() -> None:
    """Create, inspect, repair and transform TFRecord files, and train on them.

    Run tfrtool COMMAND --help for the options and examples of a command.
    """


@cli.group(
    cls=_InspectGroup,
    name="inspect",
    examples=(
        "tfrtool inspect train.tfrecord",
        "tfrtool inspect schema 'data/train*.tfrecord*'",
        "tfrtool inspect dataset shards/pets",
    ),
    sections={"Commands": _INSPECTED},
    commands=_Commands({name: f"inspect_{name}_command" for name in _INSPECTED.split()}),
)
def inspect_group() -> None:
    """Inspect records, schemas, statistics, images and datasets.

    tfrtool inspect FILE is short for tfrtool inspect shard FILE. These commands don't load
    TensorFlow.
    """


def run(argv: Sequence[str], signals: Signals | None = None) -> int:
    """Run the command line on the words after ``tfrtool``, and return the exit code."""
    debug = DEBUG in argv
    shows_ray_logs = debug and "RAY_BACKEND_LOG_LEVEL" not in os.environ
    if shows_ray_logs:
        os.environ["RAY_BACKEND_LOG_LEVEL"] = "info"
    try:
        result = cli.main(args=argv, prog_name="tfrtool", standalone_mode=False, obj=signals)
    except BaseException as error:  # noqa: BLE001 - the one place that handles them all
        # A library may turn the KeyboardInterrupt of a signal into another error.
        if signals is not None and signals.number is not None:
            if debug:
                traceback.print_exc()
            return report_interrupt(signals.number, error)
        return _report_error(error, debug, argv)
    finally:
        if shows_ray_logs:
            del os.environ["RAY_BACKEND_LOG_LEVEL"]
    return int(result) if isinstance(result, int) else int(Outcome.FINE)


def _command_of(argv: Sequence[str]) -> str:
    """Return the words of the command, such as ``tfrtool inspect shard``."""
    group: click.Group = cli
    words = ["tfrtool"]
    for word in argv:
        if word in group.commands:
            words.append(word)
            command = group.commands[word]
            if not isinstance(command, click.Group):
                break
            group = command
    return " ".join(words)


def _report_error(error: BaseException, debug: bool, argv: Sequence[str]) -> int:
    """Print the error that ended a command, and return its exit code."""
    if isinstance(error, click.Abort) and isinstance(error.__cause__, EOFError):
        error = error.__cause__  # click mistakes it for the end of typed input
    if isinstance(error, click.ClickException):
        context: Any = getattr(error, "ctx", None)
        # New in click 8.2; before, click itself shows the help of a group.
        help_instead = getattr(click.exceptions, "NoArgsIsHelpError", ())
        if isinstance(error, help_instead):
            error.show()
            return int(Outcome.USAGE)
        message = " ".join(error.format_message().split()).rstrip(".")
        message = message[:1].lower() + message[1:]
        if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Argument):
            # Click names only one, which may not be the missing one.
            wanted = [
                parameter.human_readable_name.rstrip(".")
                for parameter in context.command.params
                if isinstance(parameter, click.Argument) and parameter.required
            ]
            message = f"missing argument: expected {' and '.join(wanted)}"
        message += "" if message.endswith("?") else ";"
        # An option without its value raises an error without a context.
        message += f" run {context.command_path if context else _command_of(argv)} --help for usage"
        debug, code = False, int(Outcome.USAGE)
    elif isinstance(error, click.Abort | KeyboardInterrupt):
        return report_interrupt(signal.SIGINT, error)
    elif isinstance(error, TfrtoolError):
        message, code = str(error), error.exit_code
    elif isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename is not None else ""
        message, code = name + os_reason(error), int(Outcome.FAILED)
    elif isinstance(error, MemoryError):
        message, code = "out of memory", int(Outcome.FAILED)
    elif isinstance(error, Exception):  # a bug
        message = f"unexpected {type(error).__name__}: {error}; use --debug to show the traceback"
        code = int(Outcome.FAILED)
    else:
        raise error
    if debug:
        traceback.print_exc()
    click.echo(f"tfrtool: error: {printable(' '.join(message.split()))}", err=True)
    return code
