"""Options of verbs and commands, each declared once.

The options of a verb are the fields of a dataclass derived from `Options`:

    @dataclass(frozen=True, kw_only=True)
    class CatOptions(Options):
        limit: int | None = option(None, "Print at most N records.", metavar="N", least=1)
        on_error: Literal["skip", "stop"] = option("skip", "Skip damaged records, or stop.")

`takes(CatOptions)` gives a verb these keywords, with their documentation, and
`tfrtool.cli.parameters.command` gives a command these options. The site has tables of them.
"""

import enum
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, wraps
from types import MappingProxyType
from typing import (
    Any,
    Concatenate,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    get_args,
    get_origin,
)
from typing import overload as overload_of

from tfrtool.errors import UsageError, suggestion

_KEY = "option"
_NO_FLAGS: Mapping[str, str] = MappingProxyType({})

PathKind = Literal[
    "input", "local input", "output", "local output", "output directory", "directory"
]
"""Paths to read or to write; input and output may be URLs. A directory has to exist."""

OnResume = Literal["same", "free", "call"]
"""What a resumed run does with an option: it must have the recorded value, it may have another one,
or the option is one of the call, which is not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSpec:
    """What `option` declares about a field, besides its name, type and default."""

    help: str
    metavar: str
    group: str
    cli: str | None
    least: float | None
    most: float | None
    above: float | None
    repeat: bool
    flags: Mapping[str, str]
    path: PathKind | None
    parse: Callable[[Any], Any] | None
    on_resume: OnResume
    former: str
    common: bool


def option(
    default: Any,
    help: str,  # noqa: A002
    *,
    metavar: str = "",
    group: str = "Options",
    cli: str | None = "",
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    repeat: bool = False,
    flags: Mapping[str, str] = _NO_FLAGS,
    path: PathKind | None = None,
    parse: Callable[[Any], Any] | None = None,
    on_resume: OnResume = "same",
    former: str = "",
    common: bool = False,
) -> Any:
    """Declare an option: a field of a dataclass derived from `Options`.

    A field of type ``Literal[...]`` or of an enumeration has the words as its choices, a ``bool``
    is a flag; with the default True, it is one that turns this off, unless ``cli`` says otherwise.

    Args:
        default: the default value; ``...`` if the option is required.
        help: what it does, in the words of the command line. It may end in ``[default: ...]``.
        metavar: the value in the help, such as N or DIR; without one, a flag or choices.
        group: the heading in the command's help.
        cli: other names, such as ``--label-feature|--label`` or ``--orient/--no-orient``; or an
            option and a key of its value, such as ``--loader cycle``, for an option that is parsed
            into several (`PipelineOptions`). None: an option that only Python has.
        least: smallest number allowed.
        most: largest number allowed.
        above: number that has to be exceeded, instead of ``least``.
        repeat: whether the command takes it several times, as a tuple.
        flags: flags of the command that stand for one value each, with their help.
        path: for paths, which ones the command takes.
        parse: makes the Python value of the text, or tuple of texts, that the command got.
        on_resume: for options of runs that can be resumed.
        former: its former name, such as ``columns``, for the error that says how it is typed now.
        common: whether ``--help`` shows it if a command has many options. ``--help-all`` shows all.
    """
    spec = OptionSpec(
        help=help,
        metavar=metavar,
        group=group,
        cli=cli,
        least=least,
        most=most,
        above=above,
        repeat=repeat,
        flags=flags,
        path=path,
        parse=parse,
        on_resume=on_resume,
        former=former,
        common=common,
    )
    return field(default=MISSING if default is ... else default, metadata={_KEY: spec})


class DeclaredOption(NamedTuple):
    """A field that is an option, and what follows from its declaration.

    Attributes:
        name: name of the field.
        type: type of the field.
        default: default value; ``MISSING`` if the option is required.
        spec: what `option` declares about it.
        flag: its name as the user types it; for Python alone, as in Python.
        choices: the values that its type allows: the words, or the members; () for others.
        is_flag: whether it takes no value.
    """

    name: str
    type: Any
    default: Any
    spec: OptionSpec
    flag: str
    choices: tuple[Any, ...]
    is_flag: bool


def _declared(options: Any) -> tuple[DeclaredOption, ...]:
    found = []
    for one in fields(options):
        spec: OptionSpec | None = one.metadata.get(_KEY)
        if spec is not None:
            flag = one.name if spec.cli is None else f"--{one.name.replace('_', '-')}"
            flag = re.split("[|/]", spec.cli)[0] if spec.cli else flag
            is_flag = one.type is bool and not spec.metavar
            choices = choices_of(one.type)
            found.append(
                DeclaredOption(one.name, one.type, one.default, spec, flag, choices, is_flag)
            )
    return tuple(found)


declared: Callable[[Any], tuple[DeclaredOption, ...]] = cache(_declared)
"""Returns the fields of a dataclass that are options."""


def choices_of(kind: Any) -> tuple[Any, ...]:
    """Return the values that a field's type allows: the words, or the members; () for others."""
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return tuple(kind)
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return parts
    return next((found for part in parts if (found := choices_of(part))), ())


def word_of(choice: Any) -> str:
    """Return a choice as the user types it."""
    return str(choice.value if isinstance(choice, enum.Enum) else choice)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base of the options of verbs: checks choices and ranges, and takes words for members."""

    def __post_init__(self) -> None:
        for one in declared(type(self)):
            value, spec = getattr(self, one.name), one.spec
            if value is None and one.default is None:
                continue
            if one.choices:
                object.__setattr__(self, one.name, as_choice(one.choices, value, one.flag))
            elif (spec.least, spec.most, spec.above) != (None, None, None):
                _check_range(one, value)


def as_choice(choices: tuple[Any, ...], value: Any, name: str) -> Any:
    """Return the choice that a value is, or whose word it is; ``name`` is for the error."""
    for choice in choices:
        if value is choice or (isinstance(value, str) and value == word_of(choice)):
            return choice
    known = ", ".join(map(word_of, choices))
    raise UsageError(f"invalid {name} {repr(value)[:100]}", expected=f"one of {known}")


def _check_range(option: DeclaredOption, value: Any) -> None:
    spec, integral = option.spec, float not in {option.type, *get_args(option.type)}
    if isinstance(value, bool) or not isinstance(value, int if integral else int | float):
        noun = "a whole number" if integral else "a number"
        raise UsageError(f"{option.flag} must be {noun}, got {repr(value)[:100]}")
    fits = (  # NaN never does
        (spec.least is None or value >= spec.least)
        and (spec.above is None or value > spec.above)
        and (spec.most is None or value <= spec.most)
    )
    if fits:
        return
    wanted = range_text(spec.least, spec.most, spec.above, value)
    raise UsageError(f"{option.flag} must be {wanted}, got {value}")


def range_text(least: float | None, most: float | None, above: float | None, value: float) -> str:
    """Return the numbers that an option takes, such as "at least 1", for one that is outside."""
    if above is not None:
        return f"above {above:g}" + ("" if most is None else f" and at most {most}")
    is_open = most is None or (most >= 2**31 - 1 and value < most)
    return f"at least {least}" if is_open else f"from {least} to {most}"


P = ParamSpec("P")
O_co = TypeVar("O_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")


class _Decorator(Protocol[P, O_co]):
    """Takes a verb of one or two arguments and its options, or of the options alone."""

    @overload_of
    def __call__(self, verb: Callable[[O_co], R], /) -> Callable[P, R]: ...
    @overload_of
    def __call__(self, verb: Callable[[A, O_co], R], /) -> Callable[Concatenate[A, P], R]: ...
    @overload_of
    def __call__(self, verb: Callable[[A, B, O_co], R], /) -> Callable[Concatenate[A, B, P], R]: ...


def takes(
    options: Callable[P, O_co], make: Callable[..., Any] | None = None
) -> _Decorator[P, O_co]:
    """Let a verb take the fields of its options, which it has as its last argument, as keywords.

        @takes(CatOptions)
        def cat(shards: Paths, options: CatOptions) -> Iterator[Record]: ...

        cat("train.tfrecord", limit=3)

    Its signature and docstring list them. A verb without other arguments takes the fields that
    are not keywords only by their position. ``make`` makes the options of what was passed, if it
    matters which keywords were.
    """

    def decorate(verb: Any) -> Any:
        signature = inspect.signature(verb)
        *leading, last = signature.parameters.values()
        keywords = inspect.signature(options).parameters
        names = [parameter.name for parameter in leading]
        unnamed = [*names, *(one.name for one in keywords.values() if one.kind != one.KEYWORD_ONLY)]
        former = {one.spec.former.replace("-", "_"): one.name for one in declared(options)}

        @wraps(verb)
        def call(*arguments: Any, **words: Any) -> Any:
            for word in words:
                if word not in names and word not in keywords:
                    hint = suggestion(word, [*names, *keywords], "options")
                    hint = f"use {former[word]}" if word in former else hint
                    text = f"{verb.__name__}() has no option {word!r}"
                    raise TypeError(f"{text}; {hint}" if hint else text)
            if len(arguments) > len(unnamed):
                text = f"{verb.__name__}() takes only {', '.join(unnamed)} by position"
                raise TypeError(f"{text}, got {len(arguments)} values; name the others")
            named = {name: words.pop(name) for name in names if name in words}
            built = (make or options)(*arguments[len(leading) :], **words)
            return verb(*arguments[: len(leading)], **named, **{last.name: built})

        call.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*leading, *keywords.values()]
        )
        call.__doc__ = _documented(verb.__doc__ or "", options)
        return call

    return decorate


def _documented(text: str, options: Any) -> str:
    """Return a docstring with the options at the end of its list of arguments."""
    text = inspect.cleandoc(text)
    lines = [f"    {one.name}: {python_help(one)}\n" for one in declared(options)]
    found = re.search(r"^Args:\n(?:    .*\n?)*", text, re.MULTILINE)
    if found:
        listed = found[0] if found[0].endswith("\n") else found[0] + "\n"
        return f"{text[: found.start()]}{listed}{''.join(lines)}{text[found.end() :]}"
    section = re.search(r"^(?:Yields|Returns|Raises):$", text, re.MULTILINE)
    end = section.start() if section else len(text)
    body = f"{text[:end].rstrip()}\n\nArgs:\n{''.join(lines)}"
    return f"{body}\n{text[end:]}" if section else body


def python_help(option: DeclaredOption) -> str:
    """Return the help of an option for Python: with its default, and other options as arguments."""
    text = option.spec.help
    if option.choices:
        text += f" One of {', '.join(repr(word_of(choice)) for choice in option.choices)}."
    text = re.sub(r"--([a-z][a-z-]*)", lambda m: f"``{m[1].replace('-', '_')}``", text)
    return re.sub(r"\s+\[default: ([^]]*)\]", r" Default: \1.", text)
