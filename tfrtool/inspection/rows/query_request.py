"""What a query asks of which files."""

import enum
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tfrtool.records.framing import LocatedFault
from tfrtool.storage.arguments import Paths
from tfrtool.storage.progress import OnProgress, no_progress
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:
    from tfrtool.examples.arrow.messages import MessageColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest:
    """A query over shards.

    Attributes:
        shards: the files.
        sql: one SELECT statement.
        condition: the part of the statement that must be an expression.
        tables: other tables to join, by name: files of CSV, JSON Lines, Parquet or Arrow, or
            shards.
        sources: what names the shards, such as their directory, which says their splits; None
            takes the files themselves.
        as_text: whether dates, times and timestamps come as text: Python can't hold all of them.
            Values that Arrow can't hold always do.
        as_values: whether rows come as values of Python, not as Arrow record batches.
        as_stored: whether columns are the features as records store them, whatever features.json
            says.
        types: types of the features of the shards by name, which come before those of files.
        explode: the lists whose items are the rows of ``records``; None for a row for each record.
        proto: the fields of other messages, which the records of the shards are.
    """

    shards: Sequence[AnyPath]
    sql: str
    condition: str | None = None
    tables: Mapping[str, str | os.PathLike[str]] | None = None
    sources: Paths | None = None
    as_text: bool = False
    as_values: bool = False
    as_stored: bool = False
    types: Mapping[str, str] | None = None
    explode: Sequence[str] | None = None
    proto: "MessageColumns | None" = None


class Step(enum.Enum):
    """What the process of a query has done, if it does all of it."""

    COLUMNS_FOUND = "columns found"


class Hooks(NamedTuple):
    """What is called while a query runs: with damage, with progress, and with notes."""

    on_fault: Callable[[LocatedFault], None]
    on_progress: OnProgress = no_progress
    on_note: Callable[[str], None] = lambda _: None
