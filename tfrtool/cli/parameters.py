"""Types of arguments and options, the options that commands share, and `command` itself."""

import io
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, BinaryIO, get_args

import click

from tfrtool.cli.help_page import GroupedCommand, GroupedOption, help_all_option
from tfrtool.cli.output import note
from tfrtool.declare import DeclaredOption, Options, declared, range_text, word_of
from tfrtool.errors import SchemaError, ShardError, UsageError, printable
from tfrtool.storage.arguments import as_path, check_no_url
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:
    from tfrtool.records.stream import Stream


class LocalPath(click.Path):
    """A local path; with ``urls`` also a URL; or a word such as ``tfds:NAME``."""

    def __init__(
        self, *, written: bool = False, urls: bool = False, stream: bool = False, **checks: Any
    ) -> None:
        """Take paths to read, or with ``written`` paths to write.

        With ``stream``, ``-`` is standard input or output.
        """
        super().__init__(readable=False, **checks)
        self._written, self._stream, self.urls = written, stream, urls

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """Return the path."""
        as_path(value)
        if not self.urls:
            kind = "written" if self._written else "read"
            check_no_url(value, f"only local paths can be {kind} here")
        if value == "-" and not self._stream:
            what = "only commands that read one shard, such as cat and verify, take standard input"
            what = "files can't be written to standard output" if self._written else what
            raise UsageError(what, hint="use ./- for a file named -")
        return super().convert(value, param, ctx)


class _Range(click.ParamType):  # type: ignore[type-arg]
    """A number in a range; its errors name the option as it is typed."""

    noun: str
    min: Any
    max: Any
    min_open: bool

    def _describe_range(self) -> str:  # click calls it for the help: "" if it is obvious
        if self.max is None or self.max >= 2**31 or (self.max >= 1024 and self.min in (0, 1)):
            return ""
        start = f"above {self.min}, up" if self.min_open else f"{self.min}"
        return f"{start} to {self.max}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            raise self._out_of_range(value, param) from error

    def _out_of_range(self, value: Any, param: click.Parameter | None) -> UsageError:
        least, above = (None, self.min) if self.min_open else (self.min, None)
        try:
            wanted = range_text(least, self.max, above, float(value))
        except ValueError:
            wanted, value = self.noun, repr(str(value)[:100])
        else:
            wanted = self.noun if "whole" in self.noun and "." in str(value) else wanted
        option = self.name if param is None else param.opts[0]
        return UsageError(f"{option} must be {wanted}, got {printable(str(value)[:100])}")


class WholeNumber(_Range, click.IntRange):
    """A whole number in a range."""

    noun = "a whole number"


class Number(_Range, click.FloatRange):
    """A number in a range."""

    noun = "a number"


INPUT, OUTPUT = LocalPath(urls=True), LocalPath(written=True)
LOCAL_INPUT, OUTPUT_OR_URL = LocalPath(), LocalPath(written=True, urls=True)
INPUT_OR_STDIN = LocalPath(urls=True, stream=True)
OUTPUT_OR_STDOUT = LocalPath(written=True, urls=True, stream=True)


def is_path_like(text: str) -> bool:
    """Return whether an argument is a path, a pattern or a URL rather than a command."""
    named = os.path.lexists(text) or any(sign in text for sign in "./*?[")
    return text == "-" or (named and not text.startswith("-"))


DEBUG = "--debug"
"""Accepted before and after the command's name; `tfrtool.cli.app.run` looks for it."""

debug_option = click.option(
    DEBUG, is_flag=True, expose_value=False, help="Show the traceback of an error."
)
STREAMED = LocalPath(urls=True, stream=True)
SHARDS = click.argument("shards", nargs=-1, required=True, type=STREAMED)
SKIP_OR_STOP = "Skip damaged records and list them (exit code 3), or stop at the first."

_Function = Callable[..., Any]

_GROUPS = (
    "Options",
    *("Source", "Dataset", "Selection", "Model", "Optimization", "Input pipeline"),
    *(
        "Labels and features",
        "Annotations",
        "Splits and order",
        "Images",
        "Shards",
        "Output",
        "CSV",
    ),
    *("Measurement", "Execution", "Comparison"),
)
"""The order of groups in the help."""


def command(
    *examples: str, options: type[Options] | tuple[type[Options], ...] = ()
) -> Callable[[_Function], click.Command]:
    """Make a command of a function ``NAME_command``, with --json and --debug.

    Args:
        examples: calls to show at the end of the help.
        options: the dataclass, or several, whose fields are the options (`tfrtool.declare`). The
            function gets the fields as keywords.
    """

    def make(function: _Function) -> click.Command:
        help_all_option(function)
        debug_option(function)
        json_help = "Print results as JSON Lines."
        click.option("--json", "as_json", is_flag=True, help=json_help)(function)
        name = function.__name__.removesuffix("_command").removeprefix("inspect_")
        kinds = options if isinstance(options, tuple) else (options,)
        found = [one for kind in kinds for one in declared(kind) if one.spec.cli is not None]
        renamed = {
            f"--{one.name.replace('_', '-')}": one.flag
            for one in found
            if " " not in one.flag or not one.is_flag
        }
        renamed |= {f"--{one.spec.former}": one.flag for one in found if one.spec.former}
        return click.command(name, GroupedCommand, examples=examples, renamed=renamed)(
            _with_options(function, found)
        )

    return make


_PATHS = {
    "input": INPUT,
    "local input": LOCAL_INPUT,
    "output": OUTPUT_OR_URL,
    "local output": OUTPUT,
    "output directory": LocalPath(written=True, file_okay=False),
    "directory": LocalPath(exists=True, file_okay=False),
}


def _with_options(function: _Function, options: Sequence[DeclaredOption]) -> _Function:
    """Add the options that dataclasses declare; flags that stand for a value become that value."""
    found = [one for one in options if " " not in one.flag]
    found.sort(key=lambda option: (_GROUPS.index(option.spec.group), not option.spec.common))
    choosing = [(one.name, one.spec.flags) for one in found if one.spec.flags]

    @wraps(function)
    def call(**words: Any) -> Any:
        for name, flags in choosing:
            chosen = [flag for flag in flags if words.pop(flag)]
            if len(chosen) > 1:
                raise UsageError(f"--{chosen[0]} and --{chosen[1]} can't be used together")
            if chosen:
                words[name] = chosen[0]
        return function(**words)

    target = call if choosing else function
    for one in reversed(found):
        grouped: dict[str, Any] = {
            "cls": GroupedOption,
            "group": one.spec.group,
            "common": one.spec.common,
        }
        for flag, text in reversed(one.spec.flags.items()):
            click.option(f"--{flag}", **grouped, is_flag=True, help=text)(target)
        if not one.spec.flags:
            _click_option(one, grouped)(target)
    return target


def _click_option(
    option: DeclaredOption, grouped: Mapping[str, Any]
) -> Callable[[_Function], _Function]:
    spec, is_flag, is_required = option.spec, option.is_flag, option.default is MISSING
    negated = is_flag and option.default is True and "/" not in (spec.cli or "")
    names = spec.cli or f"--{'no-' * negated}{option.name.replace('_', '-')}"
    default: Any = None if is_required or spec.repeat else option.default
    if default is not None and not is_flag:
        default = word_of(default)
    values: dict[str, Any] = {} if is_required else {"default": default}
    values |= {"flag_value": False} if negated else {}
    return click.option(
        *names.split("|"),
        option.name,
        **grouped,
        type=None if is_flag else _click_type(option),
        metavar=spec.metavar or None,
        multiple=spec.repeat,
        required=is_required,
        is_flag=is_flag or None,
        **values,
        show_default=default is not None and (not is_flag or "/" in names),
        callback=partial(_parsed, option) if spec.parse or spec.repeat else None,
        help=spec.help,
    )


def _click_type(option: DeclaredOption) -> Any:
    spec, numbers = option.spec, {option.type, *get_args(option.type)}
    if option.choices and not spec.metavar:
        return click.Choice([word_of(choice) for choice in option.choices])
    if spec.path:
        return _PATHS[spec.path]
    if spec.parse is not None or numbers.isdisjoint((int, float)):
        return None
    if float in numbers:
        least = spec.least if spec.above is None else spec.above
        return Number(least, spec.most, min_open=spec.above is not None)
    least, most = (None if end is None else int(end) for end in (spec.least, spec.most))
    return WholeNumber(least, most)


def _parsed(
    option: DeclaredOption, _ctx: click.Context, _parameter: click.Parameter, value: Any
) -> Any:
    """Return the value of a field for what was typed; its default if nothing was."""
    if value is None or value == ():
        return option.default
    if option.spec.parse is None or value == option.default:
        return value
    try:
        return option.spec.parse(value)
    except UsageError as error:
        if option.flag not in error.what and not error.what.startswith("invalid"):
            error.what = f"invalid {option.flag}: {error.what}"
        raise


@contextmanager
def description_options() -> Iterator[None]:
    """Make an error in a feature description, which is an option's value, a usage error."""
    try:
        yield
    except SchemaError as error:
        usage = UsageError(error.what)
        usage.__dict__.update(vars(error))
        raise usage from error


def resolve_shards(arguments: Iterable[str]) -> tuple[AnyPath, ...]:
    """Return the shards that SHARDS means, and print the notes on them."""
    from tfrtool.records.shards import locate_shards

    found = locate_shards(arguments)
    for text in found.notes:
        note(text)
    return found.paths


def resolve_sources(
    arguments: Sequence[str], *, before_read: Callable[[], None] = lambda: None
) -> "tuple[AnyPath | Stream, ...]":
    """Return the shards that SHARDS means, or standard input.

    ``before_read`` is called whenever standard input may have to be waited for.
    """
    from tfrtool.records.stream import Stream

    class StandardInput(Stream):
        def read(self, size: int) -> bytes:
            before_read()
            return super().read(size)

    if tuple(arguments) == ("-",):
        return (StandardInput(standard_input()),)
    return resolve_shards(arguments)


def standard_input() -> BinaryIO:
    """Return standard input, unless it is a terminal or a device."""
    if sys.stdin is None:
        raise ShardError("can't be read: standard input is closed", path="-")
    if sys.stdin.isatty():
        raise UsageError("standard input is a terminal", path="-", hint="pipe a shard into it")
    stream = sys.stdin.buffer
    with suppress(io.UnsupportedOperation):  # a replacement, as in tests
        mode = os.fstat(stream.fileno()).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise ShardError("can't be read: standard input is a device", path="-")
    return stream


def resolve_dataset(argument: str) -> AnyPath:
    """Return the directory or pattern that DATASET means, and print the notes on it."""
    from tfrtool.records.shards import find_folders, is_pattern

    if is_pattern(argument):
        return as_path(argument)
    found = find_folders(argument)
    for text in found.notes:
        note(f"{printable(argument)}: {text}")
    return found.root
