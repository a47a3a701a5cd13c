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
from tfrtool.cli.parameters import DEBUG, debug_option, is_path_like
from tfrtool.cli.process import Signals, report_interrupt
from tfrtool.errors import TfrtoolError, UsageError, os_reason, printable


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


_MEANT = {
    **dict.fromkeys(("info", "show", "shard", "summary", "describe"), "inspect shard"),
    **{name: f"inspect {name}" for name in ("dataset", "images", "schema", "stats")},
    **dict.fromkeys(("dump", "print", "less", "more"), "cat"),
    **dict.fromkeys(("check", "validate"), "verify"),
    **dict.fromkeys(("fix", "recover"), "repair"),
    **dict.fromkeys(("concat", "merge", "shuffle", "split"), "reshard"),
    **dict.fromkeys(("select", "sql"), "query"),
    "head": "cat --limit 5",
    "compare": "diff",
    "create": "write",
    "export": "convert",
    "grep": "filter",
    "len": "count",
}
"""Commands by the names that other tools have for them."""


class _SuggestingGroup(click.Group):
    """A group that knows which command an unknown name stands for."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or raise an error that suggests the right one as it is typed."""
        name, *rest = args
        if name in self.commands or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        import shlex  # for errors only
        from difflib import get_close_matches

        known = {one: one for one in cli.commands if one != "inspect"} | _MEANT
        if is_path_like(name):
            meant, rest = "inspect shard", args
        else:
            near = [name] if name in known else get_close_matches(name, known, 1)
            if not near:
                return super().resolve_command(ctx, args)
            meant = known[near[0]]
        command, _, option = meant.partition(" --")
        words = ["tfrtool", *command.split(), *rest, *(f"--{option}".split() if option else [])]
        raise UsageError(f"no such command {name!r}", hint=f"did you mean {shlex.join(words)}")


class _InspectGroup(_SuggestingGroup):
    """``inspect FILE`` is ``inspect shard FILE``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments of the group, or those of ``shard`` if they name a file."""
        first = args[0] if args else ""
        option = first.startswith("-") and first not in ctx.help_option_names
        if first not in self.commands and any(map(is_path_like, args if option else args[:1])):
            args = ["shard", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_SuggestingGroup,
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
    cls=_InspectGroup,
    name="inspect",
    epilog="\b\nExample:\n  tfrtool inspect shard 'data/*.tfrecord*' --limit 1",
    commands=_Commands(
        "inspect_dataset_command inspect_images_command inspect_schema_command "
        "inspect_shard_command inspect_stats_command",
        "inspect_",
    ),
)
def inspect_group() -> None:
    """Look into TFRecord files. TensorFlow is not needed, and not loaded.

    tfrtool inspect FILE is tfrtool inspect shard FILE.
    """


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
        return _report_error(error, debug, argv)
    finally:
        if shown:
            del os.environ["RAY_BACKEND_LOG_LEVEL"]
    return int(result) if isinstance(result, int) else int(Outcome.FINE)


def _command_of(argv: Sequence[str]) -> str:
    """Return the command that is meant, as it is typed."""
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
        if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Argument):
            # Click names one alone, and not always one that is missing.
            parameters = [one for one in context.command.params if isinstance(one, click.Argument)]
            wanted = [one.human_readable_name for one in parameters if one.required]
            message = f"Missing argument: expected {' and '.join(wanted)}"
        message += "" if message.endswith("?") else ";"
        # The error of an option without its value doesn't know its command.
        message += (
            f" {context.command_path if context else _command_of(argv)} --help shows the usage"
        )
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
