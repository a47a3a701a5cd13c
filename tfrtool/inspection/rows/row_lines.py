"""Rows of a query as lines of text: CSV or JSON."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from tfrtool.inspection.summary.summary_json import as_json
from tfrtool.sources.formats.csv_options import CsvOptions


def row_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a query as JSON values."""
    return {name: as_json(value, nulls=True) for name, value in row.items()}


def csv_lines(
    rows: Iterable[Mapping[str, Any]], names: Sequence[str], style: CsvOptions
) -> Iterator[str]:
    """Yield the head, if the style has one, and a line for each row of JSON values."""
    return map(style.line, chain([names] * style.header, (row.values() for row in rows)))


def json_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each row of JSON values."""
    return map(json.dumps, rows)
