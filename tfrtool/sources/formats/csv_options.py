"""How CSV is read and written."""

import json
import re
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tfrtool.declare import Options, option
from tfrtool.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class CsvOptions(Options):
    """How CSV is read and written."""

    delimiter: str | None = option(
        None,
        "Column delimiter, or tab.  [default: a comma, or detected in CSV that is read]",
        metavar="CHAR",
        group="CSV",
    )
    quote: str = option(
        '"', "Quotation mark, or none in CSV that is read.", metavar="CHAR", group="CSV"
    )
    header: bool = option(
        True,
        "Whether the first row has the column names.",
        group="CSV",
        cli="--header/--no-header",
    )
    null: Sequence[str] = option(
        (),
        "Text for missing values, such as NA. Repeatable for CSV that is read.",
        metavar="TEXT",
        group="CSV",
        repeat=True,
        parse=tuple,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delimiter is not None:
            delimiter = "\t" if self.delimiter in ("tab", r"\t") else self.delimiter
            object.__setattr__(self, "delimiter", delimiter)
            if not re.fullmatch(r'[^"\r\n\0]', delimiter):
                what = f"invalid --delimiter {delimiter!r}: expected one character, or tab"
                raise UsageError(what)
        if isinstance(self.null, str):
            object.__setattr__(self, "null", (self.null,))
        if self.quote != "none" and (
            not re.fullmatch(r"[^\s\0]", self.quote) or self.quote == self.delimiter
        ):
            raise UsageError(f"invalid --quote {self.quote!r}: expected one character, or none")

    @classmethod
    def take(cls, words: MutableMapping[str, Any], form: str = "") -> "CsvOptions":
        """Take these options out of others; `UsageError` if a form of output can't have them."""
        options = cls(**{one.name: words.pop(one.name) for one in fields(cls)})
        if form == "csv":
            options.check_written()
            if len(options.null) > 1:
                raise UsageError("--null can be given only once for CSV that is written")
        elif form and (names := options.changed()):
            raise UsageError(f"{names[0]} requires CSV output")
        return options

    def changed(self) -> list[str]:
        """Return the options that are not their defaults, as the user types them."""
        return [
            "--no-header" if one.name == "header" else f"--{one.name}"
            for one in fields(CsvOptions)
            if getattr(self, one.name) != one.default
        ]

    def check_written(self) -> None:
        """Raise a `UsageError` for options with which CSV can be read, but not written."""
        if self.quote == "none":
            raise UsageError("invalid --quote 'none': expected one character")

    def line(self, cells: Iterable[Any]) -> str:
        """Return a row: texts as they are, the first of `null` for null, and else JSON.

        A text is in quotation marks if it has to be, also where it would look like a null.
        """
        null, quote = (*self.null, "")[0], self.quote
        special = f"\r\n{quote}{self.delimiter or ','}"

        def cell(value: Any) -> str:
            if value is None:
                return null
            text = value if isinstance(value, str) else json.dumps(value)
            if text != null and not any(one in text for one in special):
                return text
            return f"{quote}{text.replace(quote, quote * 2)}{quote}"

        return (self.delimiter or ",").join(map(cell, cells)) or quote * 2
