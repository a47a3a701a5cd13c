"""Rows of CSV."""

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from tfrtool.declare import Options, option
from tfrtool.errors import UsageError
from tfrtool.storage.arguments import csv_delimiter, csv_quote


@dataclass(frozen=True, kw_only=True)
class CsvOptions(Options):
    """How CSV is written."""

    delimiter: str = option(
        ",", "Column delimiter of CSV, or tab.", metavar="CHAR", group="Output", parse=csv_delimiter
    )
    quote: str = option('"', "Quotation mark of CSV.", metavar="CHAR", group="Output")
    header: bool = option(
        True,
        "Whether CSV starts with the column names.",
        group="Output",
        cli="--header/--no-header",
    )
    null: str = option(
        "", "Text for missing values in CSV, such as NA.", metavar="TEXT", group="Output"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        csv_quote(self.quote, self.delimiter, none=False)

    @classmethod
    def take(cls, words: dict[str, Any], form: str) -> "CsvOptions":
        """Take the options out of those of a command; `UsageError` if it doesn't write CSV."""
        own = {one.name: words.pop(one.name) for one in fields(cls)}
        for one in fields(cls):
            if form != "csv" and own[one.name] != one.default:
                raise UsageError(
                    f"--{'no-' * (one.name == 'header')}{one.name} requires CSV output"
                )
        return cls(**own)

    def line(self, cells: Iterable[Any]) -> str:
        """Return a row of CSV: texts as they are, `null` for null, and else JSON."""
        text = io.StringIO()
        texts = (
            self.null if one is None else one if isinstance(one, str) else json.dumps(one)
            for one in cells
        )
        # A text that breaks lines is put into quotes only if its line ends are among these.
        end = "\r\n"
        csv.writer(
            text, delimiter=self.delimiter, quotechar=self.quote, lineterminator=end
        ).writerow(texts)
        return text.getvalue()[: -len(end)]
