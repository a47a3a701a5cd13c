"""Every argument and option of every command that stands for a path, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tfrtool.cli import main
from tfrtool.cli.app import cli
from tfrtool.cli.parameters import OUTPUT, LocalPath

Capture = pytest.CaptureFixture[str]

ANYTHING = (click.types.StringParamType, click.Path, click.File)
TEXTS = {"--augment", "--by", "--feature", "--label", "--model", "--name", "--resize", "--split"}
TEXTS |= {
    "--host",
    "--shard-size",
    "--trainable",
    "--validation",
    "--version",
}
TEXTS |= {
    "--engine-address",
    "--accept-checksums",
    "--add",
    "--tag",
    "--dedupe-by",
    "--null",
    "--proto",
    "--quote",
    "--sample-per",
    "--with",
    "--path-column",
    "--label-columns",
    "--type",
    "--cast",
    "--drop",
    "--explode",
    "--group-by",
    "--key",
    "--license",
    "--records",
    "--class-map",
    "--only-classes",
    "--rename",
}
TEXTS |= {
    "--image-feature",
    "--label-feature",
    "--select",
    "--stratify",
    "--url",
    "--where",
    "sql",
}
TEXTS |= {"--split-labels", "--strategy"}
TEXTS |= {
    "--annotations",
    "--column",
    "--label-column",
    "--label-from",
    "--labels",
    "--multi-label",
}
TEXTS |= {"--delimiter", "--sample", "--decode-function", "--loader", "--export", "--image-size"}
"""Options that are neither paths nor of a type that says what they are."""


def parameters(
    group: click.Group = cli, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command, click.Parameter]]:
    """Yield every parameter of every command, with the command and its words."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from parameters(command, (*words, name))
        else:
            for parameter in command.params:
                yield (*words, name), command, parameter


def call(
    words: tuple[str, ...], command: click.Command, given: click.Parameter, value: str
) -> list[str]:
    """Return the words of a call that gives one parameter a value, and all that is required."""
    call = list(words)
    for parameter in command.params:
        if parameter is given or parameter.required:
            text = value if parameter is given else "x"
            call += [text] if isinstance(parameter, click.Argument) else [parameter.opts[0], text]
    return call


LOCATIONS = [one for one in parameters() if isinstance(one[2].type, LocalPath)]
NAMES = [f"{' '.join(words)} {parameter.opts[0]}" for words, _, parameter in LOCATIONS]


def test_every_path_is_known_as_one() -> None:
    """A parameter that is any text is known not to be a path; all arguments are paths."""
    for words, _, parameter in parameters():
        if type(parameter.type) in ANYTHING:
            assert parameter.opts[0] in TEXTS, f"{words}: give {parameter.opts[0]} its type"


LOCAL = [one for one in LOCATIONS if not getattr(one[2].type, "urls", True)]


@pytest.mark.parametrize(
    "one", LOCAL, ids=[name for name, one in zip(NAMES, LOCATIONS, strict=True) if one in LOCAL]
)
def test_urls_are_refused(
    one: tuple[tuple[str, ...], click.Command, click.Parameter],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    """A URL where only a local path can be ends with 2 in one line, and nothing is made."""
    monkeypatch.chdir(tmp_path)
    for url in ("s3://bucket/x", "gs://bucket/x", "https://example.org/x"):
        assert main(call(*one, url)) == 2
        captured = capsys.readouterr()
        (line,) = captured.err.splitlines()
        assert line.startswith(f"tfrtool: error: {url}: is a URL")
        assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("one", LOCATIONS, ids=NAMES)
def test_an_empty_name_is_refused(
    one: tuple[tuple[str, ...], click.Command, click.Parameter],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    """Nothing stands for the current directory but its name."""
    monkeypatch.chdir(tmp_path)
    assert main(call(*one, "")) == 2
    assert "must not be empty" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "one",
    [one for one in LOCATIONS if one[2].type is OUTPUT],
    ids=[name for name, one in zip(NAMES, LOCATIONS, strict=True) if one[2].type is OUTPUT],
)
def test_nothing_is_written_to_standard_output(
    one: tuple[tuple[str, ...], click.Command, click.Parameter],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    """Where a file or a folder is made, - is refused, and none of that name appears."""
    monkeypatch.chdir(tmp_path)
    assert main(call(*one, "-")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "./-" in line
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_path_passes(capsys: Capture) -> None:
    """The names of TFDS' datasets, of weights, and of files with colons are no URLs."""
    for words in (
        ["write", "tfds:", "x"],
        ["train", "nowhere", "--weights", "imagenet"],
        ["count", "12:30.tfrecord"],
    ):
        assert main(words) in (1, 2)
        assert "URL" not in capsys.readouterr().err
