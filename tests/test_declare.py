"""Options that are declared once: the keywords of a verb, its documentation and its command."""

import enum
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from click.testing import CliRunner

from tfrtool.cli.parameters import command
from tfrtool.declare import Options, option, takes
from tfrtool.errors import UsageError
from tfrtool.writing.run_options import parse_splits


class Size(enum.Enum):
    """Choices."""

    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True, kw_only=True)
class VerbOptions(Options):
    """One option of each kind."""

    limit: int | None = option(None, "Print N records, as --seed says.", metavar="N", least=1)
    rate: float = option(0.5, "Rate.  [default: a half]", metavar="X", above=0, most=1)
    size: Size = option(Size.SMALL, "Size.", cli="--size|--how-large")
    check: Literal["all", "none"] = option("all", "Check.", group="Output")
    flat: bool = option(False, "Flat.", former="one-folder")
    shuffle: bool = option(True, "Keep the order.")
    orient: bool = option(True, "Orient.", cli="--orient/--no-orient")
    splits: Mapping[str, float] | None = option(
        None, "Splits.", metavar="NAME=FRACTION", cli="--split", repeat=True, parse=parse_splits
    )
    existing: Literal["refuse", "resume", "overwrite"] = option(
        "refuse", "What to do.", flags={"resume": "Continue.", "overwrite": "Replace."}
    )
    python: int = option(3, "Only here.", cli=None)


@takes(VerbOptions)
def verb(path: str, options: VerbOptions) -> VerbOptions:
    """Do something.

    Args:
        path: where.

    Returns:
        The options.
    """
    assert path == "here"
    return options


@command("tfrtool verb", options=VerbOptions)
def verb_command(as_json: bool, **options: Any) -> None:
    """Do something."""
    assert not as_json
    print(verb("here", **options))  # noqa: T201


def _typed(*words: str) -> Any:
    """Return what the command makes of words: the options, or the error."""
    done = CliRunner().invoke(verb_command, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return done.exception
    return done.output.strip()


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", {}),
        ("--limit 3 --rate 1", {"limit": 3, "rate": 1.0}),
        ("--size large", {"size": Size.LARGE}),
        ("--how-large large --check none", {"size": "large", "check": "none"}),
        ("--flat --no-shuffle --no-orient", {"flat": True, "shuffle": False, "orient": False}),
        ("--split a=.5 --split b=0.5", {"splits": {"a": 0.5, "b": 0.5}}),
        ("--resume", {"existing": "resume"}),
    ],
)
def test_the_command_and_the_verb_take_the_same(words: str, options: dict[str, Any]) -> None:
    """What is typed becomes the keyword of the verb."""
    assert _typed(*words.split()) == str(verb("here", **options)) == str(VerbOptions(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0}, "--limit must be at least 1, got 0"),
        ({"limit": "3"}, "--limit must be a whole number, got '3'"),
        ({"limit": 2.5}, "--limit must be a whole number, got 2.5"),
        ({"rate": 0}, "--rate must be above 0 and at most 1, got 0"),
        ({"size": "medium"}, "invalid --size 'medium': expected one of small, large"),
        ({"check": None}, "invalid --check None: expected one of all, none"),
    ],
)
def test_wrong_values_name_the_option(options: dict[str, Any], message: str) -> None:
    """An error names the option as it is typed."""
    with pytest.raises(UsageError) as caught:
        verb("here", **options)
    assert str(caught.value) == message


def test_flags_that_exclude_each_other() -> None:
    """Only one value can be chosen."""
    error = _typed("--resume", "--overwrite")
    assert str(error) == "--resume and --overwrite can't be used together"


def test_unknown_keywords_are_type_errors() -> None:
    """The error names the keyword, and one that may be meant."""
    with pytest.raises(TypeError, match=r"verb\(\) has no option 'limits'; did you mean 'limit'"):
        verb("here", limits=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"verb\(\) has no option 'one_folder'; use flat"):
        verb("here", one_folder=True)  # type: ignore[call-arg]
    untyped: Any = verb
    with pytest.raises(TypeError):
        untyped("here", "there")
    assert untyped(path="here", limit=3).limit == 3


def test_signature_and_docstring_have_the_options() -> None:
    """So `help` shows them."""
    assert [*inspect.signature(verb).parameters][:3] == ["path", "limit", "rate"]
    assert "options" not in inspect.signature(verb).parameters
    assert verb.__doc__ is not None
    lines = verb.__doc__.splitlines()
    assert "    limit: Print N records, as ``seed`` says." in lines
    assert "    rate: Rate. Default: a half." in lines
    assert lines.index("    path: where.") < lines.index("    python: Only here.")
    assert lines.index("    python: Only here.") < lines.index("Returns:")


def test_help_groups_options() -> None:
    """Options of one group stand under its heading."""
    text = _typed("--help")
    assert text.index("Options:") < text.index("--limit N") < text.index("Output:")
    assert text.index("Output:") < text.index("--check [all|none]")
    assert "--no-shuffle" in text
    assert "--orient / --no-orient" in text
    assert "[default: small]" in text
    assert "--python" not in text
