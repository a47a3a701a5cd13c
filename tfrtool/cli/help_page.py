"""The help of commands: options and commands in groups, and lines that fit the terminal."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import click

from tfrtool.errors import UsageError

GENERAL = "General"
"""The group of the options that every command has."""

_MANY = 15
"""A command with more options of its own than this shows only the common ones in ``--help``."""

_SHOW_ALL = f"{__name__}.show_all"
"""In `click.Context.meta`: whether the help shows all options."""

_HYPHEN, _SPACE = "\N{NON-BREAKING HYPHEN}", "\N{NO-BREAK SPACE}"

Rows = Sequence[tuple[str, str]]
"""Terms and their descriptions."""


class _Formatter(click.HelpFormatter):
    """Keeps option names, and short brackets such as ``[default: keep]``, on one line."""

    def write_text(self, text: str) -> None:
        """Write paragraphs, and lists as they are: their lines start with ``- ``."""
        super().write_text(_unbroken(text.replace("\n\n- ", "\n\n\b\n- ")))

    def write_dl(self, rows: Iterable[tuple[str, str]], *sizes: Any, **more: Any) -> None:
        """Write a definition list."""
        super().write_dl([(term, _unbroken(text)) for term, text in rows], *sizes, **more)

    def getvalue(self) -> str:
        """Return the help."""
        return super().getvalue().replace(_HYPHEN, "-").replace(_SPACE, " ")


def _unbroken(text: str) -> str:
    text = text.replace("-", _HYPHEN)
    return re.sub(r"\[[^]]{,28}\]", lambda found: found[0].replace(" ", _SPACE), text)


def _write_sections(formatter: click.HelpFormatter, sections: Mapping[str, Rows]) -> None:
    """Write a definition list under each heading; their columns are aligned."""
    terms = [len(term) for rows in sections.values() for term, _ in rows]
    limit = min(30, formatter.width * 2 // 5)
    column = max((length for length in terms if length <= limit), default=limit)
    for heading, rows in sections.items():
        with formatter.section(heading):
            width = formatter.width - formatter.current_indent
            padded = [(_broken(term, width).ljust(column), text) for term, text in rows]
            formatter.write_dl(padded, col_max=column)


def _broken(term: str, width: int) -> str:
    """Return a term with line breaks between its choices, if it is too long for a line."""
    if len(term) <= width:
        return term
    lines = textwrap.wrap(term.replace("|", "| "), width, subsequent_indent=" " * 6)
    return "\n".join(lines).replace("| ", "|")


class _Context(click.Context):
    formatter_class = _Formatter


class _WithExamples(click.Command):
    """A command whose help ends with examples."""

    context_class = _Context

    def __init__(
        self,
        *arguments: Any,
        examples: Sequence[str] = (),
        renamed: Mapping[str, str] = MappingProxyType({}),
        sections: Mapping[str, str] = MappingProxyType({}),
        **settings: Any,
    ) -> None:
        """Take calls to show, and the arguments of the click class.

        ``renamed`` has the options of a command by other names: those in Python, and former ones.
        ``sections`` has the commands of a group by heading.
        """
        super().__init__(*arguments, **settings)
        self._examples, self._renamed, self._sections = examples, renamed, sections

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples; long ones continue after a backslash."""
        with formatter.section("Examples" if len(self._examples) > 1 else "Example"):
            indent, argument = " " * formatter.current_indent, r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+"
            for example in self._examples:
                line = indent
                # An option and its value stay together.
                for part in re.findall(rf"--\S+ (?!--){argument}|{argument}", example):
                    if len(line) + len(part) + 2 > formatter.width:
                        formatter.write(f"{line}\\\n")
                        line = indent * 3
                    line += f"{part} "
                formatter.write(f"{line.rstrip()}\n")


class GroupedOption(click.Option):
    """An option that its command's help lists under the heading ``group``."""

    def __init__(self, *arguments: Any, group: str, common: bool, **settings: Any) -> None:
        """Take the arguments of `click.Option`, too."""
        super().__init__(*arguments, **settings)
        self.group, self.common = group, common


def _show_all_options(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        ctx.meta[_SHOW_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


help_all_option = click.option(
    "--help-all",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all_options,
    help="Show all options and exit.",
)


class GroupedCommand(_WithExamples):
    """A command whose help lists its options in groups, each under a heading."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; the error for another name of an option has the right one."""
        text = " ".join(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            flag = self._renamed.get(error.option_name)
            if flag is None:
                raise
            value = re.search(rf"{error.option_name}[ =](\w+)", text)
            flag += f"={value[1] if value else 'N'}" if " " in flag else ""
            raise UsageError(f"no option {error.option_name}", hint=f"use {flag}") from error

    def left_out(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options that only ``--help-all`` shows."""
        options = [one for one in self.params if isinstance(one, GroupedOption)]
        shows_all = len(options) <= _MANY or ctx.meta.get(_SHOW_ALL, False)
        return [one for one in options if not (shows_all or one.common)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group."""
        sections: dict[str, list[tuple[str, str]]] = {}
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        left_out = self.left_out(ctx)
        for option in options:
            if option not in left_out and (row := option.get_help_record(ctx)):
                sections.setdefault(getattr(option, "group", GENERAL), []).append(row)
        _write_sections(formatter, sections)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, and how to see the options that are left out."""
        super().format_epilog(ctx, formatter)
        if left_out := self.left_out(ctx):
            formatter.write_paragraph()
            formatter.write_text(f"{len(left_out)} more options: {ctx.command_path} --help-all")


class SectionedGroup(_WithExamples, click.Group):
    """A group of commands whose help lists them in sections, each under a heading."""

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each heading, with the first sentence of each command's help."""
        sections = {
            heading: [
                (name, self.commands[name].get_short_help_str(1000)) for name in names.split()
            ]
            for heading, names in self._sections.items()
        }
        _write_sections(formatter, sections)
